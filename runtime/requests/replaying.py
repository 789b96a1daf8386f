"""Replays a stored run: its book, and everything with which its events are compared (promises 5 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from core.canonical import Json
from core.db import Connection
from policy.evaluate import evaluate
from policy.sets import NO_POLICIES, PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.compiler import constants_of
from runtime.engine.book.agent_result import remembered_agents
from runtime.engine.life.transition import writes_of
from runtime.engine.model.events import AgentBegan, DecisionMade
from runtime.engine.model.workflow import Workflow
from runtime.engine.origins.follow import starter_of, starters_of
from runtime.engine.replay.replay import Replay, unopened
from runtime.engine.replay.retracing import Retracing
from runtime.store import documents, journal, tenants
from runtime.store.books import Book

# The longest time from a worker's read of the tenant's people to the append of what it has decided by them.
_SETTLED = timedelta(minutes=1)


async def again(connection: Connection, definitions: Definitions, book: Book) -> Replay:
    """Prepare the replay: the run before its first event, with everything with which its events are compared."""
    editions = await definitions.editions(connection, book)
    graphs = [workflow.graph for workflow in editions]
    opened, row = book.opened, book.row
    named = (book.run_id, row["workflow"], row["workflow_version"], opened.reference, opened.requested_by)
    judged = {evaluated(each.event) for each in book.events if isinstance(each.event, DecisionMade)}
    policies = {one: await definitions.policies(connection, row["tenant_id"], one, editions[-1]) for one in judged}
    constants = constants_of(opened.inputs or {}, *named, book.events[0].at)
    return Replay(
        first=unopened(book.run_id, row["run_key"], graphs[0]),
        events=book.events,
        graphs=graphs,
        constants=constants,
        writes=writes_of,
        judge=partial(_judge, policies, row["workflow"]),
        origins=await _origins(connection, book, editions, constants),
    )


async def _origins(
    connection: Connection, book: Book, editions: Sequence[Workflow], constants: Mapping[str, object]
) -> Retracing:
    """The material for finding origins: today's people, and the books of agents whose turns are remembered."""
    row, opened = book.row, book.opened
    people = await tenants.directory(connection, row["tenant_id"])
    since = await documents.directory_since(connection, row["tenant_id"])
    began = [recorded for recorded in book.events if isinstance(recorded.event, AgentBegan)]
    others = sorted({one for recorded in began for one in remembered_agents([recorded], recorded.step or "")})

    def starters(at: datetime) -> Sequence[str]:
        today = starter_of(opened.trigger or "", opened.requested_by or "", people)
        if not today or since is None or at > since + _SETTLED:
            return (today,)
        return tuple(dict.fromkeys((today, *starters_of(opened.trigger or ""))))

    return Retracing(editions, constants, starters, await journal.of_others(connection, book.run_id, others))


def evaluated(event: DecisionMade) -> tuple[str, ...]:
    """The digests of the policies that a decision records."""
    return tuple(str(policy["digest"]) for policy in event.policies)


def _judge(
    policies: Mapping[tuple[str, ...], PolicySet], workflow: str, event: DecisionMade
) -> tuple[str, list[Json]] | None:
    """Make the recorded decision once more, by the same policies over the same facts (promise 1)."""
    of_event = policies.get(evaluated(event), NO_POLICIES)
    if of_event.broken or not of_event.policies:
        return None
    if any(str(rule).startswith(("cap:", "contributors:")) for rule in event.rules):
        return None
    decision = evaluate(of_event, event.facts or {}, event.operation, workflow)
    return str(decision.outcome), [rule.id for rule in decision.rules]
