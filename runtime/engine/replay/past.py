"""A run's past, folded for readers: its steps with their times, its receipts, its checkpoints. Pure.

Everything that is shown of a run is derived from its book alone, so nobody can show anything else (promise 6).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import Any, TypeAlias

import orjson
from msgspec import Struct, field

from core.budgets import most
from core.errors import ConsistencyError, CountersealError
from evidence.receipts import ReceiptStatus
from runtime.engine.book.barrier import REFERENCE, step_order
from runtime.engine.book.fold import fold
from runtime.engine.book.plan import PlanError
from runtime.engine.book.recorded import Diverged, RecordedEvent
from runtime.engine.life import late
from runtime.engine.model import events as e
from runtime.engine.model.errors import OUTPUT_REMOVED
from runtime.engine.model.graph import NO_GRAPH, Graph
from runtime.engine.model.rows import ReceiptRow, StepRow, WaitRow, step_id_of
from runtime.engine.model.run import Run
from runtime.engine.model.states import STEP, StepState, WaitKind, WaitState

Row: TypeAlias = Mapping[str, Any]

# The text in place of words that retention has removed.
REMOVED = "Removed by retention."

# The exceptions of the fold for events that do not follow from one another.
MISFITS = (CountersealError, PlanError, LookupError, TypeError, ValueError, AttributeError, StopIteration)


PAGE_BYTES_MAX = most("page_bytes")
"""A page of rows ends after so many bytes, so that its cost does not depend on how large a state is."""


class Past(Struct):
    """A run as folded from its book. ``checkpoints`` are only the wanted ones, because a state may be large.

    ``begun``, ``ended`` and ``retried`` are times of steps, by their keys. ``policies`` are the digests of all policies
    that judged. ``votes`` are all that counted, including those that their voter has replaced. ``versions`` holds the
    number of the checkpoint that last wrote each channel; ``planned`` is the number of extensions of the graph before
    the last checkpoint. ``limits`` are the limits that agents have reached, by the agents' keys.
    """

    run: Run
    begun: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    retried: dict[str, datetime] = field(default_factory=dict)
    policies: set[str] = field(default_factory=set)
    votes: list[RecordedEvent] = field(default_factory=list)
    checkpoints: list[Row] = field(default_factory=list)
    extensions: list[Row] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    planned: int = 0
    limits: dict[str, str] = field(default_factory=dict)
    bytes_max: float = inf
    kept_bytes: int = 0

    def steps(self) -> list[StepRow]:
        """All steps, in the order of super-steps and of the definition."""
        every = [*self.run.past.values(), *self.run.steps.values()]
        return sorted(every, key=lambda step: (step.superstep, step.index, step.step_id))

    def receipts(self) -> list[ReceiptRow]:
        """All receipts, in the order of their last intents."""
        return sorted(self.run.receipts.values(), key=lambda row: (row.intended_at, row.receipt_id))


def graph_of(run: Run, recorded: RecordedEvent, graphs: Sequence[Graph]) -> Graph:
    """The graph for folding an event: the published one, or that of the last extension or migration."""
    return graphs[run.extensions + isinstance(recorded.event, e.RunExtended | e.RunMigrated)]


def place(recorded: RecordedEvent) -> str:
    """The place of an event, in words."""
    return f"line {recorded.seq} ({recorded.event.TYPE}{f' of {recorded.step}' if recorded.step else ''})"


def refold(run: Run, recorded: Iterable[RecordedEvent], graphs: Sequence[Graph]) -> Run:
    """The run after these events. ``Diverged`` names the first line that does not follow from the lines before it."""
    for each in recorded:
        try:
            fold(run, each, graph_of(run, each, graphs))
        except MISFITS as error:
            raise Diverged(f"{place(each)} does not follow from what was before: {error}") from error
    return run


def size_of(row: Row) -> int:
    """The bytes of a row as JSON."""
    return len(orjson.dumps(row, default=str))


def past_of(
    run: Run,
    recorded: Iterable[RecordedEvent],
    graphs: Sequence[Graph],
    wanted: Container[int] = (),
    bytes_max: float = inf,
) -> Past:
    """Fold a book into ``run``, which has no event yet. Checkpoints are kept if their numbers are ``wanted``.

    The first two are always kept, further ones only until together they have ``bytes_max`` bytes.

    ``Diverged`` names the first line that does not follow from the lines before it.
    """
    past = Past(run, bytes_max=bytes_max)
    for each in recorded:
        made_of = _made_of(past) if isinstance(each.event, e.CheckpointCommitted) else {}
        refold(run, [each], graphs)
        _note(past, each, wanted, made_of)
    return past


def _made_of(past: Past) -> Row:
    """The ``source`` of the next checkpoint, and the ``writes`` that it applies, in order."""
    run = past.run
    if not run.checkpointed:
        return {"source": "input", "writes": [], "channels": [*run.state.channels]}
    source = "retry" if run.anew else "extension" if run.extensions > past.planned else "loop"
    done = [row for row in run.steps.values() if row.superstep == run.superstep and row.status is StepState.SUCCEEDED]
    writes = [
        {"step": row.key, "channel": name, "value": value}
        for row in sorted(done, key=step_order)
        for name, value in (row.writes or {}).items()
        if name != REFERENCE and row.key not in run.state.status
    ]
    return {"source": source, "writes": writes, "channels": [write["channel"] for write in writes]}


def _note(past: Past, recorded: RecordedEvent, wanted: Container[int], made_of: Row) -> None:
    """Note what only readers need, such as times. ``made_of`` describes a checkpoint."""
    key = recorded.step or ""
    match recorded.event:
        case e.CheckpointCommitted():
            for begun in past.run.steps:
                past.begun.setdefault(begun, recorded.at)
            made = past.run.checkpoints.pop()
            past.versions.update(dict.fromkeys(made_of["channels"], made.superstep))
            past.planned = past.run.extensions
            past.limits.update((one, agent.limit) for one, agent in past.run.state.agents.items() if agent.limit)
            if made.superstep in wanted and (len(past.checkpoints) < 2 or past.kept_bytes <= past.bytes_max):
                shown = {"superstep": made.superstep, "digest": made.digest, "state": made.state}
                shown |= {"source": made_of["source"], "writes": made_of["writes"], "versions_seen": {**past.versions}}
                past.checkpoints.append({**shown, "created_at": recorded.at})
                past.kept_bytes += size_of(past.checkpoints[-1]) if past.bytes_max < inf else 0
        case e.RunExtended() as event:
            shown = {"number": event.number, "actor": recorded.actor.id, "source": event.source}
            past.extensions.append({**shown, "created_at": recorded.at})
        case e.DecisionMade(policies=policies):
            past.policies.update(str(policy["digest"]) for policy in policies)
        case e.ApprovalVoted():
            past.votes.append(recorded)
        case e.StepRetryScheduled():
            past.retried[key] = recorded.at
        case e.StepSucceeded() | e.StepFailed() | e.StepCanceled():
            past.ended[key] = recorded.at
        case _:
            pass


def step_rows(past: Past) -> list[Row]:
    """The rows of the steps, as shown."""
    return [_step(past, step) for step in past.steps()]


def _step(past: Past, step: StepRow) -> Row:
    waits = past.run.waits.values()
    held = [one for one in waits if one.step_key == step.key and one.kind is WaitKind.HOLD and _is_open(one, step)]
    parked = step.status in (StepState.FAILED_RETRYABLE, StepState.WAITING)
    pause = step.eligible_in if parked else None
    return {
        "step_id": step.step_id,
        "step_key": step.key,
        "step_index": step.index,
        "operation": step.operation,
        "superstep": step.superstep,
        "status": str(step.status),
        "attempt": step.attempt,
        "output": step.output,
        "usage": step.usage,
        "last_error": step.last_error,
        "held_by": str((held[0].context or {})["group"]) if held else None,
        "next_eligible_at": None if pause is None else past.retried[step.key] + pause,
        "created_at": past.begun[step.key],
        "finished_at": past.ended.get(step.key),
    }


def _is_open(wait: WaitRow, step: StepRow) -> bool:
    return wait.status is WaitState.WAITING and step.status is StepState.WAITING


_RECEIPT = (
    "receipt_id", "run_id", "step_key", "operation", "target", "idempotency_key", "action_digest", "action", "status",
    "attempt", "lease_epoch", "reversible", "reverse", "external_id", "output", "usage", "resolution", "error",
    "intended_at", "settled_at", "reverses",
)  # fmt: skip


def receipt_rows(past: Past) -> list[Row]:
    """The rows of the receipts, as shown."""
    return [{**{name: getattr(row, name) for name in _RECEIPT}, "late": late.shown(row)} for row in past.receipts()]


def emptied(past: Past) -> tuple[list[Row], list[Row], list[Row]]:
    """The rows of steps, receipts and extensions after retention: who did what when, and how it ended."""
    return (
        [{**row, "output": None, "last_error": _facts(row["last_error"])} for row in step_rows(past)],
        [_emptied_receipt(row) for row in receipt_rows(past)],
        [{**row, "source": {}} for row in past.extensions],
    )


_WORDS = dict.fromkeys(("target", "reverse", "reference", "evidence"), "")
# The members that cards have since later releases. A card that retention has emptied does not keep them.
_GONE = ("question", "asker", "link", "sent_at", "answer")
_LISTS: Row = dict.fromkeys(("changes", "inputs", "sensitive"), ())


def questions(past: Past) -> Row:
    """The private values of each ``approval.requested`` after retention, by the approval."""
    return {
        str(key): {
            **{name: getattr(row, name) for name in ("nonce", "terms", "requester")},
            "digest": row.action_digest,
            "shown": {
                **{name: recorded for name, recorded in row.card.items() if name not in _GONE},
                **_WORDS,
                **_LISTS,
                "title": REMOVED,
                "summary": REMOVED,
            },
        }
        for key, row in past.run.approvals.items()
    }


def _facts(error: Row | None) -> Row | None:
    """The public facts of an error, as in the audit; never its message, which may hold values."""
    left = {name: value for name, value in (error or {}).items() if name in ("class", "code", "step", "by")}
    return left or None


def _emptied_receipt(row: Row) -> Row:
    facts = _facts(row["error"])
    recorded = [{**each, "output": None, "detail": None} for each in row["late"]]
    lost = row["status"] == ReceiptStatus.SUCCEEDED and row["error"] is None and row["output"] not in (None, {})
    return {
        **row,
        "action": {**row["action"], "input": {}, "before": None, "summary": REMOVED},
        "reverse": None,
        "output": None,
        "late": late.shown({**row, "late": recorded}),
        "resolution": REMOVED if row["resolution"] else None,
        # A later step that shares the effect fails with this error, instead of going on without the removed output.
        "error": OUTPUT_REMOVED if lost else facts and {**facts, "message": REMOVED},
    }


def blindly(run: Run, recorded: Iterable[RecordedEvent]) -> Run:
    """The run after these events, as far as they can be folded without its graph."""
    for each in recorded:
        match each.event:
            case e.CheckpointCommitted(number=number):
                run.superstep, run.checkpointed = number, True
                run.past.update((key, row) for key, row in run.steps.items() if row.status in STEP.terminal)
                run.steps = {key: row for key, row in run.steps.items() if key not in run.past}
                continue
            case e.StepStarted(operation=operation) if each.step and each.step not in run.steps:
                run.steps[each.step] = StepRow(
                    step_id=step_id_of(run.run_id, each.step),
                    key=each.step,
                    index=0,
                    operation=operation,
                    superstep=run.superstep,
                    status=StepState.READY,
                )
        with suppress(ConsistencyError, LookupError):
            fold(run, each, NO_GRAPH)
    return run
