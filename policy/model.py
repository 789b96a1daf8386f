"""The document of a policy as people write it, and the outcomes of decisions."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.durations import Duration
from core.identity import Role
from core.terms import FRESH_SECONDS, Tier, Unresolved

EXPIRES_DEFAULT = timedelta(hours=24)
FRESH_DEFAULT = timedelta(seconds=FRESH_SECONDS)


class Ruling(StrEnum):
    """The outcome of judging an action. Deny outranks needs_approval, which outranks allow."""

    DENY = "deny"
    NEEDS_APPROVAL = "needs_approval"
    ALLOW = "allow"


STRENGTH = tuple(Ruling)
"""The rulings, strictest first."""


Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
Glob = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[a-z0-9_.*-]+$")]
# Slack's own id of a channel: a name may be given to another channel, and the card would go there.
Channel = Annotated[str, Field(pattern=r"^[CG][A-Z0-9]{2,20}$")]
Text = Annotated[str, Field(min_length=1, max_length=500)]
GroupName = Annotated[str, Field(min_length=1, max_length=100)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Part):
    """The operations that a rule matches; ``*`` in a glob stands for any characters, dots included."""

    operation: Glob | None = None
    connector: Name | None = None

    @model_validator(mode="after")
    def _some(self) -> Match:
        if self.operation is None and self.connector is None:
            raise ValueError("name an operation or a connector, such as operation: servicenow.incident.*")
        return self


class EscalateTo(_Part):
    """The group that may also decide an overdue approval: one of ours, or a Slack user group."""

    group: GroupName | None = None
    slack_group: GroupName | None = None

    @model_validator(mode="after")
    def _one(self) -> EscalateTo:
        if (self.group is None) == (self.slack_group is None):
            raise ValueError("name exactly one of group, slack_group")
        return self


class Approver(EscalateTo):
    """A group of people, ours or Slack's, and the number of them who must approve."""

    of: Annotated[int, Field(ge=1, le=20)] = 1


PERSON_FIELD = r"^\$\{\{ *action\.(before|fields)\.[A-Za-z_][A-Za-z0-9_]* *\}\}$"


class RuleApprover(_Part):
    """People who must approve: ``of`` of a group, ours or Slack's, or one person.

    One person is the requester's manager by the directory, or the person whom a readable field of the target names.
    """

    group: GroupName | None = None
    slack_group: GroupName | None = None
    manager_of: Literal["requester"] | None = None
    person: Annotated[str, Field(max_length=200, pattern=PERSON_FIELD)] | None = None
    of: Annotated[int, Field(ge=1, le=20)] = 1

    @model_validator(mode="after")
    def _one(self) -> RuleApprover:
        if sum(one is not None for one in (self.group, self.slack_group, self.manager_of, self.person)) != 1:
            raise ValueError("name exactly one of group, slack_group, manager_of, person")
        if self.of > 1 and (self.manager_of or self.person):
            raise ValueError("manager_of and person are one person: leave `of` out")
        return self

    @property
    def fact(self) -> str | None:
        """The fact that names the person; None if no field names them."""
        return self.person.strip("${} ") if self.person is not None else None


class Escalate(_Part):
    """The time without a decision after which an approval goes to another group, and that group."""

    after: Duration
    to: EscalateTo


class InDoubt(_Part):
    """The people who are asked whether an action in doubt has happened."""

    approvers: Annotated[tuple[Approver, ...], Field(min_length=1)]


class Rejection(_Part):
    """The time for which a rejection binds: nobody who was refused asks for the same again."""

    holds: Duration


class Grants(_Part):
    """The bounds within which an approver may allow the same again in advance: how often, and for how long."""

    uses: Annotated[int, Field(ge=1, le=1000)]
    span: Annotated[Duration, Field(alias="for")]


class Questions(_Part):
    """Bounds: open questions of an agent's turn, of a run, of a requester; and failures of an approved call."""

    turn: Annotated[int, Field(ge=1, le=1000)] | None = None
    run: Annotated[int, Field(ge=1, le=10_000)] | None = None
    requester: Annotated[int, Field(ge=1, le=100_000)] | None = None
    failures: Annotated[int, Field(ge=1, le=1000)] | None = None


class BreakGlassDocument(_Part):
    """Emergency access: a member of ``by`` may let the action out alone for the time ``for``; ``review`` reviews it."""

    by: GroupName
    span: Annotated[Duration, Field(alias="for")]
    review: GroupName


APPROVAL_KEYS = (
    "tier", "approvers", "two_person", "allow", "unresolved", "expires", "fresh_for", "remind", "escalate",
    "rejection", "questions", "channel", "grants", "step_up", "break_glass",
)  # fmt: skip


class RuleDocument(_Part):
    """One rule. ``when`` is a bare CEL expression of type bool; a rule without one fires for every match.

    ``otherwise`` is the outcome if ``when`` is false. ``channel`` is the id of the Slack channel to which the card
    goes. With ``step_up`` an approval counts only for that time after its voter's new login for it. With
    ``overwrite_unreadable`` the rule also allows writes to fields whose value could not be read.
    """

    id: Name
    match: Match
    when: Annotated[str, Field(min_length=1, pattern=r"\S")] | None = None
    outcome: Ruling
    otherwise: Ruling | None = None
    tier: Tier = Tier.MEDIUM
    approvers: tuple[RuleApprover, ...] = ()
    two_person: bool = False
    allow: tuple[Role, ...] = ()
    unresolved: Unresolved | None = None
    expires: Duration = EXPIRES_DEFAULT
    fresh_for: Duration = FRESH_DEFAULT
    remind: tuple[Duration, ...] = ()
    escalate: Escalate | None = None
    rejection: Rejection | None = None
    questions: Questions | None = None
    grants: Grants | None = None
    in_doubt: InDoubt | None = None
    channel: Channel | None = None
    overwrite_unreadable: bool = False
    step_up: Duration | None = None
    break_glass: BreakGlassDocument | None = None
    because: Text | None = None

    @property
    def asks(self) -> bool:
        """True if one of its outcomes asks people."""
        return Ruling.NEEDS_APPROVAL in (self.outcome, self.otherwise)

    @property
    def names_people(self) -> tuple[str, ...]:
        """The facts that name its approvers."""
        facts = (one.fact for one in self.approvers)
        return tuple(fact for fact in facts if fact is not None)

    @property
    def branches(self) -> tuple[RuleDocument, ...]:
        """The rule as it is and, if it has ``otherwise``, the rule with that outcome and the opposite condition."""
        if self.otherwise is None or self.when is None:
            return (self,)
        opposite = {"when": f"!({self.when}\n)", "outcome": self.otherwise}
        return self, self.model_copy(update=opposite)


Globs = Annotated[tuple[Glob, ...], Field(min_length=1, max_length=100)]


class AuthorsDocument(_Part):
    """Those who may publish workflows under the names of a policy's scope, without an admin: a group of ours."""

    group: Annotated[str, Field(min_length=1, max_length=100)]


class AppliesDocument(_Part):
    """The scope of a policy. An absent key restricts nothing; of a present key at least one glob must match.

    ``authors`` restricts nothing either: it is the group that owns the names in ``workflows``.
    """

    workflows: Globs | None = None
    connectors: Globs | None = None
    operations: Globs | None = None
    authors: AuthorsDocument | None = None

    @model_validator(mode="after")
    def _some(self) -> AppliesDocument:
        if not self.model_fields_set - {"authors"}:
            raise ValueError("name workflows, connectors or operations, such as workflows: [incident-*]")
        if self.authors is not None and self.workflows is None:
            raise ValueError("authors belong to workflows: name those, such as workflows: [incident-*]")
        return self


class ExtensionsDocument(_Part):
    """Terms for steps added to a run. ``before_gates`` are operations that need not wait for the gates ahead."""

    before_gates: Globs


class PolicyDocument(_Part):
    """A whole policy. ``channels`` has by tier the channel for the cards of rules without a channel of their own.

    ``step_up`` has by tier the time for which an approver's new login is valid, for rules without their own.
    """

    policy: Name
    version: Annotated[int, Field(ge=1, le=1_000_000)]
    applies: AppliesDocument | None = None
    extensions: ExtensionsDocument | None = None
    channels: dict[Tier, Channel] = Field(default_factory=dict)
    step_up: dict[Tier, Duration] = Field(default_factory=dict)
    rules: tuple[RuleDocument, ...]
