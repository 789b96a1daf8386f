"""Going on with a failed run, without a database: what is done stays, all else begins anew, doubt forbids it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from connectors.port import Done, Probe, ProbeVerdict, Refused
from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.engine.book.instructions import Shared
from runtime.engine.book.shared_effects import performed
from runtime.engine.life import waits
from runtime.engine.life.reopening import anew, refusal, reopen
from runtime.engine.life.transition import Transition
from runtime.engine.model.states import EffectState, RunState
from tests.engine.governing import HEAD, MAIL, TICKET, Governed, governed

pytestmark = pytest.mark.req("X-18")

ANN = Actor("person", "ann")
TWO = (
    HEAD
    + "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"
    + "  - {id: b, do: probe.effect.apply, with: {name: y}}\n"
)
NAMED = TWO.replace("reference: r\n", "reference: r\nresult: ${{ trigger.none }}\n")


def failed(text: str = TWO, *said: Any) -> Governed:
    run = governed(text, said=said or (Done({}), Refused("404", "gone")))
    while run.ready():
        run.drive(run.ready()[0])
    return run


def again(run: Governed, reason: str = "It is there now.") -> Transition:
    transition = Transition(run.whole(), run.workflow.graph)
    reopen(transition, ANN, reason, "bundle")
    for key in anew(run.whole().run):
        del run.rows[key]
    run.finished = False
    run.apply(transition)
    return transition


def test_what_failed_begins_anew_and_what_is_done_stays_done() -> None:
    run = failed()
    assert (run.status, len(run.sent), anew(run.whole().run)) == ("failed_terminal", 2, {"b": 1})
    again(run)
    assert run.ready() == ["b"]
    assert run.line["b"].epoch == 1  # its leases are counted on: what was named by one of them keeps its name alone
    run.drive("b")
    assert (run.status, len(run.sent), run.verified()) == ("succeeded", 3, True)


def test_the_reason_and_the_bundle_are_told() -> None:
    run = failed()
    again(run)
    line = next(line for line in run.lines if b"run.reopened" in line)
    assert b"It is there now." not in line
    assert b'"bundle"' in line


def test_a_run_fails_and_is_gone_on_with_as_often_as_people_want() -> None:
    run = failed()
    for _ in range(2):
        again(run, "")
        run.said = [Refused("404", "gone")]
        run.drive("b")
        assert run.status == "failed_terminal"
    again(run)
    run.drive("b")
    assert (run.status, len(run.sent)) == ("succeeded", 5)


def test_only_a_run_that_has_failed_is_gone_on_with() -> None:
    done, going = governed(MAIL).drive(), governed(MAIL)
    for run, remedy in ((done, "Start another run"), (going, "Let it go on")):
        with pytest.raises(ConsistencyError, match="only one that has failed") as raised:
            again(run)
        assert remedy in str(raised.value.remedy)


@pytest.mark.req("P-10")
def test_what_nobody_knows_is_never_done_again() -> None:
    run = governed(TWO).drive("a").drive("b", dies=True)
    for status in ("intended", "in_doubt"):
        problem = refusal(replace(run.whole().run, status=RunState.FAILED_TERMINAL))
        assert problem is not None, status
        assert "action of b happened" in str(problem)
        if status == "intended":
            run.dead("b").said = [Probe(ProbeVerdict.CANNOT_TELL, "evidence")]
            run.drive("b")


def test_a_run_whose_every_step_is_done_has_nothing_to_begin() -> None:
    run = failed(NAMED, Done({}), Done({}))
    assert run.status == "failed_terminal"
    with pytest.raises(ConsistencyError, match="No step of this run can begin anew"):
        again(run)


@pytest.mark.req("Q-15")
def test_who_had_joined_what_failed_does_it_itself_when_its_run_goes_on() -> None:
    first = governed(TICKET, said=(Refused("422", "no"),)).drive()
    ((receipt, life, wait),) = performed(first.whole().run).values()
    ended = Shared(replace(receipt, run_id=UUID(int=9)), life, wait)
    run = governed(TICKET)
    run.shared = replace(ended, life=EffectState.INTENDED)
    run.drive()
    run.shared = ended
    run.over("a", lambda t, s, open_: waits.complete(t, s, open_, {"output": {}}, ANN)).drive()
    assert (run.status, run.sent) == ("failed_terminal", [])
    again(run)
    run.kept, run.read = None, 0  # of a run that was over nothing is kept beside its book
    run.drive()
    assert (run.status, len(run.sent)) == ("succeeded", 1)
