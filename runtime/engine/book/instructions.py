"""The engine's vocabulary: facts known about a step, and instructions for the worker. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from approvals.model import ApprovalKind, ApprovalStatus, Choice, Vote, VoteChannel
from approvals.quorum import counted_again
from approvals.tally import carried, resolved
from connectors.operation import Operation
from connectors.port import Before, Call, Done, Pace
from core.canonical import Json, JsonObject
from core.identity import Contributor, Directory
from core.terms import Grant, GroupQuorum, Terms
from evidence.receipts import ReceiptStatus
from runtime.engine.book.agent_chat import Chat
from runtime.engine.book.channels import Inherited
from runtime.engine.book.contributors import barred_from
from runtime.engine.book.recorded import Diverged
from runtime.engine.model.rows import ApprovalRow, Claim, ReceiptRow, StepRow, VoteRow, WaitRow
from runtime.engine.model.run import Run, RunView
from runtime.engine.model.states import EffectState, WaitKind, WaitState

# The key, in the context of a wait about a permit, and its values: the agent is to fetch the permit, or to report.
PERMIT, FETCH, REPORT = "permit", "fetch", "report"
# The reasons why a given approval became void before its use.
STALE = "stale"
LEFT = "votes_lost"


class GivenApproval(Struct, frozen=True):
    """An approval that people gave: when (``at``), and by which ``votes`` in the book."""

    approval_id: UUID
    kind: ApprovalKind
    digest: str
    choice: Choice
    reason: str
    terms: Terms
    contributors: tuple[Contributor, ...]
    votes: tuple[Vote, ...]
    escalated: bool
    at: datetime

    @property
    def carried(self) -> bool:
        """True if the votes in the book meet the approval's terms, whatever the recorded decision says."""
        approves = self.choice not in (Choice.REJECT, Choice.FAIL)
        return approves and carried(self.terms, self.contributors, self.votes, self.choice, escalated=self.escalated)

    def still_carried(self, people: Directory) -> bool:
        """True if the votes of people who may vote by today's directory still meet the terms (promise 12)."""
        votes, shaped = counted_again(self.votes, people), resolved(self.contributors, people)
        return carried(self.terms, shaped, votes, self.choice, escalated=self.escalated)

    def emergency_is_over(self, view: RunView) -> bool:
        """True if the emergency access (break glass) that it rests on has expired."""
        glass = self.terms.break_glass
        broken = glass is not None and any(vote.glass for vote in self.votes)
        return broken and glass is not None and (view.now - self.at).total_seconds() > glass.seconds

    def void(self, view: RunView) -> str | None:
        """The reason why this unused approval no longer counts; None if it still does."""
        if (view.now - self.at).total_seconds() > self.terms.fresh_seconds or self.emergency_is_over(view):
            return STALE
        return None if self.still_carried(view.directory) else LEFT


class Shared(Struct, frozen=True):
    """A shared effect, folded from the books of all runs that use it.

    ``wait`` is the wait of the step that holds it, if its end comes from outside. ``over`` says that the run that
    performed it is over, ``erased`` that retention has removed its result. ``shaped`` are the marks of those who shaped
    it, including the requester of its run.
    """

    receipt: ReceiptRow
    life: EffectState
    wait: WaitRow | None = None
    over: bool = False
    erased: bool = False
    shaped: tuple[str, ...] = ()


class Known(Struct, frozen=True):
    """The facts about this step from earlier leases, and from the target.

    ``wait`` is the newest wait of the step, except canceled ones, retries, pauses and those for an approval that was
    given. ``receipt_checked`` says that the receipt was looked up by its key: then a ``receipt`` of None means that
    there is none; ``shared`` is then the effect as the books tell it, which may be another step's. ``slack`` holds the
    accounts in each Slack group that could be looked up, by its key; None before that was tried. ``chat`` is what a
    model was shown before a turn; None before it was read. ``turn`` says that the step has taken its turn at a target
    with a rate limit.
    """

    receipt: ReceiptRow | None = None
    given: GivenApproval | None = None
    wait: WaitRow | None = None
    before: Before | None = None
    receipt_checked: bool = False
    shared: Shared | None = None
    slack: Mapping[str, frozenset[str]] | None = None
    chat: Chat | None = None
    turn: bool = False


class TakeTurn(Struct, frozen=True):
    """Take a turn at a target with a rate limit, then begin again; or let the step wait for its turn."""

    step: StepRow
    pace: Pace
    known: Known


class ReadBefore(Struct, frozen=True):
    """Read the target for the diff, then begin again with what was read."""

    step: StepRow
    operation: Operation
    call: Call
    known: Known


class LookUp(Struct, frozen=True):
    """Look the receipt up by its key, which other steps may use too, then begin again.

    ``earlier`` is the key by which release 0.2.0 knew this effect, if that key differs.
    """

    step: StepRow
    idempotency_key: str
    known: Known
    earlier: str | None = None


class ReadChat(Struct, frozen=True):
    """Read all messages of an agent, by the key of its step, then begin again."""

    step: StepRow
    agent: str
    known: Known


class Resolve(Struct, frozen=True):
    """Look up the members of these Slack groups, before anybody is asked; then begin again."""

    step: StepRow
    groups: tuple[GroupQuorum, ...]
    known: Known


class Perform(Struct, frozen=True):
    """Perform the call, whose intent the transition records. ``receipt`` is None for a call without side effects."""

    step: StepRow
    operation: Operation
    call: Call
    receipt: ReceiptRow | None


class Inquire(Struct, frozen=True):
    """Ask the target what became of an earlier intent."""

    step: StepRow
    operation: Operation
    call: Call
    receipt: ReceiptRow
    known: Known
    seconds_since_intent: float


class StartRun(Struct, frozen=True):
    """Start another run; ``waits`` says if the step waits for its end. Starting it twice gives the same run.

    ``shaped`` are the marks of those who shaped its input, ``inherited`` the channels whose copies it gets. ``origins``
    say where input and copies came from, if a rule reads that. ``adder`` is the mark of whoever added the step, or a
    step around it, to the running workflow.
    """

    step: StepRow
    run_id: UUID
    workflow: str
    version: int | None
    inputs: JsonObject
    waits: bool
    shaped: tuple[str, ...] = ()
    inherited: Mapping[str, Inherited] = field(default_factory=dict)
    origins: JsonObject | None = None
    adder: str | None = None


class OtherRun(Struct, frozen=True):
    """The outcome of ``StartRun``: the run's status, result and error; ``problem`` if it could not be started.

    ``shaped`` are the marks of those who shaped its result, ``origins`` say where the result came from. ``used`` is the
    usage of its models, if it is over and a call of an agent has started it.
    """

    status: str = ""
    result: Json = None
    error: JsonObject | None = None
    problem: str | None = None
    shaped: tuple[str, ...] = ()
    origins: list[Json] | None = None
    used: JsonObject | None = None


class Over(Struct, frozen=True):
    """Do nothing more with this step now: it parked, failed, succeeded from a receipt, or was canceled."""


class Unfit(Struct, frozen=True):
    """The effect happened, but its result cannot be stored; ``problem`` says why. ``done`` is the part that can."""

    done: Done
    problem: str


Next: TypeAlias = TakeTurn | ReadBefore | LookUp | ReadChat | Resolve | Perform | Inquire | StartRun | Over
Nonce: TypeAlias = Callable[[], str]


def known_of(run: Run, step_key: str) -> Known:
    """The step's last receipt, its given approval that is still unused, and its last wait."""
    return Known(
        receipt=last_receipt(run, step_key), given=_unused_approval(run, step_key), wait=_last_wait(run, step_key)
    )


def last_receipt(run: Run, step_key: str) -> ReceiptRow | None:
    """The receipt of this step's last intent."""
    own = [row for row in run.receipts.values() if row.step_key == step_key]
    return max(own, key=lambda row: row.intended_at, default=None)


def open_wait(run: Run, step_key: str) -> WaitRow | None:
    """The wait that this step is parked on, or that it has opened to park on."""
    for wait in run.waits.values():
        if wait.step_key == step_key and wait.status is WaitState.WAITING:
            return wait
    return None


def is_out(run: Run, step_key: str) -> bool:
    """True if an agent holds the permit for this step's action and has not reported: it may be doing it now."""
    wait = open_wait(run, step_key)
    return wait is not None and wait.kind is WaitKind.PERMIT and (wait.context or {}).get(PERMIT) == REPORT


def is_reported(run: Run, step_key: str) -> bool:
    """True if the wait for an agent's report is over, and its meaning for the action is not recorded yet."""
    last = next((one for one in reversed(run.waits.values()) if one.step_key == step_key), None)
    receipt = last_receipt(run, step_key)
    over = last is not None and last.kind is WaitKind.PERMIT and (last.context or {}).get(PERMIT) == REPORT
    return over and receipt is not None and receipt.status == ReceiptStatus.INTENDED


def _unused_approval(run: Run, step_key: str) -> GivenApproval | None:
    given = None
    for approval_id, answer in run.answers.items():
        if run.approvals[approval_id].step_key == step_key and not answer.consumed:
            given = given_approval(run, approval_id) or given
    return given


def given_approval(run: Run, approval_id: UUID) -> GivenApproval | None:
    """The given approval, used or not; None if it was not given, or if the run no longer holds it."""
    answer, asked = run.answers.get(approval_id), run.approvals.get(approval_id)
    if answer is None or asked is None or answer.status != ApprovalStatus.APPROVED:
        return None
    assert answer.choice is not None, "it is recorded with the decision"
    assert answer.at is not None, "so is its time"
    return GivenApproval(
        approval_id=approval_id,
        kind=ApprovalKind(asked.kind),
        digest=asked.action_digest,
        choice=Choice(answer.choice),
        reason=answer.reason or "",
        terms=Terms.from_json(asked.terms),
        contributors=barred_from(run, asked),
        votes=tuple(_vote(row, asked) for row in run.votes if row.approval_id == approval_id),
        escalated=answer.escalated,
        at=answer.at,
    )


def still_approved(view: RunView, run: Run, receipt: ReceiptRow) -> UUID | None:
    """The approval that let this action out before, if by today's directory its votes still meet its terms.

    None if the emergency access (break glass) that it rests on has expired: no further attempt goes out by it.
    """
    approval = receipt.action.get("approval")
    given = given_approval(run, UUID(approval)) if isinstance(approval, str) else None
    stands = given is not None and given.still_carried(view.directory) and not given.emergency_is_over(view)
    return given.approval_id if given is not None and stands else None


def _vote(row: VoteRow, asked: ApprovalRow) -> Vote:
    ballot = (Choice(row.choice), row.reason, frozenset(row.groups), VoteChannel(row.channel))
    grant = None if row.grant is None else Grant.from_json(row.grant)
    at = "" if row.at is None else row.at.isoformat()
    binding = (at, asked.action_digest, grant, row.on_behalf or "")
    return Vote(row.person_id, row.person_id, *ballot, *binding, glass=bool(row.glass))


def _last_wait(run: Run, step_key: str) -> WaitRow | None:
    """The newest wait, except canceled ones, retries, pauses and those for an approval that was given.

    Waits from before the step began anew do not count. A wait for a shared effect that has ended does not count either:
    the effect is looked up again.
    """
    last = None
    for wait in run.waits.values():
        passed = wait.kind in (WaitKind.RETRY, WaitKind.PAUSE) or wait.status is WaitState.CANCELED
        passed |= wait.left or (wait.kind is WaitKind.SHARED and wait.status is WaitState.COMPLETED)
        if wait.step_key == step_key and not passed and (wait.kind is not WaitKind.APPROVAL or wait.result is not None):
            last = wait
    return last


def leased(view: RunView, claim: Claim, owner: str) -> StepRow:
    """The step with its new lease. ``Diverged`` if no such step is open by the book."""
    step = view.run.steps.get(claim.key)
    if step is None:
        raise Diverged(f"A lease was taken on the step {claim.key}, which is not open by the run's book")
    return replace(step, lease_owner=owner, lease_epoch=claim.epoch)
