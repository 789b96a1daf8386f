"""The explanation of a run: what happened, why, who must do what, and the command for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from app.faces import Faces
from app.outcomes import failure_of, minute, short, title_of
from approvals.model import ApprovalKind, CardView
from evidence.receipts import ReceiptStatus
from runtime.engine.book.instructions import PERMIT, REPORT
from runtime.engine.book.recorded import Diverged
from runtime.engine.life.pausing import Pause
from runtime.engine.model.errors import BUSY, RATE
from runtime.engine.model.states import RunState, WaitKind
from runtime.requests import pausing
from runtime.requests.views import drawn
from runtime.store import approvals, read_models
from runtime.store.read_models import FIRST_ID, FIRST_TIME, Row

# More waits than these are only counted.
WAITS_MAX = 5
_ALTERED = "nobody: somebody has changed what is stored of its question; compare it with a backup"
_DOUBT = "A call is in doubt: it was sent, and nobody knows if it was done. Nothing is sent again before people say it."


class Why(Struct, frozen=True):
    """The explanation of one run.

    ``happened`` is its outcome, ``because`` the reason in its author's words. Each of ``waits`` says for whom or what
    it waits. ``remedy`` says what can be done, and ``commands`` are the commands for it.
    """

    run_id: UUID
    happened: str
    because: str = ""
    waits: tuple[str, ...] = ()
    remedy: str = ""
    commands: tuple[str, ...] = ()


async def longest(
    faces: Faces, tenant: str, limit: int, after_at: datetime = FIRST_TIME, after_id: UUID = FIRST_ID
) -> list[Row]:
    """The open waits of a tenant, what has waited the longest first: for whom or what, and the command for it.

    People are named by group, with those who may still decide.
    """
    async with faces.database.transaction(tenant) as connection:
        waits = await read_models.waiting_longest(connection, tenant, limit, after_at, after_id)
        cards = dict[UUID, CardView]()
        for asked in filter(None, map(_approval, waits)):
            # One question whose record was altered must not hide what the others wait for.
            with suppress(Diverged):
                cards[asked] = await drawn(connection, faces.definitions, await approvals.read(connection, asked))
    names = ("wait_id", "since", "run_id", "reference", "workflow", "step_key", "kind")
    found: list[Row] = []
    for wait in waits:
        command = _command(wait["run_id"], wait) or f"counterseal why {wait['run_id']}"
        row = {name: wait[name] for name in names}
        found.append({**row, "waits_for": _whom(wait, cards), "until": wait["due_at"], "command": command})
    return found


def _approval(wait: Row) -> UUID | None:
    """The question that a wait is for."""
    return UUID(wait["context"]["approval"]) if wait["kind"] == WaitKind.APPROVAL else None


def _whom(wait: Row, cards: Mapping[UUID, CardView]) -> str:
    """The people or the thing that a wait is for."""
    context = wait["context"] or {}
    if asked := _approval(wait):
        return _asked(cards[asked]) if asked in cards else _ALTERED
    match WaitKind(wait["kind"]):
        case WaitKind.AGENT | WaitKind.PERMIT:
            return f"the agent {wait['requested_by']}: {'its report' if context.get(PERMIT) == REPORT else 'it'}"
        case WaitKind.TASK:
            return f"{context.get('group', 'people')}: a form"
        case _:
            return short(wait).rpartition(" (")[0]


async def explain(faces: Faces, tenant: str, run: Row) -> Why:
    """The explanation of a run of the tenant; ``row`` is from ``read_models.run``."""
    run_id: UUID = run["run_id"]
    async with faces.database.transaction(tenant) as connection:
        waits = (await read_models.waiting(connection, tenant, [run_id], WAITS_MAX + 1)).get(run_id, [])
        held = await pausing.of_run(connection, tenant, run_id)
        cap = await read_models.start_held(connection, tenant, run_id)
    asked = [one for wait in waits if (one := _approval(wait))]
    cards = {one: (await faces.voting.look(tenant, one))[0] for one in asked}
    effects = 0
    if run["status"] == RunState.FAILED_TERMINAL:
        receipts = (await faces.reader.at(tenant, run_id)).receipts
        effects = sum(row["status"] == ReceiptStatus.SUCCEEDED and bool(row["attempt"]) for row in receipts)
    return of(run, waits, held, cap, cards, effects)


def of(
    run: Row,
    waits: Sequence[Row],
    held: Sequence[Pause],
    cap: str | None,
    cards: Mapping[UUID, CardView],
    effects: int,
) -> Why:
    """The explanation of a run from what it waits for, what pauses it, and how many effects it has had."""
    name = f"{run['workflow']} for {run['reference']}" if run["reference"] else str(run["workflow"])
    happened = f"{title_of(run, name)}."
    run_id, commands = run["run_id"], [f"counterseal run show {run['run_id']}"]
    failure = failure_of(run)
    if failure is not None:
        stands = "1 earlier effect stands" if effects == 1 else f"{effects} earlier effects stand"
        done = f" {stands}: `run show` lists what was done." if effects else ""
        if run["status"] == RunState.FAILED_TERMINAL:
            commands.insert(0, f'counterseal run retry {run_id} --reason "…"')
        return Why(run_id, happened, failure.message, (), f"{failure.remedy}{done}", tuple(commands))
    stopped = [f"{one.what} {one.name}".strip() for one in held]
    because = "; ".join(f"{what} is paused: {one.reason}" for what, one in zip(stopped, held, strict=True))
    if any(card.kind == ApprovalKind.IN_DOUBT for card in cards.values()):
        because = "; ".join(part for part in (because, _DOUBT) if part)
    commands[:0] = [f"counterseal resume {what}" for what in stopped]
    said = [_wait(wait, cards) for wait in waits[:WAITS_MAX] if wait["kind"] != WaitKind.PAUSE or not held]
    if len(waits) > WAITS_MAX:
        said.append("and more: `counterseal run waits` lists all")
    commands[:0] = [command for wait in waits[:WAITS_MAX] if (command := _command(run_id, wait))]
    if cap:
        said.append(cap)
    return Why(run_id, happened, because or _canceled(run), tuple(said), "", tuple(dict.fromkeys(commands)))


def _canceled(run: Row) -> str:
    error = run["error"] or {}
    if run["status"] != RunState.CANCELED:
        return ""
    who = f"by {error['by']}" if error.get("by") else ""
    return ": ".join(part for part in (who, str(error.get("message") or "")) if part)


def _wait(wait: Row, cards: Mapping[UUID, CardView]) -> str:
    """One wait as a sentence: who or what, since when, until when."""
    since = f", since {minute(wait['created_at'])}"
    until = f", until {minute(wait['due_at'])}" if wait["due_at"] and wait["kind"] != WaitKind.TIMER else ""
    if wait["kind"] == WaitKind.APPROVAL:
        return f"{_asked(cards[UUID(wait['context']['approval'])])} ({wait['step_key']}){since}{until}"
    return f"{short(wait)}{since}{until}"


def _asked(card: CardView) -> str:
    """The people who may still answer a question, and what it is about if it is no approval."""
    return f"{_people(card)}{': what happened?' if card.kind == ApprovalKind.IN_DOUBT else ''}"


def _people(card: CardView) -> str:
    """The people who may still decide, by group."""
    groups = [
        f"{one.group.of - len(one.names)} of {one.group.words}" + (f" ({', '.join(one.may)})" if one.may else "")
        for one in card.progress
        if len(one.names) < one.group.of
    ]
    return " and ".join(groups) or "people"


def _command(run_id: UUID, wait: Row) -> str:
    context = wait["context"] or {}
    match WaitKind(wait["kind"]):
        case WaitKind.APPROVAL:
            return f"counterseal approval show {context['approval']}"
        case WaitKind.TASK:
            return "counterseal task list"
        case WaitKind.RETRY if (context.get("error") or {}).get("code") in (BUSY, RATE):
            return "counterseal doctor"
        case WaitKind.HOLD | WaitKind.RETRY:
            return f'counterseal run retry {run_id} --step {wait["step_key"]} --reason "…"'
        case WaitKind.CHILD:
            return f"counterseal why {context['run']}"
        case WaitKind.SIGNAL | WaitKind.EXTERNAL:
            return f"counterseal run waits {run_id}"
        case _:
            return ""
