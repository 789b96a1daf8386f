"""Helpers of tests/engine that several test files share: from test_whole_books."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from connectors.port import Done, InDoubt, NotSent, Parked, Probe, ProbeVerdict, Refused
from evidence.chain import Actor
from runtime.definition.workflow import load_workflow
from runtime.engine.book.instructions import OtherRun
from runtime.engine.book.recorded import RecordedEvent, read_line
from runtime.engine.life import holding, waits
from runtime.engine.life.holding import Answer
from runtime.engine.life.pausing import Pause
from runtime.engine.life.preflight import put_off
from runtime.engine.life.reopening import anew, reopen
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import (
    ActionSucceeded,
    RunExtended,
    RunOpened,
    RunPaused,
    RunResumed,
    StepSetBack,
    WaitPostponed,
)
from tests.engine.agents import Piloted, piloted
from tests.engine.governing import (
    ASK,
    CASE,
    CATALOG,
    CHILD,
    DEDUPES,
    DENY,
    EFFECT,
    GATE,
    HEAD,
    MAIL,
    TICKET,
    WRITE,
    Governed,
    governed,
)
from tests.support.agents import agent, call, calls, says
from tests.support.engine_agent_runs import ASK as ASK_AGENT
from tests.support.engine_agent_runs import BOTH, ONE, WITHIN
from tests.support.engine_agent_runs import LOOP as LOOP_AGENT
from tests.support.engine_agent_sources import MEMORY, OWN, one
from tests.support.engine_sharing import SHARED_CASE, begun, ended, known_as, later, left
from tests.support.engine_stage import KEY, NOW
from tests.support.runtime_stage import ALLOW_ALL

ANN = Actor("person", "ann")


APPLY = "probe_effect_apply"


TASK = HEAD + (
    "  - {id: a, task: {title: Look, form: {type: object, properties: {x: {type: string}}}, assign: {group: owners}},"
    " timeout: P1D}\n"
    "  - {id: b, do: probe.effect.apply, with: {name: '${{ steps.a.output.x }}'}}\n"
)


LOOP = """
workflow: w
version: 1
reference: r
channels: {seen: {reduce: append}, last: {initial: none}, total: {initial: 0, reduce: sum},
           high: {reduce: max}, low: {initial: 2, reduce: min}}
result: {seen: "${{ state.seen }}", last: "${{ state.last }}"}
steps:
  - id: each
    foreach: ${{ trigger.names }}
    as: name
    max_parallel: 2
    steps:
      - {id: one, do: probe.value.read, with: {name: "${{ name }}"},
         set: {seen: "${{ name }}", total: 1, high: "${{ size(name) }}", low: "${{ size(name) }}"}}
  - if: ${{ size(state.seen) > 2 }}
    then: [{id: many, do: probe.value.read, with: {name: many}, set: {last: many}}]
    else: [{id: few, do: probe.value.read, with: {name: few}, set: {last: few}}]
  - {id: named, do: probe.value.read, with: {name: n}, reference: "new-${{ state.last }}"}
"""


HANDLED = HEAD + (
    "  - {id: a, do: probe.effect.apply, with: {name: x}, on_failure: [{id: instead, do: probe.value.read,"
    " with: {name: '${{ error.code }}'}}]}\n"
    "  - {id: b, do: probe.value.read, with: {name: after}}\n"
)


SIDES = HEAD + (
    "  - {id: a, needs: [], do: probe.mail.send, with: {text: x}}\n"
    "  - {id: t, needs: [], task: {title: Look, form: {type: object, properties: {x: {type: string}}},"
    " assign: {group: owners}}}\n"
    "  - {id: s, needs: [], wait: {signal: paid, correlate: x}, timeout: P1D}\n"
    "  - {id: p, needs: [], wait: {for: PT2H}}\n"
    "  - {id: g, needs: [], approve: {summary: Go on?, approvers: {group: owners}}}\n"
    "  - {id: r, needs: [], run: other, with: {who: x}}\n"
    "  - {id: m, needs: [a, t], do: probe.mail.send, with: {text: y}}\n"
)


LADDER = "because: Look., expires: PT4H, remind: [PT1H], escalate: {after: PT2H, to: {group: bosses}}}"


STEPWISE = ASK.replace("because: Look.}", LADDER)


def book_of(run: Governed) -> list[RecordedEvent]:
    return [read_line(line, run.values.get(n, {}), KEY, n) for n, line in enumerate(run.lines)]


def said(value: Any) -> Any:
    """A value without what is not there."""
    if isinstance(value, dict):
        return {name: said(item) for name, item in value.items() if item is not None}
    return [said(item) for item in value] if isinstance(value, list | tuple) else value


def act(run: Governed, move: Callable[[Transition], object]) -> Governed:
    """Append what is moved in the run, beside its steps."""
    transition = Transition(run.view(), run.workflow.graph)
    move(transition)
    run.apply(transition)
    return run


def canceled(run: Governed) -> Governed:
    return act(run, lambda t: t.cancel(ANN, "enough"))


def asked(text: str = WRITE, policy: str = ASK) -> Governed:
    return governed(text, policy).drive()


def lost(text: str, *said: Any, policy: str = ALLOW_ALL) -> Governed:
    run = governed(text, policy).drive(dies=True).dead()
    run.said = [*said]
    return run.drive()


def extended(run: Governed) -> Governed:
    """Add two steps to the run."""
    text = EFFECT + "  - {id: b, do: probe.value.read, with: {name: '${{ string(steps.a.output.value) }}'}}\n"
    text += "  - {id: c, do: probe.effect.apply, with: {name: z}}\n"
    run.before.append(run.workflow.graph)
    run.workflow = load_workflow(text, "test.yaml", CATALOG)
    adopted: Any = {"a": {"value": 1}}
    event = RunExtended(1, ["b", "c"], ["#b", "#c"], {"steps": [1]}, {"probe.value.read": "d"}, adopted, ["a"])
    return act(run, lambda t: t.extend(event, ANN))


def driven(run: Governed) -> Governed:
    while not run.finished and run.ready():
        run.drive(run.ready()[0])
    return run


def again(run: Governed) -> Governed:
    transition = Transition(run.whole(), run.workflow.graph)
    reopen(transition, ANN, "It is there now.", "bundle")
    for key in anew(run.whole().run):
        del run.rows[key]
    run.finished = False
    run.apply(transition)
    return run


def looped(*names: str) -> Governed:
    run = Governed(load_workflow(LOOP, "test.yaml", CATALOG), {"names": [*names]})
    run.open()
    return driven(run.rule_by(ALLOW_ALL))


def filled(run: Governed, output: Any, by: str = "person:pat") -> Governed:
    result = {"output": output, "by": by}
    return run.over("a", lambda t, s, wait: waits.complete(t, s, wait, result, Actor("person", "pat")))


def talked(*turns: Any, text: str = "", **more: Any) -> Piloted:
    return piloted(text or agent(), *turns, **more)


COUNTS = """
policy: counts
version: 1
rules:
  - {id: model, match: {connector: model}, outcome: allow}
  - id: few
    match: {connector: probe}
    when: counters.same_in_run < 1 && counters.refused_in_run < 2 && counters.asked_in_run < 2
    outcome: allow
    otherwise: needs_approval
    approvers: [{group: owners}]
"""


COUNTED = HEAD + "".join(
    f"  - {{id: {name}, do: probe.effect.apply, with: {{name: {given}}}}}\n" for name, given in ("ax", "bx", "cy", "dx")
)


THREE = calls(*(call(APPLY, {"name": name}, f"c{at}") for at, name in enumerate(("help", "zoe", "zoe"))))


MAILED = calls(call("probe_mail_send", {"text": "mail"}, "one"))


BESIDE = "timeout: P1D\non_timeout:\n  - {id: i, set: {found: 1}}"


REMEMBERED = MEMORY + one("first") + one("second")


SAID = GATE + "  - {id: b, do: probe.effect.apply, with: {name: '${{ steps.a.output.reason }}'}}\n"


WRITTEN_CASE = SHARED_CASE.replace("steps:", "channels: {found: {}}\nsteps:").replace(
    "{name: x}}", '{name: x}, set: {found: ["${{ signal.by }}", "${{ signal.kind }}", "${{ output }}"]}}'
)


def changed(run: Governed) -> Governed:
    return run.over("a", lambda t, s, wait: waits.ask_anew(t, s, wait, ANN))


HANDS_OUT = HEAD + "  - {id: a, do: probe.case.open, with: {name: '${{ wait.token }}'}}\n"


def _tell(event: Any, transition: Transition) -> None:
    transition.tell(event, actor=ANN)


def resumed(run: Governed) -> Governed:
    for event in (RunPaused(True, reason="calm"), RunResumed(False)):
        act(run, partial(_tell, event))
    return run


def held(*, text: str = EFFECT, **opened: Any) -> Governed:
    """A run that was opened with more than its inputs."""
    run = Governed(load_workflow(text, "test.yaml", CATALOG), {})
    event = RunOpened({"name": "w"}, inputs={}, reference="r", requested_by="someone", **opened)
    act(run, lambda t: t.open(event, ANN))
    return run.rule_by(ALLOW_ALL)


def moved(run: Governed, move: Callable[[Transition, Any], object]) -> Governed:
    run.claim("a")
    run.attempt("a", move)
    return run


def given_up(run: Governed) -> Governed:
    return moved(run, lambda t, s: t.give_up(s, {"class": "consistency", "code": "unexpected", "setbacks": 5}))


def set_back(run: Governed) -> Governed:
    return moved(run, lambda t, s: t.tell(StepSetBack(2, {"class": "consistency", "setbacks": 2}), step=s.key))


def postponed(run: Governed) -> Governed:
    return run.over(
        "a", lambda t, s, wait: t.tell(WaitPostponed(wait.wait_id, wait.kind, due=60, setbacks=3), step=s.key)
    )


def lost_elsewhere(run: Governed) -> Governed:
    """The connector leads to another system when a call without an outcome is looked into."""
    run.systems = {"probe": "one"}
    run.drive(dies=True).dead()
    run.systems = {"probe": "two"}
    return run.drive()


def recalled(run: Governed) -> Governed:
    """An effect is recorded as done, and the worker dies before its step is over."""
    run.drive(dies=True)
    (receipt,) = run.view().run.receipts.values()
    run.attempt("a", lambda t, s: t.tell(ActionSucceeded(receipt.receipt_id, {"n": 1}, "e1"), step=s.key))
    return run.dead()


def doubting(operation: str, given: Any) -> Any:
    return InDoubt("The line broke.")


def paused(run: Governed) -> Governed:
    run.paused = {"tenant": Pause.of("tenant", {"by": "ana", "reason": "calm", "at": NOW.isoformat()})}
    return run.drive()


def dead(run: Governed) -> Governed:
    run.claim("a")
    return run.dead()


def away() -> Governed:
    return governed(EFFECT, said=(NotSent("away", 7), Done({"n": 1}, "e9"))).drive()


def opened() -> Governed:
    return governed(CASE, said=(Parked("c1", {"ref": 1}),)).drive()


def parent(other: OtherRun) -> Governed:
    return driven(governed(CHILD, said=(other,)))


CHECK, WAITING = calls(call("check_1", {}, "one")), OtherRun("waiting")


OTHER = OtherRun("succeeded", {"who": "ada"}, used={"calls": 3, "usage": [{"input_tokens": 10, "output_tokens": 5}]})


def answered(run: Piloted, key: str) -> Piloted:
    """Let Ana approve what a step asks, and go on."""
    run.answer("ana", key=key)
    return run.go_on()


GONE = Refused("503", "It is away.")
KEPT_OPEN = HEAD + "  - {id: a, do: probe.effect.apply, with: {name: x}, on_failure: {hold: owners}}\n"


def kept_open(*more: Any) -> Governed:
    """A step has failed, and is held."""
    return governed(KEPT_OPEN, said=(GONE, *more)).drive()


def hold_said(run: Governed, what: Answer) -> Governed:
    """Ana says what becomes of the held step."""
    return run.over("a", lambda t, s, w: holding.answer(t, s, w, what, Actor("person", "ana"), "I looked.", "cli"))


SCENES: dict[str, Callable[[], Governed]] = {
    "effect": lambda: driven(governed(EFFECT)),
    "effect-refused": lambda: governed(EFFECT, said=(Refused("404", "gone"),)).drive(),
    "effect-not-sent": away,
    "effect-not-sent-again": lambda: away().due().drive(),
    "effect-in-doubt": lambda: governed(EFFECT, said=(InDoubt("lost"),)).drive(),
    "write-asked": asked,
    "write-approved": lambda: asked().answer("ana", "ben").drive(),
    "write-rejected": lambda: asked().reject(),
    "write-expired": lambda: asked(policy=STEPWISE).expire(),
    "write-canceled": lambda: canceled(asked()),
    "write-denied": lambda: governed(WRITE, DENY).drive(),
    "write-without-policy": lambda: governed(WRITE, None).drive(),
    "write-asked-under-another-policy": lambda: asked().answer("ana", "ben").rule_by(DENY).drive(),
    "gate-asked": lambda: asked(GATE),
    "gate-passed": lambda: driven(asked(GATE).answer("ana", "ben")),
    "gate-canceled": lambda: canceled(asked(GATE)),
    "task": lambda: asked(TASK, ALLOW_ALL),
    "task-filled": lambda: driven(filled(asked(TASK, ALLOW_ALL), {"x": "red"})),
    "task-runs-out": lambda: asked(TASK, ALLOW_ALL).over("a", waits.time_out),
    "task-canceled": lambda: canceled(asked(TASK, ALLOW_ALL)),
    "case-waits": opened,
    "case-comes": lambda: driven(filled(opened(), {"n": 5}, "connector:probe")),
    "case-canceled": lambda: canceled(opened()),
    "ticket-shared": lambda: driven(governed(TICKET)),
    "child-waits": lambda: parent(WAITING),
    "child-done": lambda: parent(OtherRun("succeeded", {"n": 1}, shaped=["form_filler a person:ben"])),
    "child-failed": lambda: parent(OtherRun("failed_terminal", error={"class": "transport", "message": "no"})),
    "child-canceled": lambda: canceled(parent(WAITING)),
    "lost-and-found": lambda: lost(WRITE, Probe(ProbeVerdict.APPLIED, "seen", Done({"x": 1}))),
    "lost-and-absent": lambda: lost(WRITE, Probe(ProbeVerdict.NOT_APPLIED, "none"), Done({"x": 2}, "e2")),
    "lost-and-unknown": lambda: lost(WRITE, Probe(ProbeVerdict.CANNOT_TELL, "who knows")),
    "lost-mail": lambda: lost(MAIL),
    "lost-dedupes": lambda: lost(DEDUPES),
    "loop-of-few": lambda: looped("x"),
    "loop-of-many": lambda: looped("x", "y", "z"),
    "loop-of-none": looped,
    "failure-handled": lambda: driven(governed(HANDLED, said=(Refused("404", "gone"),))),
    "sides": lambda: driven(governed(SIDES, said=(Done({}), WAITING))),
    "sides-canceled": lambda: canceled(driven(governed(SIDES, said=(Done({}), WAITING)))),
    "extended-while-it-waits": lambda: driven(extended(asked(EFFECT)).answer("ana", "ben").rule_by(ALLOW_ALL)),
    "extended-while-it-works": lambda: driven(extended(governed(EFFECT))),
    "reopened": lambda: driven(again(governed(EFFECT, said=(Refused("404", "gone"), Done({"n": 1}))).drive())),
    "reopened-effect-b": lambda: driven(again(driven(governed(
        EFFECT + "  - {id: b, do: probe.effect.apply, with: {name: y}}\n", said=(Done({}), Refused("404", "gone")))))),
    "agent": lambda: talked(ONE, says("Done.")),
    "agent-both": lambda: talked(BOTH, says("Done.")).complete("triage/1/2", {"answer": "Because."}),
    "agent-asked": lambda: talked(ONE, says("Done."), policy=ASK_AGENT),
    "agent-rejected": lambda: talked(ONE, says("Done."), policy=ASK_AGENT).reject("triage/1/1"),
    "agent-expired": lambda: talked(ONE, says("Done."), policy=ASK_AGENT).expire("triage/1/1"),
    "agent-canceled": lambda: canceled(talked(BOTH, says("Done."))),
    "agent-refused": lambda: talked(Refused("500", "no")),
    "agent-unreadable": lambda: talked(calls(call("nothing", {}, "one"), call(APPLY, "{", "two")), says("Done.")),
    "agent-limited": lambda: talked(ONE, says("Late."), text=agent(more="limits: {turns: 1}")),
    "agent-within": lambda: talked(CHECK, says("Done."), text=WITHIN, said_within=[OTHER]),
    "agent-within-waits": lambda: talked(CHECK, text=WITHIN, said_within=[WAITING]),
    "agent-doubted": lambda: talked(MAILED, says("Done."), outside=doubting),
    "agent-doubted-and-over": lambda: talked(MAILED, text=agent(beside=BESIDE), outside=doubting).runs_out("triage"),
    "agent-failed-call": lambda: talked(ONE, says("Done."), outside=lambda *_: Refused("404", "There is no a.")),
    "agent-runs-out": lambda: talked(BOTH, text=agent(beside=BESIDE)).runs_out("triage"),
    "agent-own": lambda: talked(THREE, says("Done."), policy=OWN),
    "agent-own-answered": lambda: answered(talked(THREE, says("Done."), policy=OWN), "triage/1/2"),
    "agent-counted": lambda: talked(THREE, says("Done."), policy=COUNTS),
    "agent-remembers": lambda: talked(ONE, says("First."), says("Second."), text=REMEMBERED),
    "agents-of-a-loop": lambda: talked(says("x"), says("y"), text=LOOP_AGENT, trigger={"names": ["x", "y"]}),
    "counted": lambda: driven(governed(COUNTED, COUNTS)),
    "paused": lambda: paused(governed(EFFECT)),
    "shared-begun": begun,
    "shared-joined": lambda: later(known_as(begun()), SHARED_CASE),
    "shared-taken-over": lambda: later(known_as(left()), SHARED_CASE),
    "shared-reused": lambda: later(known_as(ended({"output": {"n": 1}, "by": "token:t"})), SHARED_CASE),
    "shared-written": lambda: later(known_as(ended({"output": {"n": 1}, "by": "token:t"})), WRITTEN_CASE),
    "case-refused": lambda: driven(governed(CASE, said=(Refused("404", "gone"),))),
    "case-in-doubt": lambda: governed(CASE, said=(InDoubt("lost"),)).drive(),
    "case-hands-out-its-token": lambda: governed(HANDS_OUT, said=(Parked("c1"),)).drive(),
    "run-paused": lambda: act(governed(EFFECT), lambda t: t.tell(RunPaused(True, reason="calm"), actor=ANN)),
    "run-resumed": lambda: driven(resumed(governed(EFFECT))),
    "held-open": lambda: driven(held(open=3600)),
    "held-open-and-sealed": lambda: act(driven(held(open=3600)), lambda t: t.seal(ANN, "enough")),
    "handed-values": lambda: driven(held(shaped=["form_filler a person:ben"], origins={"trigger": []})),
    "given-up": lambda: given_up(governed(EFFECT)),
    "set-back": lambda: set_back(governed(EFFECT)),
    "postponed": lambda: postponed(away()),
    "slack-away": lambda: moved(governed(GATE), put_off),
    "write-of-another-system": lambda: lost_elsewhere(governed(WRITE)),
    "recalled": lambda: driven(recalled(governed(EFFECT))),
    "task-asked-anew": lambda: driven(changed(asked(TASK, ALLOW_ALL))),
    "task-shaped-what-is-asked": lambda: driven(filled(asked(TASK, ASK), {"x": "red"})),
    "gate-shaped-what-is-asked": lambda: driven(asked(SAID, ASK).answer("ana", "ben")),
    "worker-lost": lambda: dead(governed(EFFECT)),
    "hold": lambda: kept_open(),
    "hold-again": lambda: driven(hold_said(kept_open(), Answer.AGAIN)),
    "hold-twice": lambda: driven(hold_said(driven(hold_said(kept_open(GONE), Answer.AGAIN)), Answer.WITHOUT)),
    "hold-canceled": lambda: hold_said(kept_open(), Answer.CANCEL),
}  # fmt: skip
