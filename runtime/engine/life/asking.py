"""Asks people about an action, on policy's terms, and only after preflight, so that nobody is asked in vain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from approvals.content import Agent, Source
from approvals.model import ApprovalKind
from connectors.marks import Writer, kind_at, writer_at
from connectors.operation import Operation
from connectors.proposal import action_json, masked
from core.action import Action
from core.canonical import Json, JsonObject, canonical_bytes
from core.origins.kinds import ArgumentKind
from core.origins.matching import MENTIONED, MODEL, PERSON, REQUESTER, SPENT, TEXT, UNKNOWN, WORKFLOW
from policy.evaluate import Decision
from policy.facts import is_traced
from runtime.engine.book import refusals
from runtime.engine.book.instructions import Next, Over
from runtime.engine.book.questions import list_of
from runtime.engine.life import ask
from runtime.engine.life.approved import Bound
from runtime.engine.life.ask import Question
from runtime.engine.life.attention import admitted
from runtime.engine.life.preflight import answerable, callable_now
from runtime.engine.life.proposal import Proposal
from runtime.engine.model.agent_node import AgentNode
from runtime.engine.model.keys import StepKey
from runtime.engine.model.traces import Trace
from runtime.engine.origins.agent import facts_of_agent
from runtime.engine.origins.follow import FIELD, LOOKUP, TOOL


def ask_approval(p: Proposal, action: Action, decision: Decision, bound: Bound, evidence: str = "") -> Next:
    """Ask the people whom policy names to approve exactly this action. The card shows ``evidence`` in addition."""
    assert decision.approval is not None
    terms = decision.approval
    marks = ask.marks_of(p.transition, p.step, action, terms)
    if not callable_now(p.transition, p.step, p.operation, action.input):
        return Over()
    if (first := answerable(p.transition, p.step, terms, marks, p.known)) is not None:
        return first
    key = refusals.key_of_call(p.operation, action)
    because: JsonObject = {"rules": [{"id": rule.id} for rule in decision.rules if rule.outcome == decision.outcome]}
    asks: JsonObject = {"operation": action.operation}
    listed = list_of(p.step.key, ApprovalKind.ACTION, asks, terms.to_json(), because)
    heed = admitted(p.transition, p.step, terms, key, ask.rejected_before(p.transition, p.step), listed)
    if heed is None:
        return Over()
    asked = (p.transition, p.step, p.operation, action, heed.terms)
    shown = " ".join(filter(None, (evidence, heed.says)))
    trace = p.transition.traces.get(p.step.key)
    card = ask.action_card(*asked, decision=decision, evidence=shown)
    card = replace(card, sources=sources_of(trace, p, action, decision), agent=agent_of_card(p))
    stored = action_json(action, p.known.before) | bound.kept(action)
    stored |= trace.kept() if trace is not None and trace.of_agent else {}
    question = Question(ApprovalKind.ACTION, bound.digest, heed.terms, card, stored, marks, heed)
    ask.put(p.transition, p.step, question, p.nonce())
    return Over()


_PLAIN = {
    REQUESTER: ("was given by whoever requested this", True),
    WORKFLOW: ("was written by the author of the workflow", True),
    PERSON: ("was given by a person", True),
}
_WEAK = {
    SPENT: "was given once by whoever requested this, and was used for the same already",
    MENTIONED: "only occurs among words of ours that designate something else",
}
_BEGINNINGS = (
    (LOOKUP, "comes from the only record matching the requester's search:"),
    (FIELD, "is the whole of a field:"),
    (TOOL, "was returned by"),
    ("trigger:", "came with what started the run, from"),
    ("signal:", "came with the signal"),
)
_WRITERS = {
    Writer.SYSTEM: "is the whole of a field that only the other system writes:",
    Writer.PEOPLE: "is the whole of a field that people there write:",
    Writer.ANYONE: "is the whole of a field that anyone may write:",
}
_LONG = 200


def agent_of_card(p: Proposal) -> Agent | None:
    """The agent that proposes the action, with its model's reason; None for a step of the workflow."""
    node, chat = p.transition.graph.leaf(StepKey.of(p.step.key).agent), p.known.chat
    if "/" not in p.step.key or not isinstance(node, AgentNode):
        return None
    facts = facts_of_agent(node, p.step, chat)
    turn = f"{facts.step}/{facts.turn}"
    own = [one for one in chat.shown if one.role == "assistant" and not one.past] if chat else []
    answer = next((one.value for one in own if one.step == turn), None)
    text = answer.get("text") if isinstance(answer, dict) else None
    requester = p.transition.view.run.requested_by
    return Agent(facts.step, facts.model, facts.turn, requester, facts.read, text if isinstance(text, str) else "")


def sources_of(trace: Trace | None, p: Proposal, action: Action, decision: Decision) -> tuple[Source, ...]:
    """The sources of an action's values, if a rule has read any of them, or an agent proposes it."""
    if trace is None or not (trace.of_agent or any(map(is_traced, decision.facts_read))):
        return ()
    return tuple(dict.fromkeys(_sources(trace, p.operation, p.workflow.operations, masked(p.operation, action))))


def _sources(
    trace: Trace, operation: Operation, operations: Mapping[str, Operation], action: Action
) -> Iterator[Source]:
    for name in sorted(operation.arguments):
        if name == operation.writes and action.fields:  # each of its members has a source of its own
            continue
        value = action.input.get(name, action.fields.get(name))
        path = (name,) if name in action.input else (str(operation.writes), name)
        for inner in trace.of(name):
            words, of, ours = _origin_words(inner, operations)
            ours |= kind_at(operation.input_schema, path) is ArgumentKind.FLAG
            yield Source(name, words, of, ours, "" if ours else _quoted(value))


def _origin_words(inner: list[str], operations: Mapping[str, Operation]) -> tuple[str, str, bool]:
    """The words for the origins of one value, the name that goes with them, and if the origin is trusted."""
    if UNKNOWN in inner:
        return "source unknown", "", False
    for label, (words, ours) in _PLAIN.items():
        if label in inner:
            return words, "", ours
    for label, words in _WEAK.items():
        if label in inner and (MODEL in inner or label == SPENT):
            return words, "", False
    if MODEL in inner:
        return ("is in the model's own words", "", True) if TEXT in inner else ("was made up by the model", "", False)
    for begins, words in _BEGINNINGS:
        for label in inner:
            if label.startswith(begins):
                of = label.removeprefix(begins)
                writer = _writer(of, operations) if begins == FIELD else None
                return _WRITERS[writer] if writer else words, of, begins == LOOKUP or writer is Writer.SYSTEM
    return "source unknown", "", False


def _writer(of: str, operations: Mapping[str, Operation]) -> Writer | None:
    """The least trusted writer of a field, if the operation's declaration is known."""
    name, _, pointer = of.partition("#")
    operation = operations.get(name)
    return None if operation is None else writer_at(operation.output_schema, pointer)


def _quoted(value: Json) -> str:
    """A value as quoted beside its source; "" for a long one, which the card shows elsewhere."""
    text = value if isinstance(value, str) else canonical_bytes(value).decode()
    return text if len(text) <= _LONG else ""
