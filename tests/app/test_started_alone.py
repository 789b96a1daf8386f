"""Parts of a process around its work, by themselves: its log lines, its locks, its signals, its listening."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import re
import signal
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import psutil
import pytest
import structlog

from app import adapters, definitions, faces, file_locks, logs, processes, storage, wiring
from app.faces import Faces, build_faces
from app.logins import Logins
from app.processes import Duty
from app.settings import LogLevel, load_settings
from core.db import ENGINE_ROLE, FACES_ROLE
from core.errors import ConfigurationError
from evidence.signing import FileSigner
from runtime.keep.dispatcher import KIND_MAX
from runtime.store import records

LEVELS = get_args(LogLevel)
QUIET = (
    *("slack_bolt", "slack_sdk", "botocore", "boto3", "urllib3", "httpx", "httpcore", "aiohttp", "asyncio"),
    *("uvicorn", "alembic"),
)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("level", LEVELS)
def test_a_line_is_written_from_its_level_on_and_libraries_are_quiet(
    restored_logging: None, capsys: pytest.CaptureFixture[str], level: LogLevel
) -> None:
    for _ in range(2):
        logs.configure("json", level)
    root = logging.getLogger()
    assert [type(handler) for handler in root.handlers] == [logging.StreamHandler], "one, however often it is set up"
    assert root.level == getattr(logging, level.upper())
    for name in QUIET:
        assert logging.getLogger(name).level == max(logging.WARNING, root.level), name
    for said in LEVELS:
        getattr(structlog.get_logger("ours"), said)("words")
        getattr(logging.getLogger("theirs"), said)("words")
        getattr(logging.getLogger("httpx"), said)("words")
    loud = LEVELS[LEVELS.index(level) :]
    quiet = [one for one in loud if one in ("warning", "error")]
    found = [(line["logger"], line["level"]) for line in _lines(capsys)]
    assert sorted(found) == sorted(
        [(name, one) for name in ("ours", "theirs") for one in loud] + [("httpx", one) for one in quiet]
    )


def test_a_line_for_programs_has_its_facts_and_no_secret(
    restored_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("json", "info")
    with structlog.contextvars.bound_contextvars(run="r1", api_key="k"):
        structlog.get_logger("ours").info("words", a=1, bot_token="t")
    logging.getLogger("theirs").warning("said %s", "so")
    ours, theirs = _lines(capsys)
    for line in (ours, theirs):
        assert line.pop("timestamp").endswith("Z"), "in UTC"
    hidden = {"bot_token": "[hidden]", "api_key": "[hidden]"}
    assert ours == {"a": 1, "event": "words", "level": "info", "logger": "ours", "run": "r1", **hidden}
    assert theirs == {"event": "said so", "level": "warning", "logger": "theirs"}


@pytest.mark.parametrize("format_", ["console", "json"])
def test_a_failure_is_told_with_its_place_and_without_the_values_there(
    restored_logging: None, capsys: pytest.CaptureFixture[str], format_: Any
) -> None:
    logs.configure(format_)
    kept = "hunter2"
    try:
        raise ValueError(len(kept))
    except ValueError as error:
        structlog.get_logger("ours").error("failed", exc_info=error)
        logging.getLogger("theirs").exception("failed")
    said = capsys.readouterr().err
    assert said.count("ValueError: 7") == 2
    assert said.count("raise ValueError(len(kept))") == 2
    assert "hunter2" not in said
    assert (said.count("\n") == 2) is (format_ == "json")


def test_of_bolt_only_the_warning_about_authorize_is_dropped(
    restored_logging: None, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("json")
    bolt, other = logging.getLogger("counterseal.slack.bolt"), logging.getLogger("counterseal.slack")
    for one in (bolt, other):
        one.warning("As you gave `authorize`, the token is ignored")
        one.warning("authorize failed")
    assert [(line["logger"], line["event"].partition(",")[0]) for line in _lines(capsys)] == [
        ("counterseal.slack.bolt", "authorize failed"),
        ("counterseal.slack", "As you gave `authorize`"),
        ("counterseal.slack", "authorize failed"),
    ]


HELD = [
    # The one that is there, the one that comes, and whether it may come.
    ((True, None), True, True),
    ((True, None), False, False),
    ((False, None), True, False),
    ((False, None), False, False),
]


@pytest.mark.parametrize(("there", "shared", "free"), HELD)
def test_a_lock_is_shared_or_of_one_alone(tmp_path: Path, there: tuple[bool, Any], shared: bool, free: bool) -> None:
    path = tmp_path / "a.lock"
    assert not file_locks.is_held(path)
    handle = file_locks.lock(path, shared=there[0])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert file_locks.is_held(path), "for whoever would have it alone"
    assert file_locks.is_held(path, shared=True) is not there[0]
    second = file_locks.try_lock(path, shared=shared)
    assert (second is not None) is free
    if second is None:
        with pytest.raises(BlockingIOError):
            file_locks.lock(path, shared=shared, wait=False)
    else:
        os.close(second)
    before = psutil.Process().num_fds()
    assert file_locks.is_held(path)
    assert psutil.Process().num_fds() == before, "whoever looked has left nothing open"
    os.close(handle)
    with file_locks.held(path):
        assert file_locks.try_lock(path) is None
    assert not file_locks.is_held(path)


def test_a_fact_is_waited_for_as_long_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    pause = SimpleNamespace(wait=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(file_locks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(file_locks, "threading", SimpleNamespace(Event=lambda: pause))
    looks: list[float] = []

    def fact(at: float) -> Any:
        looks.clear()
        now[0] = 0.0

        def look() -> bool:
            looks.append(now[0])
            return now[0] >= at

        return look

    assert file_locks.wait_until(fact(0), 1)
    assert looks == [0.0]
    assert file_locks.wait_until(fact(0.05), 1)
    assert [round(look, 2) for look in looks] == [0, 0.02, 0.04, 0.06]
    assert not file_locks.wait_until(fact(5), 0.05)
    assert [round(look, 2) for look in looks] == [0, 0.02, 0.04, 0.06]


def test_a_home_belongs_to_an_installation_or_to_a_demo_and_its_child(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    running = f"Counterseal is running in {home}, with other settings than the demo's."
    end = " End that first (Ctrl-C), or set COUNTERSEAL_HOME to another folder."
    with file_locks.installation(home), pytest.raises(ConfigurationError) as refused, file_locks.demo(home):
        raise AssertionError
    assert str(refused.value) == running + end
    (home / "demo.lock").write_bytes(b"123456789 and more")
    with file_locks.demo(home):
        assert (home / "demo.lock").read_bytes() == b"%d" % os.getpid()
        with pytest.raises(ConfigurationError) as refused, file_locks.installation(home):
            raise AssertionError
        assert str(refused.value) == f"The demo is running in {home}, with settings of its own.{end}"
        with pytest.raises(ConfigurationError) as refused, file_locks.demo(home):
            raise AssertionError
        assert str(refused.value) == f"A demo is running in {home} already.{end}"
        (home / "demo.lock").write_bytes(b"%d" % os.getppid())
        with file_locks.installation(home):
            assert file_locks.is_held(home / "parts.lock"), "of the demo that started us"
    looking = file_locks.lock(home / "demo.lock", shared=True)
    (home / "demo.lock").write_bytes(b"1")
    with file_locks.installation(home), file_locks.installation(home):
        assert file_locks.is_held(home / "parts.lock"), "another that looks, too, is no demo"
    os.close(looking)
    assert {stat.S_IMODE((home / name).stat().st_mode) for name in ("parts.lock", "demo.lock")} == {0o600}
    assert not file_locks.is_held(home / "parts.lock")
    assert not file_locks.is_held(home / "demo.lock")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError) as refused, file_locks.installation(tmp_path / "file" / "home"):
        raise AssertionError
    place = tmp_path / "file" / "home"
    assert (
        str(refused.value)
        == f"{place} cannot be written to: Not a directory. Set COUNTERSEAL_HOME to a folder of yours."
    )


async def test_the_first_signal_lets_work_end_and_the_second_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", handlers.__setitem__)
    stop, begun, told = asyncio.Event(), asyncio.Event(), list[Any]()

    async def main() -> None:
        processes._stop_at_signals(stop)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("ends")

    task = asyncio.create_task(main())
    await begun.wait()
    assert [*handlers] == [signal.SIGTERM, signal.SIGINT]
    with structlog.testing.capture_logs() as captured:
        handlers[signal.SIGTERM]()
        assert (stop.is_set(), task.cancelling()) == (True, 0)
        handlers[signal.SIGINT]()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert told == ["ends"]
    assert [(line["log_level"], line["event"]) for line in captured] == [
        ("info", "stopping: finishing what is under way"),
        ("warning", "stopping at once"),
    ]


async def test_whoever_listens_is_woken_by_its_own_channel_and_whenever_the_connection_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "RECONNECT_SECONDS", 0)
    woken, all_woken = list[str](), asyncio.Event()
    wakes = {
        "steps": [lambda: woken.append("a"), lambda: woken.append("b")],
        "messages": [lambda: woken.append("c"), all_woken.set],
    }
    stop, opened = asyncio.Event(), list[Any]()

    class Database:
        @asynccontextmanager
        async def listening(self, channels: Any, notify: Any) -> AsyncIterator[Any]:
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            opened.append((channels, notify, lost))
            yield lost

    database: Any = Database()
    task = asyncio.create_task(processes.listen(database, wakes, stop))
    await all_woken.wait()
    assert woken == ["a", "b", "c"]
    channels, notify, lost = opened[0]
    assert channels == ("steps", "messages")
    notify("messages", "payload")
    notify("steps")
    assert woken[3:] == ["c", "a", "b"]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(opened) == 1, "one connection as long as it lives"
    all_woken.clear()
    woken.clear()
    lost.set_result(None)
    await asyncio.wait_for(all_woken.wait(), 5)
    assert (woken, len(opened)) == (["a", "b", "c"], 2)
    stop.set()
    await asyncio.wait_for(task, 5)
    assert not opened[1][2].done()


def test_what_is_loaded_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    for name in ("collect", "freeze", "set_threshold"):
        monkeypatch.setattr(gc, name, lambda *given, name=name: did.append((name, *given)))
    processes.keep_for_good()
    assert did == [("collect",), ("freeze",), ("set_threshold", 20_000)]


class Ended(Exception):
    """Ends a process once it runs."""


@pytest.mark.parametrize("duties", [{Duty.SERVE}, {Duty.WORK}, set(Duty)])
@pytest.mark.parametrize("given", ["embedded", "owner", "faces", "both"])
async def test_a_process_is_built_prepared_and_announced_in_this_order(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path, duties: set[Duty], given: str
) -> None:
    did: list[Any] = []

    @asynccontextmanager
    async def build(settings: Any, *, first_run: bool) -> AsyncIterator[Any]:
        did.append(("build", first_run, file_locks.is_held(tmp_path / "parts.lock")))
        yield SimpleNamespace(faces="faces", connectors="connectors")
        did.append("closed")

    async def prepare(*said: Any) -> None:
        did.append(("prepare", *said))

    async def run(app: Any, which: Any, stop: asyncio.Event, announce: Any) -> None:
        executor = cast("Any", asyncio.get_running_loop())._default_executor
        did.append(("run", sorted(which), getattr(executor, "_max_workers", None)))
        announce("http://here")

    for name, stub in (("build", build), ("run", run), ("keep_for_good", lambda: did.append("kept"))):
        clean_environment.setattr(processes, name, stub)
    clean_environment.setattr(processes, "_stop_at_signals", lambda stop: did.append(("signals", stop.is_set())))
    clean_environment.setattr(definitions, "prepare", prepare)
    url = "postgresql://u:p@h/d"
    named: dict[str, dict[str, str]] = {
        "embedded": {},
        "owner": {"database_url": url},
        "faces": {"faces_database_url": url},
        "both": {"faces_database_url": url, "engine_database_url": url},
    }
    settings = load_settings(home=tmp_path, **named[given])
    running = processes.run_settings(settings, frozenset(duties), lambda told: did.append(("announced", told)))
    if given == "faces" and duties != {Duty.SERVE}:
        with pytest.raises(ConfigurationError) as refused:
            await running
        assert str(refused.value) == (
            "COUNTERSEAL_ENGINE_DATABASE_URL is not set, and this process works for the engine. "
            "`counterseal db setup` makes it; only `serve` does without."
        )
        assert did == [("signals", False)]
        return
    await running
    assert did == [
        ("signals", False),
        ("build", duties == set(Duty), given == "embedded"),
        ("prepare", "faces", "connectors"),
        ("run", sorted(duties), 2 * KIND_MAX),
        "kept",
        ("announced", "http://here"),
        "closed",
    ]
    assert not file_locks.is_held(tmp_path / "parts.lock")


@pytest.mark.parametrize("embedded", [True, False])
async def test_an_embedded_server_is_watched_and_a_schema_is_always_kept(
    clean_environment: pytest.MonkeyPatch, embedded: bool
) -> None:
    ran: list[Any] = []

    def stub(name: str) -> Any:
        async def running(*given: Any) -> None:
            ran.append((name, *given))

        return running

    for name in ("watch", "keep_schema"):
        clean_environment.setattr(storage, name, stub(name))
    settings = load_settings(**({} if embedded else {"database_url": "postgresql://u:p@h/d"}))
    app, stop = cast("Any", SimpleNamespace(settings=settings)), asyncio.Event()
    await processes.run(app, frozenset(), stop, lambda url: ran.append(("announced", url)))
    kept = [("watch", settings, stop)] if embedded else []
    assert ran == [("announced", None), *kept, ("keep_schema", settings, stop)]


async def test_one_part_that_fails_ends_the_others(clean_environment: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def fails(*_: Any) -> None:
        raise ConfigurationError("It cannot go on.")

    async def waits(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("canceled")

    clean_environment.setattr(storage, "watch", waits)
    clean_environment.setattr(storage, "keep_schema", fails)
    app: Any = SimpleNamespace(settings=load_settings())
    with pytest.raises(ExceptionGroup) as failed:
        await processes.run(app, frozenset(), asyncio.Event(), lambda url: None)
    assert [str(each) for each in failed.value.exceptions] == ["It cannot go on."]
    assert ended == ["canceled"]


@pytest.mark.parametrize("new", [False, True])
async def test_faces_are_built_on_the_faces_login_for_a_tenant_that_is_there(
    clean_environment: pytest.MonkeyPatch, new: bool
) -> None:
    found, required = Logins("postgresql://f:p@h/d", "postgresql://e:p@h/d", "o"), list[Any]()

    @asynccontextmanager
    async def ready(settings: Any) -> AsyncIterator[Logins]:
        yield found

    async def require(*said: Any) -> None:
        required.append(said)

    class Database:
        def __init__(self, url: str, role: str) -> None:
            self.of = (url, role)

        async def __aenter__(self) -> Database:
            return self

        async def __aexit__(self, *_: object) -> None:
            self.of = ("", "closed")

    clean_environment.setattr(storage, "ready_database", ready)
    clean_environment.setattr(storage, "require_tenants", require)
    clean_environment.setattr(faces, "Database", Database)
    settings, blobs = load_settings(tenant="acme"), cast("Any", object())
    async with build_faces(settings, blobs=blobs, new_tenant=new) as built:
        database: Any = built.database
        assert database.of == ("postgresql://f:p@h/d", FACES_ROLE)
        assert (built.settings, built.slack, built.blobs, built.workspace) == (settings, None, blobs, None)
        assert required == ([] if new else [(database, found, ["acme"])])
    assert database.of == ("", "closed")


def test_the_parts_of_a_face_are_made_of_its_own(clean_environment: pytest.MonkeyPatch) -> None:
    settings = load_settings(tenant="acme")
    client, database = cast("Any", object()), cast("Any", object())
    clean_environment.setattr(adapters, "blobs_of", lambda given: ("blobs", given))
    with_slack, without = Faces(settings, database, client), Faces(settings, database, None)
    assert with_slack.blobs == cast("Any", ("blobs", settings))
    for one in (with_slack, without):
        voting = one.voting
        assert (voting.database, voting.definitions) == (database, one.definitions)
        directory = cast("Any", voting.directory)
        for part, tenant in ((directory, "acme"), (one.directory("other"), "other")):
            told = {each.lstrip("_"): value for each, value in _parts(part).items()}
            assert (told["database"], told["definitions"], told["tenant"]) == (database, one.definitions, tenant)
            assert (told["slack_groups"] is not None) is (one is with_slack)
        assert (one.tasks.database, one.tasks.definitions) == (database, one.definitions)
        assert (one.looking.database, one.looking.definitions) == (database, one.definitions)
        assert _parts(one.refusals)["_database"] is database
        for each in ("definitions", "metrics", "refusals", "workspace", "blobs"):
            assert getattr(one, each) is getattr(one, each), f"{each}: one for the whole process"
    assert (without.slack_groups, without.workspace) == (None, None)


def _parts(value: Any) -> dict[str, Any]:
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return dict(vars(value))


async def test_a_question_is_asked_in_a_transaction_of_its_tenant() -> None:
    class Database:
        @asynccontextmanager
        async def transaction(self, tenant: str) -> AsyncIterator[str]:
            yield f"of {tenant}"

    async def question(*said: Any, **named: Any) -> Any:
        return (said, named)

    one = Faces(load_settings(), cast("Any", Database()), None)
    assert await one.ask("acme", question, 1, two=2) == (("of acme", "acme", 1), {"two": 2})


class Opened:
    """A database of one login, which is told when it is closed."""

    def __init__(self, url: str, role: str, *, connections: int = 1) -> None:
        self.of: Any = (url, role, connections)

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.of = "closed"


@pytest.mark.parametrize("engine", ["postgresql://e:p@h/d", None])
@pytest.mark.parametrize("slack", [None, "client"])
@pytest.mark.parametrize("given", [False, True])
async def test_a_runtime_is_built_of_what_is_given_and_else_of_the_settings(
    clean_environment: pytest.MonkeyPatch, engine: str | None, slack: Any, given: bool
) -> None:
    did: list[Any] = []
    logins = Logins("postgresql://f:p@h/d", engine)
    settings = load_settings(worker_concurrency=5, tenant="acme")
    catalog = SimpleNamespace(catalog="catalog")

    @asynccontextmanager
    async def ready(asked: Any) -> AsyncIterator[Logins]:
        assert asked is settings
        yield logins

    async def faces_of_(stack: Any, asked: Any, url: str, blobs: Any) -> Any:
        did.append(("faces", asked, url, blobs))
        return SimpleNamespace(settings=asked, database="faces'", slack=slack, definitions=catalog)

    async def engine_of(found: Logins) -> str:
        return found.engine or found.faces

    async def require(*said: Any) -> None:
        did.append(("require", *said))

    async def aclose() -> None:
        did.append("connectors closed")

    made = SimpleNamespace(aclose=aclose)

    def connectors_of(asked: Any, of: Any, read: Any) -> Any:
        did.append(("connectors", asked, of, read.func, read.args[0].of))
        return made

    for name, stub in (("ready_database", ready), ("engine_of", engine_of), ("require_tenants", require)):
        clean_environment.setattr(storage, name, stub)
    clean_environment.setattr(wiring, "faces_of", faces_of_)
    clean_environment.setattr(wiring, "Database", Opened)
    clean_environment.setattr(adapters, "connectors_of", connectors_of)
    clean_environment.setattr(adapters, "queue_of", lambda asked: ("queue", asked))
    clean_environment.setattr(adapters, "dead_letters_of", lambda asked: ("letters", asked))
    clean_environment.setattr(FileSigner, "load_or_create", lambda path: ("signer", path))
    clean_environment.setattr(wiring, "SlackMessenger", lambda client: ("messenger", client))
    own: dict[str, Any] = {name: f"own {name}" for name in ("connectors", "messenger", "queue", "blobs", "signer")}
    opened = (engine or logins.faces, ENGINE_ROLE, 13)
    async with wiring.build(settings, **(own if given else {})) as app:
        parts: Any = app
        assert (parts.database.of, parts.settings, parts.definitions) == (opened, settings, catalog)
        found = (parts.connectors, parts.queue, parts.signer, parts.messenger)
        posts = None if slack is None else ("messenger", "client")
        assert found == (
            (own["connectors"], own["queue"], own["signer"], own["messenger"])
            if given
            else (made, ("queue", settings), ("signer", settings.signing_key_path), posts)
        )
        assert parts.dead_letters == ("letters", settings)
        assert re.fullmatch(rf"{re.escape(socket.gethostname())}:{os.getpid()}:[0-9a-f]{{6}}", parts.owner)
    assert parts.database.of == "closed"
    assert did == [
        ("faces", settings, logins.faces, own["blobs"] if given else None),
        ("require", "faces'", logins, ("acme",)),
        *([] if given else [("connectors", settings, "catalog", records.read, opened), "connectors closed"]),
    ]
