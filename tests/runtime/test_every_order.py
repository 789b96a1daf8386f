"""Every order of an operator by itself: pauses, cancels, retries, closings, extensions, deadlines that are put off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct

from core.errors import ConsistencyError
from core.terms import Stopped
from evidence.chain import Actor
from runtime.engine.states import RunState
from runtime.requests import pausing, putting_off, retrying, steering
from runtime.requests.putting_off import PutOff, put_off
from runtime.requests.signaling import Moved
from runtime.requests.steering import Extending
from runtime.store.inbox import Found
from runtime.store.views import Purged
from tests.support.recorded import Connected, Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
BOB = Actor("person", "bob")
NOW = datetime(2026, 11, 1, 12, 3, 4, 567_890, tzinfo=UTC)
RUN = UUID("0198c0de-0000-7000-8000-00000000000a")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def definitions(asked: Recorded) -> Any:
    connectors = {"a": SimpleNamespace(connector="probe"), "b": SimpleNamespace(connector="slack")}
    catalog = SimpleNamespace(operations=connectors)
    graph = SimpleNamespace(graph="the graph")
    return SimpleNamespace(name="definitions", graphs="graphs", catalog=catalog, of_run=asked.verb("of_run", graph))


def kept(*keys: str, over: bool = False) -> list[Any]:
    value = {"by": "ann", "reason": "why", "at": "2026-11-01T00:00:00+00:00"}
    return [{"key": key, "over": over, "value": value} for key in keys]


def pauses(asked: Recorded, *, there: Any = (), changed: bool = True, run: Any = None, exists: bool = True) -> None:
    asked.put(pausing.tenants, lock=None, exists=exists)
    asked.put(pausing.documents, known_versions=[])
    asked.put(pausing.read_models, run=run)
    asked.put(pausing.pauses, in_force=[*there], pause=changed, resume=changed)
    asked.put(pausing.audit, record=None)
    asked.put(pausing, _tell_run=None)


THINGS = {
    "the tenant": (Stopped.TENANT, ""),
    "the tenant by its name": (Stopped.TENANT, "acme"),
    "another tenant": (Stopped.TENANT, "other"),
    "a tenant whose name begins alike": (Stopped.TENANT, "acme2"),
    "a workflow": (Stopped.WORKFLOW, "flow"),
    "a connector": (Stopped.CONNECTOR, "probe"),
    "no connector": (Stopped.CONNECTOR, "prob"),
    "a run": (Stopped.RUN, str(RUN)),
    "a run in capitals": (Stopped.RUN, str(RUN).upper()),
    "a run without hyphens": (Stopped.RUN, RUN.hex),
    "no id": (Stopped.RUN, "flow"),
}


@pytest.mark.req("X-17")
async def test_what_is_paused_and_resumed(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    database: Any = Connected()
    going = {"status": "running", "finished_at": None}
    over = {"status": "succeeded", "finished_at": NOW}
    for (name, thing), verb in product(THINGS.items(), (pausing.pause, pausing.resume)):
        pauses(asked, run=going)
        done = verb(database, definitions(asked), "acme", *thing, "why", BOB)
        found[f"{verb.__name__} {name}"] = await asked.of(done)
    ways = {
        "the tenant, which is none": ("the tenant", {"exists": False}),
        "a run that is over": ("a run", {"run": over}),
        "no run": ("a run", {"run": None}),
        "what was so": ("a workflow", {"changed": False}),
        "besides one that is over": ("a workflow", {"there": kept("run:1", over=True) + kept("tenant")}),
    }
    for (name, (thing_name, how)), verb in product(ways.items(), (pausing.pause, pausing.resume)):
        pauses(asked, **how)
        done = verb(database, definitions(asked), "acme", *THINGS[thing_name], "why", BOB)
        found[f"{verb.__name__} {name}"] = await asked.of(done)
    for reason, verb in product(("", " \n", "\0", " why "), (pausing.pause, pausing.resume)):
        pauses(asked)
        done = verb(database, definitions(asked), "acme", Stopped.TENANT, "", reason, BOB)
        found[f"{verb.__name__} for the reason {reason!r}"] = await asked.of(done)
    as_it_was(PLACE / "every_pause.json", found)


@pytest.mark.parametrize(
    ("count", "gone", "refused"), [(499, 0, False), (500, 0, True), (500, 1, False), (501, 1, True)]
)
async def test_five_hundred_pauses_are_kept_besides_those_of_runs_that_are_over(
    asked: Recorded, count: int, gone: int, refused: bool
) -> None:
    there = kept(*(f"workflow:{number}" for number in range(count - gone)))
    pauses(asked, there=there + kept(*(f"run:{number}" for number in range(gone)), over=True))
    database: Any = Connected()
    pausing_it = pausing.pause(database, definitions(asked), "acme", Stopped.TENANT, "", "why", BOB)
    if not refused:
        assert (await pausing_it).changed
        return
    with pytest.raises(ConsistencyError) as error:
        await pausing_it
    assert error.value.message == "500 pauses are in force, and no more can be kept."
    assert error.value.remedy == "Pause the workflow or the tenant, and resume what it covers."


async def test_pauses_of_runs_that_are_over_are_not_listed(asked: Recorded) -> None:
    there = kept("tenant", "workflow:flow") + kept("run:1", over=True) + kept("connector:probe")
    asked.put(pausing.pauses, in_force=there, of_run=["run:1", "workflow:other", "tenant", "connector:probe"])
    listed = await pausing.listed(HERE, "acme")
    assert [(one.what, one.name, one.by, one.reason, one.at.day) for one in listed] == [
        (Stopped.TENANT, "", "ann", "why", 1),
        (Stopped.WORKFLOW, "flow", "ann", "why", 1),
        (Stopped.CONNECTOR, "probe", "ann", "why", 1),
    ]
    assert [one.what for one in await pausing.of_run(HERE, "acme", uid(1))] == [Stopped.TENANT, Stopped.CONNECTOR]
    assert asked.calls[1:] == ["pauses.of_run(transaction, acme, #1)", "pauses.in_force(transaction, acme)"]


def a_run(**more: Any) -> Any:
    """The parts of a run that a request reads."""
    state = SimpleNamespace(finished=False, paused=False, run_key=b"k" * 32, status=RunState.RUNNING)
    view = {"version": 7, "definition": "definition", "workflow": "flow", "parent": None}
    run = {name: value for name, value in more.items() if hasattr(state, name)}
    rest = {name: value for name, value in more.items() if not hasattr(state, name)}
    return SimpleNamespace(name="view", run=SimpleNamespace(**{**vars(state), "name": "run", **run}), **view | rest)


class Moves:
    """A transition that notes the moves that are made; ``told`` as text."""

    def __init__(self, asked: Recorded, owner: Any, view: Any, *, appended: bool = True) -> None:
        run = SimpleNamespace(status=RunState.CANCELED)
        told = {name: asked.at_once(name) for name in ("tell", "cancel", "seal", "extend")}
        made = SimpleNamespace(name="transition", run=run, commit=lambda: "commit", **told)
        asked.put_at_once(owner, Transition=made)
        asked.put(owner.faces, append=appended)
        for loads in ("load", "load_to_end"):
            if hasattr(owner, loads):
                asked.put(owner, **{loads: view})


@pytest.mark.req("X-17")
async def test_a_pause_is_told_in_the_book_of_its_run_once(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pausing, "NO_GRAPH", "no graph")
    found: dict[str, Any] = {}
    views = {
        "going on": a_run(),
        "paused": a_run(paused=True),
        "over": a_run(finished=True),
        "over and paused": a_run(finished=True, paused=True),
        "purged": Purged("It is gone."),
        "without its key": a_run(run_key=b""),
    }
    database: Any = Connected()
    for (name, view), paused, reason in product(views.items(), (True, False), ("why", "")):
        if not reason and name not in ("going on", "paused"):
            continue
        Moves(asked, pausing, view)
        told = pausing._tell_run(database, definitions(asked), "acme", f"run:{RUN}", BOB, reason, paused=paused)
        said = f"{'paused' if paused else 'resumed'}, which was {name}{'' if reason else ', without a reason'}"
        found[said] = await asked.of(told)
    Moves(asked, pausing, a_run(), appended=False)
    told = pausing._tell_run(database, definitions(asked), "acme", f"run:{RUN}", BOB, "why", paused=True)
    found["overtaken"] = (await asked.of(told))[-1:]
    for key in ("tenant", "workflow:flow", "connector:probe"):
        told = pausing._tell_run(database, definitions(asked), "acme", key, BOB, "why", paused=True)
        found[key] = await asked.of(told)
    as_it_was(PLACE / "every_pause_told.json", found)


@pytest.mark.req("V-13", "X-18")
async def test_runs_are_canceled_closed_and_retried(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(steering, "NO_GRAPH", "no graph")
    monkeypatch.setattr(retrying, "replace", lambda value, **more: SimpleNamespace(**{**vars(value), **more}))
    verbs = {"cancel": steering.cancel_run, "close": steering.close_run, "retry": retrying.retry_run}
    for name, verb in verbs.items():
        owner = retrying if name == "retry" else steering
        asked.put(retrying.bundles, newest="the bundle")
        asked.put_at_once(retrying, reopen=None)
        for how, appended, reason in (("", True, "why"), (", overtaken", False, "why"), (", of no text", True, "\0")):
            Moves(asked, owner, a_run(), appended=appended)
            found[f"{name}{how}"] = await asked.of(verb(HERE, definitions(asked), "acme", RUN, BOB, reason))
        for reason in ("", " ", " why "):
            Moves(asked, owner, a_run())
            said = await asked.of(verb(HERE, definitions(asked), "acme", RUN, BOB, reason))
            found[f"{name} for the reason {reason!r}"] = said[-3:]
    views = {
        "within another": a_run(parent=uid(3)),
        "of our own": a_run(workflow="counterseal-policy-change"),
        "over": a_run(finished=True),
        "going on": a_run(finished=False),
    }
    for (name, view), bundle in product(views.items(), ("the bundle", None)):
        Moves(asked, retrying, view)
        asked.put(retrying.bundles, newest=bundle)
        retried = retrying.retry_run(HERE, definitions(asked), "acme", RUN, BOB, "why")
        found[f"retry one {name}, {'with' if bundle else 'without'} evidence"] = await asked.of(retried)
    as_it_was(PLACE / "every_steering.json", found)


@pytest.mark.req("X-18")
async def test_what_was_kept_of_a_run_already_is_not_kept_again(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class View(Struct):
        run: Any
        workflow: str = "flow"
        parent: Any = None
        definition: str = "definition"

    class Run(Struct):
        finished: bool = True
        checkpoints: tuple[int, ...] = (1,)
        ledger: tuple[int, ...] = (2,)
        mutations: tuple[int, ...] = (3,)
        status: str = "failed_terminal"

    Moves(asked, retrying, View(Run()))
    asked.put(retrying.bundles, newest="the bundle")
    asked.put_at_once(retrying, reopen=None)
    done = SimpleNamespace(run=SimpleNamespace(status=RunState.RUNNING), commit=lambda: "commit")
    monkeypatch.setattr(retrying, "Transition", lambda view, graph: made.append((view.run, graph)) or done)
    assert await retrying.retry_run(HERE, definitions(asked), "acme", RUN, BOB, "why") is RunState.RUNNING
    ((run, graph),) = made
    assert (run.checkpoints, run.ledger, run.mutations, run.finished, graph) == ([], [], [], True, "the graph")


@pytest.mark.req("X-17")
@pytest.mark.parametrize(
    ("status", "canceling", "version", "words"),
    [
        (RunState.RUNNING, None, 7, None),
        (RunState.WAITING, None, 7, None),
        (RunState.SUCCEEDED, None, 7, "The run is succeeded; nothing can be added to it."),
        (RunState.FAILED_TERMINAL, None, 7, "The run is failed_terminal; nothing can be added to it."),
        (RunState.CANCELED, None, 7, "The run is canceled; nothing can be added to it."),
        (RunState.RUNNING, {"by": "x"}, 7, "The run is running; nothing can be added to it."),
        (RunState.RUNNING, None, 6, "The run is at version 7, not 6: it has moved on since you looked."),
        (RunState.RUNNING, None, 8, "The run is at version 7, not 8: it has moved on since you looked."),
    ],
)
def test_steps_are_added_to_a_run_that_goes_on_at_the_version_that_was_seen(
    status: RunState, canceling: Any, version: int, words: str | None
) -> None:
    view: Any = SimpleNamespace(run=SimpleNamespace(status=status, canceling=canceling), version=7)
    if words is None:
        steering._check(view, version)
        return
    with pytest.raises(ConsistencyError) as refused:
        steering._check(view, version)
    moved = "version" in words
    remedy = "Look at the run again, and send its version with If-Match." if moved else None
    assert (refused.value.message, refused.value.remedy or None) == (words, remedy)
    assert isinstance(refused.value, steering.VersionMoved) is moved


@pytest.mark.req("V-5")
@pytest.mark.parametrize("executing", [0, 1])
async def test_outputs_that_only_the_new_steps_read_are_read_back_while_nothing_executes(
    asked: Recorded, executing: int
) -> None:
    """Those that no checkpoint has, of steps that are over; in the order of their keys."""
    state = SimpleNamespace(status={"a": 1, "b": 1, "c": 1, "d": 1}, outputs={"b": {}})
    view: Any = SimpleNamespace(run=SimpleNamespace(state=state, executing=executing), run_id=RUN, tenant_id="acme")
    graphs = [SimpleNamespace(graph=SimpleNamespace(read=frozenset(keys))) for keys in ("d", "edcba", "ed")]
    past = {key: SimpleNamespace(output=f"of {key}") for key in "abd"}
    asked.put(steering, load=SimpleNamespace(run=SimpleNamespace(past=past)))
    extending = Extending(NOTHING, definitions(asked))
    before: Any
    after: Any
    coming: Any
    before, after, coming = graphs
    assert await extending._outputs(HERE, view, after, after) == {}
    assert await extending._outputs(HERE, view, before, coming) == {}, "it is not over yet"
    assert asked.calls == []
    if executing:
        with pytest.raises(ConsistencyError) as refused:
            await extending._outputs(HERE, view, before, after)
        assert refused.value.message == (
            "The new steps read the output of a, which nobody needed so far. "
            "It can be read back only while no step is executing."
        )
        assert refused.value.remedy == "Try again when the run waits."
        return
    assert await extending._outputs(HERE, view, before, after) == {"a": "of a"}
    assert asked.calls == [f"steering.load(transaction, {RUN}, graphs, whole=true, tenant=acme)"]


def edition(*ids: str, operations: tuple[str, ...] = (), frozen: tuple[str, ...] = ()) -> Any:
    """An edition of a workflow with these steps."""
    root, name = SimpleNamespace(walk=lambda: [SimpleNamespace(id=one) for one in ids]), f"edition of {' '.join(ids)}"
    kept = {one: {"declared": one} for one in frozen}
    graph = SimpleNamespace(name=f"graph of {' '.join(ids)}", root=root)
    return SimpleNamespace(name=name, graph=graph, operations=operations, frozen_operations=kept)


@pytest.mark.req("V-5", "X-17")
async def test_steps_are_added_to_the_edition_that_the_run_has(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declarations of operations that the run has not had so far are frozen with it."""
    found: dict[str, Any] = {}
    run = SimpleNamespace(name="run", state=SimpleNamespace(name="state"), run_key=b"k" * 32, extensions=2)
    view = SimpleNamespace(name="view", run=run, workflow="flow", definition="definition", version=7)
    before = edition("a", "b", operations=("o.known",))
    after = edition("d", "b", "e", "g", "a", "f", "c", operations=("o.known", "o.new"), frozen=("o.known", "o.new"))
    monkeypatch.setattr(steering, "replace", lambda of, **more: f"{of} with {more}")
    known = definitions(asked)
    known.of_run = asked.verb("of_run", lambda _, of: edition("a") if "with" in of else before)
    known.catalog = SimpleNamespace(name="catalog")
    database: Any = Connected()
    asked.put(steering.books, extensions=["the first", "the second"])
    asked.put_at_once(steering, read_extension="the extension", check_past=None, extended=after)
    asked.put_at_once(steering, refuse_altering=None, _check=None)
    for name, adopted, gates, appended in (
        ("steps", {}, (), True),
        ("steps that read outputs, before a gate", {"a": 1}, ("g",), True),
        ("overtaken", {}, (), False),
    ):
        Moves(asked, steering, view, appended=appended)
        asked.put(Extending, _outputs=adopted)
        asked.put_at_once(steering, open_gates=gates)
        done = Extending(database, known).extend("acme", RUN, BOB, {"steps": [1]}, 7)
        found[name] = await asked.of(done)
    as_it_was(PLACE / "every_extension.json", found)


WAITS = Found(uid(3), RUN, "s", "external", "token", waiting=True, parked=True, going=True)
DAY = timedelta(days=1)


class Deadline(Recorded):
    """A wait outside that began a day ago, is due in a day, and may be put off to five days from its beginning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        super().__init__(monkeypatch)
        wait = SimpleNamespace(name="wait", wait_id=uid(3), kind="external", context={"operation": "o"})
        given = {"found": WAITS, "wait": wait, "due": NOW + DAY, "extend_to": 5 * DAY, "appended": True} | more
        operation = SimpleNamespace(name="o", timeouts=SimpleNamespace(extend_to=given["extend_to"]))
        workflow = SimpleNamespace(operations={"o": operation, "p": None}, graph="the graph")
        self.definitions: Any = SimpleNamespace(graphs="graphs", of_run=self.verb("of_run", workflow))
        self.put(putting_off.inbox, find=given["found"], times_of=(NOW - DAY, given["due"], NOW))
        Moves(self, putting_off, a_run(), appended=given["appended"])
        self.put_at_once(putting_off, open_wait=given["wait"], WaitPostponed="postponed")


@pytest.mark.req("V-2")
async def test_a_deadline_is_put_off_by_whoever_may(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    database: Any = Connected()
    other = SimpleNamespace(name="wait", wait_id=uid(4), kind="external", context={"operation": "o"})
    over = Found(uid(3), RUN, "s", "external", "token", waiting=False, parked=True, going=True)
    early = Found(uid(3), RUN, "s", "external", "token", waiting=True, parked=False, going=True)
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "to a moment": ({"until": NOW + 2 * DAY}, {}),
        "by a span": ({"span": 2 * DAY}, {}),
        "by no span": ({"span": timedelta(0)}, {"due": NOW - DAY}),
        "by half a second": ({"span": timedelta(days=2, microseconds=500_000)}, {}),
        "with its token": ({"span": 2 * DAY, "token": "token"}, {}),
        "with another token": ({"span": 2 * DAY, "token": "t"}, {}),
        "with an empty token": ({"span": 2 * DAY, "token": ""}, {}),
        "with the token in another case": ({"span": 2 * DAY, "token": "TOKEN"}, {}),
        "to its deadline": ({"until": NOW + DAY}, {}),
        "to before its deadline": ({"until": NOW}, {}),
        "of no deadline": ({"until": NOW + DAY}, {"due": None}),
        "to the latest moment": ({"until": NOW + 4 * DAY}, {}),
        "beyond": ({"until": NOW + 4 * DAY + timedelta(microseconds=1)}, {}),
        "of nothing": ({"span": DAY}, {"found": None}),
        "of what is over": ({"span": DAY}, {"found": over}),
        "of what is over and has not begun": (
            {"span": DAY},
            {"found": Found(uid(3), RUN, "s", "external", "token", waiting=False, parked=False, going=True)},
        ),
        "of what has not begun": ({"span": DAY}, {"found": early}),
        "that nobody may": ({"span": DAY}, {"extend_to": None}),
        "to nothing": ({}, {}),
        "to both": ({"span": DAY, "until": NOW}, {}),
        "to a time of no zone": ({"until": NOW.replace(tzinfo=None)}, {}),
        "to a time of no zone, with its token": ({"until": NOW.replace(tzinfo=None), "token": "token"}, {}),
    }
    for name, (given, there) in ways.items():
        asked = Deadline(monkeypatch, **there)
        order = PutOff("acme", "key", BOB, **given)
        found[name] = await asked.of(put_off(database, asked.definitions, order))
    for name, there in {"gone": {"wait": None}, "another": {"wait": other}, "moved": {"appended": False}}.items():
        asked = Deadline(monkeypatch, **there)
        order = PutOff("acme", "key", BOB, span=2 * DAY)
        with pytest.raises(Moved):
            await putting_off._attempt(HERE, asked.definitions, order, lock=True)
        found[f"the wait is {name}"] = [*asked.calls]
    as_it_was(PLACE / "every_deadline.json", found)
