"""Shared parts of all commands, by themselves: who acts, for which tenant, how loud, with which files, on a table."""

from __future__ import annotations

import getpass
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from uuid import UUID

import pytest
import rich.console

import app.faces
from app import storage
from app.cli import context, evidence
from app.cli.outcome import print_one, print_part, print_rows
from app.logins import Logins
from app.settings import LogLevel, load_settings
from core import db
from core.db import ENGINE_ROLE
from core.errors import InputError, NotFoundError
from runtime.store import documents, tenants

FORM = "Use lower-case letters, digits, - and _, at most 63, starting with a letter or digit."


@pytest.mark.parametrize("level", get_args(LogLevel))
@pytest.mark.parametrize("quiet", [False, True])
def test_beside_an_answer_only_warnings_are_written(
    clean_environment: pytest.MonkeyPatch, restored_logging: None, level: LogLevel, quiet: bool
) -> None:
    clean_environment.setenv("COUNTERSEAL_LOG_LEVEL", level)
    found = context.settings(quiet=quiet, workspace="side")
    assert (found.log_level, found.workspace) == (level, "side")
    wanted = "warning" if quiet and level != "error" else level
    assert logging.getLogger().level == getattr(logging, wanted.upper())


@pytest.mark.parametrize(("given", "used"), [(None, "acme"), ("", "acme"), ("other", "other")])
@pytest.mark.parametrize("new", [False, True])
async def test_a_command_is_for_the_tenant_of_its_option_or_of_the_settings(
    clean_environment: pytest.MonkeyPatch, restored_logging: None, given: str | None, used: str, new: bool
) -> None:
    clean_environment.setenv("COUNTERSEAL_TENANT", "acme")
    built: list[Any] = []

    @asynccontextmanager
    async def build(settings: Any, *, new_tenant: bool) -> AsyncIterator[str]:
        built.append((settings.tenant, new_tenant))
        yield "faces"

    clean_environment.setattr(app.faces, "build_faces", build)
    async with context.faces(given, new_tenant=new) as found:
        assert str(found) == "faces"
    assert built == [(used, new)]
    for what in ((), ("NAME",)):
        with pytest.raises(InputError) as refused:
            async with context.faces("No", *what):
                raise AssertionError
        assert (refused.value.where, refused.value.message) == (what[0] if what else "--tenant", "'No' is no name.")
        assert refused.value.remedy == FORM


async def test_the_policies_in_force_are_those_of_the_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def transaction(tenant: str) -> AsyncIterator[str]:
        yield f"of {tenant}"

    async def policies(connection: str, tenant: str, digests: Any) -> Any:
        return (connection, tenant, digests)

    async def in_force(connection: str, tenant: str) -> list[str]:
        return [f"in force for {tenant} by one {connection}"]

    @asynccontextmanager
    async def faces() -> AsyncIterator[Any]:
        yield SimpleNamespace(
            settings=SimpleNamespace(tenant="acme"),
            database=SimpleNamespace(transaction=transaction),
            definitions=SimpleNamespace(policies=policies, catalog="catalog"),
        )

    monkeypatch.setattr(context, "faces", faces)
    monkeypatch.setattr(documents, "in_force", in_force)
    found: Any = await context.policies_in_force()
    assert found == (("of acme", "acme", ["in force for acme by one of acme"]), "catalog")


@pytest.mark.parametrize("engine", ["postgresql://e:p@h/d", None])
async def test_whoever_looks_over_all_tenants_has_the_engine_s_login(
    clean_environment: pytest.MonkeyPatch, restored_logging: None, engine: str | None
) -> None:
    did: list[Any] = []

    class Database:
        def __init__(self, url: str, role: str, *, connections: int) -> None:
            self._of = (url, role, connections)

        async def __aenter__(self) -> Database:
            did.append(self._of)
            return self

        async def __aexit__(self, *_: object) -> None:
            did.append("closed")

        @asynccontextmanager
        async def transaction(self) -> AsyncIterator[str]:
            yield "all"

    @asynccontextmanager
    async def ready(settings: Any) -> AsyncIterator[Logins]:
        yield Logins("postgresql://f:p@h/d", engine)

    async def engine_of(logins: Logins) -> str:
        did.append(("checked", logins.engine))
        return ""

    async def exists(connection: str, name: str) -> bool:
        return name == "acme"

    async def names(connection: str) -> list[str]:
        return ["acme"]

    clean_environment.setattr(storage, "ready_database", ready)
    clean_environment.setattr(storage, "engine_of", engine_of)
    clean_environment.setattr(db, "Database", Database)
    clean_environment.setattr(tenants, "exists", exists)
    clean_environment.setattr(tenants, "names", names)
    if engine is None:
        with pytest.raises(Exception, match="COUNTERSEAL_ENGINE_DATABASE_URL is not set"):
            async with context.overview():
                raise AssertionError
        assert did == []
        return
    opened = [(engine, ENGINE_ROLE, 1), ("checked", engine), "closed"]
    for name in (None, "", "acme"):
        async with context.overview(name) as (settings, database):
            assert settings.tenant == "default"
            assert isinstance(database, Database)
        assert did == opened, name
        did.clear()
    with pytest.raises(NotFoundError, match=r"There is no tenant 'acmee'\. Did you mean 'acme'\?"):
        async with context.overview("acmee"):
            raise AssertionError
    assert did == opened
    did.clear()
    with pytest.raises(InputError, match="--tenant: 'No' is no name"):
        async with context.overview("No"):
            raise AssertionError
    assert did == [], "nothing was opened"


def test_words_ids_and_names_are_read_or_told_with_the_way_out(clean_environment: pytest.MonkeyPatch) -> None:
    clean_environment.setenv("COUNTERSEAL_PERSON", "tess")
    acting = context.actor(load_settings())
    assert (acting.kind, acting.id) == ("person", "tess")
    clean_environment.delenv("COUNTERSEAL_PERSON")
    clean_environment.setattr(getpass, "getuser", lambda: "os-user")
    acting = context.actor(load_settings())
    assert (acting.kind, acting.id) == ("person", "os-user")
    context.check_word("b", ["a", "b"], "state")
    with pytest.raises(InputError) as refused:
        context.check_word("c", ["a", "b"], "state")
    assert str(refused.value) == "--state: 'c' is not a state. One of a, b."
    read = context.id_of("RUN")
    assert read("00000000-0000-0000-0000-000000000007") == UUID(int=7)
    with pytest.raises(InputError) as refused:
        read("7")
    assert str(refused.value) == "RUN: is not an id. Copy it from the list command."
    assert context.name("a_b-9", "NAME") == "a_b-9"


def test_a_file_is_read_up_to_its_longest_length_or_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("some")
    folder.mkdir()
    (folder / "a").write_bytes(b"\xff12")
    assert context.read_input(folder / "a", 3) == context.typed("@some/a") == b"\xff12"
    (folder / "long").write_bytes(b"x" * (1024 * 1024))
    assert len(context.read_input(folder / "long")) == len(context.read_text(folder / "long")) == 1024 * 1024
    (folder / "longer").write_bytes(b"x" * (1024 * 1024 + 1))
    refused: list[tuple[Any, str, str]] = [
        (lambda: context.read_input(folder / "a", 2), "a", "is larger than 2 bytes"),
        (lambda: context.read_input(folder / "longer"), "longer", "is larger than 1048576 bytes"),
        (lambda: context.read_text(folder / "longer"), "longer", "is larger than 1048576 bytes"),
        (lambda: context.read_text(folder / "a"), "a", "is not UTF-8"),
        (lambda: context.read_text(folder / "none"), "none", "cannot be read: No such file or directory"),
        (lambda: context.typed("@some/none"), "none", "cannot be read: No such file or directory"),
        (lambda: context.read_input(folder), "", "cannot be read: Is a directory"),
    ]
    for read, name, words in refused:
        with pytest.raises(InputError) as error:
            read()
        assert (error.value.where, error.value.message) == (str(folder / name), words)
    assert context.typed(" @some/a") == b" @some/a"
    assert context.typed("é\udcff") == b"\xc3\xa9\xff", "as the terminal gave it"


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "b.zip"
    place.write_bytes(b"old and longer")
    evidence._write(place, b"new")
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (b"new", 0o600)
    moved: list[Any] = []
    write = Path.write_bytes

    def beside(self: Path, data: bytes) -> int:
        moved.append((self.parent.parent, self.name, self.stat().st_mode & 0o777, place.read_bytes()))
        return write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", beside)
        evidence._write(place, b"new")
    assert moved == [(tmp_path, "b.zip", 0o600, b"new")], "on the same disk, so that it is moved at once"
    with pytest.raises(InputError) as refused:
        evidence._write(tmp_path / "none" / "b.zip", b"new")
    assert str(refused.value) == f"{tmp_path}/none/b.zip: cannot be written: No such file or directory"

    def full(self: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        evidence._write(place, b"newer")
    monkeypatch.undo()
    assert place.read_bytes() == b"new", "what was there stays"
    assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]


def test_a_list_is_a_table_for_people_columns_for_pipes_and_json_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [
        {"run_id": str(UUID(int=7)), "title": "[bold]x[/] " + "y " * 60, "more": 1},
        {"run_id": "b"},
    ]
    print_rows(rows, ("run_id", "title"), empty="None.")
    assert capsys.readouterr() == (f"{UUID(int=7)}\t[bold]x[/] {'y ' * 60}\nb\t-\n", "")
    print_rows([], ("run_id",), empty="None.")
    assert capsys.readouterr() == ("", "None.\n")
    print_rows([], ("run_id",), empty="None.", as_json=True)
    assert capsys.readouterr() == ("[]\n", "")
    print_part("things", [], "a")
    assert capsys.readouterr() == ("\nthings\n", "no things\n")
    print_part("things", [{"a": 1}], "a", empty="none of them")
    assert capsys.readouterr() == ("\nthings\n1\n", "")
    print_part("things", [], "a", empty="none of them")
    assert capsys.readouterr() == ("\nthings\n", "none of them\n")
    for as_json, said in ((False, "words\n"), (True, '{\n  "a": "é"\n}\n')):
        print_one({"a": "é"}, "words", as_json=as_json)
        assert capsys.readouterr() == (said, "")
    plain = rich.console.Console(width=60, force_terminal=False, color_system=None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(rich.console, "Console", lambda: plain)
    print_rows(rows, ("run_id", "title"), empty="None.")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "id", "title"]
    assert lines[1].startswith(f"{UUID(int=7)}  [bold]x[/] y"), "an id is whole, and no markup is read"
    assert lines[-1].split() == ["b", "-"]
