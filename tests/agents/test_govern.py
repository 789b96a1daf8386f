"""A governed callable: its body runs on an explicit yes to its very arguments, and on nothing else."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from core.canonical import digest
from counterseal_agents import (
    Closed,
    Gate,
    NotRun,
    Pending,
    Refused,
    Ungoverned,
    Unreported,
    contract,
    digest_of_call,
    govern,
)
from tests.support.agents_gate import NOT_A_YES, TOKEN, Books, serving
from tests.support.agents_stage import FAST, PAY, Broken, Harmless, How, end_of

# Calls by a plain function and by a coroutine: the same rules.
BOTH = ("plain", "async")


@pytest.fixture
def books() -> Iterator[Books]:
    with serving() as found:
        yield found


@pytest.fixture
def how(books: Books, tmp_path: Path) -> How:
    return How(books.url, tmp_path / "effects", terms=replace(FAST, timeout=5.0))


def call(how: How, kind: str, **given: Any) -> Any:
    arguments = given.pop("arguments", PAY)
    if kind == "async":
        return asyncio.run(govern(how.apay, gate=how.gate(), tool="pay", **given)(**arguments))
    return govern(how.pay, gate=how.gate(), **given)(**arguments)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("stage", ["ask", "permit"])
@pytest.mark.parametrize("fault", NOT_A_YES)
def test_only_an_explicit_yes_opens(books: Books, how: How, fault: str, stage: str, kind: str) -> None:
    if stage == "ask" and fault in ("other nonce", "truthy", "no permit", "no lease", "created", "early", "twice"):
        pytest.skip("an answer to the question lets nothing out, and has no such members")
    how.terms = replace(FAST, timeout=0.3) if fault == "hang" else how.terms
    books.stage, books.fault, books.times = stage, fault, 1 if fault == "redirect" else 10**9
    with pytest.raises(NotRun, match="was not run"):
        call(how, kind)
    assert how.ran == []


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("stage", ["ask", "permit", "outcome"])
@pytest.mark.parametrize("fault", ["down", "500", "cut"])
def test_what_was_lost_is_sent_again_and_runs_once(books: Books, how: How, fault: str, stage: str, kind: str) -> None:
    books.stage, books.fault, books.times = stage, fault, 2
    assert call(how, kind) == "paid 5"
    assert (how.ran, end_of(books, how), books.only().output) == ([PAY], "ran once, as approved", "paid 5")


@dataclass
class End:
    """An end that the server gives to a call, and what its caller is told."""

    status: str
    error: type[NotRun]
    words: str


ENDS = [
    End("pending", Pending, "Call it again later"),
    End("judging", Pending, "waits for a decision"),
    End("denied", Refused, "the call is denied: People said why"),
    End("rejected", Refused, "Do not repeat it"),
    End("in_doubt", Refused, "in doubt"),
    End("applied", Refused, "applied"),
    End("invented", Refused, "invented"),
]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("end", ENDS, ids=lambda one: one.status)
def test_the_model_is_told_why_it_did_not_run(books: Books, how: How, end: End, kind: str) -> None:
    books.decide = lambda tool, arguments: end.status
    with pytest.raises(end.error, match=end.words) as told:
        call(how, kind)
    assert (how.ran, told.value.action) == ([], books.only().id)


@pytest.mark.parametrize("kind", BOTH)
def test_a_call_waits_for_its_yes_and_a_later_one_finds_the_same_question(books: Books, how: How, kind: str) -> None:
    books.decide = lambda tool, arguments: "pending"
    for _ in range(2):
        with pytest.raises(Pending):
            call(how, kind)
    how.terms = replace(how.terms, wait=20.0)
    answered = threading.Thread(target=lambda: books.until(lambda: "look" in books.asked) or books.settle("approved"))
    answered.start()
    assert call(how, kind) == "paid 5"
    answered.join()
    assert end_of(books, how) == "ran once, as approved"


@dataclass
class Body:
    """An event in a tool's body, what is reported, and what the caller gets."""

    name: str
    error: BaseException | None
    outcome: str
    end: str


BODIES = [
    Body("returns", None, "succeeded", "ran once, as approved"),
    Body("is broken", Broken("gone"), "unknown", "ran, in doubt"),
    Body("says that it had no effect", Harmless("full"), "failed", "ran once, as approved"),
    Body("is interrupted", KeyboardInterrupt(), "unknown", "ran, in doubt"),
    Body("is cancelled", asyncio.CancelledError(), "unknown", "ran, in doubt"),
    Body("ends the process", SystemExit(3), "unknown", "ran, in doubt"),
]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("body", BODIES, ids=lambda one: one.name)
def test_what_became_of_the_body_is_reported(books: Books, how: How, body: Body, kind: str) -> None:
    def act() -> None:
        if body.error is not None:
            raise body.error

    how.body = act
    if body.error is None:
        assert call(how, kind, harmless=Harmless) == "paid 5"
    else:
        with pytest.raises(type(body.error)):
            call(how, kind, harmless=Harmless)
    assert (books.only().outcome, end_of(books, how)) == (body.outcome, body.end)
    # A framework's retry asks again. What may have happened is not done a second time.
    if body.outcome == "unknown":
        how.body = lambda: None
        with pytest.raises(Refused):
            call(how, kind)
        assert len(how.ran) == 1


@pytest.mark.parametrize("kind", BOTH)
def test_a_report_that_does_not_arrive_is_said(books: Books, how: How, kind: str) -> None:
    books.stage, books.fault, books.carried_out = "outcome", "500", False
    with pytest.raises(Unreported, match="has run") as told:
        call(how, kind)
    assert (told.value.result, end_of(books, how)) == ("paid 5", "ran, in doubt")


@pytest.mark.parametrize("kind", BOTH)
def test_a_fetch_that_was_begun_is_not_given_up_and_an_unfit_output_is_left_out(
    books: Books, how: How, kind: str
) -> None:
    books.slow = books.picky = True
    assert call(how, kind) == "paid 5"
    assert (end_of(books, how), books.only().output) == ("ran once, as approved", None)


@pytest.mark.parametrize("kind", BOTH)
def test_a_permit_that_comes_after_its_lease_is_not_spent(books: Books, how: How, kind: str) -> None:
    books.lease = 1e-9
    with pytest.raises(Closed, match="too late"):
        call(how, kind)
    assert (how.ran, books.only().outcome) == ([], "not_run")


@pytest.mark.parametrize("kind", BOTH)
def test_a_lease_goes_on_while_this_machine_sleeps(
    books: Books, how: How, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is read seven seconds after it was asked for, and the server has counted them."""
    books.lease, awake = 5.0, contract.now
    monkeypatch.setattr(contract, "now", lambda: awake() + (7.0 if "permit" in books.asked else 0.0))
    with pytest.raises(Closed, match="too late"):
        call(how, kind)
    assert (how.ran, books.only().outcome) == ([], "not_run")


@pytest.mark.parametrize("kind", BOTH)
def test_the_lease_is_extended_while_the_body_runs(books: Books, how: How, kind: str) -> None:
    books.lease = 0.3

    def wait() -> None:
        books.until(lambda: books.only().beats >= 2)

    async def await_beats() -> None:
        await asyncio.to_thread(wait)

    if kind == "async":
        how.abody = await_beats
    else:
        how.body = wait
    assert call(how, kind) == "paid 5"


def test_two_equal_calls_at_once_run_once(books: Books, how: How) -> None:
    """The second one finds the permit given away: it does not run, and says so."""

    def both_have_asked() -> None:
        books.until(lambda: books.asked.count("permit") >= 2)

    async def both() -> list[Any]:
        how.abody = lambda: asyncio.to_thread(both_have_asked)
        tool = govern(how.apay, gate=how.gate(), tool="pay")
        return [*await asyncio.gather(tool(**PAY), tool(**PAY), return_exceptions=True)]

    results = asyncio.run(both())
    assert sorted(type(one).__name__ for one in results) == ["Refused", "str"]
    assert end_of(books, how) == "ran once, as approved"


def test_the_body_gets_what_was_asked_about(books: Books, how: How) -> None:
    """The list is changed while people decide: the body has its own copy."""
    given: list[int] = [1]
    got: list[list[int]] = []

    def send(to: list[int]) -> None:
        got.append(to)

    def decide(tool: str, arguments: dict[str, Any]) -> str:
        given.append(2)
        return "approved"

    books.decide = decide
    govern(send, gate=how.gate())(given)
    assert (got, books.only().arguments, given) == ([[1]], {"to": [1]}, [1, 2])


class Odd(str):
    """A text that may read otherwise than it is."""


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 2**53, -(2**53), "\ud800", b"x", {1}, object(), {1: 2}, Odd("x"), 1 + 2j, [[]] * 2 + [print]],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_one_json_form_is_asked_about_by_nobody(books: Books, how: How, value: object) -> None:
    def take(value: object) -> None:
        how.done({})

    with pytest.raises(Closed, match="was not run"):
        govern(take, gate=how.gate())(value)
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(Closed, match="nested deeper"):
        govern(take, gate=how.gate())(deep)
    assert (how.ran, books.actions) == ([], {})


@pytest.mark.parametrize(
    "value",
    [0, -0.0, 1.5, 1e21, 1e-7, 5e-324, 2**53 - 1, "ä\u2028\x7f\U0001f600", None, True, [1, [2]], {"b": 1, "a": {}},
     {"\ue000": 1, "\U00010000": 2}, 333333333.33333329],
    ids=repr,
)  # fmt: skip
def test_the_digest_is_the_servers(value: Any) -> None:
    assert digest_of_call("t", {"v": value}) == digest({"tool": "t", "mode": "gate", "arguments": {"v": value}})


def test_defaults_extras_and_unseen_arguments(books: Books, how: How) -> None:
    """The card shows what the body gets: defaults too, and nothing that the program gives itself."""
    got: dict[str, Any] = {}

    def act(first: int, *rest: int, price: Decimal = Decimal("1.50"), context: object = None, **more: int) -> None:
        got.update(first=first, rest=rest, price=price, context=context, more=more)

    govern(act, gate=how.gate(), unseen=["context"])(1, 2, 3, context=how, extra=4)
    assert books.only().arguments == {"first": 1, "rest": [2, 3], "price": "1.50", "extra": 4}
    assert got == {"first": 1, "rest": (2, 3), "price": Decimal("1.50"), "context": how, "more": {"extra": 4}}
    with pytest.raises(Closed, match="stands twice"):
        govern(act, gate=how.gate(), unseen=["context"])(1, rest=5)


class Order(BaseModel):
    """A model, as frameworks make of arguments."""

    amount: int
    to: list[str] = Field(default_factory=list, alias="TO")
    note: SecretStr | None = None


def test_models_show_all_that_they_hold(books: Books, how: How) -> None:
    class Shop:
        """A program's own object."""

        def buy(self, order: Order) -> None:
            how.done({})

    buy = govern(Shop.buy, gate=how.gate())
    buy(Shop(), Order(amount=1, TO=["ana"]))
    assert books.only().arguments == {"order": {"amount": 1, "TO": ["ana"], "note": None}}
    with pytest.raises(Closed, match="does not show all"):
        buy(Shop(), Order(amount=1, note=SecretStr("hidden")))
    assert len(how.ran) == 1


class Later:
    """A callable object."""

    async def __call__(self, amount: int) -> int:
        return amount


def test_what_runs_later_is_not_taken_for_done(books: Books, how: How) -> None:
    def bit_by_bit() -> Iterator[int]:
        yield 1

    async def coroutine() -> int:
        return how.done({}) or 1

    gate = how.gate()
    with pytest.raises(Ungoverned, match="bit by bit"):
        govern(bit_by_bit, gate=gate)
    with pytest.raises(Ungoverned, match="name of its own"):
        govern(lambda: None, gate=gate)
    assert asyncio.run(govern(Later(), gate=gate, tool="later")(3)) == 3
    for deferred in (coroutine, bit_by_bit):

        def hidden(deferred: Callable[[], Any] = deferred, name: str = deferred.__name__) -> Any:
            return deferred()

        with pytest.raises(TypeError, match="yet to run"):
            govern(hidden, gate=gate, unseen=["deferred"])()
    assert how.ran == []
    assert [one.outcome for one in books.actions.values()] == ["succeeded", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("url", "token"),
    [("http://gate.example.com", TOKEN), ("https://user:secret@gate.example.com", TOKEN), ("gate.example.com", TOKEN),
     ("", TOKEN), ("https://gate.example.com", ""), ("https://gate.example.com", "a\nb")],
)  # fmt: skip
def test_a_gate_that_would_ask_nobody_is_refused(url: str, token: str) -> None:
    with pytest.raises(ValueError, match=r"COUNTERSEAL_AGENT|plain_http"):
        Gate(url, token)


def test_two_lines_govern_a_callable(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERSEAL_AGENT_URL", books.url)
    monkeypatch.setenv("COUNTERSEAL_AGENT_TOKEN", TOKEN)
    before = "def pay(amount):\n    return amount\n"
    after = "from counterseal_agents import govern\n@govern\ndef pay(amount):\n    return amount\n"
    assert len(set(after.splitlines()) - set(before.splitlines())) == 2
    room: dict[str, Any] = {}
    exec(after, room)
    assert (room["pay"](3), books.only().tool, books.only().status) == (3, "pay", "applied")


def test_the_distribution_is_small_and_needs_no_server(tmp_path: Path) -> None:
    """Its wheel holds its own package, and runs with two libraries."""
    folder = Path(__file__).resolve().parents[2] / "packages" / "agents"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = "{name.split('.')[0] for name in sys.modules if not name.startswith('_')}"
    program = (
        f"import sys; sys.path.insert(0, {str(wheel)!r}); import counterseal_agents as c; "
        f"assert {str(wheel)!r} in c.__file__; "
        f"print(sorted({names} & {{'app', 'core', 'runtime', 'langchain', 'agents', 'crewai', 'pydantic'}}))"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")
