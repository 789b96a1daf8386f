"""Changes of policy that take two people: opens the approval of a change, then applies or drops it (promise 11).

A member of ``POLICY_APPROVERS`` proposes a change, which starts a run of Counterseal's own workflow; its gate asks the
other members, in every face. The approving vote makes the change in its own transaction: the change is never approved
without being in force, and a crash leaves neither. A proposal ends with its run, and with any other change of the
policies, because people saw it compared with the former policies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from approvals.model import Approval, ApprovalEvent
from approvals.quorum import NotCounted, RefusalCode
from core.canonical import JsonObject
from core.db import Connection
from core.errors import InputError
from core.identity import Directory
from core.ids import new_id
from core.terms import POLICY_APPROVERS, GroupQuorum
from evidence.chain import Actor, EventType
from policy.load import Policy, Rule
from policy.sets import Member
from runtime.definition.catalog import Definitions
from runtime.definition.difference import HEAD, SAME, canonical_lines, difference
from runtime.definition.reserved import DECIDE, POLICY_CHANGE, POLICY_CHANGE_SOURCE, TRIGGER
from runtime.definition.workflow import load_workflow
from runtime.engine.model.run import RunView
from runtime.requests.consequences import Change, change_of, foretell
from runtime.requests.directory import approvers
from runtime.requests.starting import StartRequest, start_run
from runtime.requests.steering import cancel_run
from runtime.store import audit, documents, runs
from runtime.store.documents import StoredWorkflow

# The most bytes of a question about a policy: a run's input and a card must hold all of it.
TOLD_BYTES_MAX = 192 * 1024
# A function that runs in the transaction of the deciding vote.
Then: TypeAlias = Callable[[Connection], Awaitable[None]]


class Way(StrEnum):
    """The ways in which a proposal puts a policy in force or takes it out of force."""

    ACTIVATE = "activate"
    RETIRE = "retire"


_PROPOSED = {Way.ACTIVATE: EventType.POLICY_PROPOSED, Way.RETIRE: EventType.POLICY_RETIREMENT_PROPOSED}
_MADE = {Way.ACTIVATE: EventType.POLICY_ACTIVATED, Way.RETIRE: EventType.POLICY_RETIRED}


class Proposed(Struct, frozen=True):
    """The proposed change of one policy; ``digest`` is of the version that is put in force or taken out of force."""

    way: Way
    name: str
    version: int
    digest: str

    def to_json(self) -> JsonObject:
        """The policy, as the audit names it."""
        return {"name": self.name, "version": self.version, "digest": self.digest}

    @property
    def about(self) -> str:
        """The common beginning of the references of all runs that ask about this change."""
        return f"{self.way}:{self.digest}"


class Foreseen(Struct, frozen=True):
    """A change with its consequences, worked out while the tenant's documents are locked."""

    change: Change
    consequences: JsonObject


async def foresee(
    connection: Connection, definitions: Definitions, tenant: str, proposed: Proposed, policy: Member | None
) -> Foreseen:
    """Work out a change and its consequences for the policies in force now; ``policy`` is None if one is retired."""
    change = await change_of(connection, definitions, tenant, proposed.name, policy)
    used = (await documents.past_policies(connection, tenant)).used(proposed.name)
    back = proposed.way is Way.ACTIVATE and used is not None and used.version > proposed.version
    foretold = await foretell(connection, definitions, tenant, change, used.version if back and used else None)
    return Foreseen(change, foretold.to_json())


async def propose(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    workspace: str,
    proposed: Proposed,
    foreseen: Foreseen,
    person: str,
) -> None:
    """Ask the other members of the group for approval of this change, in the caller's transaction."""
    workflow = load_workflow(POLICY_CHANGE_SOURCE, POLICY_CHANGE, definitions.catalog)
    stored = StoredWorkflow(
        workflow.name, workflow.version, workflow.digest, POLICY_CHANGE_SOURCE, workflow.frozen_operations
    )
    await documents.publish_workflow(connection, tenant, stored, TRIGGER)
    data = proposed.to_json()
    trigger: JsonObject = {
        "policy": f"{proposed.name}@{proposed.version}",
        **data,
        "change": str(proposed.way),
        "summary": await _summary(connection, definitions, tenant, proposed, foreseen),
    }
    actor = Actor("person", person)
    await audit.record(connection, tenant, _PROPOSED[proposed.way], actor, {**data, "by": person})
    reference = f"{proposed.about}:{new_id()}"
    request = StartRequest(tenant, workspace, TRIGGER, reference, trigger, f"person:{person}", actor)
    await start_run(connection, definitions.compiled(stored), request, definitions)


async def make(
    connection: Connection,
    definitions: Definitions,
    tenant: str,
    proposed: Proposed,
    foreseen: Foreseen,
    actor: Actor,
    first: str,
    but: UUID | None = None,
) -> None:
    """Make the change, record its consequences, and end every other proposal except the run ``but``.

    Once it returns, no append with an intent by the former policies is under way any more.
    """
    facts = proposed.to_json()
    if proposed.way is Way.ACTIVATE:
        facts["author"] = (await documents.policy_of(connection, tenant, proposed.name, proposed.version))[2]
    facts |= {"approver": actor.id, "consequences": foreseen.consequences}
    if first:
        facts["by"] = first
    await documents.change_policies(connection, tenant, _MADE[proposed.way], actor, facts)
    await end_others(connection, definitions, tenant, actor, but)


async def end_others(
    connection: Connection, definitions: Definitions, tenant: str, actor: Actor, but: UUID | None = None
) -> None:
    """End the other proposals, which were compared with the former policies: they have to be made anew."""
    for run_id in await runs.going_of(connection, tenant, POLICY_CHANGE):
        if run_id != but:
            await cancel_run(connection, definitions, tenant, run_id, actor, "the policies in force are others by now")


def may_concern(approval: Approval) -> bool:
    """True for a question that may be about a policy; it must be decided with the tenant's documents locked."""
    return GroupQuorum(POLICY_APPROVERS) in approval.terms.approvers


def refusal(view: RunView, step: str, effect: ApprovalEvent | None, people: Directory) -> NotCounted | None:
    """The reason why this deciding vote puts no policy in force: its proposer has left the group; None if it does."""
    if not _is_of_policy(view, step) or effect is not ApprovalEvent.APPROVE or _proposer(view) in approvers(people):
        return None
    words = f"Whoever proposed this is not of the group {POLICY_APPROVERS} any more, so it cannot be put in force."
    return NotCounted(RefusalCode.NOT_ELIGIBLE, f"{words} Propose it anew.")


def _is_of_policy(view: RunView, step: str) -> bool:
    return (view.workflow, view.trigger_type, step) == (POLICY_CHANGE, TRIGGER, DECIDE)


def _proposer(view: RunView) -> str:
    return view.run.requested_by.partition(":")[2]


def following(
    view: RunView, step: str, definitions: Definitions, effect: ApprovalEvent | None, person: str
) -> Then | None:
    """The function that makes the approved change in the vote's transaction; None if this vote makes none."""
    if not _is_of_policy(view, step) or effect is not ApprovalEvent.APPROVE:
        return None
    trigger: Any = view.run.trigger
    proposed = Proposed(Way(trigger["change"]), *(trigger[name] for name in ("name", "version", "digest")))
    first, actor = _proposer(view), Actor("person", person)

    async def enact(connection: Connection) -> None:
        policy = None
        if proposed.way is Way.ACTIVATE:
            # A policy that cannot be read any more is put in force all the same, and denies (fail-closed).
            (policy,) = (await definitions.policies(connection, view.tenant_id, [proposed.digest])).members
        foreseen = await foresee(connection, definitions, view.tenant_id, proposed, policy)
        await make(connection, definitions, view.tenant_id, proposed, foreseen, actor, first, but=view.run_id)

    return enact


async def _summary(
    connection: Connection, definitions: Definitions, tenant: str, proposed: Proposed, foreseen: Foreseen
) -> str:
    """Describe a change for the card: versions, digests, rules by id, consequences, and the whole difference.

    Nothing is left out: a change that is too large to be shown cannot be proposed.
    """
    used = (await documents.past_policies(connection, tenant)).used(proposed.name)
    after = None if proposed.way is Way.RETIRE else proposed.digest
    lines = difference(
        await _lines_of(connection, tenant, used.digest if used else None), await _lines_of(connection, tenant, after)
    )
    head = await _head(connection, definitions, tenant, proposed, foreseen)
    facts = "\n".join([head, HEAD, *lines] if lines else [head, SAME])
    if (size := len(facts.encode())) <= TOLD_BYTES_MAX:
        return facts
    if proposed.way is Way.ACTIVATE:
        raise InputError(
            f"changes {len(lines)} lines, {size} bytes; people are shown {TOLD_BYTES_MAX} at most.",
            where=f"{proposed.name}@{proposed.version}",
            remedy="Make the change in smaller steps, or divide the policy into several.",
        )
    fitting = facts.encode()[:TOLD_BYTES_MAX].decode(errors="ignore").rpartition("\n")[0]
    left = len(lines) - (fitting.count("\n") - 1)
    return (
        f"{fitting}\n{left} lines more go: all that follows in {proposed.name}@{proposed.version} as it was published."
    )


async def _lines_of(connection: Connection, tenant: str, digest: str | None) -> list[str]:
    """The canonical lines of a stored policy; none if there is no policy."""
    stored = None if digest is None else await documents.policy(connection, tenant, digest)
    return [] if stored is None else canonical_lines(stored.source, f"{stored.name}@{stored.version}")


async def _head(
    connection: Connection, definitions: Definitions, tenant: str, proposed: Proposed, foreseen: Foreseen
) -> str:
    """The first line of the summary: the versions, the changed rules and the consequences."""
    named = f"policy {proposed.name} version {proposed.version} (digest {proposed.digest[:12]})"
    used = (await documents.past_policies(connection, tenant)).used(proposed.name)
    before = None if used is None else await _rules(connection, definitions, tenant, used.digest)
    led = _led(foreseen.consequences)
    if proposed.way is Way.RETIRE:
        return f"Take {named} out of force? {_changes(before, ())}{led}"
    after = await _rules(connection, definitions, tenant, proposed.digest)
    if used is None:
        return f"Put {named} in force? No version of it is in force now. {_changes((), after)}{led}"
    was = f"{used.name} version {used.version} (digest {used.digest[:12]})"
    return f"Put {named} in force, in place of {was}? {_changes(before, after)}{led}"


def _led(consequences: JsonObject) -> str:
    """Counts of the steps and questions that would be decided differently, if there are any."""
    found: Any = consequences
    steps, questions = (len(found[kind]) + found["more"][kind] for kind in ("steps", "questions"))
    sentence = ""
    if steps or questions:
        sentence = f" Decided otherwise: {steps} steps of published workflows, {questions} open questions."
    if found["unread"]:
        sentence += f" {found['unread']} more open questions were not looked at."
    return sentence + (" It goes back to an older version." if found["rollback_from"] is not None else "")


async def _rules(connection: Connection, definitions: Definitions, tenant: str, digest: str) -> tuple[Rule, ...] | None:
    """The rules of a stored policy; None if it cannot be read any more."""
    (found,) = (await definitions.policies(connection, tenant, [digest])).members
    return tuple(found.rules) if isinstance(found, Policy) else None


def _changes(before: Sequence[Rule] | None, after: Sequence[Rule] | None) -> str:
    """Name the added, removed and changed rules by their ids."""
    if before is None or after is None:
        return "The rules cannot be compared, because one of the two cannot be read any more."
    old, new = ({rule.id: rule.document for rule in rules} for rules in (before, after))
    kinds = {
        "added": [one for one in new if one not in old],
        "removed": [one for one in old if one not in new],
        "changed": [one for one in new if one in old and new[one] != old[one]],
    }
    sentences = [f"Rules {kind}: {', '.join(ids)}." for kind, ids in kinds.items() if ids]
    return " ".join(sentences) or "No rule is added, removed or changed."
