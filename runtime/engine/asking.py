"""Asking people about an action, on policy's terms, and only after preflight: nobody is asked in vain. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from approvals.model import ApprovalKind
from connectors.proposal import action_json
from core.action import Action
from policy.evaluate import Decision
from runtime.engine import ask, refusals
from runtime.engine.ask import Question
from runtime.engine.attention import admitted
from runtime.engine.instructions import Next, Over
from runtime.engine.intend import Proposal
from runtime.engine.preflight import answerable, callable_now
from runtime.engine.sourced import agent_of_card, sources_of


def ask_approval(p: Proposal, action: Action, decision: Decision, bound: str, evidence: str = "") -> Next:
    """Ask the people whom policy names if exactly this may be done. The card shows ``evidence`` in addition."""
    assert decision.approval is not None
    terms, marks = decision.approval, ask.marks_of(p.transition, p.step)
    if not callable_now(p.transition, p.step, p.operation, action.input):
        return Over()
    if (first := answerable(p.transition, p.step, terms, marks, p.known)) is not None:
        return first
    key = refusals.key_of_call(action)
    heed = admitted(p.transition, p.step, terms, key, ask.rejected_before(p.transition, p.step))
    if heed is None:
        return Over()
    told = (p.transition, p.step, p.operation, action, heed.terms)
    said = " ".join(filter(None, (evidence, heed.says)))
    trace = p.transition.traces.get(p.step.key)
    card = ask.action_card(*told, decision=decision, evidence=said)
    card = replace(card, sources=sources_of(trace, p, action, decision), agent=agent_of_card(p))
    kept = action_json(action, p.known.before) | (trace.kept() if trace is not None and trace.of_agent else {})
    question = Question(ApprovalKind.ACTION, bound, heed.terms, card, kept, marks, heed)
    ask.put(p.transition, p.step, question, p.nonce())
    return Over()
