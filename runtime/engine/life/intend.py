"""Lets an action out: policy judges it, the decision is recorded with all that it read, then the intent. Pure.

Decision and receipt are recorded before the action goes out. ``life.outside`` waits for the end of a durable action.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from connectors.operation import Kind
from connectors.port import Call
from connectors.proposal import action_json, unchanged
from core.action import Action
from core.canonical import Json, JsonObject, derived_id, digest
from core.terms import GroupQuorum, Terms, Unresolved
from evidence.chain import Actor, timestamp
from evidence.commitments import blind
from evidence.receipts import ReceiptStatus
from policy.evaluate import Decision, build_facts, deny, evaluate
from policy.facts import ASKED, COUNTER, REFUSED, SAME, FactContext
from policy.model import Ruling
from policy.sets import PolicySet
from runtime.engine.book import contributors, questions, refusals
from runtime.engine.book.agent_chat import Chat
from runtime.engine.book.instructions import Next, Over, Perform
from runtime.engine.life import approved, approvers, ask, records, reversal
from runtime.engine.life.approved import Bound
from runtime.engine.life.facts import NOTHING, UNCOUNTED, call_of, counted_of, further_facts
from runtime.engine.life.outside import CORRELATION, SENT_KEY, correlation_of, expect_end, gate_of
from runtime.engine.life.pausing import IN_DOUBT
from runtime.engine.life.proposal import Proposal
from runtime.engine.life.transition import Transition, finish
from runtime.engine.model.errors import DENIED, ErrorClass, StepError
from runtime.engine.model.events import (
    ActionIntended,
    ActionUnneeded,
    DecisionMade,
)
from runtime.engine.model.keys import StepKey
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.run import AGENT, GrantRow
from runtime.engine.model.states import EffectState
from runtime.engine.model.workflow import Workflow

UNRESOLVED = "contributors:unresolved"


class Authority(Struct, frozen=True):
    """The authority to let an action out: what was judged, the decision, and the approval that it needed.

    ``in_doubt`` are the groups to ask if the action is ever in doubt, as policy names them. ``version`` is the target's
    version when people approved; None if nobody did, or nothing was read. ``grant`` lets it out in place of an
    approval.
    """

    bound: Bound
    decision: UUID
    approval: UUID | None
    terms: Terms | None
    in_doubt: tuple[GroupQuorum, ...] = ()
    version: str | None = None
    grant: GrantRow | None = None


def judge(
    transition: Transition,
    step: StepRow,
    workflow: Workflow,
    policy: PolicySet,
    action: Action,
    *,
    counted: bool = False,
    chat: Chat | None = None,
) -> Decision:
    """Judge an action by policy, under the caps. It never raises: whatever is wrong is a denial with its reason.

    ``counted`` says that the run's writes include this action already, because it was intended before. ``chat`` holds
    the messages of an agent's model, if the action is a call of that agent.
    """
    view = transition.view
    if (why := refusals.inactive_for(view, transition.run, step.key)) is not None:
        return deny(refusals.BY_ACCOUNT, why, policy.applying(view.workflow, action.operation).policies)
    writes = transition.run.writes - counted + view.others("writes")
    capped = _capped(transition, workflow, writes, transition.run.writes - counted)
    if capped and workflow.operations[action.operation].has_effect:
        return deny("cap:max_writes_per_run", capped, policy.applying(view.workflow, action.operation).policies)
    context = _context(transition, step, action, writes)
    applying, traced = policy.applying(view.workflow, action.operation), NOTHING
    if applying.traces or applying.recounts or StepKey.of(step.key).is_inner:
        context, traced = further_facts(transition, step, workflow, applying, action, context, chat)
    return _answerable(
        transition, step, action, evaluate(policy, build_facts(action, context, traced), action.operation)
    )


def _answerable(transition: Transition, step: StepRow, action: Action, decision: Decision) -> Decision:
    """The decision, with its approvers looked up; a denial if one is not found, or if a contributor is unknown."""
    terms, view = decision.approval, transition.view
    if terms is None or (terms.unresolved is Unresolved.ASK and not approvers.are_unresolved(terms)):
        return decision
    people = contributors.people_of(transition.run, ask.marks_of(transition, step, action, terms), view.directory)
    if terms.unresolved is Unresolved.DENY and (refusal := questions.refusal(people, terms.tier)):
        return deny(UNRESOLVED, refusal, decision.policies, decision.facts_read)
    found = approvers.resolve(terms, transition.run, people, view.directory)
    if isinstance(found, str):
        return deny(approvers.NOBODY, found, decision.policies, decision.facts_read)
    return replace(decision, approval=found)


def _context(transition: Transition, step: StepRow, action: Action, writes: int) -> FactContext:
    """The facts besides the action: the run, the people, the counters."""
    view, state = transition.view, transition.run.state
    added = contributors.added_by(state, step.key) if state.shaped else ""
    agent, counted = (view.agent, counted_of(view)) if view.trigger_type == AGENT else ("", UNCOUNTED)
    return FactContext(
        run_workflow=view.workflow,
        run_version=view.workflow_version,
        run_id=str(view.run_id),
        run_reference=transition.run.reference,
        run_requested_by=contributors.requester_in(view.run, view.directory),
        run_requested_by_text=view.run.requested_by,
        run_trigger=view.trigger_type,
        run_step=step.key,
        step_added_by=view.directory.named(added) if added else "",
        step_added_by_text=added,
        contributors=contributors.facts_of(view.run, view.directory, action.shaped),
        actor_id=f"workflow:{view.workflow}",
        actor_kind="workflow",
        writes_in_run=writes,
        refused_in_run=transition.run.refused + view.others("refused"),
        asked_in_run=transition.run.asked + view.others("asked"),
        agent_id=agent,
        agent_owner=contributors.requester_in(view.run, view.directory) if agent else "",
        agent_asked=counted["asked"],
        agent_refused=counted["refused"],
        agent_same=counted["same"],
        tenant_id=view.tenant_id,
        tenant_workspace=view.workspace_id,
        now=timestamp(transition.not_before(transition.at, step.key)),
    )


def _capped(transition: Transition, workflow: Workflow, writes: int, own: int) -> str:
    """The reason to allow no more writes, "" if there is none. Sets the caps as guards of the append.

    The tenant's cap and that of the outermost run's workflow bound the writes of the whole family. The workflow of a
    child run may also bound that run's own writes.
    """
    view, family = transition.view, transition.view.family
    outermost = workflow.writes_max if family is None or family.root == view.run_id else family.writes_max
    whole = min((cap for cap in (view.writes_max, outermost) if cap is not None), default=None)
    if family is None:
        transition.rows.writes_max, within = whole, None
    else:
        within = None if family.root == view.run_id else workflow.writes_max
        transition.rows.writes_max, transition.rows.family_max = within, whole
    if whole is not None and writes >= whole:
        among = "" if family is None else " with the runs within it"
        return f"This run has made {writes} writes{among}; at most {whole} are allowed."
    if within is not None and own >= within:
        return f"This run has made {own} writes; at most {within} are allowed."
    return ""


def denied(decision: Decision) -> StepError:
    """The error of a step whose action policy denies, or whose account is not active."""
    off = any(rule.id == refusals.BY_ACCOUNT for rule in decision.rules)
    code = refusals.INACTIVE if off else DENIED
    return StepError(ErrorClass.AUTHORIZATION, code, " ".join(decision.reasons))


def record_decision(transition: Transition, step: StepRow, decision: Decision, action: Action, bound: str) -> UUID:
    """Record the decision about the action with this digest. Returns the decision's id.

    What the decision depends on guards the append: the policy, and the run's counters if a rule has read them.
    """
    view, rows = transition.view, transition.rows
    rows.stop = view.stop
    if view.trigger_type == AGENT and not view.off:
        rows.agent = view.agent  # its last token may end before the append: then this is judged anew
    rows.counted |= COUNTER in decision.facts_read or SAME in decision.facts_read
    rows.recounted |= REFUSED in decision.facts_read or ASKED in decision.facts_read
    name = f"decision:{step.key}:{step.lease_epoch}:{step.attempt}:{view.version}:{bound}"
    decision_id = derived_id(view.run_id, name)
    rules: list[Json] = [rule.id for rule in decision.rules]
    errors: list[Json] = [error.rule for error in decision.errors]
    read: dict[str, Any] = dict(decision.facts_read)
    trace = transition.traces.get(step.key)
    made = DecisionMade(
        decision=decision_id,
        action=blind(view.run.run_key, bound),
        operation=action.operation,
        outcome=str(decision.outcome),
        policies=[asdict(policy) for policy in decision.policies],
        rules=rules,
        errors=errors,
        digest=bound,
        fired=[{"id": r.id, "outcome": str(r.outcome), "because": r.because} for r in decision.rules],
        faults=[{"rule": e.rule, "message": e.message} for e in decision.errors],
        reasons=list(decision.reasons),
        facts=read,
        contributors=[*action.shaped] or None,
        origins=None if trace is None else trace.recorded,
        summary=action.summary if decision.outcome is Ruling.DENY else "",
    )
    names = [f"{policy.name}@{policy.version}" for policy in decision.policies]
    actor = Actor("policy", "+".join(names) or "none")
    transition.tell(made, step=step.key, actor=actor)
    return decision_id


def unneeded(p: Proposal, action: Action, key: str, bound: Bound, decision: UUID) -> Next | None:
    """Record that there is nothing to do, because the target holds every value already. None if there is work to do.

    Policy has judged the action before: a denied one never comes here. Nothing is sent, nobody is asked, no write
    counts. Receipt and end of the step are one append, so a crash leaves all of it or nothing.
    """
    output, shared = unchanged(p.operation, action, p.known.before), p.known.shared
    if output is None or (shared is not None and shared.life is not EffectState.FAILED):
        return None  # an effect that somebody else performs is joined or reused
    if p.known.given is not None and p.known.given.digest == bound.digest:
        approved.void(p)  # any other is void already
    view = p.transition.view
    receipt = derived_id(view.run_id, f"receipt:{key}:{view.version}")
    event = ActionUnneeded(
        receipt=receipt,
        action=blind(view.run.run_key, bound.digest),
        operation=action.operation,
        decision=str(decision),
        key=key,
        digest=bound.digest,
        target=action.target,
        proposed=action_json(action, p.known.before) | bound.kept(action) | {"decision": str(decision)},
        output=output,
    )
    p.transition.tell(event, step=p.step.key)
    finish(p.transition, p.step, output)
    return Over()


def intend(p: Proposal, action: Action, key: str, authority: Authority) -> Next:
    """Record the intent. A crash after its commit leaves doubt, which the next lease resolves (promise 2)."""
    step, previous, view = p.step, p.known.receipt, p.transition.view
    ended = previous is not None and previous.status == ReceiptStatus.SUCCEEDED
    seconds, correlation, of_tenant = p.operation.timeouts.perform.total_seconds(), None, ""
    if p.operation.kind is Kind.DURABLE:
        correlation = correlation_of(view.run_id, step.key, step.again)
        expect_end(p.transition, step, p.operation, p.nonce)
    elif p.operation.connector == records.CONNECTOR:
        of_tenant = view.tenant_id
        if problem := records.unfit(p.operation, action.input):
            p.transition.fail(step, problem.to_json())
            return Over()
    sent = key if previous is None or not ended else _new_life(key, previous)
    call = Call(action.operation, action.input, sent, seconds, p.known.before, correlation, of_tenant, p.operation)
    if not p.operation.has_effect:
        return Perform(step, p.operation, call, None)
    stored = action_json(action, p.known.before) | authority.bound.kept(action)
    if previous is not None and p.owns(previous) and not ended and previous.action_digest == authority.bound.digest:
        other, read = _other(previous, authority), _read_anew(previous, stored)
        again = intend_again(
            p.transition, previous, authority.decision, authority=other, read=read, grant=authority.grant
        )
        return _out(p, call, again)
    # This is a first attempt, or another action than the failed one that held the key.
    stored |= {"decision": str(authority.decision), "approval": None, "terms": None}
    if sent != key or step.again or authority.approval or authority.terms or authority.in_doubt:
        stored |= _noted(key, call, step, authority)
    receipt_id = derived_id(view.run_id, f"receipt:{key}:{view.version}")
    p.transition.tell(_first(p, action, key, receipt_id, stored, authority), step=p.step.key)
    row = p.transition.run.receipts[receipt_id]
    return _out(p, call, row) if of_tenant else Perform(p.transition.run.steps[step.key], p.operation, call, row)


def _first(
    p: Proposal, action: Action, key: str, receipt_id: UUID, stored: JsonObject, authority: Authority
) -> ActionIntended:
    """The intent of a first attempt, with everything that its receipt holds."""
    view, previous = p.transition.view, p.known.receipt
    return ActionIntended(
        receipt=receipt_id,
        action=blind(view.run.run_key, authority.bound.digest),
        operation=action.operation,
        attempt=1,
        decision=str(authority.decision),
        approval=authority.approval,
        replaces=previous.receipt_id if previous is not None else None,
        shared=p.may_be_shared,
        directory=view.directory.digest if authority.approval or authority.grant else None,
        stop=view.stop,
        key=key,
        digest=authority.bound.digest,
        target=action.target,
        proposed=stored,
        reversible=action.reversible,
        reverse=action.reverse,
        approved_version=authority.version,
        same=call_of(action) if p.policy.applying(view.workflow, action.operation).recounts else "",
        shaped=_shapers(p) if p.may_be_shared else None,
        **({} if authority.grant is None else _by_grant(p.transition, authority.grant)),
        reverses=reversal.reversed_by(view) if view.trigger_type == reversal.REVERSAL else None,
        gate=gate_of(p.transition.run) if p.operation.by_agent else None,
    )


def _by_grant(transition: Transition, grant: GrantRow) -> dict[str, Any]:
    """The fields of an intent that uses a grant: its append is one use of the grant."""
    return {"grant": grant.grant_id, "covers": blind(transition.view.run.run_key, grant.digest)}


def _shapers(p: Proposal) -> list[str]:
    """The marks of those who shaped a shared effect, for the steps that reuse its result."""
    return [*contributors.kept_by(p.transition.run, ask.marks_of(p.transition, p.step))]


def _read_anew(previous: ReceiptRow, stored: JsonObject) -> JsonObject | None:
    """The target as read for a retry; None if the earlier attempt had read the same."""
    read = stored["before"]
    return read if isinstance(read, dict) and read != previous.action.get("before") else None


def _noted(key: str, call: Call, step: StepRow, authority: Authority) -> JsonObject:
    """The optional members of a stored action: approval and terms, the keys sent if unusual, the groups to ask."""
    noted: JsonObject = {} if call.idempotency_key == key else {SENT_KEY: call.idempotency_key}
    noted |= {CORRELATION: call.correlation_key} if call.correlation_key is not None and step.again else {}
    noted |= {"approval": str(authority.approval)} if authority.approval else {}
    noted |= {"grant": str(authority.grant.grant_id)} if authority.grant else {}
    noted |= {"terms": authority.terms.to_json()} if authority.terms else {}
    return noted | ({IN_DOUBT: to_builtins(authority.in_doubt)} if authority.in_doubt else {})


def _other(previous: ReceiptRow, authority: Authority) -> JsonObject | None:
    """The approval or grant of a retry, with its terms, if the earlier attempt had another one."""
    if authority.grant is not None:
        by: JsonObject = {"approval": None, "grant": str(authority.grant.grant_id)}
        return by | {"terms": None if authority.terms is None else authority.terms.to_json()}
    if authority.approval is None or str(authority.approval) == previous.action.get("approval"):
        return None
    terms = None if authority.terms is None else authority.terms.to_json()
    return (
        {"approval": str(authority.approval), "grant": None, "terms": terms}
        if "grant" in previous.action
        else {"approval": str(authority.approval), "terms": terms}
    )


def _new_life(key: str, previous: ReceiptRow) -> str:
    """The key to send when an effect begins again. The target knows the old key, and would dedupe by it."""
    return digest([key, str(previous.receipt_id)])


def _out(p: Proposal, call: Call, receipt: ReceiptRow) -> Next:
    """Let the worker perform the action. A tenant's record is written by this append itself, and its step is over."""
    step = p.transition.run.steps[p.step.key]
    if not call.tenant:
        return Perform(step, p.operation, call, receipt)
    records.write(p.transition, step, p.operation, receipt, call.input)
    return Over()


def intend_again(
    transition: Transition,
    receipt: ReceiptRow,
    decision: UUID,
    how: str | None = None,
    authority: JsonObject | None = None,
    read: JsonObject | None = None,
    grant: GrantRow | None = None,
) -> ReceiptRow:
    """Record that this decision lets the receipt's action out once more. Returns the updated receipt.

    ``how`` says what became of the earlier attempt. ``authority`` is the approval, if it is not that of the first
    attempt. ``read`` is the target as read anew, if its version has changed.
    """
    approval = {**receipt.action, **(authority or {})}.get("approval")
    event = ActionIntended(
        receipt=receipt.receipt_id,
        action=blind(transition.view.run.run_key, receipt.action_digest),
        operation=receipt.operation,
        attempt=receipt.attempt + 1,
        decision=str(decision),
        approval=UUID(approval) if isinstance(approval, str) else None,
        directory=transition.view.directory.digest if approval is not None else None,
        stop=transition.view.stop,
        resolution=how,
        authority=authority,
        read=read,
        **({} if grant is None else _by_grant(transition, grant)),
    )
    transition.tell(event, step=receipt.step_key)
    return transition.run.receipts[receipt.receipt_id]
