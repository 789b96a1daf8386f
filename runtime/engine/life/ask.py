"""Opens a question to people: its terms, its card, its wait and its message, in one transition. Pure.

At a gate the workflow asks people whether to go on, and an answer binds to the question as it was shown. What a gate
asks depends on the run's state, which may change while it is open. So the question is rendered again when a vote
arrives and once more when the step goes on, each time in a transition that is guarded by the run's gate: state and
answer are of one moment. A question that has changed is superseded and asked anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.content import CardContent, Edit, InputField, RuleReason
from approvals.model import ApprovalKind, ApprovalStatus
from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.proposal import masked
from connectors.texts import HEADING_LENGTH_MAX, link_of, question_of
from core.action import Action, Risk
from core.canonical import Json, JsonObject, derived_id, digest, unfit
from core.errors import CountersealError, ExpressionError
from core.terms import Terms
from evidence.commitments import blind, commit, commit_fields, path_of
from policy.evaluate import Decision
from runtime.engine.book import contributors, questions, refusals
from runtime.engine.book.instructions import Known, Next, Nonce, Over
from runtime.engine.book.refusals import INACTIVE, inactive_for
from runtime.engine.life import preflight
from runtime.engine.life.approvers import chosen
from runtime.engine.life.attention import Admitted, admitted
from runtime.engine.life.transition import Transition, fail_expression, finish
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.events import ApprovalConsumed, ApprovalRequested, ApprovalSuperseded
from runtime.engine.model.graph import GateNode, OperationNode
from runtime.engine.model.rows import StepRow
from runtime.engine.model.states import WaitKind

# The time to answer a question about an action in doubt, and any question whose terms name no time.
DOUBT_EXPIRES_SECONDS = 7 * 24 * 3600


class Question(Struct, frozen=True):
    """A question to people. Their answer binds to ``digest``; ``marks`` say who shaped it, besides the requester.

    ``heed`` holds the key that a rejection of it would bind, and the earlier refusals; None for a question about a
    doubt.
    """

    kind: ApprovalKind
    digest: str
    terms: Terms
    card: CardContent
    action: JsonObject | None = None
    marks: frozenset[str] = frozenset()
    heed: Admitted | None = None


def put(transition: Transition, step: StepRow, question: Question, nonce: str, error: JsonObject | None = None) -> UUID:
    """Open the approval and park the step on it. Returns the approval's id.

    One commit holds the approval, its wait and the order to post the card. A crash after it loses none of them. A
    crash before it leaves the step leased, and its next worker asks again.
    """
    view = transition.view
    approval_id = derived_id(view.run_id, f"approval:{step.key}:{step.lease_epoch}")
    expires = question.terms.expires_seconds or DOUBT_EXPIRES_SECONDS
    card = question.card.to_json()
    shown = commit(view.run.run_key, card_path(approval_id), card)
    people = contributors.people_of(view.run, question.marks, view.directory) if question.marks else ()
    shaped = [one.to_json() for one in people] or None
    put = asked(str(question.kind), contributors.requester_of(view.run), question.terms.to_json(), shaped)
    bound, heed = question.kind is not ApprovalKind.GATE, question.heed
    if heed is not None:
        most = question.terms.most("requester") - sum(one.asker == heed.askers[0] for one in transition.rows.asks)
        transition.rows.asks.append(refusals.ask_of(heed.key, heed.askers[0], most, view.refusals.get(heed.key, ())))
    transition.tell(
        ApprovalRequested(
            approval=approval_id,
            action=blind(view.run.run_key, question.digest) if bound else None,
            card=shown,
            kind=str(question.kind),
            tier=str(question.terms.tier),
            committed=[*commit_fields(view.run.run_key, approval_path(approval_id), {"asked": put})],
            digest=question.digest,
            nonce=nonce,
            terms=question.terms.to_json(),
            requester=contributors.requester_of(view.run),
            shown=card,
            proposed=question.action,
            expires=expires,
            contributors=shaped,
            key=heed.key if heed is not None else "",
            askers=heed.askers if heed is not None else None,
            refusals=[one.to_json() for one in heed.refused] or None if heed is not None else None,
            failed=heed.failed or None if heed is not None else None,
            directory=view.directory.digest or None,
            secret=bool(question.card.sensitive),
        ),
        step=step.key,
    )
    transition.message("card", approval_id, ApprovalStatus.REQUESTED)
    stages = ladder(question.terms, expires)
    facts: JsonObject = {"approval": str(approval_id), "ladder": [[*stage] for stage in stages], "next": 0}
    transition.park(step, WaitKind.APPROVAL, nonce, timedelta(seconds=stages[0][1]), facts, error=error)
    return approval_id


def supersede(
    transition: Transition,
    step: StepRow,
    approval_id: UUID,
    why: str | None = None,
    changed: list[JsonObject] | None = None,
) -> None:
    """Void a question that would no longer be asked, or its approval, and show that on its card.

    ``why`` is another reason why the approval is void. The event then names the directory by which the reason was
    found. ``changed`` are the values that have changed (``approved.drift``).
    """
    people = transition.view.directory.digest if why is not None else None
    transition.tell(ApprovalSuperseded(approval_id, why, people, changed), step=step.key)
    transition.message("card", approval_id, ApprovalStatus.SUPERSEDED)


def approval_path(approval_id: UUID) -> str:
    """The path below which the audit commits to the values of an approval."""
    return path_of("approval", str(approval_id))


def card_path(approval_id: UUID) -> str:
    """The path under which the audit commits to the card as shown."""
    return approval_path(approval_id) + path_of("card")


def asked(kind: str, requester: str, terms: JsonObject, shaped: list[JsonObject] | None) -> JsonObject:
    """The question's kind, terms and contributors. Answers are judged by them, so the audit commits to them."""
    facts: JsonObject = {"kind": kind, "requester": requester, "terms": terms}
    return facts if shaped is None else {**facts, "contributors": [*shaped]}


def ladder(terms: Terms, expires: int) -> list[tuple[str, int]]:
    """The stages of an unanswered question, in seconds from its start: remind, escalate, and at last expire."""
    stages = [("remind", seconds) for seconds in terms.remind_seconds if seconds < expires]
    if terms.escalate is not None and terms.escalate.after_seconds < expires:
        stages.append(("escalate", terms.escalate.after_seconds))
    return [*sorted(stages, key=lambda stage: stage[1]), ("expire", expires)]


def action_card(
    transition: Transition,
    step: StepRow,
    operation: Operation,
    action: Action,
    terms: Terms,
    *,
    decision: Decision | None = None,
    evidence: str = "",
) -> CardContent:
    """The complete card of an action, frozen as it will be shown. ``evidence`` is shown in addition."""
    sensitive = secret_names(operation.input_schema, action.input) if operation.has_secrets else ()
    action, view = masked(operation, action), transition.view
    leaf = transition.leaf(step.key)
    fired, asking = (decision.rules, decision.asking) if decision else ((), ())
    decisive = [rule for rule in fired if decision and rule.outcome == decision.outcome]
    single = asking[0] if len(asking) == 1 else None
    return CardContent(
        title=action.summary,
        summary=action.summary,
        target=action.target,
        operation=action.operation,
        connector=operation.connector,
        risk=action.risk,
        reversible=action.reversible,
        reverse=_reverse_words(action),
        requester=view.run.requested_by,
        workflow=view.workflow,
        workflow_version=view.workflow_version,
        run_id=str(view.run_id),
        reference=_reference(transition),
        step=step.key,
        rules=tuple(RuleReason(rule.id, rule.because or "") for rule in decisive),
        changes=action.changes,
        inputs=tuple(_inputs(action)),
        expires_at=_expiry(transition, terms.expires_seconds or 0),
        policy_name=single.name if single else ", ".join(map(str, asking)),
        policy_version=single.version if single else 0,
        policy_digest_short=single.digest[:12] if single else "",
        sensitive=sensitive,
        evidence=evidence,
        tier=str(terms.tier),
        system=action.system,
        question=question_of(operation, action, leaf.heads if isinstance(leaf, OperationNode) else ""),
        asker=_asker(transition),
        link=link_of(operation, action),
        shaped_by=questions.shaped_by(view.run, marks_of(transition, step, action, terms), terms, view.directory),
        chosen=chosen(terms, view.directory),
        edits=_edits(transition, step),
    )


def _edits(transition: Transition, step: StepRow) -> tuple[Edit, ...]:
    edited = transition.run.edits.get(step.key, {})
    return tuple(Edit(name, both["was"], both["now"]) for name, both in edited.items())


def _asker(transition: Transition) -> str:
    """The requester's name in the directory; "" if the directory does not know them."""
    entry = transition.view.directory.entry(transition.view.run.requested_by)
    return entry.name if entry is not None else ""


def _inputs(action: Action) -> Iterator[InputField]:
    for name, value in action.input.items():
        if name not in action.fields and value != action.fields:
            yield InputField(name, value)


def rejected_before(transition: Transition, step: StepRow) -> str:
    """Words about the last rejection at this step; "" if there was none."""
    run, words = transition.run, ""
    for approval_id, answer in run.answers.items():
        if run.approvals[approval_id].step_key == step.key and answer.status == ApprovalStatus.REJECTED:
            who = ", ".join(sorted({vote.person_id for vote in run.votes if vote.approval_id == approval_id}))
            reason = (answer.reason or "no reason was given").rstrip(".")
            words = f"It was rejected before{f', by {who}' if who else ''}: {reason}."
    return words


def marks_of(
    transition: Transition, step: StepRow, action: Action | None = None, terms: Terms | None = None
) -> frozenset[str]:
    """The marks of those who shaped what this step would do now, and of those whom its ``action`` is about.

    For a question with ``terms``, also those who may have named its approvers.
    """
    marks = contributors.marks_of(transition.run.state, transition.graph, step.key)
    if action is None:
        return marks
    named = contributors.namers(terms, action, step.key) if terms is not None else frozenset[str]()
    return marks | contributors.about(action.subjects, step.key) | named


def _reverse_words(action: Action) -> str:
    if not action.reversible:
        return ""
    reverse = action.reverse
    return f"{reverse['operation']} with the values read before" if reverse else "It leaves nothing to undo."


def _gate_card(
    transition: Transition, step: StepRow, leaf: GateNode, summary: str, terms: Terms, marks: frozenset[str]
) -> CardContent:
    """The card of a gate: a question of the workflow, without an action."""
    view = transition.view
    # Counterseal's own question about a policy goes on with its changes, line by line: only its start is a title.
    title, asked, more = summary.partition("? ") if view.trigger_type == preflight.OWN_TRIGGER else (summary, "", "")
    title += asked.rstrip()
    return CardContent(
        title=title,
        summary=more or title,
        target=_reference(transition),
        operation="approve",
        connector="workflow",
        risk=Risk.LOW,
        reversible=True,
        reverse="Nothing is done by the answer itself.",
        requester=view.run.requested_by,
        workflow=view.workflow,
        workflow_version=view.workflow_version,
        run_id=str(view.run_id),
        reference=_reference(transition),
        step=step.key,
        rules=(),
        changes=(),
        inputs=(),
        expires_at=_expiry(transition, terms.expires_seconds or 0),
        policy_name="",
        policy_version=0,
        policy_digest_short="",
        evidence=rejected_before(transition, step),
        shaped_by=questions.shaped_by(view.run, marks, terms, view.directory),
        question=leaf.heads or _own_words(leaf, title),
        asker=_asker(transition),
    )


def _own_words(leaf: GateNode, title: str) -> str:
    """The question as the heading of its card, if it is only the author's words; "" if it has values or is too long."""
    return title if not leaf.summary.references and len(title) <= HEADING_LENGTH_MAX else ""


def _reference(transition: Transition) -> str:
    """The run's current reference, which this same transition may have changed."""
    return transition.run.state.reference or transition.view.run.reference


def _expiry(transition: Transition, seconds: int) -> str:
    return (transition.view.at + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def begin_gate(transition: Transition, step: StepRow, leaf: GateNode, known: Known, nonce: Nonce) -> Next:
    """Ask people, or go on if they have approved exactly this question. An approval of another question is void."""
    if transition.view.run.canceling is not None:
        transition.cancel_step(step)
        return Over()
    given = known.given if known.given is not None and known.given.kind is ApprovalKind.GATE else None
    if (why := inactive_for(transition.view, transition.run, step.key)) is not None:
        transition.rows.stop = transition.view.stop
        if given is not None:
            supersede(transition, step, given.approval_id, INACTIVE)
        transition.fail(step, StepError(ErrorClass.AUTHORIZATION, INACTIVE, why).to_json())
        return Over()
    try:
        question = _gate_question(transition, step, leaf)
    except CountersealError as error:
        if given is not None:
            supersede(transition, step, given.approval_id)
        fail_expression(transition, step, error)
        return Over()
    if given is not None and given.digest == question.digest:
        transition.tell(ApprovalConsumed(given.approval_id, transition.view.directory.digest), step=step.key)
        finish(transition, step, {"approved": True, "reason": given.reason})
        return Over()
    if given is not None:
        supersede(transition, step, given.approval_id)
        known = replace(known, given=None)
    first = preflight.answerable(transition, step, question.terms, question.marks, known)
    if first is not None:
        return first
    heed = admitted(
        transition, step, question.terms, _key_of(transition, step, question), rejected_before(transition, step)
    )
    if heed is not None:
        card = replace(question.card, evidence=heed.says)
        put(transition, step, replace(question, terms=heed.terms, card=card, heed=heed), nonce())
    return Over()


def _key_of(transition: Transition, step: StepRow, question: Question) -> str:
    """The key of a gate's question: of its words and of the run's input."""
    return refusals.key_of_gate(transition.view.workflow, step.key, question.card.title, transition.run.trigger)


def gate_still_asks(transition: Transition, step: StepRow, bound: str) -> bool:
    """True if the gate would still ask the question with this digest; false also if it can no longer be rendered."""
    leaf = transition.leaf(step.key)
    try:
        return isinstance(leaf, GateNode) and _gate_question(transition, step, leaf).digest == bound
    except CountersealError:
        return False


def _gate_question(transition: Transition, step: StepRow, leaf: GateNode) -> Question:
    """Render the question in the run's current state; ``ExpressionError`` if that is not possible."""
    view = transition.view
    summary = leaf.summary.render(transition.variables(step.key))
    if problem := unfit(summary, "The summary"):
        raise ExpressionError(problem)
    terms = Terms.from_json(leaf.terms)
    marks = contributors.everybody(transition.run.state)
    card = _gate_card(transition, step, leaf, str(summary), terms, marks)
    shown: list[Json] = [card.title, card.summary, card.target, card.reference, card.requester, terms.bound()]
    bound = digest(["gate", str(view.run_id), step.key, *shown])
    return Question(ApprovalKind.GATE, bound, terms, card, marks=marks)
