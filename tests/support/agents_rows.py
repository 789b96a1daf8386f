"""The rows of the matrix: each makes one fault around one call, and says what became of the call."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from counterseal_agents import Ungoverned
from tests.support import agents_process as process
from tests.support.agents_gate import Books, serving
from tests.support.agents_stage import FAST, LARGE, PAY, Broken, How, canceled_when, end_of

PATIENT = replace(FAST, timeout=5.0)
Row = Callable[[Any, Books, How], None]


def observe(framework: str, fault: str, folder: Path) -> str:
    """The end of the call under the fault."""
    stage = import_module(f"tests.support.agents_{framework}")
    with serving() as books:
        how = How(books.url, folder / "effects", terms=PATIENT, state=folder / "state")
        how.tool = getattr(stage, "PAYING", how.tool)
        ROWS[fault](stage, books, how)
        return end_of(books, how)


def _spoiled(at: str, fault: str) -> Row:
    def row(stage: Any, books: Books, how: How) -> None:
        books.stage, books.fault = at, fault
        how.terms = FAST if fault == "hang" else PATIENT
        _turn(stage, how)
        assert at in books.asked

    return row


def _turn(stage: Any, how: How, calls: int = 1) -> None:
    """A turn. However the framework ends it, what counts is what became of the calls."""
    with contextlib.suppress(Exception, KeyboardInterrupt):
        stage.turn(how, [PAY] * calls)


def _server_down(stage: Any, books: Books, how: How) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        how.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    _turn(stage, how)


def _unauthorized(stage: Any, books: Books, how: How) -> None:
    how.token = "another"
    _turn(stage, how)


def _killed(kill: str) -> Row:
    def row(stage: Any, books: Books, how: How) -> None:
        name = _name(stage)
        assert process.run(name, "turn", how, kill) == -9
        # Its successor finds what the server knows, and does not do it again.
        books.end_leases()
        if kill != "permit":
            process.run(name, "turn", how)

    return row


def _canceled(stage: Any, books: Books, how: How) -> None:
    books.decide = lambda tool, arguments: "judging"
    how.terms = replace(PATIENT, wait=20.0, pause=0.05)
    _cancel(stage, books, how, "wait", lambda: len(books.asked) >= 2)


def _canceled_in_body(stage: Any, books: Books, how: How) -> None:
    _cancel(stage, books, how, "hang", lambda: bool(how.ran))


def _cancel(stage: Any, books: Books, how: How, kill: str, fact: Callable[[], bool]) -> None:
    """A framework that cancels calls cancels this one; another one is interrupted with its process."""
    if not hasattr(stage, "aturn"):
        process.interrupted(_name(stage), how, kill, books, fact)
        return
    how.abody = asyncio.Event().wait

    async def cancel() -> None:
        await canceled_when(books, stage.aturn(how, [PAY]), fact)

    asyncio.run(cancel())


def _name(stage: Any) -> str:
    return str(stage.__name__).rpartition("agents_")[2]


def _retry(where: str) -> Row:
    def row(stage: Any, books: Books, how: How) -> None:
        def fail() -> None:
            raise Broken("gone")

        how.retry, how.body = where, fail
        _turn(stage, how)

    return row


def _changed(where: str) -> Row:
    def row(stage: Any, books: Books, how: How) -> None:
        books.decide = lambda tool, arguments: "approved" if arguments == PAY or not arguments else "denied"
        how.change = (where, LARGE)
        _turn(stage, how)
        assert how.ran or [one.arguments for one in books.actions.values()][-1] == LARGE

    return row


def _two_equal_calls(stage: Any, books: Books, how: How) -> None:
    def both_have_asked() -> None:
        books.until(lambda: books.asked.count("permit") >= 2)

    if hasattr(stage, "aturn"):
        how.abody = lambda: asyncio.to_thread(both_have_asked)
    else:
        how.body = both_have_asked
    _turn(stage, how, calls=2)


def _paused(stage: Any, books: Books, how: How) -> None:
    books.decide = lambda tool, arguments: "pending"
    stage.pause(how, PAY)
    assert how.ran == []


def _edited(stage: Any, books: Books, how: How) -> None:
    _paused(stage, books, how)
    stage.edit(how, LARGE)
    books.settle("approved")
    with contextlib.suppress(Exception):
        stage.resume(how, PAY)


def _resumed(stage: Any, books: Books, how: How) -> None:
    _paused(stage, books, how)
    books.settle("approved")
    assert process.run(_name(stage), "resume", how) == 0


def _resumed_without_us(stage: Any, books: Books, how: How) -> None:
    _paused(stage, books, how)
    how.ungoverned = True
    stage.resume(how, PAY)


def _time_limit(stage: Any, books: Books, how: How) -> None:
    books.stage, books.fault, books.carried_out = "permit", "hang", False
    how.terms, how.limit = replace(PATIENT, timeout=2.0), 1.0
    if hasattr(stage, "aturn"):
        how.abody = asyncio.Event().wait
    _turn(stage, how)


def _no_fault(stage: Any, books: Books, how: How) -> None:
    assert stage.turn(how, [PAY]) == ["paid 5"]


def _hosted(stage: Any, books: Books, how: How) -> None:
    books.decide = lambda tool, arguments: "denied"
    try:
        stage.hosted(how)
    except Ungoverned:
        assert books.asked == []
    else:
        assert books.asked, "It began with a tool that nobody sees."


ROWS: dict[str, Row] = {
    "none": _no_fault,
    "server_down": _server_down,
    "time_out": _spoiled("permit", "hang"),
    "unauthorized": _unauthorized,
    "server_error": _spoiled("ask", "500"),
    "html": _spoiled("permit", "html"),
    "empty": _spoiled("permit", "empty"),
    "another_yes": _spoiled("permit", "other"),
    "killed_before_permit": _killed("permit"),
    "killed_before_body": _killed("permit+"),
    "killed_in_body": _killed("body"),
    "killed_before_report": _killed("outcome"),
    "canceled": _canceled,
    "canceled_in_body": _canceled_in_body,
    "retry_around": _retry("around"),
    "retry_inside": _retry("inside"),
    "changed_before": _changed("before"),
    "changed_after": _changed("after"),
    "two_equal_calls": _two_equal_calls,
    "edited": _edited,
    "resumed": _resumed,
    "resumed_without_us": _resumed_without_us,
    "time_limit": _time_limit,
    "hosted": _hosted,
}
