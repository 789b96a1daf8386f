"""Every signal by itself: for each wait that it may meet, what is asked of the store, and what its sender hears."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from runtime.engine.states import StepState
from runtime.requests import signaling
from runtime.requests.signaling import CONFLICTS_MAX, Moved, Signal, Signaling
from runtime.store.inbox import Found, Kept, Notice
from tests.support.recorded import Connected, Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
DEFINITIONS: Any = SimpleNamespace(name="definitions", graphs="graphs")
BOB = Actor("person", "bob")
SIGNAL = Signal("acme", "key", "id", BOB, {"n": 1})
WAIT = Found(uid(3), uid(1), "s", "signal", "token", waiting=True, parked=True, going=True)
MEETS = {
    "nothing": None,
    "a wait": WAIT,
    "a wait that is not parked": replace(WAIT, parked=False),
    "one that is over": replace(WAIT, waiting=False, parked=False),
    "one of a run that is over": replace(WAIT, waiting=False, parked=False, going=False),
    "one outside": replace(WAIT, kind="external"),
    "one outside that is over": replace(WAIT, kind="external", waiting=False, parked=False),
    "one outside of a run that is over": replace(WAIT, kind="external", waiting=False, parked=False, going=False),
    "one for a run that is over": replace(WAIT, kind="child", waiting=False, parked=False),
}
PAYLOAD = {"output": {"n": 2}, "error": None, "token": None, "version": None, "actor": {"kind": "token", "id": "t"}}


def notice(**more: Any) -> Notice:
    return replace(Notice(PAYLOAD, None, "key", False, datetime(2026, 11, 1, tzinfo=UTC)), **more)


def heard(
    monkeypatch: pytest.MonkeyPatch, found: Found | None, *, left: bool = False, over: bool = False, **answers: Any
) -> tuple[Recorded, Signaling]:
    """A store in which a signal meets this, and the requests on it."""
    asked = Recorded(monkeypatch)
    told = {"record": True, "find": found, "find_named": found, "read": None, "empty": None} | answers
    asked.put(signaling.inbox, processed=None, meant_for=None, **told)
    asked.put(signaling.effects, left_by=left)
    asked.put(signaling.audit, record=None)
    ending = SimpleNamespace(name="ending")
    asked.put(signaling.runs, ending_of=ending, shapers_of=("a shaper",))
    asked.put(signaling, end_wait=True, step_is_over=over, origins_of=["an origin"], used_within={"calls": 1})
    database: Any = Connected()
    return asked, Signaling(database, DEFINITIONS)


@pytest.mark.req("V-10", "X-16")
async def test_what_becomes_of_a_signal_by_what_it_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    named = {"": SIGNAL, " by its token": replace(SIGNAL, token="t"), " by its version": replace(SIGNAL, version=0)}
    named |= {" by an empty token": replace(SIGNAL, token=""), " by both": replace(SIGNAL, token="t", version=3)}
    for (meets, wait), (how, signal) in product(MEETS.items(), named.items()):
        asked, requests = heard(monkeypatch, wait)
        found[f"{meets}{how}"] = await asked.of(requests.signal(signal))
    for meets in ("one that is over", "one outside that is over", "one outside of a run that is over"):
        for left, over in ((True, False), (False, True), (True, True)):
            asked, requests = heard(monkeypatch, MEETS[meets], left=left, over=over)
            said = f"{meets}, {'left' if left else 'not left'}, its step {'over' if over else 'going on'}"
            found[said] = await asked.of(requests.signal(SIGNAL))
    failed = replace(SIGNAL, output=None, error={"code": "c", "message": "m"})
    asked, requests = heard(monkeypatch, WAIT)
    found["an error"] = await asked.of(requests.signal(failed))
    asked, requests = heard(monkeypatch, WAIT)
    found["an empty error"] = await asked.of(requests.signal(replace(failed, error={})))
    asked, requests = heard(monkeypatch, WAIT)
    found["an output and an error"] = await asked.of(requests.signal(replace(failed, output={"n": 1})))
    asked, requests = heard(monkeypatch, WAIT)
    found["of no key"] = await asked.of(requests.signal(replace(SIGNAL, correlation_key="")))
    as_it_was(PLACE / "every_signal.json", found)


@pytest.mark.req("P-8")
async def test_the_end_of_a_run_brings_what_its_parent_is_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Signal("acme", str(uid(7)), str(uid(7)), Actor("run", str(uid(7))), {"n": 1}, source="run")
    found: dict[str, Any] = {}
    for origins, used in product((None, [], ["an origin"]), (None, {"calls": 1})):
        asked, requests = heard(monkeypatch, replace(WAIT, kind="child"))
        asked.put(signaling, origins_of=origins, used_within=used)
        found[f"origins {origins}, used {used}"] = await asked.of(requests.signal(ends))
    asked, requests = heard(monkeypatch, MEETS["one for a run that is over"], over=True)
    found["for a step that is over"] = await asked.of(requests.signal(ends))
    as_it_was(PLACE / "every_end.json", found)


KNOWN = {
    "kept": notice(),
    "delivered": notice(processed=True, result={"code": "delivered", "run": str(uid(1)), "step": "s"}),
    "delivered elsewhere": notice(processed=True, result={"code": "delivered", "run": str(uid(2)), "step": "s"}),
    "delivered to another step": notice(processed=True, result={"code": "delivered", "run": str(uid(1)), "step": "t"}),
    "expired": notice(processed=True, result={"code": "expired", "run": None, "step": None}),
    "of another key": notice(correlation_key="other"),
}


@pytest.mark.req("V-10")
async def test_what_was_sent_before_is_answered_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    ways = {"with its id": SIGNAL, "without an id": replace(SIGNAL, id=None)}
    ways["without an id, for a token"] = replace(SIGNAL, id=None, token="t")
    met = ("nothing", "a wait", "a wait that is not parked", "one that is over")
    for (before, known), (how, signal), meets in product(KNOWN.items(), ways.items(), met):
        if before == "of another key" and meets != "a wait":
            continue
        asked, requests = heard(monkeypatch, MEETS[meets], record=False, read=known)
        found[f"{before}, {how}, meets {meets}"] = await asked.of(requests.signal(signal))
    as_it_was(PLACE / "every_repetition.json", found)


@pytest.mark.req("V-10", "P-11")
async def test_what_was_kept_is_delivered_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    kept = Kept("acme", "signal", "id", uid(1))
    for meets, wait in MEETS.items():
        asked, requests = heard(monkeypatch, wait, read=notice())
        found[f"meets {meets}"] = await asked.of(requests.deliver(kept))
    asked, requests = heard(monkeypatch, MEETS["one outside that is over"], over=True, read=notice())
    found["meets one outside whose step is over"] = await asked.of(requests.deliver(kept))
    late = replace(kept, source="run", run_id=None)
    for name, there in {"kept too long": notice(), "of no key": notice(correlation_key=None)}.items():
        asked, requests = heard(monkeypatch, WAIT, read=there)
        found[name] = await asked.of(requests.deliver(late))
    for name, there in {"gone": None, "processed": notice(processed=True)}.items():
        asked, requests = heard(monkeypatch, WAIT, read=there)
        found[name] = await asked.of(requests.deliver(kept))
    for error in (Moved(), asyncpg.DeadlockDetectedError("dead")):
        asked, requests = heard(monkeypatch, WAIT, read=notice())
        asked.put(signaling, end_wait=error)
        found[type(error).__name__] = await asked.of(requests.deliver(kept))
    as_it_was(PLACE / "every_kept_signal.json", found)


@pytest.mark.req("V-10")
def test_what_was_kept_of_a_signal_is_the_signal() -> None:
    """A version of zero, an empty token and no output are none of them left out."""
    for output, error, token, version in (
        ({"n": 2}, None, "t", 7),
        (None, {"code": "c"}, "", 0),
        ([], {}, None, None),
    ):
        sent = Signal("acme", "key", "id", Actor("token", "t"), output, error, token, version, "run")
        actor = {"kind": "token", "id": "t"}
        kept = notice(payload={**signaling._said(sent), "actor": actor})
        assert signaling._kept_as("acme", "run", "id", kept) == sent
        assert signaling._kept_as("acme", "run", "id", replace(kept, correlation_key=None)).correlation_key == ""


NUL = "holds a character that cannot be stored (U+0000 or a lone surrogate)"


@pytest.mark.req("V-10")
@pytest.mark.parametrize(
    ("signal", "words"),
    [
        ({"correlation_key": ""}, "key: is empty or longer than 500 characters"),
        ({"correlation_key": "k" * 501}, "key: is empty or longer than 500 characters"),
        ({"correlation_key": "k" * 500}, None),
        ({"correlation_key": "k\0"}, f"key: {NUL}"),
        ({"correlation_key": " "}, None),
        ({"id": "i" * 200}, None),
        ({"id": "i" * 201}, "id: is empty or longer than 200 characters"),
        ({"id": ""}, "id: is empty or longer than 200 characters"),
        ({"id": "\0"}, f"id: {NUL}"),
        ({"id": None}, None),
        ({"output": "\0"}, "output: The output cannot be recorded: it holds the character U+0000."),
        ({"output": "\0", "error": {}}, "error: The output cannot be recorded: it holds the character U+0000."),
        ({"error": {"code": "\0"}}, "error: The error cannot be recorded: it holds the character U+0000."),
    ],
)  # fmt: skip
def test_a_signal_can_be_recorded(signal: dict[str, Any], words: str | None) -> None:
    try:
        signaling._check(replace(SIGNAL, **signal))
        said = None
    except InputError as error:
        said = f"{error.where}: {error.message}"
    assert said == words


async def test_an_attempt_that_is_overtaken_is_made_again_with_the_run_locked() -> None:
    """Twenty times, and no more."""
    for errors in (0, 1, 2, CONFLICTS_MAX - 1, CONFLICTS_MAX):
        locks: list[bool] = []

        async def attempt(lock: bool, errors: int = errors, locks: list[bool] = locks) -> str:
            locks.append(lock)
            if len(locks) <= errors:
                raise (Moved, asyncpg.SerializationError)[len(locks) % 2]
            return "done"

        if errors < CONFLICTS_MAX:
            assert await signaling.persistently(attempt) == "done"
            assert locks == [False] + [True] * errors
            continue
        with pytest.raises(ConsistencyError) as refused:
            await signaling.persistently(attempt)
        assert locks == [False] + [True] * (CONFLICTS_MAX - 1)
        words = "The run changed during every attempt to record this."
        assert (CONFLICTS_MAX, refused.value.message, refused.value.remedy) == (20, words, "Try again.")


class Parked(Recorded):
    """A run with one step that waits, and the moves that are made on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, step: Any, wait: Any, asks: bool, appended: bool) -> None:
        super().__init__(monkeypatch)
        view = SimpleNamespace(name="view", run=SimpleNamespace(name="run", steps={"s": step}), definition="definition")
        self.put(signaling, load=view)
        self.put_at_once(signaling, open_wait=wait)
        made = SimpleNamespace(name="transition", commit=lambda: "commit")
        self.put_at_once(signaling, Transition=made)
        self.put_at_once(signaling.waits, still_asks=asks, complete=None, ask_anew=None)
        self.put(signaling.faces, append=appended)
        workflow = SimpleNamespace(graph="graph")
        self.definitions: Any = SimpleNamespace(graphs="graphs", of_run=self.verb("of_run", workflow))


def step(status: StepState = StepState.WAITING) -> Any:
    return SimpleNamespace(name="step", status=status)


def wait(number: int = 3) -> Any:
    return SimpleNamespace(name="wait", wait_id=uid(number))


async def ended(run: Parked, lock: bool = False) -> Any:
    at: Any = "transaction"
    place: tuple[UUID, str, UUID] = (uid(1), "s", uid(3))
    return await signaling.end_wait(at, run.definitions, "acme", place, {"output": 1}, BOB, lock=lock)


@pytest.mark.req("X-6", "P-12")
@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("asks", [False, True])
async def test_a_wait_is_completed_if_it_asks_what_was_answered(
    monkeypatch: pytest.MonkeyPatch, asks: bool, lock: bool
) -> None:
    run = Parked(monkeypatch, step=step(), wait=wait(), asks=asks, appended=True)
    assert await ended(run, lock) is asks
    move, who = "transition, step, wait", "{'kind': 'person', 'id': 'bob'}"
    assert run.calls == [
        f"signaling.load(transaction, #1, graphs, lock={json.dumps(lock)}, tenant=acme)",
        "signaling.open_wait(run, s)",
        "of_run(transaction, definition)",
        "signaling.Transition(view, graph)",
        f"waits.still_asks({move})",
        f"waits.complete({move}, {{'output': 1}}, {who})" if asks else f"waits.ask_anew({move}, {who})",
        "faces.append(transaction, commit, answers=s)",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"step": None},
        {"wait": None},
        {"wait": wait(4)},
        {"appended": False},
        *({"step": step(status)} for status in StepState if status is not StepState.WAITING),
    ],
)
async def test_a_wait_that_is_not_there_has_moved(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    run = Parked(monkeypatch, **{"step": step(), "wait": wait(), "asks": True, "appended": True} | changed)
    with pytest.raises(Moved):
        await ended(run)
