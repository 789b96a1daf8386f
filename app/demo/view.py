"""The demo's output on the terminal: a live table of runs, and the addresses to look at."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from app.demo.people import Incident, IncidentRun
from app.demo.world import CARDS_CHANNEL, World
from runtime.engine.model.states import RunState

_WORDS: dict[str, str] = {
    RunState.QUEUED: "[dim]queued[/]",
    RunState.RUNNING: "[cyan]running[/]",
    RunState.WAITING_APPROVAL: "[bold yellow]waits for a person[/]",
    RunState.WAITING: "[yellow]waits[/]",
    RunState.SUCCEEDED: "[green]succeeded[/]",
    RunState.FAILED_RETRYABLE: "[yellow]will be tried again[/]",
    RunState.FAILED_TERMINAL: "[red]failed[/]",
    RunState.CANCELED: "[dim]canceled[/]",
}


class View:
    """Output for people: a live table, or without a terminal one line per change."""

    def __init__(self, *, auto: bool) -> None:
        self._console = Console(highlight=False)
        self._auto = auto
        self._live: Live | None = None
        self._last: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Print text without hard line breaks, so that a command can be copied."""
        self._console.print(text, soft_wrap=True)

    def introduce(self, world: World, incidents: Sequence[Incident], login: str) -> None:
        """Print the addresses to look at, and what to do there."""
        self.say(f"\n  Slack (stand-in)       {world.slack}/c/{CARDS_CHANNEL}")
        self.say(f"  ServiceNow (stand-in)  {world.servicenow}/")
        self.say(f"  Counterseal (console)  {login} [dim](logs you in once, as Ana)[/]")
        self.say(f"  Counterseal (HTTP)     {world.app}/v1 [dim](asks for a token)[/]\n")
        for incident in incidents:
            self.say(f"  [bold]{incident.number}[/] {incident.story.text}")
        if not self._auto:
            first, second, _, last = incidents
            self.say(
                f"\nOpen the Slack page; you are Ana there. Press [bold]Approve[/] on the card of {first.number} "
                f"and [bold]Reject[/] on that of {second.number}.\n"
                f"Raj has asked an agent to look after {last.number}, where somebody has written that it should close\n"
                "everything and mail the customers, and it obeys. See on its card where the address comes from, and\n"
                "[bold]Reject[/] it. Or decide here, in another terminal:"
            )
            self.say(f"  {_command(world)} approval list")
            self.say(f"  {_command(world)} approval approve APPROVAL --as ana.lee\n")

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show a table inside the block; ``show`` updates it."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8) as live:
            self._live = live
            yield
        self._live = None

    def show(self, runs: Sequence[IncidentRun]) -> None:
        """Show the current state of the runs."""
        if self._live is not None:
            self._live.update(_table(runs))
            return
        for item in runs:
            words = _plain(item)
            if words != self._last.get(item.incident.number):
                self._last[item.incident.number] = words
                self.say(f"{item.incident.number}: {words}")

    def farewell(self, world: World, runs: Sequence[IncidentRun]) -> None:
        """Print the commands to look further."""
        command = _command(world)
        self.say("\nLook further:")
        if (first := next((item for item in runs if item.run is not None), None)) is not None:
            self.say(f"  {command} run show {first.run['run_id']}")
            if (agent := runs[-1].run) is not None:
                self.say(f"  {command} run show {agent['run_id']}  [dim]# the agent, turn by turn[/]")
            if "COUNTERSEAL_S3_BUCKET" not in world.environment:  # moto's bucket is gone after the demo
                self.say(f"  {command} evidence get {first.run['run_id']} -o evidence.zip")
        if first is not None and first.bundle is not None:
            key = first.bundle.with_name("evidence.pub.pem")
            self.say(f"  {command} evidence verify {_near(first.bundle)} --key {_near(key)}")
        self.say(f"  {command} run list")
        if not self._auto:
            logs = Path(world.environment["COUNTERSEAL_HOME"]) / "demo"
            self.say(f"\nThe pages stay up; logs are in {_near(logs)}. Ctrl-C ends it.")


def _table(runs: Sequence[IncidentRun]) -> Table:
    table = Table("incident", "what", "run", "evidence", box=None, padding=(0, 2))
    for item in runs:
        status = _WORDS.get(item.run["status"], item.run["status"]) if item.run else "[dim]not started[/]"
        evidence = "[green]verified[/]" if item.verified else "[bold red]does not verify[/]" if item.bundle else ""
        table.add_row(item.incident.number, item.incident.story.text, _with_reason(item, status), evidence)
    return table


def _with_reason(item: IncidentRun, status: str) -> str:
    error = item.run["error"] if item.run else None
    return f"{status}: {error['code'].replace('_', ' ')}" if error and "code" in error else status


def _plain(item: IncidentRun) -> str:
    if item.run is None:
        return "not started"
    evidence = "" if item.bundle is None else ", evidence verified" if item.verified else ", evidence does not verify"
    return _with_reason(item, item.run["status"]) + evidence


def _command(world: World) -> str:
    """The command that reaches the demo from another terminal in this folder: it names the demo's own home."""
    path = Path(sys.argv[0])
    command = _near(path) if path.name == "counterseal" else f"{_near(Path(sys.executable))} -m app"
    return f"COUNTERSEAL_HOME={shlex.quote(_near(Path(world.environment['COUNTERSEAL_HOME'])))} {command}"


def _near(path: Path) -> str:
    """A path as a person in this folder would type it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
