"""The how-tos: the commands of every page are executed, in order, against processes as the playground has them.

Blocks marked ``sh`` are executed line by line. ``# its run_id is RUN`` names what a command prints for the lines below,
and ``# its status is waiting`` says what it prints; a command that asks for something is repeated until it is so,
because the processes work meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import structlog

from app.cli import main
from tests.support.databases import Databases

ROOT = Path(__file__).resolve().parents[2]
HOWTO = ROOT / "docs" / "howto"
PLAYGROUND = HOWTO / "playground.md"
CUSTOMERS = HOWTO / "customer-status.md"
# Programs that are not here run the commands of this page.
COMMANDS = HOWTO / "agents-commands.md"
PAGES = sorted(page for page in HOWTO.glob("*.md") if page not in (PLAYGROUND, COMMANDS))
# Never set: processes of their own cannot be waited for but by looking again.
_UNTIL_THE_NEXT_LOOK = threading.Event()
SECONDS_MAX = 30.0
_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"  # its (?P<key>\w+) is (?P<name>\w+)$")
# The first workflow that a page names is the one that it is about.
_WORKFLOW = re.compile(r"examples/(?:customers/)?workflows/([\w-]+)\.yaml")
# What may be repeated until it says what is waited for.
_ASKING = ("evidence get", "approval list", "task list", "run waits", "run list", "run show")


@dataclass(frozen=True)
class Playground:
    """The ports in the place of those on the page, and the variables of the third terminal."""

    ports: dict[str, str]
    environment: dict[str, str]

    def here(self, line: str) -> str:
        for shown, used in self.ports.items():
            line = line.replace(f":{shown}", f":{used}")
        return line


def _blocks(page: Path, kind: str) -> list[str]:
    return [match["text"] for match in _BLOCK.finditer(page.read_text(encoding="utf-8")) if match["kind"] == kind]


def _free_ports(count: int) -> list[str]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]


@contextmanager
def _process(words: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as written:
        process = subprocess.Popen(words, env=environment, stdout=written, stderr=written, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a process serves; there is nothing that could tell us."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            httpx.get(url, timeout=1, trust_env=False)
        except httpx.TransportError:
            _UNTIL_THE_NEXT_LOOK.wait(0.05)
            continue
        return
    raise AssertionError(log.read_text())


async def _sql(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextmanager
def _customers(databases: Databases, definitions: Path) -> Iterator[dict[str, str]]:
    """A database with the tables of the page about rows; the variables that tell the playground of it."""
    shutil.copytree(ROOT / "examples" / "customers" / "operations", definitions / "operations")
    with databases.made("crm") as url:
        (tables,) = _blocks(CUSTOMERS, "sql")
        asyncio.run(_sql(url, tables))
        yield {"COUNTERSEAL_DEFINITIONS_DIR": str(definitions), "COUNTERSEAL_SQL_URL": url}


@pytest.fixture(scope="module")
def playground(
    databases: Databases, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Playground]:
    """The processes of the playground's page, on ports and a database of the test's own."""
    sandbox, counterseal = _blocks(PLAYGROUND, "")
    assert counterseal.endswith("\ncounterseal up\n")
    shown = sorted(set(re.findall(r"(?<=-port )\d+|(?<=:)8080", sandbox)))
    folder, database = tmp_path_factory.mktemp("playground"), databases.create("playground", template_database)
    ports = dict(zip(shown, _free_ports(len(shown)), strict=True))
    found = Playground(ports, {})
    exported = re.findall(r"^export (\w+)=(\S+)$", counterseal, re.MULTILINE)
    found.environment.update((name, found.here(value.strip("'"))) for name, value in exported)
    found.environment.update(
        COUNTERSEAL_HOME=str(folder / "home"),
        COUNTERSEAL_DATABASE_URL=database,
        COUNTERSEAL_PORT=ports["8080"],
    )
    others = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSEAL_")}
    stand_ins = shlex.split(found.here(re.sub(r"-port (\d+)", lambda port: f"-port {ports[port[1]]}", sandbox)))
    with ExitStack() as exits:
        exits.callback(databases.drop, database)
        found.environment.update(exits.enter_context(_customers(databases, folder / "definitions")))
        for name, words, port in (("sandbox", stand_ins[1:], "9101"), ("up", ["-m", "app", "up"], "8080")):
            log = folder / f"{name}.log"
            process = exits.enter_context(_process([sys.executable, *words], {**others, **found.environment}, log))
            _answers(f"http://127.0.0.1:{ports[port]}/healthz", process, log)
        yield found


@pytest.fixture
def terminal(
    playground: Playground,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iterator[Terminal]:
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    for name in [name for name in os.environ if name.startswith("COUNTERSEAL_")]:
        monkeypatch.delenv(name)
    for name, value in playground.environment.items():
        monkeypatch.setenv(name, value)
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".playground").symlink_to(playground.environment["COUNTERSEAL_HOME"])
    monkeypatch.chdir(tmp_path)
    yield Terminal(playground, monkeypatch, capsys)
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


class Terminal:
    """Executes lines as a reader enters them, with ids in the place of the words in capitals."""

    def __init__(
        self, playground: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._playground = playground
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._names: dict[str, str] = {}

    def enter(self, line: str) -> None:
        command, named = _NAMED.sub("", line), _NAMED.search(line)
        for name, value in self._names.items():
            command = re.sub(rf"\b{name}\b", value, command)
        command = self._playground.here(command)
        end = time.monotonic() + SECONDS_MAX
        while True:
            code, printed = self._run(command, as_json=named is not None)
            if code == 0 and (named is None or self._learned(named["name"], _find(printed, named["key"]))):
                return
            again = command.removeprefix("counterseal ").startswith(_ASKING) and time.monotonic() < end
            assert again, f"{line}: {command}: exit code {code}\n{printed}"
            _UNTIL_THE_NEXT_LOOK.wait(0.1)

    def _learned(self, name: str, value: Any) -> bool:
        """True if a value is there, or is what the line says."""
        if name.isupper() and value is not None:
            self._names[name] = str(value)
        return value is not None if name.isupper() else value == name

    def _run(self, command: str, *, as_json: bool) -> tuple[int, str]:
        words = shlex.split(command)
        if words[0] == "counterseal":
            return self._ours([*words[1:], "--json"] if as_json else words[1:])
        assert words[0] == "curl", f"nobody knows how to execute {command}"
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        done = subprocess.run([*words, "--fail", "--noproxy", "*"], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def _ours(self, words: list[str]) -> tuple[int, str]:
        self._monkeypatch.setattr(sys, "argv", ["counterseal", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        assert "Traceback" not in printed.err
        return int(ended.value.code or 0), printed.out if ended.value.code == 0 else printed.out + printed.err


def _find(printed: str, key: str) -> Any:
    """The first value of this key, the outermost first."""
    try:
        level: list[Any] = [json.loads(printed)]
    except ValueError:
        return None
    while level:
        for item in level:
            if isinstance(item, dict) and item.get(key) is not None:
                return item[key]
        level = [inner for value in level for inner in _members(value)]
    return None


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def test_there_is_a_page_for_every_workflow_that_people_start() -> None:
    told = {found[1] for page in PAGES if (found := _WORKFLOW.search(page.read_text(encoding="utf-8")))}
    parts = {"owner-check", "follow-up"}
    assert told | parts == {file.stem for file in (ROOT / "examples").glob("**/workflows/*.yaml")}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_commands_of_a_page_do_what_it_says(terminal: Terminal, page: Path) -> None:
    lines = [line for block in (*_blocks(PLAYGROUND, "sh"), *_blocks(page, "sh")) for line in block.splitlines()]
    assert len(lines) > 8
    for line in lines:
        terminal.enter(line)
