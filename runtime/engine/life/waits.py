"""Steps that wait without calling anything: timers, signals, tasks, other runs. Pure.

The end of a wait makes its step ready again, whatever ended the wait. This module then decides what follows, under the
step's next lease, in the same way for all kinds of waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from approvals.forms import fields_of
from core.canonical import JsonObject, clean, derived_id, unfit
from core.errors import ExpressionError
from evidence.chain import Actor
from evidence.commitments import commit_fields, path_of
from runtime.engine.book import contributors
from runtime.engine.book.channels import Inherited
from runtime.engine.book.instructions import Next, Nonce, OtherRun, Over, StartRun
from runtime.engine.life.agent_loop import beginning, stop
from runtime.engine.life.transition import Transition, fail_expression, finish
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.errors import SENT, UNUSABLE, ErrorClass, StepError
from runtime.engine.model.events import RunContinued, WaitCanceled, WaitCompleted, WaitTimedOut
from runtime.engine.model.graph import ChildNode, ContinueNode, Leaf, SetNode, SignalNode, TaskNode, TimerNode
from runtime.engine.model.rows import StepRow, WaitRow, wait_of
from runtime.engine.model.states import RUN, RunState, WaitKind, WaitState
from runtime.engine.origins.agent import with_sources

CORRELATION_CHARACTERS_MAX = 300
TIMER_MAX = timedelta(days=3660)
# The most runs above a child run. It stops a workflow that runs itself.
DEPTH_MAX = 10


def begin(transition: Transition, step: StepRow, leaf: Leaf, nonce: Nonce) -> Next:
    """Begin a step that waits, starts another run, or only writes."""
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    try:
        match leaf:
            case TimerNode():
                transition.park(step, WaitKind.TIMER, nonce(), _span(transition, step, leaf))
            case SignalNode():
                _await_signal(transition, step, leaf, nonce)
            case TaskNode():
                _assign(transition, step, leaf, nonce)
            case SetNode():
                finish(transition, step, None)
            case ChildNode() | ContinueNode():
                return _start(transition, step, leaf)
            case AgentNode():
                began = beginning(leaf, transition.variables(step.key))
                transition.tell(with_sources(transition, step, leaf, began), step=step.key)
                transition.park(step, WaitKind.AGENT, nonce(), leaf.timeout)
            case _:
                raise TypeError(f"{type(leaf).__name__} does not wait")
    except ExpressionError as error:
        fail_expression(transition, step, error)
    return Over()


def is_over(wait: WaitRow) -> bool:
    """True if the wait was completed, was canceled, or has timed out."""
    return wait.status is not WaitState.WAITING


def withdraw_unopened(transition: Transition, step: StepRow, wait: WaitRow) -> None:
    """Cancel a wait that a lost lease opened together with its intent. A new intent opens its own wait."""
    if wait.kind is WaitKind.EXTERNAL:
        transition.tell(WaitCanceled(wait.wait_id, wait.kind), step=step.key)


def ended(transition: Transition, step: StepRow, leaf: Leaf, wait: WaitRow) -> Next:
    """Settle a step whose wait is over: it succeeds with the result, or fails."""
    result: dict[str, Any] = dict(wait.result or {})
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
    elif wait.kind is WaitKind.HOLD:
        transition.release(step, result["error"])
    elif wait.status is WaitState.TIMED_OUT and "error" not in result:
        message = "It took longer than the step's timeout."
        begun = SENT if wait.kind in (WaitKind.EXTERNAL, WaitKind.CHILD) else {}
        transition.fail(step, StepError(ErrorClass.TIMEOUT, "timed_out", message, begun).to_json())
    elif "error" in result:
        transition.fail(step, _error(result["error"]))
    elif problem := unfit(result.get("output"), "What the wait ended with"):
        transition.fail(step, StepError(ErrorClass.TRANSPORT, UNUSABLE, problem).to_json())
    else:
        signal: JsonObject = {"payload": result.get("output"), "by": result.get("by"), "kind": str(wait.kind)}
        finish(transition, step, result.get("output"), signal=signal)
    return Over()


def end_badly(
    transition: Transition,
    step: StepRow,
    wait: WaitRow,
    ended_by: type[WaitCompleted | WaitTimedOut],
    error: JsonObject,
) -> None:
    """End a wait with an error. The step fails now, or when claimed if a branch, an agent or people handle that."""
    if transition.graph.fails_run(step.key, error) and not transition.graph.held_by(step.key, error):
        transition.tell(ended_by(wait.wait_id, wait.kind), step=step.key)
        transition.fail(step, error)
    else:
        transition.tell(ended_by(wait.wait_id, wait.kind, result={"error": error}), step=step.key)
        transition.resume(step, wait)


def complete(transition: Transition, step: StepRow, wait: WaitRow, result: JsonObject, actor: Actor) -> None:
    """End a wait, and resume its step with ``result``, which has ``output`` or ``error``."""
    recorded: JsonObject = {**result, "by": f"{actor.kind}:{actor.id}"}
    committed = commit_fields(transition.view.run.run_key, path_of("wait", str(wait.wait_id)), result)
    transition.tell(WaitCompleted(wait.wait_id, wait.kind, committed, recorded), step=step.key, actor=actor)
    _show_task(transition, wait, "completed")
    transition.resume(step, wait)


def time_out(transition: Transition, step: StepRow, wait: WaitRow) -> None:
    """End a wait that took too long: end its work elsewhere, and resume the step, which then fails as timed out."""
    transition.tell(WaitTimedOut(wait.wait_id, wait.kind), step=step.key)
    if wait.kind is WaitKind.EXTERNAL or (wait.kind is WaitKind.CHILD and not (wait.context or {}).get("abandons")):
        transition.order("cancel", str(wait.wait_id), {"wait": str(wait.wait_id)})
    _show_task(transition, wait, "expired")
    if wait.kind is WaitKind.AGENT:
        stop(transition, step.key)
    transition.resume(step, wait)


def _show_task(transition: Transition, wait: WaitRow, what: str) -> None:
    if wait.kind is WaitKind.TASK:
        task = str(wait.wait_id)
        transition.order("task", f"{task}:{what}", {"task": task}, one_at_a_time=task)


def started(transition: Transition, work: StartRun, other: OtherRun, nonce: Nonce) -> Next:
    """Go on once the other run has been started: wait for it, or finish. Fail if it could not be started."""
    step, leaf = work.step, transition.leaf(work.step.key)
    if other.problem is not None:
        transition.fail(step, StepError(ErrorClass.DEFINITION, "not_started", other.problem).to_json())
        return Over()
    shaped = [*other.shaped] or None
    transition.tell(RunContinued(work.run_id, work.workflow, shaped, other.origins, other.used), step=step.key)
    if transition.view.run.canceling is not None:
        if isinstance(leaf, ChildNode) and not leaf.abandons:
            transition.order("cancel", f"run:{work.run_id}", {"run": str(work.run_id)})
        transition.cancel_step(step)
    elif isinstance(leaf, ContinueNode):
        finish(transition, step, {"run": str(work.run_id)})
    elif RunState(other.status) in RUN.terminal:
        # The child run has ended before its parent had to wait for it.
        result: dict[str, Any] = child_result(other)
        if "error" in result:
            transition.fail(step, _error(result["error"]))
        else:
            finish(transition, step, other.result, signal={"payload": other.result, "by": None, "kind": "child"})
    else:
        assert isinstance(leaf, ChildNode)
        context: JsonObject = {"run": str(work.run_id), "abandons": leaf.abandons}
        context |= {} if work.origins is None else {"traced": True}
        transition.park(step, WaitKind.CHILD, nonce(), leaf.timeout, context, str(work.run_id))
    return Over()


def child_result(other: OtherRun) -> JsonObject:
    """The result with which a child's end completes its parent's wait."""
    if RunState(other.status) is RunState.SUCCEEDED:
        return {"output": other.result}
    error = other.error or {}
    message = clean(f"The run within: {error.get('message') or 'It was canceled.'}")
    kind = error.get("class")
    if kind in (None, ErrorClass.CANCELED):  # no class of error says that people ended the run
        kind = ErrorClass.CONSISTENCY
    return {"error": {"class": str(kind), "code": f"child_{other.status}", "message": message}}


def _error(result: dict[str, Any]) -> JsonObject:
    usual = StepError(ErrorClass.TRANSPORT, "failed_outside", "It failed outside.").to_json()
    error: JsonObject = {name: clean(result.get(name) or default) for name, default in usual.items()}
    error |= SENT if result.get("sent") is True else {}
    return {**error, "by": result["by"]} if isinstance(result.get("by"), str) else error


def _span(transition: Transition, step: StepRow, leaf: TimerNode) -> timedelta:
    if leaf.until is None:
        assert leaf.span is not None
        return leaf.span
    value = leaf.until.render(transition.variables(step.key))
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ExpressionError(f"{clean(value, 60)!r} is no moment in RFC 3339", where="wait.until") from None
    if moment.tzinfo is None:
        words = f"the moment {clean(value, 60)!r} has no time zone"
        remedy = f"Write its offset, or at('{moment:%Y-%m-%d}', '18:00', 'Europe/Berlin')."
        raise ExpressionError(words, where="wait.until", remedy=remedy)
    span = max(moment - transition.view.now, timedelta(0))
    if span > TIMER_MAX:
        raise ExpressionError("is more than ten years away", where="wait.until")
    return span


def _await_signal(transition: Transition, step: StepRow, leaf: SignalNode, nonce: Nonce) -> None:
    correlate = clean(leaf.correlate.render(transition.variables(step.key)))
    if not correlate or len(correlate) > CORRELATION_CHARACTERS_MAX:
        what = f"is empty or longer than {CORRELATION_CHARACTERS_MAX} characters"
        raise ExpressionError(what, where="wait.correlate")
    context: JsonObject = {"signal": leaf.name, "correlate": correlate}
    transition.park(step, WaitKind.SIGNAL, nonce(), leaf.timeout, context, f"{leaf.name}:{correlate}")


def _words(transition: Transition, step: StepRow, leaf: TaskNode) -> JsonObject:
    """The title and description of a task, rendered from the run's current state."""
    described = "" if leaf.description is None else clean(leaf.description.render(transition.variables(step.key)))
    return {"title": clean(leaf.title.render(transition.variables(step.key)), 300), "description": described}


def still_asks(transition: Transition, step: StepRow, wait: WaitRow) -> bool:
    """True if an open task would still ask the same; false also if its words can no longer be rendered."""
    leaf, context = transition.leaf(step.key), wait.context or {}
    try:
        words = _words(transition, step, leaf) if isinstance(leaf, TaskNode) else {}
    except ExpressionError:
        return False
    return all(context.get(name) == value for name, value in words.items())


def ask_anew(transition: Transition, step: StepRow, wait: WaitRow, actor: Actor) -> None:
    """Cancel a task that would ask something else now. The worker that claims its step opens the new one."""
    transition.tell(WaitCanceled(wait.wait_id, wait.kind, "changed"), step=step.key, actor=actor)
    _show_task(transition, wait, "canceled")
    transition.resume(step, wait)


def _assign(transition: Transition, step: StepRow, leaf: TaskNode, nonce: Nonce) -> None:
    context: JsonObject = {
        **_words(transition, step, leaf),
        "form": leaf.form,
        # PostgreSQL does not keep the order of an object's members, but people read a form from top to bottom.
        "fields": [field.name for field in fields_of(leaf.form)],
        "group": leaf.group,
    }
    task = str(wait_of(transition.view.run_id, step))
    transition.order("task", f"{task}:open", {"task": task}, one_at_a_time=task)
    transition.park(step, WaitKind.TASK, nonce(), leaf.timeout, context)


def _start(transition: Transition, step: StepRow, leaf: ChildNode | ContinueNode) -> Next:
    if transition.view.depth >= DEPTH_MAX:
        raise ExpressionError(f"is within {DEPTH_MAX} other runs; no more are started", where=leaf.workflow)
    inputs = leaf.inputs.render(transition.variables(step.key))
    assert isinstance(inputs, dict)
    if problem := unfit(inputs, "What `with` gives"):
        raise ExpressionError(problem)
    run_id = derived_id(transition.view.run_id, f"run:{step.key}" + (f"#{step.again}" if step.again else ""))
    shaped = tuple(sorted(contributors.marks_of(transition.run.state, transition.graph, step.key)))
    channels, values = transition.graph.channels, transition.run.state.channels
    names = leaf.inherit if isinstance(leaf, ChildNode) else ()
    inherited = {name: Inherited(values[name], channels[name].reducer) for name in names}
    waits, adder = isinstance(leaf, ChildNode), contributors.adder_of(transition.run.state, step.key)
    return StartRun(step, run_id, leaf.workflow, leaf.version, inputs, waits, shaped, inherited=inherited, adder=adder)
