"""The fold of waits and of questions to people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from approvals.model import APPROVAL, ApprovalEvent, ApprovalKind, ApprovalStatus, Choice
from core.errors import ConsistencyError
from runtime.engine.book import contributors
from runtime.engine.book.fold import of_agents
from runtime.engine.book.questions import list_of
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.model import events as e
from runtime.engine.model.errors import UNDELIVERED
from runtime.engine.model.rows import ApprovalMove, ApprovalRow, SaidRow, VoteRow, WaitRow, step_id_of
from runtime.engine.model.run import Run
from runtime.engine.model.states import WAIT, WaitEvent, WaitKind, WaitState


def wait_opened(run: Run, recorded: RecordedEvent, event: e.WaitOpened) -> None:
    key = recorded.step or ""
    due = None if event.due is None else timedelta(seconds=event.due)
    opened = (event.wait, step_id_of(run.run_id, key), key, event.kind, WaitState.WAITING, event.token)
    run.waits[event.wait] = WaitRow(*opened, due, event.context or {}, event.correlation, parked=False)


def wait_postponed(run: Run, recorded: RecordedEvent, event: e.WaitPostponed) -> None:
    wait = run.waits[event.wait]
    context = {**(wait.context or {}), "setbacks": event.setbacks} if event.setbacks else wait.context
    run.waits[event.wait] = replace(wait, context=context, due_in=timedelta(seconds=event.due))


def wait_completed(run: Run, recorded: RecordedEvent, event: e.WaitCompleted) -> None:
    end_wait(run, event.wait, WaitEvent.COMPLETE, result=event.result)
    origins: Any = (event.result or {}).get("origins")
    if origins is not None:
        run.state.origins[recorded.step or ""] = origins
    if event.kind is WaitKind.AGENT:
        of_agents.waited(run, recorded.step or "")
    elif event.kind is WaitKind.CHILD:
        used: Any = (event.result or {}).get("used")
        of_agents.called(run, recorded.step or "", used)


def wait_timed_out(run: Run, recorded: RecordedEvent, event: e.WaitTimedOut) -> None:
    end_wait(run, event.wait, WaitEvent.TIME_OUT, result=event.result)
    if event.kind is WaitKind.AGENT:
        of_agents.waited(run, recorded.step or "")


def wait_canceled(run: Run, recorded: RecordedEvent, event: e.WaitCanceled) -> None:
    end_wait(run, event.wait, WaitEvent.CANCEL)


def end_wait(run: Run, wait_id: UUID, event: WaitEvent, **changes: Any) -> None:
    wait = run.waits.get(wait_id)
    if wait is None:
        raise ConsistencyError(f"there is no wait {wait_id}")
    run.waits[wait_id] = replace(wait, status=WAIT.next[wait.status, event], due_in=None, **changes)


def asked(run: Run, recorded: RecordedEvent, event: e.ApprovalRequested) -> None:
    run.approvals[event.approval] = ApprovalRow(
        approval_id=event.approval,
        step_id=step_id_of(run.run_id, recorded.step or ""),
        step_key=recorded.step or "",
        kind=event.kind,
        action_digest=event.digest,
        nonce=event.nonce,
        tier=event.tier,
        terms=event.terms or {},
        requester=event.requester,
        card=event.shown or {},
        action=event.proposed,
        expires_in=timedelta(seconds=event.expires),
        contributors=event.contributors,
        key=event.key,
        asker=(event.askers or [""])[0],
        askers=event.askers,
        listed=list_of(recorded.step or "", event.kind, event.proposed, event.terms or {}, event.shown or {}),
    )
    run.answers[event.approval] = ApprovalMove(event.approval, ApprovalStatus.REQUESTED)
    run.asked += event.kind == ApprovalKind.ACTION


def voted(run: Run, recorded: RecordedEvent, event: e.ApprovalVoted) -> None:
    groups = event.groups or []
    at = recorded.at if event.on_behalf else None
    values = (event.choice, event.reason, groups, event.channel, event.grant, event.on_behalf, at)
    run.votes.append(VoteRow(event.approval, recorded.actor.id, *values, glass=event.glass or None))


ASKS, ANSWERS, COMMENTS, HANDS_ON = "asks", "answers", "comments", "hands_on"


def approval_said(run: Run, recorded: RecordedEvent, event: e.ApprovalSaid) -> None:
    """Keep a remark about a question. Whoever answers an approver has shaped what the approvers decide by."""
    run.said.append(SaidRow(event.approval, recorded.actor.id, event.said, event.text, recorded.at))
    if event.said == ANSWERS:
        contributors.answered(run.state, recorded.step or "", recorded.actor.kind, recorded.actor.id)


def edited(run: Run, recorded: RecordedEvent, event: e.ApprovalEdited) -> None:
    """Keep the edited values of the step's input, each with its first value. The editor has shaped the input."""
    key, asked = recorded.step or "", run.approvals.get(event.approval)
    open_ = event.approval in run.answers and run.answers[event.approval].status == ApprovalStatus.REQUESTED
    if asked is None or asked.step_key != key or not open_:
        raise ConsistencyError(f"the question {event.approval} is not open at the step {key}")
    known = run.edits.get(key, {})
    fresh: dict[str, Any] = event.edited or {}
    merged = {name: {"was": known.get(name, both)["was"], "now": both["now"]} for name, both in fresh.items()}
    run.edits[key] = {**known, **merged}
    contributors.edited(run.state, key, recorded.actor.kind, recorded.actor.id)


def reassigned(run: Run, recorded: RecordedEvent, event: e.ApprovalReassigned) -> None:
    run.said.append(SaidRow(event.approval, recorded.actor.id, HANDS_ON, event.text, recorded.at, event.to))


_ANSWERS: Mapping[str, ApprovalEvent] = {
    ApprovalStatus.APPROVED: ApprovalEvent.APPROVE,
    ApprovalStatus.REJECTED: ApprovalEvent.REJECT,
    ApprovalStatus.CANCELED: ApprovalEvent.CANCEL,
    Choice.HAPPENED: ApprovalEvent.APPROVE,
    Choice.AGAIN: ApprovalEvent.APPROVE,
    Choice.FAIL: ApprovalEvent.REJECT,
}


def answered(run: Run, recorded: RecordedEvent, event: e.ApprovalDecided) -> None:
    answer(run, event.approval, _ANSWERS[event.outcome], choice=event.choice, reason=event.reason, at=recorded.at)
    of_action = run.approvals[event.approval].kind == ApprovalKind.ACTION if event.approval in run.approvals else False
    run.refused += of_action and event.outcome == ApprovalStatus.REJECTED


def answer(run: Run, approval: UUID, event: ApprovalEvent | None, **changes: Any) -> None:
    known = run.answers.get(approval) or ApprovalMove(approval, ApprovalStatus.REQUESTED)
    status = known.status if event is None else APPROVAL.next[ApprovalStatus(known.status), event]
    run.answers[approval] = replace(known, status=status, **changes)


def consumed(run: Run, recorded: RecordedEvent, event: e.ApprovalConsumed) -> None:
    answer(run, event.approval, None, consumed=True)


def superseded(run: Run, recorded: RecordedEvent, event: e.ApprovalSuperseded) -> None:
    answer(run, event.approval, ApprovalEvent.SUPERSEDE, why=event.why, changed=event.changed)


def delivered(run: Run, recorded: RecordedEvent, event: e.ApprovalDelivered) -> None:
    answer(run, event.approval, None, delivered=True)


def expired(run: Run, recorded: RecordedEvent, event: e.ApprovalExpired) -> None:
    fields = {"reason": UNDELIVERED} if event.undelivered else {}
    answer(run, event.approval, ApprovalEvent.EXPIRE, **fields)


def reminded(run: Run, recorded: RecordedEvent, event: e.ApprovalReminded | e.ApprovalEscalated) -> None:
    if isinstance(event, e.ApprovalEscalated):
        answer(run, event.approval, None, escalated=True)
    wait = run.waits.get(event.wait) if event.wait is not None else None
    if wait is not None:
        context = {**(wait.context or {}), "next": event.rung}
        run.waits[wait.wait_id] = replace(wait, context=context, due_in=timedelta(seconds=event.due))
