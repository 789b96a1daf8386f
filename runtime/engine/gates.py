"""Gates: the workflow asks people whether to go on, and an answer binds to the question as it was shown. Pure.

What a gate asks depends on the run's state, which may change while it is open. So it is rendered again when a vote
arrives and once more when the step goes on, each time in a transition that is guarded by the run's gate: state and
answer are of one moment. A question that has changed is superseded, and put anew.
"""

from __future__ import annotations

from approvals.model import ApprovalKind, Terms
from core.canonical import Json, digest
from core.errors import CountersealError, ExpressionError
from runtime.engine import ask
from runtime.engine.ask import Question
from runtime.engine.commit import StepRow
from runtime.engine.events import ApprovalConsumed
from runtime.engine.finish import fail_expression, finish, unfit
from runtime.engine.graph import GateNode
from runtime.engine.moves import Known, Next, Nonce, Over
from runtime.engine.transition import Transition


def begin(transition: Transition, step: StepRow, leaf: GateNode, known: Known, nonce: Nonce) -> Next:
    """Ask, or go on where exactly this was answered with yes. An approval of another question is void."""
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    given = known.given if known.given is not None and known.given.kind is ApprovalKind.GATE else None
    try:
        question = _question(transition, step, leaf)
    except CountersealError as error:
        if given is not None:
            ask.supersede(transition, step, given.approval_id)
        fail_expression(transition, step, error)
        return Over()
    if given is not None and given.digest == question.digest:
        transition.tell(ApprovalConsumed(given.approval_id), step=step.key)
        finish(transition, step, {"approved": True, "reason": given.reason})
        return Over()
    if given is not None:
        ask.supersede(transition, step, given.approval_id)
    ask.put(transition, step, question, nonce())
    return Over()


def still_asks(transition: Transition, step: StepRow, bound: str) -> bool:
    """True if the gate would ask just what was asked under this digest; false if it can no longer be asked."""
    leaf = transition.graph.leaf(step.key)
    try:
        return isinstance(leaf, GateNode) and _question(transition, step, leaf).digest == bound
    except CountersealError:
        return False


def _question(transition: Transition, step: StepRow, leaf: GateNode) -> Question:
    """The question in the state that the run has now; ``ExpressionError`` if it cannot be made from that."""
    view = transition.view
    summary = leaf.summary.render(transition.variables(step.key))
    if problem := unfit(summary, "The summary"):
        raise ExpressionError(problem)
    terms = Terms.from_json(leaf.terms)
    card = ask.gate_card(transition, step, str(summary), terms.expires_seconds or 0)
    shown: list[Json] = [card.title, card.summary, card.target, card.reference, card.requester, terms.to_json()]
    return Question(ApprovalKind.GATE, digest(["gate", str(view.run_id), step.key, *shown]), terms, card)
