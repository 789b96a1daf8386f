"""A policy that two people put in force: the question about it, and what follows from the answer (promise 11).

The first of ``POLICY_APPROVERS`` proposes it, which starts a run of our own workflow; its gate asks the others, on the
card as everywhere else. The vote that approves it puts the policy in force in the same transaction: there is no moment
at which it is approved and not in force, and a crash leaves neither. A proposal ends with its run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from uuid import UUID

from approvals.model import Approval, ApprovalEvent
from approvals.quorum import NotCounted, RefusalCode
from core.canonical import JsonObject
from core.db import Connection
from core.errors import InputError, NotFoundError
from core.identity import Directory
from core.ids import new_id
from core.terms import GroupQuorum
from evidence.chain import Actor, EventType
from policy.load import Policy
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import POLICY_APPROVERS, POLICY_CHANGE, POLICY_CHANGE_SOURCE, TRIGGER
from runtime.definition.workflow import load_workflow
from runtime.engine.run import RunView
from runtime.requests.starting import StartRequest, start_run
from runtime.requests.steering import cancel_run
from runtime.requests.twofold import approvers
from runtime.store import audit, documents, pauses, runs
from runtime.store.documents import StoredWorkflow

# What is done in the transaction of the vote that decides.
Then: TypeAlias = Callable[[Connection], Awaitable[None]]
ENDED = "ended"


async def propose(
    connection: Connection, definitions: Definitions, tenant: str, workspace: str, data: JsonObject, person: str
) -> None:
    """Ask the others of the group whether this policy is to be in force, in the caller's transaction."""
    workflow = load_workflow(POLICY_CHANGE_SOURCE, POLICY_CHANGE, definitions.catalog)
    stored = StoredWorkflow(
        workflow.name, workflow.version, workflow.digest, POLICY_CHANGE_SOURCE, workflow.frozen_operations
    )
    await documents.publish_workflow(connection, tenant, stored, TRIGGER)
    trigger: JsonObject = {
        "policy": f"{data['name']}@{data['version']}",
        **data,
        "summary": await _summary(connection, definitions, tenant, data),
    }
    reference = f"{data['digest']}:{new_id()}"
    actor = Actor("person", person)
    await audit.record(connection, tenant, EventType.POLICY_PROPOSED, actor, {**data, "by": person})
    await start_run(
        connection,
        definitions.compiled(stored),
        StartRequest(tenant, workspace, TRIGGER, reference, trigger, f"person:{person}", actor),
    )


async def in_force(connection: Connection, tenant: str, data: JsonObject, actor: Actor, first: str) -> int:
    """Put a stored policy in force, and end every other proposal; how many open questions are judged by it.

    The answer means that no append with an intent is under way any more that the policy before has decided.
    """
    _, _, author = await documents.policy_of(connection, tenant, str(data["name"]), int(str(data["version"])))
    await documents.activate_policy(connection, tenant, str(data["digest"]))
    told: JsonObject = {**data, "author": author, "approver": actor.id}
    await audit.record(connection, tenant, EventType.POLICY_ACTIVATED, actor, told | ({"by": first} if first else {}))
    return await pauses.open_questions(connection, tenant)


async def end_others(
    connection: Connection, definitions: Definitions, tenant: str, actor: Actor, but: UUID | None = None
) -> None:
    """End the proposals that were for the policy before: they have to be made anew."""
    for run_id in await runs.going_of(connection, tenant, POLICY_CHANGE):
        if run_id != but:
            await cancel_run(connection, definitions, tenant, run_id, actor, "another policy is in force by now")


def may_concern(approval: Approval) -> bool:
    """True for a question that may be about a policy: it is decided with the tenant's documents locked."""
    return GroupQuorum(POLICY_APPROVERS) in approval.terms.approvers


def refusal(view: RunView, effect: ApprovalEvent | None, people: Directory) -> NotCounted | None:
    """Say why a policy is not put in force by this vote, although it would decide: it takes two of the group."""
    if not _is_of_policy(view) or effect is not ApprovalEvent.APPROVE or _proposer(view) in approvers(people):
        return None
    words = f"Whoever proposed this is not of the group {POLICY_APPROVERS} any more, so it cannot be put in force."
    return NotCounted(RefusalCode.NOT_ELIGIBLE, f"{words} Propose it anew.")


def _is_of_policy(view: RunView) -> bool:
    return (view.workflow, view.trigger_type) == (POLICY_CHANGE, TRIGGER)


def _proposer(view: RunView) -> str:
    return view.run.requested_by.partition(":")[2]


def following(view: RunView, definitions: Definitions, effect: ApprovalEvent | None, person: str) -> Then | None:
    """Say what follows from a decision in this run, in the same transaction; None if nothing does."""
    if not _is_of_policy(view) or effect is not ApprovalEvent.APPROVE:
        return None
    proposed: Any = view.run.trigger
    data: JsonObject = {name: proposed[name] for name in ("name", "version", "digest")}
    first = _proposer(view)
    actor = Actor("person", person)

    async def enact(connection: Connection) -> None:
        await in_force(connection, view.tenant_id, data, actor, first)
        await end_others(connection, definitions, view.tenant_id, actor, but=view.run_id)

    return enact


async def _summary(connection: Connection, definitions: Definitions, tenant: str, data: JsonObject) -> str:
    """Say what would change, for the card: versions, digests, and the rules by their ids."""
    new = await _compiled(connection, definitions, tenant, str(data["digest"]))
    active = await documents.active_policy(connection, tenant)
    named = f"policy {data['name']} version {data['version']} (digest {str(data['digest'])[:12]})"
    if active is None:
        return f"Put {named} in force? There is none in force now."
    row = await documents.policy(connection, tenant, active)
    before = await _compiled(connection, definitions, tenant, active)
    was = f"{row[0]} version {row[1]}" if row else "the one before"
    return f"Put {named} in force, in place of {was} (digest {active[:12]})? {_changes(before, new)}"


async def _compiled(connection: Connection, definitions: Definitions, tenant: str, digest: str) -> Policy | None:
    """A stored policy; None if it cannot be read any more."""
    row = await documents.policy(connection, tenant, digest)
    if row is None:
        raise NotFoundError(f"There is no policy with the digest {digest}.")
    try:
        return definitions.compile_policy(row[2], f"{row[0]}@{row[1]}")
    except InputError:
        return None


def _changes(before: Policy | None, after: Policy | None) -> str:
    """The rules that were added, removed and changed, by their ids."""
    if before is None or after is None:
        return "The rules cannot be compared, because one of the two cannot be read any more."
    old, new = ({rule.id: rule.document for rule in policy.rules} for policy in (before, after))
    kinds = {
        "added": [one for one in new if one not in old],
        "removed": [one for one in old if one not in new],
        "changed": [one for one in new if one in old and new[one] != old[one]],
    }
    said = [f"Rules {kind}: {', '.join(ids)}." for kind, ids in kinds.items() if ids]
    return " ".join(said) or "No rule is added, removed or changed."
