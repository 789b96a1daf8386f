"""Lists grants (actions allowed in advance) for people, and takes grants back: one request for every face."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from approvals.model import Approval
from approvals.ports import Membership
from approvals.tally import eligible_keys
from core.canonical import JsonObject, check_text
from core.db import Connection
from core.errors import ConsistencyError, InputError, NotFoundError
from core.identity import Standing
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.definition.catalog import Definitions
from runtime.engine.book.fold.of_grants import REVOKED
from runtime.engine.life.grants import EXPIRED, USED_UP
from runtime.engine.life.holding import OPERATORS
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import GrantRevoked
from runtime.engine.model.graph import NO_GRAPH
from runtime.engine.model.run import GrantRow
from runtime.requests.directory import as_people, voter_of
from runtime.store import approvals, faces
from runtime.store.views import load


class Shown(Struct, frozen=True):
    """A grant as faces show it. ``state`` is `open`, or the reason why it is over."""

    grant: UUID
    run: UUID
    approval: UUID
    state: str
    uses: int
    used: int
    until: str
    agent: str
    of: JsonObject
    by: tuple[str, ...]


async def grants_of(connection: Connection, tenant: str, definitions: Definitions, run_id: UUID) -> list[Shown]:
    """The grants of a run, the oldest first. ``NotFoundError`` if the tenant has no such run."""
    view = await load(connection, run_id, definitions.graphs, tenant=tenant)
    return [_shown(run_id, one, view.at) for one in sorted(view.run.grants.values(), key=lambda one: one.at)]


def _shown(run_id: UUID, grant: GrantRow, now: datetime) -> Shown:
    over = USED_UP if grant.used >= grant.uses else EXPIRED if now > datetime.fromisoformat(grant.until) else "open"
    of: JsonObject = {name: value for name, value in grant.of.items() if name != "shaped"}
    by = tuple(str(voter) for voter, _ in grant.votes)
    state = (grant.ended or over, grant.uses, grant.used, grant.until, grant.agent, of, by)
    return Shown(grant.grant_id, run_id, grant.approval, *state)


async def may_take_back(
    connection: Connection,
    tenant: str,
    definitions: Definitions,
    approval_id: UUID,
    person: str,
    slack: Membership,
) -> bool:
    """True if the person may decide the question, gave the grant, or is an operator, by the directory in use now.

    Taking a grant back only stops actions, so people who shaped the action may do it too. ``slack`` are the person's
    groups in Slack.
    """
    stored = await approvals.read(connection, approval_id)
    people = await definitions.directory(connection, tenant, stored.directory_digest)
    entry, approval = people.entry(person), as_people(stored.approval, people)
    if entry is None or entry.standing is not Standing.PERSON:
        return False
    may = voter_of(person, entry, slack, approval, people).groups & eligible_keys(approval)
    return (
        bool(may) or OPERATORS in entry.groups or await gave(connection, tenant, definitions, stored.approval, entry.id)
    )


async def gave(connection: Connection, tenant: str, definitions: Definitions, approval: Approval, person: str) -> bool:
    """True if this person's vote gave the run's grant of this approval."""
    run = (await load(connection, approval.run_id, definitions.graphs, tenant=tenant)).run
    return any(voter == person for one in run.grants.values() if one.approval == approval.id for voter, _ in one.votes)


async def take_back(
    connection: Connection, tenant: str, definitions: Definitions, approval_id: UUID, actor: Actor, reason: str
) -> None:
    """Take back the grant that an approval gave, like ``revoke_grant``."""
    run_id = (await approvals.read(connection, approval_id)).approval.run_id
    view = await load(connection, run_id, definitions.graphs, lock=True, tenant=tenant)
    found = next((one.grant_id for one in view.run.grants.values() if one.approval == approval_id), None)
    if found is None:
        raise ConsistencyError("Nothing was allowed in advance with this approval.")
    await revoke_grant(connection, tenant, definitions, run_id, found, actor, reason)


async def revoke_grant(
    connection: Connection,
    tenant: str,
    definitions: Definitions,
    run_id: UUID,
    grant_id: UUID,
    actor: Actor,
    reason: str,
) -> None:
    """Take a grant back inside the caller's transaction. From its commit on, no intent uses the grant.

    A crash before the commit leaves the grant, and the caller asks again.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty", where="reason", remedy="Say why it is taken back.")
    view = await load(connection, run_id, definitions.graphs, lock=True, tenant=tenant)
    grant = view.run.grants.get(grant_id)
    if grant is None:
        raise NotFoundError(
            f"The run {run_id} has no grant {grant_id}.", remedy="`counterseal grant list RUN` lists them."
        )
    if grant.ended or view.run.finished:
        raise ConsistencyError(f"The grant is over already: {grant.ended or 'its run has ended'}.")
    transition = Transition(view, NO_GRAPH)
    committed = [*commit_fields(view.run.run_key, path_of("grant", str(grant_id), REVOKED), {"reason": reason})]
    transition.tell(GrantRevoked(grant_id, committed, reason), actor=actor)
    if not await faces.append(connection, transition.commit()):
        raise ConsistencyError("The run has just moved on.", remedy="Try again.")
