"""The client of AgentDojo's process: asks for suites, environments, calls and AgentDojo's own judgment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from benchmarks.dojo.scripts import Call, Suite
from core.canonical import Json, JsonObject

SERVING = Path(__file__).parent / "far" / "serving.py"


class ToolError(Exception):
    """A tool refused the call, and nothing happened; the text is the tool's."""


class World(Protocol):
    """One environment in which calls are made."""

    def call(self, call: Call) -> Json:
        """Make the call. Raises ToolError."""

    def succeeded(self) -> bool:
        """True if the user's task succeeded, by AgentDojo's judgment."""


class Far:
    """A process that runs AgentDojo. A context manager."""

    def __init__(self, python: Path, script: Path = SERVING) -> None:
        self._process = subprocess.Popen(
            [str(python), str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def __enter__(self) -> Far:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with self._process as process, suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.close()

    def ask(self, what: str, **details: Json) -> Any:
        """Send one request and return its answer. Raises RuntimeError if AgentDojo raised an error or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # the process has ended; the empty answer below reports it
            self._process.stdin.write(json.dumps({"ask": what, **details}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        told = json.loads(line) if line else {"error": "AgentDojo's process has ended"}
        if "error" in told:
            raise RuntimeError(f"{what}: {told['error']}")
        return told["answer"]

    def suites(self, *, attacks: bool) -> list[Suite]:
        """All suites, with their attacks if ``attacks``."""
        return [Suite.of(name, told) for name, told in self.ask("suites", injections=attacks).items()]

    @contextmanager
    def world(self, suite: str, task: str, planted: str | None = None) -> Iterator[World]:
        """A fresh environment for a user's task, with ``planted`` in every place that an attacker can write."""
        number = self.ask("open", suite=suite, task=task, injected=planted)
        try:
            yield _World(self, number)
        finally:
            self.ask("close", world=number)


class _World:
    def __init__(self, far: Far, number: int) -> None:
        self._far, self._number = far, number

    def call(self, call: Call) -> Json:
        told: JsonObject = self._far.ask("call", world=self._number, tool=call.tool, arguments=call.arguments)
        if "error" in told:
            raise ToolError(str(told["error"]))
        return told["result"]

    def succeeded(self) -> bool:
        return self._far.ask("succeeded", world=self._number) is True
