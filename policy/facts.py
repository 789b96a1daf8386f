"""The facts that a rule may read about an action: declared, typed, flattened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from core.expressions import is_variable_name

BASE_FACTS: Mapping[str, str] = {
    "action.operation": "string",
    "action.connector": "string",
    "action.target": "string",
    "action.risk": "string",
    "action.reversible": "bool",
    "action.side_effects": "string",
    "action.changed": "list<string>",
    "action.present": "list<string>",
    "action.unreadable": "list<string>",
    "action.read": "list<string>",
    "action.system": "string",
    "action.contributors": "list<string>",
    "action.contributors_text": "list<string>",
    "action.carried_out_by": "string",
    "run.workflow": "string",
    "run.version": "int",
    "run.id": "string",
    "run.reference": "string",
    "run.requested_by": "string",
    "run.requested_by_text": "string",
    "run.trigger": "string",
    "run.step": "string",
    "step.origin": "string",
    "step.added_by": "string",
    "step.added_by_text": "string",
    "actor.id": "string",
    "actor.kind": "string",
    "counters.writes_in_run": "int",
    "counters.same_in_run": "int",
    "counters.refused_in_run": "int",
    "counters.asked_in_run": "int",
    "agent.id": "string",
    "agent.owner": "string",
    "agent.asked_24h": "int",
    "agent.refused_24h": "int",
    "agent.same_24h": "int",
    "agent.step": "string",
    "agent.turn": "int",
    "agent.model": "string",
    "agent.read": "list<string>",
    "tenant.id": "string",
    "tenant.workspace": "string",
    "now": "timestamp",
}
"""The facts that every action has. An operation adds ``action.fields.<name>``, ``action.before.<name>`` and, for each
argument, ``origin.<name>`` and ``carries.<name>``."""


COUNTER, SAME = "counters.writes_in_run", "counters.same_in_run"
"""The facts that change if other steps of the run perform actions."""
REFUSED, ASKED = "counters.refused_in_run", "counters.asked_in_run"
"""The facts that change if actions of the run are denied or rejected, or people are asked about them."""

UNREADABLE = "action.unreadable"
"""The fields that would be written and whose value the target did not show: nobody knows what would be overwritten."""

NOW = "now"
"""The recorded time of the judgement."""

ORIGIN, CARRIES = "origin.", "carries."
"""The prefixes of facts about origins. These facts are computed only if a rule reads one of them."""


# The origin of a step: the published workflow, an agent, or an extension of one run with all that follows from it.
PUBLISHED, EXTENSION, AGENT = "workflow", "extension", "agent"


def is_traced(fact: str) -> bool:
    """True if the fact is about the origins of a value."""
    return fact.startswith((ORIGIN, CARRIES))


class OperationFacts(Struct, frozen=True):
    """Facts of an operation's declaration: the type of each field that it may write, the fields that its diff reads.

    ``arguments`` are the inputs and fields whose origins a rule can read.

    ``generics`` are the broader operations that can do the same, each with the condition under which its action does:
    ``servicenow.record.update`` if ``action.target.startsWith('incident/')``. ``connector`` is set if the operation's
    name does not begin with its connector.
    """

    fields: Mapping[str, str]
    before: frozenset[str] = frozenset()
    generics: Mapping[str, str] = field(default_factory=dict)
    connector: str = ""
    arguments: frozenset[str] = frozenset()
    free: bool = True

    def connector_of(self, name: str) -> str:
        """The connector of the operation with this name."""
        return self.connector or name.partition(".")[0]


# The performer of an action: Counterseal, or the agent that asks for it, if the connector is ``agent``.
COUNTERSEAL, BY_AGENT = "counterseal", "agent"


class FactContext(Struct, frozen=True):
    """The context of an action. Texts without a value are empty; ``writes_in_run`` counts writes before this one.

    ``same_in_run`` counts other steps that intended the same call, ``refused_in_run`` denials and rejections,
    ``asked_in_run`` questions about actions. The facts of an agent are empty for other steps: ``agent_step`` is the
    step of an agent in a workflow, ``agent_id`` the service account of an agent that asks over HTTP, ``agent_owner``
    that account's owner.

    ``agent_asked``, ``agent_refused`` and ``agent_same`` count that account's requests in the 24 hours before this one;
    None if they were not counted, and then a rule that reads them cannot be evaluated.

    ``step_added_by`` is whoever added the step, or the agent call or the step of another run that led to it; "" if all
    of that was published. People are ids of the directory; somebody whom it does not know is ``unresolved:<text>``,
    which is no id. The texts as they were sent are facts of their own (``…_text``). ``contributors`` are all who shaped
    the action, the requester first; () if only the texts are known. ``now`` is the time of the judgement in RFC 3339;
    if it is "", a rule that reads it cannot be evaluated.
    """

    run_workflow: str = ""
    run_version: int = 0
    run_id: str = ""
    run_reference: str = ""
    run_requested_by: str = ""
    run_requested_by_text: str = ""
    run_trigger: str = ""
    run_step: str = ""
    step_added_by: str = ""
    step_added_by_text: str = ""
    contributors: tuple[str, ...] = ()
    actor_id: str = ""
    actor_kind: str = ""
    writes_in_run: int = 0
    same_in_run: int = 0
    refused_in_run: int = 0
    asked_in_run: int = 0
    agent_id: str = ""
    agent_owner: str = ""
    agent_asked: int | None = 0
    agent_refused: int | None = 0
    agent_same: int | None = 0
    agent_step: str = ""
    agent_turn: int = 0
    agent_model: str = ""
    agent_read: tuple[str, ...] = ()
    tenant_id: str = ""
    tenant_workspace: str = ""
    now: str = ""


def declare(operations: Iterable[OperationFacts]) -> dict[str, str]:
    """The variables visible to a rule that matches these operations.

    A field that two operations declare with different types is ``dyn``. A field whose name is no valid variable name
    is left out; ``'its-name' in action.present`` still works.
    """
    variables = dict(BASE_FACTS)
    for operation in operations:
        for name, kind in operation.fields.items():
            fact = f"action.fields.{name}"
            if _is_plain(name):
                variables[fact] = kind if variables.get(fact, kind) == kind else "dyn"
        variables.update((f"action.before.{name}", "dyn") for name in operation.before if _is_plain(name))
        for name in filter(_is_plain, operation.arguments):
            variables |= {f"{ORIGIN}{name}": "list<list<string>>", f"{CARRIES}{name}": "list<string>"}
    return variables


def absent(places: Iterable[tuple[str, tuple[str, ...]]], operations: Iterable[OperationFacts]) -> str | None:
    """The first name that a rule looks up in ``action.present`` or ``action.read`` and that no operation has there.

    None if there is no such name, or if one of the operations accepts undeclared fields.
    """
    every = list(operations)
    if any(one.free for one in every):
        return None
    known = {
        "action.present": {name for one in every for name in one.fields},
        "action.read": {name for one in every for name in one.before},
    }
    for variable, members in places:
        if variable in known and members and members[0] not in known[variable]:
            return f"{variable} never has {members[0]!r}"
    return None


def _is_plain(name: str) -> bool:
    return "." not in name and is_variable_name(name)
