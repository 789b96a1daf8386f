"""Starts by themselves: what becomes of a folder and of what is published; what the doctor and a check say of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import structlog

from app import adapters, checking, definitions, doctor, storage
from app.checking import Standing
from app.definitions import ACTOR
from app.doctor import Check, State
from app.logins import Logins
from app.outlining import outline
from app.settings import load_settings
from connectors.catalog import Source, load_catalog
from connectors.port import SETTINGS, Connectors
from core.canonical import digest
from core.db import FACES_ROLE
from core.errors import ConfigurationError, ConsistencyError, InputError, NotFoundError, TransportError
from core.terms import Stopped
from evidence.signing import FileSigner
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow, thaw_operations
from runtime.engine.pausing import Pause
from runtime.requests import pausing, publishing, renewing
from runtime.requests.policies import Published
from runtime.requests.renewing import Before, Left
from runtime.store import bundles, documents, inbox, tenants, unavailable
from runtime.store.documents import PublishedVersion
from runtime.store.unavailable import Unavailable

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
BAD = Unavailable("workflow", "bad", "bad.yaml", "bad.yaml:1:1: no\nbad.yaml:2:1: nor this")


class Faces:
    """Faces of one tenant, whose transactions are told."""

    def __init__(self, folder: Path | None, mode: str = "warn") -> None:
        self.settings = load_settings(tenant="acme", definitions_dir=folder, definitions_mode=mode)
        self.definitions = Definitions(load_catalog())
        self.database = self
        self.did: list[Any] = []

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Faces]:
        self.did.append(f"begin {tenant}")
        yield self
        self.did.append("commit")

    async def execute(self, sql: str) -> None:
        self.did.append(sql)


@pytest.mark.req("X-2")
@pytest.mark.parametrize("mode", ["warn", "strict"])
@pytest.mark.parametrize("renewed", [[], [BAD]])
@pytest.mark.parametrize("checked", [[], [Unavailable("policy", "", "in force", "It is broken.")]])
@pytest.mark.parametrize("misfits", [[], ["orders.read: no such table."]])
async def test_a_start_tells_what_it_did_and_what_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, mode: str, renewed: Any, checked: Any, misfits: list[str]
) -> None:
    faces: Any = Faces(None, mode)
    connectors: Any = object()

    async def renew(connection: Any, tenant: str, found: Any) -> Any:
        assert (connection, tenant, found) == (faces, "acme", [])
        done = [
            ("new.yaml", Published("new", 2, "d", True)),
            ("same.yaml", Published("same", 3, "d", False)),
            ("old.yaml", Published("old", 4, "d", False, retired=True)),
            ("left.yaml", Left("left", 5, "It is older.")),
        ]
        return done, list(renewed)

    async def check(*said: Any) -> Any:
        assert said == (faces, faces, connectors)
        return list(checked)

    async def misfit(given: Any) -> list[str]:
        assert given is connectors
        return list(misfits)

    async def replace(connection: Any, tenant: str, problems: Any) -> None:
        faces.did.append(("replace", tenant, problems))

    async def undecided(connection: Any, tenant: str) -> list[str]:
        return ["Nobody decides a1.", "Nobody decides a2."]

    for name, stub in (("_renew", renew), ("_check", check), ("_misfits", misfit)):
        monkeypatch.setattr(definitions, name, stub)
    monkeypatch.setattr(unavailable, "replace", replace)
    monkeypatch.setattr(publishing, "undecided", undecided)
    lines = [line for problem in [*renewed, *checked] for line in problem.reason.splitlines()] + misfits
    with structlog.testing.capture_logs() as captured:
        if mode == "strict" and lines:
            with pytest.raises(ConfigurationError) as refused:
                await definitions.prepare(faces, connectors)
            told = "\n".join(lines)
            assert refused.value.message == (
                f"definitions are invalid, and COUNTERSEAL_DEFINITIONS_MODE is strict:\n{told}\n"
            )
            assert refused.value.remedy == (
                "Repair them, or set COUNTERSEAL_DEFINITIONS_MODE=warn to start without them."
            )
            assert (faces.did, captured) == (["begin acme"], []), "nothing is published, nor said to be"
            return
        await definitions.prepare(faces, connectors)
    assert faces.did == ["begin acme", ("replace", "acme", [*renewed, *checked]), "commit"]
    named = [
        (line["log_level"], line["event"], line.get("file"), line.get("name"), line.get("version")) for line in captured
    ]
    reasons = [line["reason"] for line in captured if "reason" in line]
    assert named == [
        ("info", "definition published", "new.yaml", "new", 2),
        ("info", "workflow retired", "old.yaml", "old", 4),
        ("warning", "definition not published", "left.yaml", "left", 5),
        *[("warning", "a question that nobody could decide", None, None, None)] * 2,
        *[("warning", "a definition is unavailable", None, None, None)] * len(lines),
    ]
    assert reasons == ["It is older.", "Nobody decides a1.", "Nobody decides a2.", *lines]


async def test_the_people_of_a_folder_come_first_then_workflows_then_policies(tmp_path: Path) -> None:
    for name in ("workflows/b.yaml", "workflows/a.yaml", "policies/p.yaml", "directory.yaml", "other.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    faces: Any = Faces(tmp_path)
    found: Any = definitions._documents(faces)
    kinds = {
        "directory": renewing.renew_directory,
        "workflows": renewing.renew_workflow,
        "policies": renewing.renew_policy,
    }
    told = [(getattr(publish, "func", publish), getattr(publish, "keywords", {}), source) for publish, source in found]
    given = {"definitions": faces.definitions}
    assert told == [
        (kinds["directory"], {}, Source(f"{tmp_path}/directory.yaml", "directory.yaml")),
        *(
            (kinds["workflows"], given, Source(f"{tmp_path}/{name}", name))
            for name in ("workflows/a.yaml", "workflows/b.yaml")
        ),
        (kinds["policies"], given, Source(f"{tmp_path}/policies/p.yaml", "policies/p.yaml")),
    ]
    nothing: Any = Faces(None)
    assert definitions._documents(nothing) == []
    for place in (tmp_path / "none", tmp_path / "other.yaml"):
        lacking: Any = Faces(place)
        with pytest.raises(ConfigurationError) as refused:
            definitions._documents(lacking)
        assert str(refused.value) == f"{place} is not a directory. Set COUNTERSEAL_DEFINITIONS_DIR."


@pytest.mark.req("X-2")
async def test_an_invalid_document_is_taken_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    faces: Any = Faces(None)

    async def look(connection: Any, tenant: str) -> Any:
        return ("before", tenant)

    async def publish(connection: Any, *, before: Any, text: str, file: str, actor: Any) -> Any:
        assert (connection, before, actor) == (faces, ("before", "acme"), ACTOR)
        connection.did.append((file, text))
        if file in raises:
            raise raises[file]
        return f"done {file}"

    raises: dict[str, Exception] = {"b": InputError("is wrong", where="b"), "c": ConsistencyError("It moved.")}
    monkeypatch.setattr(Before, "look", look)
    texts = {"a": "workflow: first", "b": "x\npolicy:\t'second.v_2'\n", "c": "directories: no", "d": "workflow: fourth"}
    found: Any = [(publish, Source(file, text)) for file, text in texts.items()]
    renewed: Any = await definitions._renew(faces, "acme", found)
    done, problems = renewed
    assert done == [("a", "done a"), ("d", "done d")]
    assert problems == [
        Unavailable("policy", "second.v_2", "b", "b: is wrong"),
        Unavailable("document", "", "c", "It moved."),
    ]
    back = "ROLLBACK TO SAVEPOINT document"
    saved = [["SAVEPOINT document", (file, text), *([back] if file in raises else [])] for file, text in texts.items()]
    assert faces.did == [each for one in saved for each in one]
    raises["a"] = TransportError("away")
    with pytest.raises(TransportError):
        await definitions._renew(faces, "acme", found)


class Fitting:
    """A connector that compares its declarations with its system."""

    def __init__(self, faults: Any) -> None:
        self.told, self.asked = faults, list[Any]()

    async def faults(self, names: Any = None) -> Any:
        self.asked.append(names)
        return self.told


async def test_declarations_that_do_not_fit_are_told_and_a_silent_system_is_no_fault() -> None:
    made: Any = {"a": Fitting(["one.", "two."]), "b": object(), "c": Fitting("no answer"), "d": Fitting(["three."])}
    with structlog.testing.capture_logs() as captured:
        assert await definitions._misfits(Connectors(made)) == ["one.", "two.", "three."]
    assert [(line["event"], line["connector"], line["reason"]) for line in captured] == [
        ("operations are compared with their system at the first call", "c", "no answer"),
    ]
    assert await definitions._misfits(None) == []


NEEDS = """
workflow: needs
version: 2
steps:
  - {id: a, do: servicenow.incident.get, with: {sys_id: s}}
  - {id: b, do: slack.message.post, with: {channel: C1, text: x}}
  - {id: c, do: transform.data.apply, with: {value: 1}}
"""


def _strange() -> InputError:
    """The error of a declaration of another release, as it was frozen with a version."""
    with pytest.raises(InputError) as refused:
        thaw_operations({"a.b.c": {"name": "a.b.c", "new": 1}}, "w@2")
    return refused.value


def _stored(name: str, version: int = 2) -> Any:
    return SimpleNamespace(name=name, version=version)


@pytest.mark.req("X-3")
@pytest.mark.parametrize("there", [None, (), ("slack",), ("servicenow", "slack")])
async def test_each_version_that_cannot_be_used_is_named_with_every_connector_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...] | None
) -> None:
    faces: Any = Faces(None)
    workflow = load_workflow(NEEDS, "needs.yaml", load_catalog())
    broken, strange = [SimpleNamespace(message="m1"), SimpleNamespace(message="m2")], _strange()

    async def policies(connection: Any, tenant: str, digests: Any) -> Any:
        assert (connection, tenant, digests) == (faces, "acme", ["d1"])
        return SimpleNamespace(broken=broken)

    def compiled(version: Any) -> Any:
        if version.name == "unread":
            raise InputError("is too new")
        if version.name == "strange":
            raise strange
        return workflow

    async def in_force(connection: Any, tenant: str) -> list[str]:
        return ["d1"]

    async def newest(connection: Any, tenant: str) -> list[Any]:
        return [_stored("unread", 3), _stored("strange", 5), _stored("needs"), _stored("again", 4)]

    faces.definitions = SimpleNamespace(policies=policies, compiled=compiled)
    monkeypatch.setattr(documents, "in_force", in_force)
    monkeypatch.setattr(documents, "newest_workflows", newest)
    connectors: Any = None
    if there is not None:
        configured: Any = {name: object() for name in ("transform", *there)}
        connectors = Connectors(configured)
    found = await definitions._check(faces, faces, connectors)
    says = "A policy in force cannot be read, so it denies all that it applies to: "
    wanted = [
        *(Unavailable("policy", "", "a policy in force", f"{says}{one}") for one in ("m1", "m2")),
        Unavailable("workflow", "unread", "unread@3", "unread@3: is too new"),
        Unavailable("workflow", "strange", "strange@5", f"strange@5: {strange}"),
    ]
    lacks = [] if there is None else [name for name in ("servicenow", "slack") if name not in there]
    for name, version in (("needs", 2), ("again", 4)) if lacks else ():
        words = [f"{name}@{version}: the connector {one!r} is not configured. " for one in lacks]
        assert [line.rpartition("Set ")[0] for line in found[len(wanted)].reason.splitlines()] == words
        assert (found[len(wanted)].kind, found[len(wanted)].name) == ("workflow", name)
        assert found[len(wanted)].place == f"{name}@{version}"
        wanted.append(found[len(wanted)])
    assert found == wanted


@pytest.mark.req("V-4")
@pytest.mark.parametrize(
    ("retired", "version", "shown"),
    [
        ((), None, 3),
        ((3,), None, 2),
        ((3, 2), None, 1),
        ((3, 2, 1), None, 3),
        ((3,), 3, 3),
        ((), 1, 1),
    ],
)
async def test_without_a_number_the_newest_that_is_not_retired_is_described(
    monkeypatch: pytest.MonkeyPatch, retired: tuple[int, ...], version: int | None, shown: int
) -> None:
    known = [
        PublishedVersion("w", number, f"d{number}", "ann", AT, AT if number in retired else None, ("b.c.d",), ("x",))
        for number in (3, 2, 1)
    ]
    refused: Exception | None = None

    async def versions(connection: Any, tenant: str, name: str) -> Any:
        assert (connection, tenant, name) == ("connection", "acme", "w")
        return known

    async def stored(connection: Any, tenant: str, name: str, number: int) -> Any:
        return SimpleNamespace(operations={"z.z.z": {"a": 1}, "b.c.d": {"a": 2}}, source=f"text {number}")

    workflow = load_workflow(NEEDS, "needs.yaml", load_catalog())

    def compiled(which: Any) -> Any:
        if refused is not None:
            raise refused
        return workflow

    monkeypatch.setattr(documents, "known_versions", versions)
    monkeypatch.setattr(documents, "workflow", stored)
    connection: Any = "connection"
    catalog: Any = SimpleNamespace(compiled=compiled)
    found = await definitions.describe(connection, catalog, "acme", "w", version)
    digests = {name: digest({"a": number}) for name, number in (("b.c.d", 2), ("z.z.z", 1))}
    told = {
        "name": "w", "version": shown, "digest": f"d{shown}", "published_by": "ann", "published_at": AT,
        "retired_at": AT if shown in retired else None, "operations": digests, "connectors": ["x"],
        "source": f"text {shown}",
    }  # fmt: skip
    outlined = {"definition_digest": workflow.definition_digest, "outline": outline(workflow)}
    assert found == {**told, **outlined, "problem": None}
    assert [*found["operations"]] == ["b.c.d", "z.z.z"]
    for refused in (InputError("is too new"), _strange()):
        found = await definitions.describe(connection, catalog, "acme", "w", version)
        assert found == {**told, "definition_digest": None, "outline": None, "problem": str(refused)}
    with pytest.raises(NotFoundError):
        await definitions.describe(connection, catalog, "acme", "w", 7)


FIXED = """
workflow: fixed
version: 1
steps:
  - {id: sent, do: http.request.send, with: {method: GET, url: "https://a.example/"}}
  - {id: told, do: slack.message.post, with: {channel: C1, text: x}}
  - id: looks
    agent:
      model: gpt-4o-mini
      instructions: Look.
      input: Now.
      tools:
        - {do: http.request.send, name: open}
        - {do: http.request.send, name: fixed, with: {method: GET, url: "https://b.example/"}}
        - ask: {name: ask, title: A, form: {type: object, properties: {a: {type: string}}}, assign: {group: g}}
"""


@pytest.mark.req("X-3")
async def test_a_check_tells_what_is_missing_refused_or_not_compared_here(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = load_workflow(FIXED, "fixed.yaml", load_catalog())
    made: dict[str, Any] = {"http": None, "model": Fitting("no answer"), "slack": Fitting(())}

    class Some(Connectors):
        def ready(self, name: str, operation: str, given: Any) -> Any:
            refused = given.get("url") == "https://b.example/"
            return SimpleNamespace(message=f"{operation} may not reach it.") if refused else None

    closed: list[Any] = []

    async def aclose(self: Any) -> None:
        closed.append(self)

    monkeypatch.setattr(Some, "aclose", aclose)
    monkeypatch.setattr(adapters, "connectors_of", lambda settings, catalog: Some(made))
    settings, catalog = load_settings(), load_catalog()
    found = await checking.stand(settings, catalog, workflow, "fixed.yaml")
    assert found == Standing(
        dict.fromkeys(("http", "model", "slack"), "configured"),
        [
            "step 'looks', tool 'fixed': http.request.send may not reach it.",
            "model.chat.complete were not compared with their database: no answer",
        ],
    )
    assert (made["model"].asked, made["slack"].asked) == ([["model.chat.complete"]], [["slack.message.post"]])
    del made["model"]
    found = await checking.stand(settings, catalog, workflow, "fixed.yaml")
    unset = f"not configured. Set {SETTINGS['model']}."
    assert found.connectors == {"http": "configured", "model": unset, "slack": "configured"}
    assert found.warnings == [
        f"the connector 'model' is {unset}",
        "step 'looks', tool 'fixed': http.request.send may not reach it.",
    ]
    made["slack"] = Fitting(["one.", "two."])
    with pytest.raises(InputError) as misfit:
        await checking.stand(settings, catalog, workflow, "fixed.yaml")
    assert str(misfit.value) == (
        "fixed.yaml: declarations do not fit the database of 'slack': one. two. Mend the declarations, or the database."
    )
    assert len(closed) == 3, "whatever came of it"


@pytest.mark.parametrize(
    ("connector", "literal", "fixed", "asked"),
    [
        ("http", {"url": "l"}, {}, "l"),
        ("http", {}, {"url": "p"}, "p"),
        ("http", {"url": "l"}, {"url": "p"}, "p"),
        ("http", {}, {}, None),
        ("other", {"url": "l"}, {"url": "p"}, None),
    ],
)
def test_an_address_is_the_one_that_will_be_called(
    monkeypatch: pytest.MonkeyPatch, connector: str, literal: Any, fixed: Any, asked: str | None
) -> None:
    """The words that a declaration fixes stand in the place of what a step gives."""
    calls = [("step 'a'", "x.y.z", {"n": 1, **literal}), ("step 'b'", "x.y.z", {"n": 2, **literal})]
    monkeypatch.setattr(checking, "_calls", lambda _: calls)
    workflow: Any = SimpleNamespace(operations={"x.y.z": SimpleNamespace(connector=connector, name="z", params=fixed)})
    looked: list[Any] = []

    def ready(*given: Any) -> Any:
        looked.append(given)
        return SimpleNamespace(message="It may not.") if given[2]["n"] == 2 else None

    connectors: Any = SimpleNamespace(ready=ready)
    told = [*checking._refused_hosts(workflow, connectors)]
    assert told == ([] if asked is None else ["step 'b': It may not."])
    assert looked == ([] if asked is None else [("http", "z", {"n": number, "url": asked}) for number in (1, 2)])


async def test_the_state_of_each_connector_is_told_in_the_order_of_names(clean_environment: pytest.MonkeyPatch) -> None:
    closed: list[Any] = []

    class Some(Connectors):
        async def aclose(self) -> None:
            closed.append(self)

    made: dict[str, Any] = {"http": object(), "slack": object()}
    clean_environment.setattr(adapters, "connectors_of", lambda settings, catalog: Some(made))
    settings, catalog = load_settings(), load_catalog()
    found = await definitions.standing(settings, catalog, ["slack", "odd", "http", "bpmn", "slack", "model"])
    unset = {name: f"not configured. Set {SETTINGS[name]}." for name in ("bpmn", "model")}
    known = f"not configured. Known connectors: {', '.join(sorted(SETTINGS))}."
    assert [*found.items()] == [
        ("bpmn", unset["bpmn"]),
        ("http", "configured"),
        ("model", unset["model"]),
        ("odd", known),
        ("slack", "configured"),
    ]
    assert len(closed) == 1


def test_a_connector_that_lacks_nothing_to_be_named_is_not_configured() -> None:
    class Bare(Connectors):
        def __missing__(self, name: str) -> Any:
            raise ConfigurationError("no", remedy="Set X." if name == "b" else "")

    there: Any = {"c": object()}
    told = definitions.lacking(["a", "b", "c"], Bare(there))
    assert told == {"a": "not configured.", "b": "not configured. Set X."}


@pytest.mark.parametrize("there", [True, False])
async def test_the_doctor_tells_each_document_pause_and_trigger_of_its_tenant(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    faces: Any = Faces(None)
    answers: dict[Any, Any] = {
        (tenants, "listed"): [{"policy_digests": ["d1", "d2"]}] if there else [],
        (documents, "newest_workflows"): [
            _stored("unread", 3),
            _stored("strange", 5),
            _stored("needs"),
            _stored("plain", 1),
        ],
        (bundles, "failures"): [(UUID(int=7), "It is large")],
        (inbox, "unstarted"): [("w", 3, "No.", AT)],
        (pausing, "listed"): [
            Pause(Stopped.TENANT, "", "ann", "All.", AT),
            Pause(Stopped.CONNECTOR, "x", "bob", "It.", AT),
        ],
        (unavailable, "listed"): [BAD, Unavailable("policy", "", "p", "It is broken.")],
    }
    asked, strange = list[Any](), _strange()
    for (module, name), answer in answers.items():

        async def told(connection: Any, *tenant: str, answer: Any = answer) -> Any:
            asked.append(tenant)
            return answer

        monkeypatch.setattr(module, name, told)

    def compiled(version: Any) -> Any:
        if version.name == "unread":
            raise InputError("is too new")
        if version.name == "strange":
            raise strange
        return SimpleNamespace(connectors=("servicenow", "slack") if version.name == "needs" else ())

    async def policies(connection: Any, tenant: str, digests: Any) -> Any:
        assert digests == (["d1", "d2"] if there else ())
        return SimpleNamespace(members=(), broken=(), policies=())

    monkeypatch.setattr(doctor, "Definitions", lambda catalog: SimpleNamespace(compiled=compiled, policies=policies))
    found = [check async for check in doctor._documents(faces.settings, faces)]
    assert sorted(asked) == [(), *[("acme",)] * 5]
    if not there:
        words = "there is no tenant 'acme'; `counterseal tenant create acme` creates it"
        assert found == [Check("tenant", State.BROKEN, words)]
        return
    (evidence, all_of_it, one, policy, *rest) = found
    assert (evidence.what, evidence.state) == ("evidence", State.BROKEN)
    held = answers[pausing, "listed"]
    assert [all_of_it, one] == [
        Check("paused", State.WARNING, f"{held[0]}; `counterseal resume tenant`"),
        Check("paused", State.WARNING, f"{held[1]}; `counterseal resume connector x`"),
    ]
    assert policy == Check("policy", State.MISSING, "none is in force, so every action is denied")
    assert rest == [
        Check("workflow unread@3", State.BROKEN, "is too new"),
        Check("workflow strange@5", State.BROKEN, str(strange)),
        Check("workflow needs@2", State.OK, "needs servicenow, slack"),
        Check("workflow plain@1", State.OK, "needs no connector"),
        Check("unavailable workflow bad", State.BROKEN, f"since the last start: {BAD.reason}"),
        Check("unavailable policy", State.BROKEN, "since the last start: It is broken."),
        Check(
            "trigger of w", State.WARNING, "version 3 could not be started by the event of 2026-01-02 03:04:05Z: No."
        ),
    ]


def test_the_doctor_tells_of_the_signing_key(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    settings = load_settings(signing_key=path)
    assert doctor._key(settings) == Check("signing key", State.MISSING, f"{path} is made at the first start")
    path.write_text("nonsense")
    assert doctor._key(settings).state is State.BROKEN
    path.unlink()
    key = FileSigner.load_or_create(path).public_key.key_id
    assert doctor._key(settings) == Check("signing key", State.OK, f"{path} (mode 0600), key {key[:16]}")
    path.chmod(0o644)
    with pytest.raises(ConfigurationError) as refused:
        FileSigner.load(path)
    assert refused.value.remedy
    assert doctor._key(settings) == Check("signing key", State.BROKEN, str(refused.value))


async def test_the_doctor_tells_of_every_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    async def check() -> Any:
        return {"http": (True, "ready"), "sql": (False, "no answer")}

    async def aclose() -> None:
        closed.append("closed")

    made = SimpleNamespace(check=check, aclose=aclose)
    monkeypatch.setattr(adapters, "connectors_of", lambda settings, catalog: made)
    assert [one async for one in doctor._connectors(load_settings())] == [
        Check("connector http", State.OK, "ready"),
        Check("connector sql", State.BROKEN, "no answer"),
        *(
            Check(f"connector {name}", State.MISSING, f"{setting} is not set")
            for name, setting in SETTINGS.items()
            if name not in ("http", "sql")
        ),
    ]
    assert closed == ["closed"]


@pytest.mark.parametrize("found", [Logins("f", "e", "o"), Logins("f", None, "o"), Logins("f", "e")])
@pytest.mark.parametrize("revision", [None, "0001", storage.head_revision()])
@pytest.mark.parametrize("migrates", [False, True])
async def test_the_doctor_tells_of_the_database_and_its_schema(
    monkeypatch: pytest.MonkeyPatch, found: Logins, revision: str | None, migrates: bool
) -> None:
    asked: list[Any] = []

    @asynccontextmanager
    async def server(settings: Any) -> AsyncIterator[Logins]:
        yield found

    async def schema_revision(url: str) -> str | None:
        asked.append(url)
        return revision

    async def check_login(kind: str, url: str) -> None:
        asked.append((kind, url))

    async def told(settings: Any, database: Any) -> AsyncIterator[Check]:
        yield Check("told", State.OK, "x")

    @asynccontextmanager
    async def database(url: str, role: str) -> AsyncIterator[None]:
        asked.append((url, role))
        yield

    for name, stub in (("server", server), ("schema_revision", schema_revision), ("check_login", check_login)):
        monkeypatch.setattr(storage, name, stub)
    monkeypatch.setattr(doctor, "_documents", told)
    monkeypatch.setattr(doctor, "Database", database)
    url = "postgresql://u:p@h/d"
    for given, kind in (({}, "the embedded server"), ({"faces_database_url": url}, "PostgreSQL")):
        asked.clear()
        checks = await doctor._database(load_settings(auto_migrate=migrates, **given))
        answers, head = Check("database", State.OK, f"{kind} answers"), storage.head_revision()
        first = found.owner or "f"
        if revision != head:
            state = State.WARNING if migrates else State.BROKEN
            words = f"at {revision or 'nothing'}, needed is {head}; run `counterseal db upgrade`"
            assert (checks, asked) == ([answers, Check("schema", state, words)], [first])
            continue
        assert checks == [answers, Check("schema", State.OK, f"at {head}, the newest"), Check("told", State.OK, "x")]
        engine = [("engine", "e")] if found.engine else []
        assert asked == [first, ("faces", "f"), *engine, ("f", FACES_ROLE)]


async def test_the_doctor_asks_after_everything_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(name: str) -> Any:
        async def look(settings: Any) -> AsyncIterator[Check]:
            if name == "slack":
                raise TransportError("away")
            yield Check(name, State.OK, "x")

        return look

    async def database(settings: Any) -> list[Check]:
        return [Check("database", State.OK, "x")]

    for name in ("queue", "blobs", "slack", "connectors"):
        monkeypatch.setattr(doctor, f"_{name}", looked(name))
    monkeypatch.setattr(doctor, "_database", database)
    monkeypatch.setattr(doctor, "_key", lambda settings: Check("key", State.OK, "x"))
    hooks = {name: {"secret": "a-webhook-secret"} for name in ("b", "a")}
    for unknown, given in (((), {}), (("COUNTERSEAL_X", "COUNTERSEAL_Y"), {"webhooks": hooks})):
        monkeypatch.setattr(doctor, "unknown_variables", lambda unknown=unknown: unknown)
        found = [(one.what, str(one.state), one.detail) for one in await doctor.examine(load_settings(**given))]
        well = ("settings", "ok", "every COUNTERSEAL_ variable is known and well-formed")
        hooked = ("webhooks", "ok", "/webhooks/servicenow/a, /webhooks/servicenow/b")
        assert found == [
            *([("settings", "warning", f"{name} is not a setting; nothing reads it") for name in unknown] or [well]),
            *((name, "ok", "x") for name in ("database", "key", "queue", "blobs")),
            ("slack", "broken", "away"),
            ("connectors", "ok", "x"),
            hooked if given else ("webhooks", "missing", "COUNTERSEAL_WEBHOOKS names no endpoint"),
        ]
