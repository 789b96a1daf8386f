"""Small parts of an installation by themselves: windows of refusals, logins that are made, a server that died."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest
import structlog

from app import adapters, refusals, storage
from app.cli import people
from app.faces import Faces
from app.http.connections import LOG_SECONDS, GuardedConfig, Limits
from app.logins import Logins
from app.outlining import explain_action
from app.postgres_cluster import _LOG_LIMIT, Cluster
from app.refusals import WINDOW_SECONDS, RefusalLog, StrangerLog
from app.settings import load_settings
from connectors.catalog import Source, load_catalog
from core.errors import ConfigurationError, InputError, TransportError
from evidence.chain import Actor, EventType
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions


class Lines:
    """A database that keeps the audit lines that are written to it; ``away`` is whether it is down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[Any] = []
        self.away = False
        self.error: Exception = OSError("away")
        monkeypatch.setattr(refusals.audit, "record", self._record)

    def transaction(self, tenant: str) -> Any:
        return self

    async def __aenter__(self) -> Lines:
        if self.away:
            raise self.error
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def _record(self, _: Any, tenant: str, kind: EventType, actor: Actor, data: Any) -> None:
        self.written.append((tenant, str(kind), f"{actor.kind}:{actor.id}", data))

    def take(self) -> list[Any]:
        found, self.written = self.written, []
        return found


async def test_refusals_have_a_line_a_minute_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, now = Lines(monkeypatch), [0.0]
    kept: Any = lines
    log = RefusalLog(kept, now=lambda: now[0])

    def line(count: int, tenant: str = "a", endpoint: str = "e", code: str = "c") -> Any:
        data = {"endpoint": endpoint, "code": code, "count": count}
        return (tenant, "request.refused", f"face:{endpoint}", data)

    for tenant, endpoint, code in (("a", "e", "c"), ("b", "e", "c"), ("a", "f", "c"), ("a", "e", "d")):
        await log.note(tenant, endpoint, code)
        assert lines.take() == [line(1, tenant, endpoint, code)], "each has a window of its own"
    for _ in range(3):
        await log.note("a", "e", "c")
    assert lines.take() == []
    now[0] = WINDOW_SECONDS - 0.1
    await log.note("a", "e", "c")
    assert lines.take() == []
    now[0] = WINDOW_SECONDS
    await log.note("a", "e", "c")
    assert lines.take() == [line(5)], "the four that were only counted, and this one"
    await log.note("a", "e", "c")
    await log.flush()
    assert lines.take() == [line(1)]
    await log.flush()
    assert lines.take() == [], "nothing is told twice"
    for code in ("c", "d", "c", "d", "d"):
        await log.note("a", "g", code)
    assert lines.take() == [line(1, "a", "g", "c"), line(1, "a", "g", "d")]
    await log.flush()
    assert lines.take() == [line(1, "a", "g", "c"), line(2, "a", "g", "d")], "each that was only counted"
    lines.away = True
    now[0] = 3 * WINDOW_SECONDS
    await log.note("a", "e", "c")
    lines.away = False
    stop = asyncio.Event()
    stop.set()
    await log.note("a", "e", "c")
    await log.run(stop)
    assert lines.take() == [line(1)], "what is left is told at the end"


@pytest.mark.parametrize(
    "error",
    [OSError("no"), TransportError("no"), asyncpg.PostgresError("no"), asyncpg.InterfaceError("no"), ValueError("no")],
)
async def test_a_refusal_that_cannot_be_written_stays_a_refusal(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lines = Lines(monkeypatch)
    lines.away, lines.error = True, error
    kept: Any = lines
    log = RefusalLog(kept, now=lambda: 0.0)
    with structlog.testing.capture_logs() as captured:
        if isinstance(error, ValueError):
            with pytest.raises(ValueError, match="no"):
                await log.note("a", "e", "c")
        else:
            await log.note("a", "e", "c")
    told = [(line["log_level"], line["endpoint"], line["code"], line["reason"]) for line in captured]
    assert told == ([] if isinstance(error, ValueError) else [("error", "e", "c", "no")])


async def test_strangers_have_a_line_for_each_account_question_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, now = Lines(monkeypatch), [0.0]
    kept: Any = lines
    log = StrangerLog(kept, now=lambda: now[0])
    cases = [
        (user, {"code": code, about: which})
        for user in ("U1", "U2")
        for code in ("foreign_workspace", "unlinked")
        for about in ("approval", "task")
        for which in (f"{about}-1", f"{about}-2")
    ]
    for count in (1, 2):
        for user, data in cases:
            kind = EventType.TASK_REFUSED if "task" in data else EventType.APPROVAL_VOTE_REFUSED
            await log.note("a", kind, Actor("slack_user", user), data)
            wanted = ("a", str(kind), f"slack_user:{user}", {**data, "count": count})
            assert lines.take() == [wanted]
            await log.note("a", kind, Actor("slack_user", user), data)
            assert lines.take() == []
        now[0] += WINDOW_SECONDS
    lines.away = True
    with pytest.raises(OSError, match="away"):
        await log.note("a", EventType.TASK_REFUSED, Actor("slack_user", "U1"), cases[2][1])
    lines.away = False
    await log.note("a", EventType.TASK_REFUSED, Actor("slack_user", "U1"), cases[2][1])
    assert [line[3]["count"] for line in lines.take()] == [2], "what was not written is not lost"


def test_connections_beyond_the_cap_are_told_once_a_minute_with_their_number() -> None:
    config = GuardedConfig(None, Limits(connections=7))
    told: list[Any] = []
    for at in (0.0, 1.0, LOG_SECONDS - 0.1, LOG_SECONDS, LOG_SECONDS + 1, 2 * LOG_SECONDS):
        with structlog.testing.capture_logs() as captured:
            config.refused(at)
        told.append([(line["open"], line["refused"]) for line in captured])
    assert told == [[(7, 1)], [], [], [(7, 3)], [], [(7, 2)]]
    assert [GuardedConfig(None, Limits(idle_seconds=s)).timeout_keep_alive for s in (0.2, 1, 5.4)] == [1, 1, 5]


HEAD = storage.head_revision()


@pytest.mark.parametrize(
    ("migrates", "before", "done"),
    [
        (True, None, ["upgrade", "logins"]),
        (True, "0001", ["upgrade", "logins"]),
        (True, HEAD, ["logins"]),
        (False, None, []),
        (False, "0001", []),
        (False, HEAD, ["logins"]),
    ],
)
async def test_the_owner_upgrades_where_it_may_and_makes_logins_at_the_head(
    monkeypatch: pytest.MonkeyPatch, migrates: bool, before: str | None, done: list[str]
) -> None:
    found: list[Any] = []
    logins = Logins("faces", "engine", "owner")

    async def revision(url: str) -> str | None:
        assert url == "owner"
        return before

    async def upgrade(url: str) -> None:
        found.append(("upgrade", url))

    async def make(url: str, made: Logins) -> None:
        assert made is logins
        found.append(("logins", url))

    monkeypatch.setattr(storage, "schema_revision", revision)
    monkeypatch.setattr(storage, "upgrade", upgrade)
    monkeypatch.setattr(storage, "make_logins", make)
    await storage._prepare("owner", logins, migrates=migrates)
    assert found == [(each, "owner") for each in done]


class Embedded:
    """An embedded server that says, at each look, where it is; None if it lives."""

    def __init__(self, looks: list[Any], stop: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self._looks, self._stop, self._loop = looks, stop, loop
        self.ended = 0

    def start(self) -> str:
        return "here"

    def ensure_running(self) -> str | None:
        look = self._looks.pop(0)
        if not self._looks:
            self._loop.call_soon_threadsafe(self._stop.set)
        if isinstance(look, Exception):
            raise look
        return look

    def stop(self) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("looks", "elsewhere", "told"),
    [
        ([None, None], False, []),
        ([None, "here"], False, ["the embedded PostgreSQL had died and is started again"]),
        (
            [ConfigurationError("disk full"), "here"],
            False,
            [
                "the embedded PostgreSQL has died and cannot be started",
                "the embedded PostgreSQL had died and is started again",
            ],
        ),
        (["there", None], True, ["the embedded PostgreSQL had died and is started again"]),
    ],
)
async def test_an_embedded_server_that_died_is_started_again_in_its_place(
    monkeypatch: pytest.MonkeyPatch, looks: list[Any], elsewhere: bool, told: list[str]
) -> None:
    stop = asyncio.Event()
    server = Embedded(list(looks), stop, asyncio.get_running_loop())
    monkeypatch.setattr(storage, "EmbeddedPostgres", lambda place: server)
    monkeypatch.setattr(storage, "WATCH_SECONDS", 0.001)
    with structlog.testing.capture_logs() as captured:
        if elsewhere:
            with pytest.raises(TransportError, match="somebody else has taken its port"):
                await storage.watch(load_settings(), stop)
        else:
            await storage.watch(load_settings(), stop)
    assert [line["event"] for line in captured] == told
    assert server.ended == 1


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, ("here", None)),
        ({"database_url": "postgresql://o:p@h/d"}, ("derived", "postgresql://o:p@h/d")),
        (
            {"database_url": "postgresql://o:p@h/d", "faces_database_url": "postgresql://f:p@h/d"},
            ("postgresql://f:p@h/d", "postgresql://o:p@h/d"),
        ),
        ({"faces_database_url": "postgresql://f:p@h/d"}, ("postgresql://f:p@h/d", None)),
    ],
)
async def test_the_database_is_the_one_that_is_named(
    clean_environment: pytest.MonkeyPatch, given: dict[str, str], wanted: tuple[str, str | None]
) -> None:
    server = Embedded([], asyncio.Event(), asyncio.get_running_loop())
    clean_environment.setattr(storage, "EmbeddedPostgres", lambda place: server)

    def of_owner(url: str) -> Logins:
        return Logins("here" if url == "here" else "derived", None, given.get("database_url"))

    clean_environment.setattr(storage.logins, "of_owner", of_owner)
    for times, failing in enumerate((False, True), start=1):
        with pytest.raises(RuntimeError, match="what it was for") if failing else nullcontext():
            async with storage.server(load_settings(**given)) as found:
                assert (found.faces, found.owner) == wanted
                assert server.ended == (0 if given else times - 1)
                if failing:
                    raise RuntimeError("what it was for")
        assert server.ended == (0 if given else times)


@pytest.mark.parametrize(("extra", "taken"), [(0, True), (1, False)])
def test_a_document_has_its_longest_length(tmp_path: Path, extra: int, taken: bool) -> None:
    (tmp_path / "b.yaml").write_text("\ufeffb")
    (tmp_path / "a.yaml").write_bytes(b"x" * (1024 * 1024 + extra))
    (tmp_path / "c.yml").write_text("c")
    (tmp_path / "within").mkdir()
    (tmp_path / "within" / "d.yaml").write_text("d")
    if taken:
        found = adapters.documents_in(tmp_path)
        assert found == [Source(f"{tmp_path}/a.yaml", "x" * 1024 * 1024), Source(f"{tmp_path}/b.yaml", "\ufeffb")]
    else:
        with pytest.raises(ConfigurationError, match=r"a\.yaml is larger than 1048576 bytes"):
            adapters.documents_in(tmp_path)
    assert adapters.documents_in(tmp_path / "nowhere") == []
    (tmp_path / "a.yaml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError) as refused:
        adapters.documents_in(tmp_path)
    assert refused.value.message == f"{tmp_path}/a.yaml is not UTF-8."


def explained(policy: str, **told: Any) -> Any:
    """The decision on an update of an incident, described with these members."""
    action = {"operation": "servicenow.incident.update", "input": {"sys_id": "s", "fields": {"state": "2"}}, **told}
    definitions = Definitions(load_catalog())
    rule = f"{{id: r, match: {{connector: servicenow}}, when: {policy}, outcome: allow}}"
    text = f"policy: p\nversion: 1\nrules:\n  - {rule}\n"
    compiled = PolicySet.of(definitions.compile_policy(text, "p.yaml"))
    return explain_action(json.dumps(action).encode(), "a.json", compiled, definitions.catalog)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"surprise": 1}, "a.json: surprise: is not one of before, carries, input, operation, origins, run"),
        ({"operation": 7}, "a.json: operation: is missing or not a text"),
        ({"input": []}, "a.json: input: is not an object"),
        ({"before": 1}, "a.json: before: is not an object"),
        ({"run": 1}, "a.json: run: is not an object"),
        ({"run": {"nothing": 1}}, "a.json: run.nothing: is not a fact."),
        ({"run": {"writes_in_run": "1"}}, "a.json: run.writes_in_run: is not a number"),
        ({"run": {"tenant_id": 1}}, "a.json: run.tenant_id: is not a text"),
        ({"origins": 1}, "a.json: origins: is not an object"),
        ({"origins": {"nothing": []}}, "a.json: origins.nothing: is not an argument of servicenow.incident.update."),
        ({"origins": {"sys_id": ["x"]}}, "a.json: origins.sys_id: is not a list<list<string>>"),
        ({"carries": {"sys_id": "x"}}, "a.json: carries.sys_id: is not a list<string>"),
    ],
)
def test_what_describes_no_action_is_named(told: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as refused:
        explained("'true'", **told)
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize(
    ("policy", "told", "outcome"),
    [
        ("origin.watch_list == []", {}, "allow"),
        ("origin.state == []", {}, "deny"),
        ("origin.sys_id == []", {}, "deny"),
        ("carries.state == []", {}, "deny"),
        ("origin.state == [['requester']]", {"origins": {"state": [["requester"]]}}, "allow"),
        ("carries.state == ['x']", {"carries": {"state": ["x"]}}, "allow"),
        ("run.reference == 'R'", {"run": {"run_reference": "R"}}, "allow"),
        ("action.before.state == '1'", {"before": {"state": "1"}}, "allow"),
        ("action.before.state == '1'", {"before": {"state": "2"}}, "deny"),
        ("action.fields.state == '2'", {}, "allow"),
    ],
)
def test_what_is_described_is_judged_as_it_is_described(policy: str, told: dict[str, Any], outcome: str) -> None:
    """An argument that is given has no origin unless the description says so: nothing is known, and nothing allowed."""
    assert explained(f'"{policy}"', **told).decision.outcome == outcome


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *(("boolean", word, True) for word in ("true", "yes", "Yes", "TRUE")),
        *(("boolean", word, False) for word in ("false", "no", "NO")),
        ("boolean", "maybe", "maybe"),
        ("boolean", "1", "1"),
        ("integer", "7", 7),
        ("integer", "x", "x"),
        ("number", "7.5", 7.5),
        ("string", "true", "true"),
        ("string", "7", "7"),
    ],
)
def test_a_typed_field_is_read_by_its_kind(kind: str, text: str, value: Any) -> None:
    form = {"type": "object", "properties": {"it": {"type": kind, "title": "It"}}}
    found = people._entered(form, [f"it={text}"])
    assert found == {"it": value}
    assert type(found["it"]) is type(value)


def test_groups_of_slack_are_those_of_the_workspace_whose_members_may_click() -> None:
    client: Any = object()
    faces = Faces(load_settings(), cast("Any", None), client)
    groups = faces.slack_groups
    assert groups is not None
    assert groups._workspace is faces.workspace is not None


@pytest.mark.parametrize(("size", "moves"), [(_LOG_LIMIT, False), (_LOG_LIMIT + 1, True)])
def test_a_servers_log_is_put_aside_when_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, moves: bool
) -> None:
    cluster = Cluster(tmp_path, durable=False)
    (tmp_path / "server.log.old").write_text("older")
    cluster.log.touch()
    os.truncate(cluster.log, size)

    def refuse(_: Cluster) -> None:
        raise ConfigurationError("made by another release")

    monkeypatch.setattr(Cluster, "_initialize", refuse)
    with pytest.raises(ConfigurationError):
        cluster.launch()
    assert (cluster.log.exists(), (tmp_path / "server.log.old").stat().st_size) == (not moves, size if moves else 5)


@pytest.mark.parametrize(("kept", "port"), [(None, 0), ("", 0), ("x", 0), ("5433", 5433)])
def test_a_server_takes_its_last_port_if_one_is_kept(tmp_path: Path, kept: str | None, port: int) -> None:
    if kept is not None:
        (tmp_path / "port").write_text(kept)
    assert Cluster(tmp_path, durable=False)._port() == port
