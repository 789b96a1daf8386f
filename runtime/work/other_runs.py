"""Starts the runs that a step orders: children and continuations."""

from __future__ import annotations

from uuid import UUID

from core.db import Connection, Database
from core.errors import CountersealError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.engine.book import failures
from runtime.engine.book.instructions import OtherRun, StartRun
from runtime.engine.model.run import Family, RunView
from runtime.engine.model.states import RunState
from runtime.requests.child_runs import origins_of, used_within
from runtime.requests.starting import OF_RUNS, StartRequest, start_named
from runtime.store import runs
from runtime.store.runs import begin, root_of
from runtime.store.views import load


async def start_other(database: Database, definitions: Definitions, view: RunView, work: StartRun) -> OtherRun:
    """Start the run that a step orders, or find it. The answer to a wrong order has a ``problem``."""
    try:
        async with database.transaction() as connection:
            root = await _root_of(connection, view, definitions)
            request = StartRequest(
                tenant_id=view.tenant_id,
                workspace_id=view.workspace_id,
                trigger_type=OF_RUNS,
                trigger_ref=f"{view.run_id}:{work.step.key}" + (f"#{work.step.again}" if work.step.again else ""),
                trigger=work.inputs,
                requested_by=view.run.requested_by,
                actor=Actor("run", str(view.run_id)),
                run_id=work.run_id,
                parent=view.run_id if work.waits else None,
                depth=view.depth + 1,
                shaped=work.shaped,
                inherited=work.inherited,
                origins=work.origins,
                adder=work.adder,
                root=root,
                requester=view.run.requester,
                started_by=view.run.started_by,
            )
            await start_named(connection, definitions, work.workflow, work.version, request)
            return await look(connection, work, definitions)
    except CountersealError as error:
        return OtherRun(problem=str(error))


async def _root_of(connection: Connection, view: RunView, definitions: Definitions) -> UUID:
    """The outermost run. The family's counters begin when it first starts another run, with its own counts so far."""
    if view.family is not None:
        return view.family.root
    known = await root_of(connection, view.run_id)
    if known is not None:
        return known
    now = await load(connection, view.run_id, definitions.graphs)
    same = {call: [f"{view.run_id}:{key}" for key in keys] for call, keys in now.run.same.items()}
    cap = (await definitions.of_run(connection, now.definition)).writes_max
    counted = (now.run.writes, now.run.refused, now.run.asked)
    failed = failures.of_first(view.run_id, now.run.failures)
    family = Family(view.run_id, *counted, 0, cap, same, failed, now.run.begun_anew)
    await begin(connection, view.tenant_id, family)
    return view.run_id


async def look(connection: Connection, work: StartRun, definitions: Definitions) -> OtherRun:
    """Read the other run's status, result and error, and who shaped them; if traced, the result's origins."""
    row = await runs.ending_of(connection, work.run_id)
    shaped = await runs.shapers_of(connection, row, definitions.graphs)
    ended, traced = row["status"] == RunState.SUCCEEDED, work.origins is not None
    origins = await origins_of(connection, definitions, row, traced=traced) if ended else None
    used = await used_within(connection, row, work.step.key)
    return OtherRun(row["status"], row["result"], row["error"], shaped=shaped, origins=origins, used=used)
