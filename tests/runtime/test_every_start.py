"""Every start of a run by itself: what is written for it, which version it has, and what is asked of whom."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from core.errors import AuthorizationError, ConsistencyError, InputError, NotFoundError
from evidence.chain import Actor, ChainHead
from runtime.definition.workflow import load_workflow
from runtime.engine.beginnings import Inherited
from runtime.engine.graph import Reducer
from runtime.engine.workflow import Workflow
from runtime.requests import starting
from runtime.requests.starting import Started, StartRequest, start_named, start_run
from tests.runtime.conftest import probes
from tests.support.recorded import Connected, Recorded, plain
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOW = datetime(2026, 11, 1, 12, 3, 4, 567_890, tzinfo=UTC)
BOB = Actor("token", "bob")
KEY = b"k" * 32
FLOW = """workflow: flow
version: 3
reference: ${{ trigger.number }}
sla: PT5H
retention: P30D
caps: {max_runs_per_min: 7, max_concurrency: 2, max_writes_per_run: 9}
channels: {seen: {reduce: append, initial: ["${{ trigger.number }}"]}, left: {reduce: append}}
steps: [{id: act, do: probe.effect.apply, with: {name: n}}]
"""
SMALL = "workflow: small\nversion: 1\nsteps: [{wait: {for: PT1H}}]\n"
NONE = "workflow: none\nversion: 1\n%ssteps: [{if: '${{ %s }}', then: [{wait: {for: PT1H}}]}]\n"
REQUEST = StartRequest("acme", "side", "http", "ref-1", {"number": "N1", "who": "x"}, "person:ann", BOB)
WHOLE = replace(
    REQUEST,
    run_id=uid(7),
    parent=uid(8),
    depth=2,
    shaped=("updater person:zoe",),
    inherited={"seen": Inherited([2], Reducer.APPEND), "left": Inherited([1], Reducer.APPEND)},
    origins={"trigger": []},
)


def compiled(text: str) -> Workflow:
    return load_workflow(text, "f.yaml", probes())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded(monkeypatch)
    monkeypatch.setattr(starting, "new_id", lambda: uid(5))
    monkeypatch.setattr(starting, "new_run_key", lambda: KEY)
    return found


class Faces:
    """The store's verbs, which keep what they are given whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, opened: Any = NOW, appended: tuple[bool, ...] = ()) -> None:
        self.written: list[Any] = []
        self._opened, self._appended = opened, list(appended)
        monkeypatch.setattr(starting.faces, "open_run", self._open)
        monkeypatch.setattr(starting.faces, "append", self._append)

    async def _open(self, at: Any, commit: Any, run: Any) -> Any:
        row = {name: str(value) if isinstance(value, timedelta) else value for name, value in vars_of(run).items()}
        self.written.append([str(at), told(commit), plain(row)])
        return self._opened

    async def _append(self, at: Any, commit: Any) -> bool:
        self.written.append([str(at), told(commit)])
        return self._appended.pop(0) if self._appended else True


def vars_of(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__dataclass_fields__}


def told(commit: Any) -> list[str]:
    """The lines of a commit, without the digests of what is stored beside them."""
    lines = [json.loads(line) for line in commit.lines]
    return [f"{line['type']} {line['actor']['kind']} {json.dumps(_public(line['data']))}" for line in lines]


def _public(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("stored", "state")}


@pytest.mark.req("Q-1")
async def test_a_run_is_opened_with_all_that_was_asked(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    soon = NOW + timedelta(hours=1, microseconds=1)
    ways = {
        "as it was asked": (FLOW, REQUEST, True),
        "with all that may be given": (FLOW, WHOLE, False),
        "open": (FLOW, replace(REQUEST, open=True), True),
        "open until a moment": (FLOW, replace(REQUEST, open=True, until=soon), True),
        "a small one": (SMALL, replace(REQUEST, trigger={}), True),
        "one of before": (SMALL, replace(REQUEST, trigger={}), False),
    }
    for name, (text, request, pinned) in ways.items():
        faces = Faces(monkeypatch, opened=None if name == "one of before" else NOW)
        answer = await starting._open(HERE, compiled(text), request, NOW, pinned=pinned)
        found[name] = [plain(None if answer is None else answer[0]), *faces.written]
        assert answer is None or timedelta(0) <= answer[1].now() - NOW < timedelta(seconds=60)
    as_it_was(PLACE / "every_opening.json", found)


@pytest.mark.req("Q-1")
async def test_a_run_without_a_step_ends_in_the_transaction_that_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "new_id", lambda: uid(5))
    monkeypatch.setattr(starting, "new_run_key", lambda: KEY)
    found: dict[str, Any] = {}
    ways = {
        "no step": (NONE % ("", "false"), REQUEST, NOW),
        "with a result": (NONE % ("result: done\n", "false"), REQUEST, NOW),
        "a condition that cannot be evaluated": (NONE % ("", "trigger.nothing == 1"), REQUEST, NOW),
        "open": (NONE % ("", "false"), replace(REQUEST, open=True), NOW),
        "open, and cannot be evaluated": (NONE % ("", "trigger.nothing == 1"), replace(REQUEST, open=True), NOW),
        "one of before": (NONE % ("", "false"), REQUEST, None),
    }
    for name, (text, request, opened) in ways.items():
        faces = Faces(monkeypatch, opened=opened)
        database: Any = Connected()
        monkeypatch.setattr(starting, "within", lambda at, tenant: at.transaction(tenant))
        answer = await starting._open(database, compiled(text), request, NOW, pinned=True)
        found[name] = [answer is not None, *([where, lines] for where, lines, *_ in faces.written)]
    as_it_was(PLACE / "every_ending_at_once.json", found)


@pytest.mark.parametrize("appended", [(False,), (True, False)])
async def test_a_run_without_a_step_that_cannot_be_closed_is_not_opened(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, appended: tuple[bool, ...]
) -> None:
    Faces(monkeypatch, appended=appended)
    database: Any = Connected()
    monkeypatch.setattr(starting, "within", lambda at, tenant: at.transaction(tenant))
    with pytest.raises(ConsistencyError) as refused:
        await starting._open(database, compiled(NONE % ("", "false")), REQUEST, NOW, pinned=True)
    words = "The run has no step to run, and could not be closed."
    assert (refused.value.message, refused.value.remedy) == (words, "Start it again.")


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("${{ trigger.nothing }}", "the workflow's reference cannot be made from this trigger: "),
        ("${{ trigger.list }}", "the workflow's reference cannot be made from this trigger: "),
        ("${{ trigger.empty }}", "the workflow's reference "),
    ],
)
def test_a_reference_that_cannot_be_made_is_refused_and_says_what_it_needs(reference: str, words: str) -> None:
    workflow = compiled(SMALL.replace("steps", f"reference: {reference}\nsteps"))
    with pytest.raises(InputError) as refused:
        starting._new_view(workflow, replace(REQUEST, trigger={"list": [1], "empty": ""}), NOW)
    remedy = "Send the fields that the workflow's `reference` reads." if "cannot" in words else ""
    assert (refused.value.where, refused.value.remedy or "") == ("trigger", remedy)
    assert refused.value.message.startswith(words)
    assert len(refused.value.message) > len(words)


def test_the_run_before_its_first_move_is_what_was_asked(asked: Recorded) -> None:
    view = starting._new_view(compiled(FLOW), WHOLE, NOW)
    named = {name: value for name, value in asdict(view).items() if name not in ("run", "constants", "head")}
    assert (view.run.reference, view.run.requested_by, view.run.run_key) == ("N1", "person:ann", KEY)
    assert view.head == ChainHead.of(f"run:{uid(7)}")
    assert view.constants == {
        "trigger": {"number": "N1", "who": "x"},
        "run.id": str(uid(7)),
        "run.workflow": "flow",
        "run.version": 3,
        "run.reference": "N1",
        "run.requested_by": "person:ann",
        "run.started_at": NOW,
    }
    assert named == {
        **named,
        "run_id": uid(7),
        "tenant_id": "acme",
        "workspace_id": "side",
        "workflow": "flow",
        "workflow_version": 3,
        "workflow_digest": compiled(FLOW).digest,
        "trigger_type": "http",
        "version": 0,
        "gate": 0,
        "now": NOW,
        "deadline_at": None,
        "policies": (),
        "writes_max": None,
        "parent": uid(8),
        "depth": 2,
    }
    assert starting._new_view(compiled(FLOW), REQUEST, NOW).run_id == uid(5)


STARTED = Started(uid(5), True, "N1")


class Clock:
    """A reading of the database's time that is so old."""

    name = "clock"

    def __init__(self, age: float) -> None:
        self._age = age

    def age(self) -> float:
        return self._age

    def now(self) -> datetime:
        return NOW


@pytest.mark.req("Q-1")
async def test_a_start_asks_for_what_it_does_not_know(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that it knows, if that is fresh and takes the input; else what is published now."""
    found: dict[str, Any] = {}
    flow = SimpleNamespace(name="known", max_runs_per_min=None)
    other = SimpleNamespace(name="newest", max_runs_per_min=1)
    monkeypatch.setattr(starting, "within", lambda at, tenant: at.transaction(tenant))
    refusal, gone = InputError("is no number", where="trigger"), NotFoundError("There is no workflow.")
    knows = {"nothing": None, "fresh": (flow, Clock(59.9)), "old": (flow, Clock(60))}
    for (name, known), version in product(knows.items(), (None, 1, 3)):
        for opens in ("a run", "none", "a refusal"):
            if known is None and opens != "a run":
                continue
            answer = {"a run": (STARTED, "its clock"), "none": None, "a refusal": refusal}[opens]
            recent = SimpleNamespace(known=asked.at_once("known", known), put=asked.at_once("put"))
            definitions: Any = SimpleNamespace(startable=recent, compiled=asked.at_once("compiled", other))
            asked.put(starting, _open=answer, _opened=(STARTED, "a clock"), _known=None)
            asked.put(starting.documents, startable_workflow="stored")
            asked.put(starting.read_models, start_held="the cap")
            database: Any = Connected()
            start = start_named(database, definitions, "flow", version, REQUEST)
            found[f"knows {name}, version {version}, opens {opens}"] = await asked.of(start)
    recent = SimpleNamespace(known=asked.at_once("known"), put=asked.at_once("put"))
    definitions = SimpleNamespace(startable=recent, compiled=asked.at_once("compiled", other))
    asked.put(starting, _opened=(Started(uid(5), False, "N1"), "a clock"))
    database = Connected()
    start = start_named(database, definitions, "flow", None, REQUEST)
    found["knows nothing, and it was started before"] = await asked.of(start)
    for before, error in product((None, STARTED), (refusal, gone)):
        recent = SimpleNamespace(known=asked.at_once("known"), put=asked.at_once("put"))
        definitions = SimpleNamespace(startable=recent, compiled=asked.at_once("compiled", other))
        asked.put(starting, _opened=error, _known=before)
        database = Connected()
        start = start_named(database, definitions, "flow", None, REQUEST)
        found[f"{type(error).__name__}, {'started before' if before else 'not started'}"] = await asked.of(start)
    as_it_was(PLACE / "every_start.json", found)


@pytest.mark.req("Q-16")
async def test_nobody_starts_a_workflow_of_our_own() -> None:
    with pytest.raises(AuthorizationError, match="a workflow of Counterseal's own, which nobody starts by hand"):
        await start_named(HERE, HERE, "counterseal-policy-change", None, REQUEST)


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(("opens", "before"), [(True, None), (False, True), (False, False)])
async def test_the_same_trigger_finds_the_run_that_it_started(
    asked: Recorded, opens: bool, before: bool | None
) -> None:
    connection: Any = SimpleNamespace(name="connection", fetchval=asked.verb("fetchval", NOW))
    asked.put(starting, _open=(STARTED, "its clock") if opens else None)
    asked.put(starting.runs, run_of_trigger={"run_id": uid(9), "reference": "N9"} if before else None)
    workflow: Any = SimpleNamespace(name="flow")
    asking = starting._opened(connection, workflow, REQUEST)
    opened = "starting._open(connection, flow, "
    if opens:
        assert await asking == (STARTED, "its clock")
    elif before:
        started, clock = await asking
        assert started == Started(uid(9), False, "N9")
        assert timedelta(0) <= clock.now() - NOW < timedelta(seconds=60)
    else:
        with pytest.raises(ConsistencyError) as refused:
            await asking
        words = "The run that this trigger started cannot be seen yet."
        assert (refused.value.message, refused.value.remedy) == (words, "Send it again.")
    first, second, *rest = asked.calls
    assert first == "fetchval(SELECT now())"
    assert second.startswith(opened)
    assert second.endswith(", 2026-11-01T12:03:04.567890Z, pinned=true)")
    looked = "runs.run_of_trigger(connection, acme, flow, http, ref-1)"
    assert rest == ([] if opens else [looked])


async def test_a_run_of_this_very_version_is_started_for_its_tenant(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def within(at: Any, tenant: str) -> AsyncIterator[None]:
        asked.calls.append(f"within {at} of {tenant}")
        yield None
        asked.calls.append("and so it ends")

    monkeypatch.setattr(starting, "within", within)
    asked.put(starting, _opened=(STARTED, "a clock"))
    workflow: Any = SimpleNamespace(name="flow")
    assert await start_run(HERE, workflow, REQUEST) == STARTED
    first, call, last = asked.calls
    assert (first, last) == ("within transaction of acme", "and so it ends")
    assert call.startswith("starting._opened(transaction, flow, {'tenant_id': 'acme'")
