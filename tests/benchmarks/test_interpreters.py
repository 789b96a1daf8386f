"""The comparison says how its interpreter was built, and gives the fastest one to every engine in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers import environments, interpreters
from benchmarks.peers.engines import OURS, PEERS
from benchmarks.peers.interpreters import Interpreter


def one(path: str, seconds: float, *, version: str = "", optimised: bool = False, system: bool = False) -> Interpreter:
    version = version or "{}.{}.0".format(*sys.version_info)
    return Interpreter(Path(path), version, optimised, "-O3", system, seconds)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Interpreter]:
    """The interpreters of a machine, by their programs."""
    found: dict[str, Interpreter] = {}
    monkeypatch.setattr(interpreters, "examine", found.get)
    monkeypatch.setattr(
        interpreters.shutil, "which", lambda name: f"/opt/{name}" if name == "npm" or f"/opt/{name}" in found else None
    )
    interpreters.best.cache_clear()
    yield found
    interpreters.best.cache_clear()


def test_this_interpreter_says_how_it_was_built() -> None:
    own = interpreters.own()
    assert own.version.startswith("{}.{}.".format(*sys.version_info))
    assert own.seconds > 0
    assert own.words.startswith(f"CPython {own.version} (")
    assert "--enable-optimizations" in own.words
    assert interpreters.examine("/nowhere/python") is None


def test_the_words_say_what_is_known() -> None:
    assert "(built with --enable-optimizations; -O3;" in one("a", 1, optimised=True).words
    assert "(not built with --enable-optimizations; -O3;" in one("a", 1).words
    assert "the system's, which does not say" in one("a", 1, system=True).words


@pytest.mark.parametrize(("seconds", "taken"), [(0.7, "/opt/python3"), (0.97, sys.executable)])
def test_the_fastest_of_the_same_version_is_taken(machine: dict[str, Interpreter], seconds: float, taken: str) -> None:
    machine[sys.executable] = one(sys.executable, 1.0)
    machine["/opt/python3"] = one("/opt/python3", seconds)
    machine["/opt/python3.13"] = one("/opt/python3.13", 0.1, version="2.7.18")
    assert str(interpreters.best().path) == taken


def test_every_engine_in_python_gets_it(
    machine: dict[str, Interpreter], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine[sys.executable] = one(sys.executable, 1.0)
    machine["/opt/python3"] = one("/opt/python3", 0.5)
    made: dict[str, str] = {}
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)

    def run(command: list[str], folder: Path = tmp_path) -> None:
        if command[1:3] == ["-m", "venv"]:
            Path(command[3]).mkdir()
            made[Path(command[3]).name] = command[0]

    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setattr(environments, "_server", lambda folder: folder)
    for spec in (OURS, *PEERS):
        assert environments.prepare(spec).python == tmp_path / spec.key / "bin" / "python"
    assert made == dict.fromkeys([spec.key for spec in (OURS, *PEERS)], "/opt/python3")
