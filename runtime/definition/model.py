"""A workflow as people write it (DESIGN: "Workflow"): pydantic models of the YAML, one field per key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from core.durations import Duration
from core.expressions import is_variable_name
from runtime.kernel.channels import Reducer

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z][a-z0-9-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]
Expression = Annotated[str, Field(min_length=1, max_length=4000)]
KINDS = ("do", "if", "foreach", "approve")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ChannelDocument(_Part):
    """One channel: how writes are folded in, how many items are kept, what it holds at first."""

    reduce: Reducer = Reducer.REPLACE
    keep: Annotated[int, Field(ge=1, le=1000)] | None = None
    initial: Any = None


class ServiceNowTrigger(_Part):
    """Which records start this workflow. ``dedupe`` names one change: the same text starts one run only."""

    table: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    events: Annotated[tuple[Literal["insert", "update"], ...], Field(min_length=1)] = ("insert",)
    when: Expression | None = None
    dedupe: Expression = "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"


class Triggers(_Part):
    """What starts this workflow, besides people."""

    servicenow: ServiceNowTrigger | None = None


class ApproverDocument(_Part):
    """A group whose members may answer a gate."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


class GateDocument(_Part):
    """A question to people that belongs to the workflow itself, not to an action."""

    summary: Annotated[str, Field(min_length=1, max_length=2000)]
    approvers: ApproverDocument
    quorum: Annotated[int, Field(ge=1, le=20)] = 1
    tier: Literal["low", "medium", "high"] = "medium"
    two_person: bool = False
    expires: Duration | None = None
    remind: tuple[Duration, ...] = ()


class StepDocument(_Part):
    """One entry of ``steps``: an operation (``do``), a condition, a loop or a gate."""

    id: Identifier | None = None
    needs: tuple[Identifier, ...] | None = None
    do: Annotated[str, Field(max_length=200)] | None = None
    with_: Annotated[dict[str, Any], Field(alias="with")] = {}
    set: dict[str, Any] = {}
    if_: Annotated[Expression | None, Field(alias="if")] = None
    then: tuple[StepDocument, ...] | None = None
    else_: Annotated[tuple[StepDocument, ...] | None, Field(alias="else")] = None
    foreach: Expression | None = None
    as_: Annotated[Identifier | None, Field(alias="as")] = None
    max_parallel: Annotated[int, Field(ge=1, le=50)] | None = None
    steps: tuple[StepDocument, ...] | None = None
    approve: GateDocument | None = None

    @field_validator("id", "as_")
    @classmethod
    def _usable_in_expressions(cls, value: str | None) -> str | None:
        if value is not None and ("." in value or not is_variable_name(value)):
            raise ValueError(
                "must be a name that expressions can use: letters, digits and _, not starting with a digit"
            )
        return value

    def kinds(self) -> list[str]:
        """Which of ``KINDS`` this entry has; exactly one is right."""
        present = {"do": self.do, "if": self.if_, "foreach": self.foreach, "approve": self.approve}
        return [kind for kind in KINDS if present[kind] is not None]


class Caps(_Part):
    """Bounds of one workflow, tighter than the tenant's (Q-12)."""

    max_writes_per_run: Annotated[int, Field(ge=0)] | None = None


class WorkflowDocument(_Part):
    """A whole workflow file."""

    workflow: Name
    version: Annotated[int, Field(ge=1, le=1_000_000)]
    title: Annotated[str, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    reference: Expression = "${{ run.id }}"
    triggers: Triggers = Triggers()
    channels: dict[Identifier, ChannelDocument] = {}
    caps: Caps = Caps()
    sla: Duration | None = None
    steps: Annotated[tuple[StepDocument, ...], Field(min_length=1, max_length=500)]
