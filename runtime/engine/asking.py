"""Asking people about an action, as policy wants it: nobody before preflight, and nobody in vain. Pure."""

from __future__ import annotations

from approvals.content import Said
from approvals.model import ApprovalKind
from connectors.proposal import action_json
from core.action import Action
from policy.evaluate import Decision
from runtime.engine import ask
from runtime.engine.ask import Question
from runtime.engine.instructions import Next, Over
from runtime.engine.intend import Proposal
from runtime.engine.preflight import answerable, callable_now
from runtime.engine.sourced import sources_of


def ask_approval(p: Proposal, action: Action, decision: Decision, bound: str, evidence: str = "") -> Next:
    """Ask the people whom policy names whether exactly this may be done; ``evidence`` is what the card adds to it."""
    assert decision.approval is not None
    terms, marks = decision.approval, ask.marks_of(p.transition, p.step)
    if not callable_now(p.transition, p.step, p.operation, action.input):
        return Over()
    if (first := answerable(p.transition, p.step, terms, marks, p.known)) is not None:
        return first
    told = (p.transition, p.step, p.operation, action, terms)
    said = " ".join(filter(None, (evidence, ask.rejected_before(p.transition, p.step))))
    sources = sources_of(p.transition.traces.get(p.step.key), p, action, decision)
    card = ask.action_card(*told, decision=decision, evidence=said, said=Said(sources))
    question = Question(ApprovalKind.ACTION, bound, terms, card, action_json(action, p.known.before), marks)
    ask.put(p.transition, p.step, question, p.nonce())
    return Over()
