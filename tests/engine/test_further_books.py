"""Whole books of what seldom happens: lives that begin anew, limits of one's own, pauses within a doubt, other actors.

As ``test_whole_books``, which says how the files are written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.port import InDoubt, NotSent, Parked, Probe, ProbeVerdict, Usage
from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.engine import waits
from runtime.engine.events import RunExtended
from runtime.engine.instructions import Shared
from runtime.engine.lives import performed
from runtime.engine.pausing import Pause
from runtime.engine.transition import Transition
from tests.engine.conftest import NOW
from tests.engine.governing import ASK, CASE, CHILD, DEDUPES, EFFECT, GATE, HEAD, MAIL, Governed, governed
from tests.engine.test_agent_runs import LOOP as LOOP_AGENT
from tests.engine.test_agent_runs import WITHIN
from tests.engine.test_agent_sources import MEMORY, OWN, apply, one, read
from tests.engine.test_sharing import SHARED_CASE, begun, known_as, later, left
from tests.engine.test_whole_books import (
    ANN,
    BESIDE,
    CHECK,
    COUNTS,
    WAITING,
    act,
    again,
    canceled,
    driven,
    held,
    leaves,
    talked,
)
from tests.support.agents import agent, call, calls, says

pytestmark = pytest.mark.req("X-15")

TWO_TURNS = MEMORY + (
    "  - id: first\n    agent:\n"
    "      {model: script-given, instructions: I am first., input: Do it., tools: [probe.effect.apply],\n"
    "       limits: {turns: 2}, on_limit: fail, remember: {channel: messages, turns: 20}}\n"
) + one("second")  # fmt: skip
REJECTED = GATE.replace("quorum: 2}}", "quorum: 2}, on_rejected: [{id: i, do: probe.effect.apply, with: {name: x}}]}")
AFTER = "  - {id: b, do: probe.effect.apply, with: {name: y}}\n"
DENIED = (
    HEAD
    + "  - {id: a, do: probe.mail.send, with: {text: x}, on_failure: [{id: i, do: probe.key.put, with: {name: x}}]}\n"
)
EQUAL = EFFECT + (
    "  - {id: b, do: probe.effect.apply, with: {name: x}, on_rejected: [{id: i, do: probe.key.put, with: {name: x}}]}\n"
    "  - {id: c, do: probe.effect.apply, with: {name: y}}\n"
)
COUNTS_AND_DENIES = COUNTS + "  - {id: mails, match: {operation: probe.mail.send}, outcome: deny, because: Never.}\n"
ONE_DAY = SHARED_CASE.replace("with: {name: x}}", "with: {name: x}, timeout: P1D}")
TOO_MANY = ASK.replace("of: 2", "of: 3")
SIGNAL = HEAD + "  - {id: a, wait: {signal: paid, correlate: x}}\n"
UNEXPECTED = {"class": "consistency", "code": "unexpected", "setbacks": 5}
BESIDE_EACH_OTHER = HEAD + "".join(
    f"  - {{id: {name}, needs: [], do: probe.effect.apply, with: {{name: {name}}}}}\n" for name in "ab"
)
LEFT_ALONE = CHILD.replace("with: {who: x}}", "with: {who: x}, timeout: P1D, abandon: true}")
ASK_DESK = calls(call("ask_desk", {"question": "Why?"}, "one"), call("ask_desk", {"question": "Why?"}, "two"))
OF_CASE = agent(beside=BESIDE).replace("probe.mail.send", "probe.case.open")
OPENS = calls(call("probe_case_open", {"name": "help"}, "one"))
FOUR = WITHIN.replace("      tools:", "      limits: {calls: 4}\n      tools:")
BROUGHT = {"output": {"who": "ada"}, "used": {"calls": 3, "usage": [{"input_tokens": 10, "output_tokens": 5}]}}
READS_NOTHING = OWN.replace(
    "{operation: probe.value.read}, outcome: allow", "{operation: probe.value.read}, outcome: deny"
)
OUTSIDE = Actor("connector", "probe")
SAYS_BACK = CASE + "  - {id: b, do: probe.effect.apply, with: {name: '${{ string(steps.a.output.n) }}'}}\n"


def twice(run: Governed) -> Governed:
    """The failed run goes on from its failed steps, on its book alone."""
    again(run)
    run.kept, run.read = None, 0
    return run


def agent_anew() -> Governed:
    """An agent that failed at its limit begins anew: only its turns from there on are counted and remembered."""
    run = talked(calls(apply("a")), calls(apply("b")), text=TWO_TURNS)
    twice(run)
    run.turns = [calls(apply("c")), says("Done."), says("Seen.")]
    return run.go_on()


def case_anew() -> Governed:
    """A case that ended badly: the step that begins anew waits for another one, under another key."""
    run = ended(governed(CASE, said=(Parked("c1"),)).drive(), {"error": {"code": "no", "message": "No."}})
    twice(run)
    run.said = [Parked("c2")]
    return run.drive()


def ended(run: Governed, result: Any, actor: Actor = OUTSIDE) -> Governed:
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, result, actor))
    return driven(run)


def beside(move: Callable[[Transition, Any], object]) -> Governed:
    """Two workers have begun two steps; this happens to the first one."""
    run = governed(BESIDE_EACH_OTHER)
    for key in ("a", "b"):
        run.claim(key)
    run.attempt("a", move)
    return run


def done(run: Governed, key: str) -> Governed:
    """A step that is under way succeeds."""
    run.attempt(key, lambda t, s: t.succeed(s, {"n": 1}, {}))
    return run


def own_taken_over() -> Governed:
    """A case that goes on without its step: the step that begins anew takes it over, and has its end."""
    run = driven(begun().over("a", waits.time_out))
    ((receipt, life, wait),) = performed(run.whole().run).values()
    twice(run)
    run.shared = Shared(receipt, life, wait)
    return run.drive()


def brought(actor: Actor) -> Governed:
    """The end of what goes on outside is told by this actor, and the next step is about it."""
    run = governed(SAYS_BACK, ASK, said=(Parked("c1"),)).drive().answer("ana", "ben").drive()
    return ended(run, {"output": {"n": 5}}, actor)


def waited(text: str) -> Governed:
    """A step waits for the run that it has started."""
    return driven(governed(text, said=(WAITING,)))


def paused_in_doubt() -> Governed:
    """A look is due while everything is paused, and is made once the pause is over."""
    run = governed(EFFECT, said=(InDoubt("lost"),)).drive().due()
    run.paused = {"tenant": Pause.of("tenant", {"by": "ana", "reason": "calm", "at": NOW.isoformat()})}
    run.drive()
    run.paused = {}
    run.said = [Probe(ProbeVerdict.CANNOT_TELL, "busy", retry_after_seconds=9)]
    return run.due().drive()


def within_comes() -> Governed:
    """The run within, which was waited for, tells what its models have used."""
    run = talked(CHECK, says("So."), text=FOUR, said_within=[WAITING])
    run.over("triage/1/1", lambda t, s, wait: waits.complete(t, s, wait, BROUGHT, Actor("run", "other")))
    return run.go_on()


def tried_again(cost: str | None) -> Governed:
    """A turn is tried again; what it had used counts, also where its price is not known."""
    text = agent("gpt-5-mini", 'limits: {cost: "9"}')
    spent = NotSent("away", usage=Usage("p", "m", 5, 5, cost))
    run = talked(spent, calls(read("a")), says("So."), says("Else."), text=text)
    run.due("triage/1")
    return run.go_on()


def rejected_and_counted() -> Governed:
    """A person rejects the second of two equal calls, and the next decision knows of it."""
    run = driven(governed(EQUAL, COUNTS))
    run.reject("b")
    return driven(run)


def sent_in_vain(text: str, times: int) -> Governed:
    """Calls of which nobody knows what became of them; each look or retry comes when it is due."""
    run = governed(text, said=(InDoubt("lost"),) * times).drive()
    for _ in range(times - 1):
        run.due().drive()
    return run


def doubted(text: str, policy: str) -> Governed:
    return governed(text, policy).drive().answer("ana", "ben").drive(dies=True).dead().drive()


SCENES: dict[str, Callable[[], Governed]] = {
    "agent-anew": agent_anew,
    "agent-asks-the-same-twice": lambda: talked(ASK_DESK, says("Done.")).complete("triage/1/1", {"answer": "1"}),
    "agent-opens-a-case-and-runs-out": lambda: talked(
        OPENS, text=OF_CASE, outside=lambda *_: Parked("c1")
    ).runs_out("triage"),
    "agent-within-comes": within_comes,
    "agent-within-is-canceled": lambda: canceled(talked(CHECK, text=WITHIN, said_within=[WAITING])),
    "agent-read-nothing": lambda: talked(
        calls(read("alpha")), says("None."), calls(apply("omega")),
        text=MEMORY + one("first", "probe.value.read") + one("second"), policy=READS_NOTHING,
    ),
    "agent-tried-again-unpriced": lambda: tried_again(None),
    "agent-tried-again": lambda: tried_again("0.01"),
    "agents-of-a-loop-canceled": lambda: canceled(
        talked(says("x"), NotSent("away"), text=LOOP_AGENT, trigger={"names": ["x", "y"]})
    ),
    "child-runs-out": lambda: waited(CHILD).over("a", waits.time_out),
    "child-left-alone-runs-out": lambda: waited(LEFT_ALONE).over("a", waits.time_out),
    "child-left-alone-is-canceled": lambda: canceled(waited(LEFT_ALONE)),
    "case-runs-out": lambda: governed(CASE, said=(Parked("c1"),)).drive().over("a", waits.time_out),
    "case-anew": case_anew,
    "case-of-one-day": lambda: governed(CASE.replace("x}}", "x}, timeout: P1D}"), said=(Parked("c1"),)).drive(),
    "case-is-told-by-its-connector": lambda: brought(Actor("connector", "probe")),
    "case-is-told-by-a-token": lambda: brought(Actor("token", "ben")),
    "case-is-told-by-another-kind": lambda: brought(Actor("webhook", "desk")),
    "denied-and-counted": lambda: driven(governed(DENIED + AFTER, COUNTS_AND_DENIES)),
    "rejected-at-a-gate-and-counted": lambda: driven(governed(REJECTED + AFTER, COUNTS).drive().reject()),
    "rejected-and-counted": lambda: rejected_and_counted(),
    "sent-in-vain-twice": lambda: sent_in_vain(DEDUPES, 2),
    "sent-in-vain-until-people-are-asked": lambda: sent_in_vain(DEDUPES, 2).due().drive(),
    "read-in-vain": lambda: sent_in_vain(EFFECT.replace("effect.apply", "value.read"), 3),
    "mailed-in-vain": lambda: sent_in_vain(MAIL, 1),
    "doubt-of-what-was-approved": lambda: doubted(MAIL, ASK),
    "doubt-of-what-dedupes": lambda: doubted(DEDUPES, ASK),
    "not-sent-then-lost": lambda: governed(EFFECT, said=(NotSent("away"),)).drive().due().drive(dies=True),
    "not-sent-then-in-doubt": lambda: governed(EFFECT, said=(NotSent("away"), InDoubt("lost"))).drive().due().drive(),
    "given-up-beside-another": lambda: beside(lambda t, s: t.give_up(s, UNEXPECTED)),
    "given-up-beside-another-and-over": lambda: done(beside(lambda t, s: t.give_up(s, UNEXPECTED)), "b"),
    "failed-beside-another": lambda: beside(lambda t, s: t.fail(s, UNEXPECTED)),
    "canceled-beside-another": lambda: done(canceled(beside(lambda t, s: None)), "b"),
    "paused-in-doubt": paused_in_doubt,
    "nobody-may-decide": lambda: governed(EFFECT, TOO_MANY).drive(),
    "shared-taken-over-for-a-day": lambda: later(known_as(left()), ONE_DAY),
    "shared-taken-over-from-itself": own_taken_over,
    "shared-taken-over-from-itself-and-ended": lambda: ended(own_taken_over(), {"output": {"n": 5}}),
    "shared-taken-over-from-itself-and-left": lambda: canceled(own_taken_over()),
    "held-open-and-sealed-while-it-waits": lambda: act(held(open=3600, text=SIGNAL).drive(), lambda t: t.seal(ANN)),
    "held-open-sealed-and-signaled": lambda: ended(
        act(held(open=3600, text=SIGNAL).drive(), lambda t: t.seal(ANN)), {"output": {"n": 1}}
    ),
    "held-open-and-canceled": lambda: canceled(driven(held(open=3600))),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_leaves_this_book(scene: str) -> None:
    leaves(SCENES[scene](), scene)


@pytest.mark.req("P-11")
@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda t: t.seal(ANN, "enough"), "The run waits for no more steps."),
        (
            lambda t: t.extend(RunExtended(1, ["b"], ["#b"], {}, {}), ANN),
            "or being canceled; nothing can be added to it.",
        ),
    ],
)
def test_nothing_is_added_to_a_run_that_is_being_canceled_and_it_is_not_sealed(
    move: Callable[[Transition], object], words: str
) -> None:
    run = canceled(held(open=3600).drive(dies=True))
    assert (run.status, run.view().run.held_open) == ("running", True)
    with pytest.raises(ConsistencyError, match=words):
        act(run, move)
