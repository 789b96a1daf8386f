"""Whole books of steps that wait, repeat, or start other runs: how each begins, ends, and is found anew.

As ``test_whole_books``, which says how the files are written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from connectors.port import Done, NotSent, Parked, Refused, Usage
from evidence.chain import Actor
from runtime.engine import waits
from runtime.engine.instructions import OtherRun
from runtime.engine.records import refused
from tests.engine.governing import ALLOW_ALL, ASK, CASE, CHILD, EFFECT, GATE, HEAD, TICKET, Governed, governed
from tests.engine.test_records import ALLOW, ASKS, DELETE, PUT
from tests.engine.test_retracing import found_anew
from tests.engine.test_sharing import SHARED_CASE, begun, known_as, later
from tests.engine.test_waits_whole import GOES_ON, HEIR, TRACES, writing
from tests.engine.test_whole_books import ANN, TASK, again, canceled, driven, held, leaves

pytestmark = pytest.mark.req("X-15")

TWICE = (
    HEAD.replace("steps:", "channels: {n: {initial: 0, reduce: sum}}\nsteps:")
    + "  - while: ${{ state.n < 2 }}\n    id: loop\n    max: 3\n    steps:\n"
    + "      - {id: one, do: probe.value.read, with: {name: '${{ string(index) }}'}, set: {n: 1}}\n"
    + "  - {id: b, do: probe.value.read, with: {name: '${{ string(steps.loop.output.count) }}'}}\n"
)
ROWS = (
    HEAD.replace("steps:", "channels: {seen: {reduce: append}}\nsteps:")
    + "  - {id: first, do: probe.value.read, with: {name: x}}\n"
    + "  - id: rows\n    foreach: ${{ [['a', 'b'], ['c']] }}\n    as: row\n    max_parallel: 2\n    steps:\n"
    + "      - id: cells\n        foreach: ${{ row }}\n        as: cell\n        steps:\n"
    + "          - {id: one, do: probe.value.read, with: {name: '${{ cell + string(index) }}'}}\n"
    + "          - {id: two, set: {seen: '${{ cell + string(steps.first.output.value + steps.one.output.value) }}'}}\n"
)
LATE = TASK.replace("timeout: P1D}", "timeout: P1D, on_timeout: [{id: t, do: probe.value.read, with: {name: late}}]}")
NO = GATE.replace("quorum: 2}}", "quorum: 2}, on_rejected: [{id: n, do: probe.value.read, with: {name: no}}]}")
TIMER = writing("wait: {for: PT1H}")
SIGNAL = writing("wait: {signal: s, correlate: k}, timeout: P1D")
NAMES = (
    HEAD + "  - {id: a, set: {}, reference: 'R${{ string(1) }}'}\n  - {id: b, do: probe.value.read, with: {name: x}}\n"
)
WITHIN = writing("run: other, with: {who: x}")
CHILDS = Actor("run", "c")
USED = Usage("p", "m", 7, 3, "0.01")
OWN_RESULT = {"n": 1}


def ended(run: Governed, by: Actor = ANN, **result: Any) -> Governed:
    return driven(run.over("a", lambda t, s, wait: waits.complete(t, s, wait, result, by)))


def conflicting(run: Governed) -> Governed:
    """The record is not as its step expects it."""
    run.claim("a")
    run.attempt("a", refused)
    return run


def copies() -> Governed:
    """The run within gets copies of two channels, and a rule reads where they come from."""
    run = held(text=HEIR, channels={"seen": [1]}, inherited=["seen"]).rule_by(TRACES)
    run.said = [OtherRun("queued")]
    return driven(run)


def in_loop() -> Governed:
    """The first item of a loop waits for a person, is rejected by another, and the run goes on from there."""
    text = HEAD + (
        "  - id: each\n    foreach: ${{ ['x', 'y'] }}\n    as: name\n    max_parallel: 2\n    steps:\n"
        "      - {id: ask, approve: {summary: 'Do ${{ name }}?', approvers: {group: owners}}}\n"
        "      - {id: act, do: probe.effect.apply, with: {name: '${{ name }}'}}\n"
    )
    run = driven(governed(text))
    run.answer("ana", key="each[1].ask")
    return driven(run)


def tasks_in_a_loop() -> Governed:
    """People shape each item of a loop; whose part it was is forgotten with the item."""
    text = HEAD + (
        "  - id: each\n    foreach: ${{ ['x', 'y'] }}\n    as: name\n    max_parallel: 1\n    steps:\n"
        "      - {id: form, task: {title: '${{ name }}', form: {type: object, properties: {x: {type: string}}},"
        " assign: {group: owners}}}\n"
        "      - {id: act, do: probe.effect.apply, with: {name: '${{ steps.form.output.x }}'}}\n"
    )
    run = driven(governed(text))
    for at, person in enumerate(("pat", "sam")):
        who, output = Actor("person", person), {"output": {"x": person}}
        run.over(f"each[{at}].form", lambda t, s, w, who=who, output=output: waits.complete(t, s, w, output, who))
        driven(run)
        marks = {name for name in run.state.shaped if name.startswith("steps.")}
        assert not marks, "nothing is kept of an item that is over"
    return run


def joined_and_ended() -> Governed:
    """A step waits for the end of another's effect, and has that end."""
    first = begun()
    run = later(known_as(first), SHARED_CASE)
    first.over("a", lambda t, s, w: waits.complete(t, s, w, {"output": {"papers": 1}}, Actor("token", "t"))).drive()
    run.shared = known_as(first)
    return ended(run, Actor("run", "r"), output={})


SCENES: dict[str, Callable[[], Governed]] = {
    "case-is-over-at-once": lambda: driven(governed(CASE, said=(Done({"n": 1}, "c1", usage=USED),))),
    "case-is-not-begun": lambda: driven(governed(CASE, said=(NotSent("away", 7),)).drive().due()),
    "case-ends-badly": lambda: ended(governed(CASE, said=(Parked("c1"),)).drive(), error={"code": "no", "sent": True}),
    "child-is-over-at-once": lambda: driven(governed(WITHIN, said=(OtherRun("succeeded", OWN_RESULT),))),
    "child-comes-back": lambda: ended(governed(WITHIN, said=(OtherRun("waiting"),)).drive(), CHILDS, output=OWN_RESULT),
    "child-cannot-be-started": lambda: driven(governed(CHILD, said=(OtherRun(problem="There is none."),))),
    "child-is-given-copies": copies,
    "run-goes-on-elsewhere": lambda: driven(governed(GOES_ON, said=(OtherRun("queued"),))),
    "loop-while": lambda: driven(governed(TWICE)),
    "loop-in-a-loop": lambda: driven(governed(ROWS)),
    "loop-with-a-gate": in_loop,
    "loop-with-tasks": tasks_in_a_loop,
    "task-is-late-and-handled": lambda: driven(governed(LATE).drive().over("a", waits.time_out)),
    "gate-says-no-and-is-handled": lambda: driven(governed(NO).drive().reject()),
    "timer": lambda: ended(governed(TIMER).drive(), Actor("engine", "e")),
    "timer-is-canceled": lambda: canceled(governed(TIMER).drive()),
    "signal": lambda: ended(governed(SIGNAL).drive(), Actor("token", "t"), output=OWN_RESULT),
    "signal-runs-out": lambda: driven(governed(SIGNAL).drive().over("a", waits.time_out)),
    "run-is-named": lambda: driven(governed(NAMES)),
    "record-is-put": lambda: driven(governed(PUT, ALLOW)),
    "record-is-deleted": lambda: driven(governed(DELETE, ALLOW)),
    "record-is-put-by-approval": lambda: driven(governed(PUT, ASKS).drive().answer("ana")),
    "record-is-another": lambda: conflicting(governed(PUT, ALLOW)),
    "ticket-reused-with-its-usage": lambda: later(
        known_as(governed(TICKET, said=(Done({"n": 1}, "t1", usage=USED),)).drive()), TICKET
    ),
    "not-sent-then-asked-about": lambda: driven(
        governed(EFFECT, said=(NotSent("away"),)).drive().due().rule_by(ASK).drive().answer("ana", "ben")
    ),
    "not-sent-though-approved-then-allowed": lambda: driven(
        governed(EFFECT, ASK, said=(NotSent("away"),)).drive().answer("ana", "ben").drive().due().rule_by(ALLOW_ALL)
    ),
    "not-sent-though-approved-then-sent": lambda: driven(
        governed(EFFECT, ASK, said=(NotSent("away"),)).drive().answer("ana", "ben").drive().due()
    ),
    "shared-joined-and-ended": joined_and_ended,
    "effect-that-is-refused-is-tried-again": lambda: driven(again(driven(
        governed(CASE, said=(Refused("401", "no"), Done({"n": 2}, usage=USED)))
    ))),
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES)
def test_a_run_leaves_this_book(scene: str) -> None:
    run = SCENES[scene]()
    assert found_anew(run) == {number: digest for number, (_, digest) in run.checkpoints.items()}
    leaves(run, scene)
