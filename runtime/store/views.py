"""Reading a run: what is kept of it and the rest of its book, folded, by one statement in one snapshot.

What is kept must be what its line names, every value what its line commits to, and every line the one that the next
names, up to the head. Otherwise nothing is decided on it: ``Diverged`` says where.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import orjson
import structlog

from core.canonical import JsonObject, sha256_hex
from core.db import Connection
from core.errors import ConsistencyError, CountersealError, InputError, NotFoundError
from evidence.chain import ChainHead
from runtime.engine.blind import blindly
from runtime.engine.commit import StepRow
from runtime.engine.events import RunOpened
from runtime.engine.graph import NO_GRAPH, Graph
from runtime.engine.keeping import KEPT, digest_of, unpack
from runtime.engine.names import step_id_of
from runtime.engine.past import refold
from runtime.engine.replaying import unopened
from runtime.engine.run import Run
from runtime.engine.states import STEP, RunState, StepState
from runtime.engine.told import Diverged, Told, read_line
from runtime.engine.view import Definition, RunView
from runtime.store.journal import Append, appends

log = structlog.get_logger(__name__)

# The rest of the book of the run in ``{0}``: from the append on of which its state is kept, and the first append, which
# tells the trigger.
TAIL = """LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = {0}.run_id AND (j.n >= {1} OR j.n = 1)) tail ON true"""

_SELECT = f"""
SELECT to_jsonb(r) - 'state' - 'run_key' - 'error' - 'result' AS run, r.run_key,
  CASE WHEN $2 THEN NULL ELSE r.state END AS state, t.policy_digest, t.max_writes_per_run, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id
{TAIL.format("r", "CASE WHEN $2 THEN 0 ELSE r.state_n END")}
WHERE r.run_id = $1"""

_LOCK = "SELECT version FROM runs WHERE run_id = $1 FOR UPDATE"


# Gives the graph of a run as it was published and after each extension.
Graphs: TypeAlias = Callable[[Connection, Definition], Awaitable[Sequence[Graph]]]


class Purged(ConsistencyError):
    """Retention has emptied the run."""


class Unfinished(ConsistencyError):
    """The statement waited for another append, whose lines its snapshot does not hold."""


async def load(
    connection: Connection,
    run_id: UUID,
    graphs: Graphs,
    *,
    lock: bool = False,
    whole: bool = False,
    before: RunView | None = None,
) -> RunView:
    """The view of a run; ``whole`` folds it from its first line, and lets go of nothing. ``before`` as in ``view_of``.

    Without ``lock`` the commit's version guard is what keeps the view honest; a caller that has lost that race before
    asks for the lock, so that it is sure to win the next one. ``NotFoundError`` if there is no such run,
    ``Purged`` if retention has emptied it, ``Diverged`` if something of it was altered.
    """
    if lock:
        await connection.fetchrow(_LOCK, run_id)
    row = await connection.fetchrow(_SELECT, run_id, whole)
    if row is None:
        raise NotFoundError(f"There is no run {run_id}.")
    if row["run"]["purged_at"] is not None:
        raise Purged(
            f"The run {run_id} is over, and what it held was removed when its retention ended.",
            remedy="Its audit and its evidence bundle are kept.",
        )
    try:
        return await view_of(connection, row, graphs, whole=whole, before=before)
    except Unfinished as error:  # both are of one snapshot here
        raise Diverged(f"The book of run {run_id} is not as long as the run says") from error


async def step_is_over(connection: Connection, run_id: UUID, step_key: str, graphs: Graphs) -> bool:
    """True if nothing more can happen to a step."""
    try:
        step = (await load(connection, run_id, graphs)).steps.get(step_key)
    except Purged:
        return True
    return step is None or STEP.terminal(step.status)


async def view_of(
    connection: Connection, row: Any, graphs: Graphs, *, whole: bool = False, before: RunView | None = None
) -> RunView:
    """A view from a row with ``run``, ``state``, ``run_key``, the tenant's columns and the tail of the book.

    ``before`` is an earlier view of the run, which was checked when it was made: only what follows it is folded.
    ``Unfinished`` if the tail is of an older snapshot than the run.
    """
    definition, head = _places(row)
    if before is not None and before.head.count > head.count:
        return replace(before, now=row["now"], policy_digest=row["policy_digest"], writes_max=row["max_writes_per_run"])
    every = await graphs(connection, definition)
    run = None if before is None else _followed(row, before, head, every)
    run = run or _folded(row, definition, head, every)
    return _view(row, definition, head, run if whole else run.rest())


def _places(row: Any) -> tuple[Definition, ChainHead]:
    stored = row["run"]
    definition = Definition(
        run_id=UUID(stored["run_id"]),
        tenant_id=stored["tenant_id"],
        workflow=stored["workflow"],
        workflow_version=stored["workflow_version"],
        workflow_digest=stored["workflow_digest"],
        extensions=stored["extensions"],
        run_key=row["run_key"] or b"",
    )
    return definition, ChainHead(f"run:{definition.run_id}", stored["audit_count"], stored["audit_head"])


def _folded(row: Any, definition: Definition, head: ChainHead, graphs: Sequence[Graph]) -> Run:
    book = _appends(row)
    kept = book[1:] if row["state"] is not None else book
    count = kept[-1].first_seq + len(kept[-1].lines) if kept else 0
    if count < head.count:
        raise Unfinished(f"The book of run {definition.run_id} is not read whole.", remedy="Try again.")
    _check_chain([line for append in kept for line in append.lines], head, count)
    key = definition.run_key
    if row["state"] is None:
        run = unopened(definition.run_id, key, graphs[0])
        return refold(run, [told for append in book for told in append.told(key)], graphs)
    # What is kept is of the first append after the opening one: its own lines are in it.
    if orjson.loads(kept[0].lines[-1])["data"].get(KEPT) != digest_of(row["state"], key):
        raise Diverged(f"The state that is kept of run {definition.run_id} is not the one that was told")
    run = unpack(row["state"], definition.run_id, key)
    opened = next(book[0].told(key)).event
    run.trigger = opened.inputs or {} if isinstance(opened, RunOpened) else {}
    return refold(run, [told for append in kept[1:] for told in append.told(key)], graphs)


def _followed(row: Any, before: RunView, head: ChainHead, graphs: Sequence[Graph]) -> Run | None:
    """The run of an earlier view with what has been told since; None if the tail does not reach back so far."""
    if before.head == head:
        return before.run.copy()
    after, known, told = before.head.count, before.head.hash, list[Told]()
    for append in _appends(row):
        met = max(0, after - append.first_seq)
        if met >= len(append.lines):
            continue
        if append.first_seq > after:
            return None
        for line in append.lines[met:]:
            if orjson.loads(line)["prev"] != known:
                return None
            known = sha256_hex(line)
        told += [*append.told(before.run_key)][met:]
        after = append.first_seq + len(append.lines)
    if (after, known) != (head.count, head.hash):
        return None
    return refold(before.run.copy(), told, graphs)


def _appends(row: Any) -> list[Append]:
    return appends(row["firsts"] or (), row["lines"] or (), row["vals"] or ())


def _check_chain(lines: Sequence[bytes], head: ChainHead, count: int) -> None:
    """Each line names the one before it, and the last is the head."""
    known = None
    for line in lines:
        if known is not None and orjson.loads(line)["prev"] != known:
            raise Diverged(f"The book of {head.stream} is broken: a line is not the one that the next one names")
        known = sha256_hex(line)
    if (count, known) != (head.count, head.hash):
        raise Diverged(f"The book of {head.stream} is not as long as the run says, or ends with another line")


def _view(row: Any, definition: Definition, head: ChainHead, run: Run) -> RunView:
    stored = row["run"]
    return RunView(
        run_id=definition.run_id,
        tenant_id=definition.tenant_id,
        workspace_id=stored["workspace_id"],
        workflow=definition.workflow,
        workflow_version=definition.workflow_version,
        workflow_digest=definition.workflow_digest,
        trigger_type=stored["trigger_type"],
        version=stored["version"],
        head=head,
        run=run,
        constants={
            "trigger": run.trigger,
            "run.id": stored["run_id"],
            "run.workflow": definition.workflow,
            "run.version": definition.workflow_version,
            "run.reference": run.reference,
            "run.requested_by": run.requested_by,
        },
        now=row["now"],
        deadline_at=datetime.fromisoformat(stored["deadline_at"]) if stored["deadline_at"] else None,
        policy_digest=row["policy_digest"],
        writes_max=row["max_writes_per_run"],
        parent=UUID(stored["parent_run_id"]) if stored["parent_run_id"] else None,
        depth=stored["depth"],
        kept_at=stored["state_n"],
    )


async def load_to_end(
    connection: Connection, run_id: UUID, graphs: Graphs, *, lock: bool = False, leased: str | None = None
) -> RunView:
    """The view of a run that is to be set back, given up or canceled: also of one that cannot be read any more.

    Of such a run only what its lines say is known, and the step that is ``leased``, which may not have begun. Nothing
    is decided on it but its end.
    """
    try:
        return await load(connection, run_id, graphs, lock=lock)
    except CountersealError as error:
        row = await connection.fetchrow(_SELECT, run_id, True)
        if row is None or row["run"]["purged_at"] is not None:
            raise
        log.error("a run cannot be read", run=str(run_id), reason=str(error))
    definition, head = _places(row)
    run = unopened(run_id, row["run_key"] or b"", NO_GRAPH)
    blindly(run, _unverified(row))
    run.status, run.executing = RunState(row["run"]["status"]), row["run"]["executing"]
    if leased is not None and leased not in run.steps:
        place = (step_id_of(run_id, leased), leased, 0, "", run.superstep, StepState.READY)
        run.steps[leased] = StepRow(*place)
    run.state.open = [key for key, step in run.steps.items() if step.status in (StepState.READY, StepState.RUNNING)]
    return replace(_view(row, definition, head, run.rest()), blind=True)


def _unverified(row: Any) -> Iterator[Told]:
    """Each line with its values if those are what it commits to, and without them if not."""
    key = row["run_key"] or b""
    for append in _appends(row):
        for number, line in enumerate(append.lines):
            told = _read(line, append.values.get(append.first_seq + number, {}), key)
            if told is not None:
                yield told


def _read(line: bytes, values: JsonObject, key: bytes) -> Told | None:
    with suppress(ConsistencyError, InputError):
        return read_line(line, values, key)
    with suppress(ConsistencyError, InputError):
        return read_line(line, {}, key, verify=False)
    return None
