"""Every repair of a sweeper by itself: what it does with what is due, under which lock, and what it leaves."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from core.errors import ConsistencyError, TransportError
from runtime.engine.commit import Claim
from runtime.engine.draft import BARRIER
from runtime.engine.states import StepState, WaitKind
from runtime.keep import reviewing, sweeper
from runtime.keep.sweeper import Sweeper
from runtime.store.inbox import Kept
from runtime.store.pauses import Change
from runtime.store.sweeps import Due
from tests.support.recorded import Connected, Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
DEFINITIONS: Any = SimpleNamespace(name="definitions", graphs="graphs")
CLAIM = Claim("a", uid(9), 4)
EVERY = Due(
    leases=((uid(1), CLAIM), (uid(2), Claim("b", uid(8), 5))),
    waits=((uid(3), "c", uid(7), 1.5),),
    freed=20,
    kept=(Kept("acme", "signal", "id", uid(5)), Kept("beta", "run", "it", None)),
    purges=(uid(6),),
    changed=("acme", "beta"),
    untold=(("acme", "key"),),
    long_open=(uid(4),),
)
REPAIRS = ("_expire_lease", "_end_wait", "_follow", "_purge", "_seal")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def keeper(definitions: Any = DEFINITIONS) -> Sweeper:
    database: Any = Connected()
    return Sweeper(database, definitions)


@pytest.mark.req("Q-9")
async def test_everything_that_is_due_is_repaired(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of a tenant is its part of a batch; all kept signals are compared once a minute."""
    clock = [1000.0]
    loop = SimpleNamespace(time=lambda: clock[0])
    monkeypatch.setattr(sweeper, "asyncio", SimpleNamespace(get_running_loop=lambda: loop))
    asked.put(sweeper.sweeps, due=EVERY)
    asked.put(Sweeper, **dict.fromkeys(REPAIRS, True))
    asked.put(sweeper, wake=3)
    signaling = SimpleNamespace(deliver=asked.verb("deliver", True))
    asked.put_at_once(sweeper, Signaling=signaling)
    one = keeper()
    found = {"all": await asked.of(one.sweep())}
    for later in (59.9, 0.1, 59.9):
        clock[0] += later
        found[f"at {clock[0]:.1f}"] = (await asked.of(one.sweep()))[:1]
    asked.put(Sweeper, **dict.fromkeys(REPAIRS, False))
    found["in vain"] = (await asked.of(one.sweep()))[-1:]
    one._spared_until = clock[0] + 0.1
    found["spared"] = [call for call in await asked.of(one.sweep()) if "_lease" in call]
    one._spared_until = clock[0]
    found["spared until now"] = [call for call in await asked.of(one.sweep()) if "_lease" in call]
    for count in (1, 3, 100, 101):
        asked.put(sweeper.sweeps, due=Due((), (), 0, (), (), tuple(f"t{n}" for n in range(count)), (), ()))
        found[f"share of {count}"] = [(await asked.of(one.sweep()))[-2]]
    as_it_was(PLACE / "every_sweep.json", found)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (asyncpg.DeadlockDetectedError("dead"), ("info", "run locked by another transaction; retrying on next sweep")),
        (asyncpg.SerializationError("lost"), ("info", "run locked by another transaction; retrying on next sweep")),
        (asyncpg.InternalServerError("odd"), ("warning", "repair failed; retrying on next sweep")),
        (TransportError("It is away."), ("warning", "repair failed; retrying on next sweep")),
        (ConsistencyError("It is wrong."), ("error", "repair failed; retrying on next sweep")),
        (ValueError("no"), ("error", "repair failed; retrying on next sweep")),
    ],
)
async def test_a_repair_that_fails_is_told_of_and_stops_no_other(error: Exception, line: tuple[str, str]) -> None:
    async def fails() -> bool:
        raise error

    with capture_logs() as logs:
        assert await keeper()._guarded(fails(), uid(1)) == 0
    assert [(one["log_level"], one["event"], one["run"]) for one in logs] == [(*line, str(uid(1)))]


@pytest.mark.parametrize(
    ("error", "spared"),
    [(OSError("away"), True), (ValueError("no"), False), (asyncpg.InternalServerError("odd"), False)],
)
async def test_leases_are_spared_when_postgresql_was_away(
    monkeypatch: pytest.MonkeyPatch, error: Exception, spared: bool
) -> None:
    turns: list[Any] = []

    async def repeat(stop: Any, turn: Any, seconds: float, words: str) -> None:
        turns.append((turn, seconds, words))

    async def fails(_: Any) -> int:
        raise error

    monkeypatch.setattr(sweeper, "repeat", repeat)
    one = keeper()
    await one.run(HERE)
    ((turn, seconds, words),) = turns
    assert (seconds, words) == (1.0, "a sweep failed")
    for count, again in ((99, False), (100, True), (101, True)):

        async def sweeps(_: Any, count: int = count) -> int:
            return count

        monkeypatch.setattr(Sweeper, "sweep", sweeps)
        assert await turn() is again
    monkeypatch.setattr(Sweeper, "sweep", fails)
    before = asyncio.get_running_loop().time()
    with pytest.raises(type(error)):
        await turn()
    assert (before + 5 <= one._spared_until < before + 60) is spared
    assert spared or one._spared_until == 0.0


def change(**more: Any) -> Change:
    given: dict[str, Any] = {"resumed": (), "after": None} | more
    return Change("acme", 7, frozenset({"tenant"}), given["resumed"], given["after"])


@pytest.mark.req("X-17")
async def test_a_change_of_a_tenant_is_followed_share_by_share(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    asked.put(sweeper.pauses, redraw=None, followed=None)
    asked.put(Sweeper, _end_wait=True)
    asked.put(sweeper, review_question=True)
    steps = [(uid(number), "s", uid(10 + number)) for number in (1, 2)]
    questions = [uid(20), uid(21)]
    for resumed, after in product(((), ("tenant",)), (None, uid(19))):
        for parked, open_ in product((0, 1, 2), (0, 1, 2)):
            if (parked and not resumed) or (open_ and after is None):
                continue
            asked.put(sweeper.pauses, change=change(resumed=resumed, after=after))
            asked.put(sweeper.pauses, parked=steps[:parked], questions=questions[:open_])
            name = f"{parked} parked, {open_} open, resumed {[*resumed]}, after {after and after.int}"
            found[name] = await asked.of(keeper()._follow("acme", 2))
    as_it_was(PLACE / "every_following.json", found)


async def test_a_step_that_does_not_go_on_is_told_of_by_its_run(asked: Recorded) -> None:
    asked.put(sweeper.pauses, change=change(resumed=("tenant",)), parked=[(uid(1), "s", uid(11))])
    asked.put(sweeper.pauses, redraw=None, followed=None)
    asked.put(Sweeper, _end_wait=ConsistencyError("It is wrong."))
    with capture_logs() as logs:
        assert await keeper()._follow("acme", 2) == 0
    assert [(one["run"], one["reason"]) for one in logs] == [(str(uid(1)), "It is wrong.")]


class Lease(Recorded):
    """A run of which a lease has run out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, step: Any, *, applied: bool = True) -> None:
        super().__init__(monkeypatch)
        self.put(sweeper.sweeps, take_away=owner, forget=None)
        self.put(sweeper, load_to_end="view", apply="applied" if applied else None)
        made = SimpleNamespace(name="transition", commit=lambda: "commit")
        self.put_at_once(sweeper, Transition=made, leased=step, lease_over=None)
        self.put(Sweeper, _barrier=True)
        monkeypatch.setattr(sweeper, "NO_GRAPH", "no graph")


@pytest.mark.req("Q-9", "Q-10")
async def test_a_lease_is_taken_away_from_whoever_holds_it_still(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    for name, owner, step, applied, claim in (
        ("held", "w1", "the step", True, CLAIM),
        ("held by a worker without a name", "", "the step", True, CLAIM),
        ("held, and overtaken", "w1", "the step", False, CLAIM),
        ("extended meanwhile", None, "the step", True, CLAIM),
        ("of a step that is over", "w1", None, True, CLAIM),
        ("of a barrier", "w1", "the step", True, Claim(BARRIER, uid(9), 4)),
    ):
        asked = Lease(monkeypatch, owner, step, applied=applied)
        found[name] = await asked.of(keeper()._expire_lease(uid(1), claim))
    as_it_was(PLACE / "every_lease_over.json", found)


@pytest.mark.req("X-6")
@pytest.mark.parametrize(
    ("executing", "finished", "applied", "done"),
    [(0, False, True, True), (0, False, False, False), (1, False, True, None), (0, True, True, None)],
)
async def test_a_barrier_that_was_owed_is_appended_unless_steps_execute(
    asked: Recorded, executing: int, finished: bool, applied: bool, done: bool | None
) -> None:
    run = SimpleNamespace(executing=executing, finished=finished)
    made = SimpleNamespace(run=run, left=asked.at_once("left"), commit=lambda: "commit")
    asked.put(Sweeper, _open=made)
    asked.put(sweeper.sweeps, forget=None)
    asked.put(sweeper, apply="applied" if applied else None)
    assert await keeper()._barrier(HERE, uid(1)) is (done is not False)
    forgets = [f"sweeps.forget(transaction, #1, {BARRIER})"]
    moves = forgets if done is None else ["left()", "sweeper.apply(transaction, commit)"]
    assert asked.calls == ["Sweeper._open(transaction, #1, afresh=true)", *moves]


class Waiting(Recorded):
    """A run with one step that waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: Any, status: Any, **more: Any) -> None:
        super().__init__(monkeypatch)
        step = SimpleNamespace(name="step", status=status)
        wait = SimpleNamespace(name="wait", wait_id=more.get("wait", uid(7)), kind=kind)
        steps = {"c": step} if more.get("step", True) else {}
        run = SimpleNamespace(name="run", steps=steps)
        moves = {name: self.at_once(name) for name in ("resume", "tell", "seal")}
        made = SimpleNamespace(
            name="transition", run=run, view=SimpleNamespace(run=run), commit=lambda: "commit", **moves
        )
        self.put(Sweeper, _open=made)
        self.put(sweeper, apply="applied" if more.get("applied", True) else None)
        self.put_at_once(sweeper, open_wait=wait if more.get("open", True) else None, _climb=None)
        self.put_at_once(sweeper, WaitPostponed="postponed")
        self.put_at_once(sweeper.waits, complete=None, time_out=None)


@pytest.mark.req("Q-3", "V-2")
async def test_a_wait_that_is_due_ends_as_its_kind_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    for kind, status in product(WaitKind, (StepState.WAITING, StepState.RUNNING)):
        asked = Waiting(monkeypatch, kind, status)
        found[f"{kind}, {status}"] = await asked.of(keeper()._complete(uid(3), "c", uid(7), 1.5))
    for name, more in {
        "no step": {"step": False},
        "no wait": {"open": False},
        "another wait": {"wait": uid(8)},
        "overtaken": {"applied": False},
    }.items():
        asked = Waiting(monkeypatch, WaitKind.TIMER, StepState.WAITING, **more)
        found[name] = await asked.of(keeper()._complete(uid(3), "c", uid(7), 1.5))
    for applied in (True, False):
        asked = Waiting(monkeypatch, WaitKind.TIMER, StepState.WAITING, applied=applied)
        found[f"sealed, {'' if applied else 'not '}applied"] = await asked.of(keeper()._seal(uid(3)))
    as_it_was(PLACE / "every_wait_over.json", found)


@pytest.mark.parametrize(
    ("error", "noted"),
    [
        (None, None),
        (asyncpg.DeadlockDetectedError("dead"), False),
        (OSError("away"), False),
        (asyncpg.InternalServerError("odd"), False),
        (ValueError("no"), True),
        (ConsistencyError("It is wrong."), True),
    ],
)
async def test_a_wait_that_cannot_be_ended_is_set_back_unless_that_passes(
    asked: Recorded, error: Exception | None, noted: bool | None
) -> None:
    asked.put(Sweeper, _complete=error or True)
    asked.put(sweeper, set_back_wait=None)
    ending = keeper()._end_wait(uid(3), "c", uid(7), 1.5)
    if noted is False:
        assert error is not None
        with pytest.raises(type(error)):
            await ending
    else:
        assert await ending is (noted is None)
    told = f"sweeper.set_back_wait(transaction, definitions, #3, c, #7, <{type(error).__name__}>)"
    assert asked.calls == ["Sweeper._complete(#3, c, #7, 1.5)", *([told] if noted else [])]


@pytest.mark.req("X-20")
@pytest.mark.parametrize("tenant", ["acme", None])
async def test_a_run_is_purged_while_it_is_held(asked: Recorded, tenant: str | None) -> None:
    asked.put(sweeper.retention, hold=tenant, remove_payloads=None)
    asked.put(sweeper.books, read="the book")
    asked.put(sweeper, folded="the past")
    asked.put(sweeper.audit, record=None)
    assert await keeper()._purge(uid(6)) is (tenant is not None)
    engine = "{'kind': 'engine', 'id': 'counterseal'}"
    assert (
        asked.calls
        == [
            "retention.hold(transaction, #6)",
            "books.read(transaction, acme, #6)",
            "sweeper.folded(transaction, definitions, the book)",
            "retention.remove_payloads(transaction, the book, the past)",
            f"audit.record(transaction, acme, run.purged, {engine}, {{'run': '#6'}})",
        ][: None if tenant else 1]
    )


async def test_a_run_is_opened_with_its_own_edition(asked: Recorded) -> None:
    view = SimpleNamespace(name="view", definition="definition")
    asked.put(sweeper, load=view)
    asked.put_at_once(sweeper, Transition="transition")
    workflow = SimpleNamespace(graph="graph")
    definitions = SimpleNamespace(graphs="graphs", of_run=asked.verb("of_run", workflow))
    for afresh in (False, True):
        opened: Any = await keeper(definitions)._open(HERE, uid(1), afresh=afresh)
        assert opened == "transition"
        assert asked.calls == [
            f"sweeper.load(transaction, #1, graphs, lock=true, afresh={str(afresh).lower()})",
            "of_run(transaction, definition)",
            "sweeper.Transition(view, graph)",
        ]
        asked.calls.clear()


def reviewed(asked: Recorded, run: Any, *, still: bool, applied: bool = True) -> Any:
    """The definitions, in a store with this run."""
    view = SimpleNamespace(name="view", run=run, definition="definition", tenant_id="acme")
    view.policies, view.directory_digest = ["d1", "d2"], "people's"
    asked.put(reviewing.approvals, run_of=uid(1))
    asked.put(reviewing, load=view, apply="applied" if applied else None)
    asked.put_at_once(reviewing, Transition=SimpleNamespace(name="transition", commit=lambda: "commit"))
    asked.put_at_once(reviewing.review, still_asks=still, void=None)
    workflow = SimpleNamespace(name="workflow", graph="graph")
    verbs = {"of_run": workflow, "policies": "the policies", "directory": "people"}
    return SimpleNamespace(graphs="graphs", **{name: asked.verb(name, answer) for name, answer in verbs.items()})


@pytest.mark.req("P-12")
async def test_an_open_question_is_judged_again(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_people(view: Any, directory: str) -> Any:
        return SimpleNamespace(name=f"{view.name} with {directory}", run=view.run)

    monkeypatch.setattr(reviewing, "replace", with_people)
    question = SimpleNamespace(name="question", step_key="a")
    found: dict[str, Any] = {}
    for name, status, canceling, how in (
        ("asks the same", "requested", None, {"still": True}),
        ("asks something else", "requested", None, {"still": False}),
        ("asks something else, overtaken", "requested", None, {"still": False, "applied": False}),
        ("approved", "approved", None, {"still": False}),
        ("expired", "expired", None, {"still": False}),
        ("without an answer", None, None, {"still": False}),
        ("of no question", "requested", None, {"still": False}),
        ("of a run that is being canceled", "requested", {"by": "x"}, {"still": False}),
    ):
        asks = {} if name == "of no question" else {uid(4): question}
        answers = {uid(4): SimpleNamespace(status=status)} if status else {}
        run = SimpleNamespace(approvals=asks, answers=answers, steps={"a": "the step"}, canceling=canceling)
        known = reviewed(asked, run, **how)
        database: Any = Connected()
        found[name] = await asked.of(reviewing.review_question(database, known, uid(4)))
    as_it_was(PLACE / "every_review.json", found)
