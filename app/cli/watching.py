"""The command that follows a run: its facts as they come, until it ends or waits for people."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Exit, Json, printable
from app.cli.runs import RunId, timeline
from app.cli.why import print_why
from runtime.engine.model.states import RunState, WaitKind

if TYPE_CHECKING:
    from app.faces import Faces

SECONDS_BETWEEN_LOOKS = 1.0
# The limits of the search through child runs: their depth, and their number at once, which is that of a loop.
DEEP_MAX, WAITS_MAX = 10, 10_000
_ENDS: Mapping[str, Exit] = {
    RunState.SUCCEEDED: Exit.OK,
    RunState.FAILED_TERMINAL: Exit.FAILED,
    RunState.CANCELED: Exit.CONFLICT,
}
# The kinds of waits that only people end.
_OF_PEOPLE = frozenset({WaitKind.APPROVAL, WaitKind.TASK, WaitKind.HOLD, WaitKind.PAUSE})


async def watch(run_id: RunId, as_json: Json = False) -> None:
    """Follow a run until it ends or waits for people: a line for each fact.

    Exit 0 if it has succeeded, 1 if it has failed, 4 if it was canceled, 7 if it waits for people. With --json a line
    is a JSON object, and the last one explains how the run stands.
    """

    async def later() -> None:
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def tell(fact: Mapping[str, Any]) -> None:
        typer.echo(json.dumps(fact, ensure_ascii=False) if as_json else _line(fact))

    async with context.faces() as faces:
        code, said = await follow(faces, run_id, tell, later)
    if as_json:
        typer.echo(json.dumps({**to_builtins(said), "exit": int(code)}, ensure_ascii=False))
    else:
        print_why(said)
    raise typer.Exit(code)


async def follow(
    faces: Faces, run_id: UUID, tell: Callable[[Mapping[str, Any]], None], wait: Callable[[], Awaitable[None]]
) -> tuple[Exit, Any]:
    """Print each fact of a run once, in order, until it ends or waits for people; ``wait`` pauses between two reads.

    Return the exit code, and the explanation of the run's state then (``app.why``).
    """
    from app.shown import run_row
    from app.why import explain

    tenant, told = faces.settings.tenant, 0
    while True:
        # Read the row before the lines: then the lines include the facts that led to the row's state.
        run = await run_row(faces, tenant, run_id, "See `counterseal run list`.")
        if run["audit_count"] > told:
            facts = timeline(await faces.reader.lines(tenant, run_id))
            await context.record_read(faces, "run", run=run_id)
            for fact in facts[told:]:
                tell(fact)
            told = len(facts)
        code = _ENDS.get(run["status"])
        if code is None and await _waits_for_people(faces, tenant, run):
            code = Exit.PEOPLE
        if code is not None:
            return code, await explain(faces, tenant, run)
        await wait()


async def _waits_for_people(faces: Faces, tenant: str, run: Mapping[str, Any]) -> bool:
    """True if the run does no work, and waits for people or for a child run that waits for people."""
    from runtime.store import read_models

    if run["status"] not in (RunState.WAITING_APPROVAL, RunState.WAITING):
        return False
    level = [run["run_id"]]
    for _ in range(DEEP_MAX + 1):
        found = await faces.ask(tenant, read_models.waiting, level, WAITS_MAX)
        waits = [one for some in found.values() for one in some]
        if any(one["kind"] in _OF_PEOPLE for one in waits):
            return True
        level = [UUID(one["context"]["run"]) for one in waits if one["kind"] == WaitKind.CHILD]
        if not level:
            return False
    return False


def _line(fact: Mapping[str, Any]) -> str:
    step = fact["step"] or "-"
    line = printable(f"{fact['at'][:19]}Z  {fact['type']:<20}  {step:<12}  {fact['actor']}")
    width = shutil.get_terminal_size().columns
    return f"{line[: width - 1]}…" if sys.stdout.isatty() and len(line) > width else line


COMMANDS = {"watch": watch}
