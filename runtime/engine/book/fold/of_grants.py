"""The fold of grants: a grant is given, used, taken back, or ends."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from core.errors import ConsistencyError
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.run import GrantRow, Run

REVOKED = "revoked"


def grant_given(run: Run, recorded: RecordedEvent, event: e.GrantGiven) -> None:
    if event.grant in run.grants:
        raise ConsistencyError(f"the grant {event.grant} was given before")
    run.grants[event.grant] = GrantRow(
        grant_id=event.grant,
        approval=event.approval,
        digest=event.digest,
        uses=event.uses,
        until=event.until,
        agent=event.agent,
        of=event.of or {},
        terms=event.terms or {},
        contributors=event.contributors or [],
        votes=event.votes or [],
        escalated=event.escalated,
        at=recorded.at,
    )


def revoked(run: Run, recorded: RecordedEvent, event: e.GrantRevoked) -> None:
    grant = _of(run, event.grant)
    if not grant.ended:
        taken = replace(grant, ended=REVOKED, ended_by=recorded.actor.id, ended_at=recorded.at)
        run.grants[event.grant] = taken


def ended(run: Run, recorded: RecordedEvent, event: e.GrantEnded) -> None:
    grant = _of(run, event.grant)
    run.grants[event.grant] = replace(grant, ended=grant.ended or event.why)


def used(run: Run, grant_id: UUID) -> None:
    """Count a use. Using a grant too often, or one that is over, is an illegal move: nothing is appended."""
    grant = _of(run, grant_id)
    if not grant.left:
        raise ConsistencyError(f"the grant {grant_id} lets nothing out any more")
    run.grants[grant_id] = replace(grant, used=grant.used + 1)


def _of(run: Run, grant_id: UUID) -> GrantRow:
    grant = run.grants.get(grant_id)
    if grant is None:
        raise ConsistencyError(f"there is no grant {grant_id}")
    return grant
