"""What is known about a step, and what a worker is to do next: the values that governance speaks in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from approvals.model import ApprovalKind, Choice, Terms
from connectors.operation import Operation
from connectors.port import Before, Call, Done
from core.canonical import Json, JsonObject
from runtime.engine.commit import ReceiptRow, StepRow, WaitRow


@dataclass(frozen=True, slots=True)
class Given:
    """An approval that was given and that no action has consumed yet.

    ``carried`` says that the votes in the book meet its terms, whatever was told of the decision.
    """

    approval_id: UUID
    kind: ApprovalKind
    digest: str
    choice: Choice
    reason: str
    terms: Terms
    carried: bool


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored about this step from earlier leases, and what was read from the target.

    ``wait`` is the newest wait of the step that was not canceled, other than for an approval that was given or a retry.
    ``receipt_checked`` says that the receipt was looked up by its key, so that None means that there is none.
    """

    receipt: ReceiptRow | None = None
    given: Given | None = None
    wait: WaitRow | None = None
    before: Before | None = None
    receipt_checked: bool = False


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """Read the target for the diff, then begin again with what was read."""

    step: StepRow
    operation: Operation
    call: Call
    known: Known


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look the receipt up by its key (its scope is wider than this step), then begin again."""

    step: StepRow
    idempotency_key: str
    known: Known


@dataclass(frozen=True, slots=True)
class Perform:
    """Perform the call; its intent is recorded in the transition. ``receipt`` is None without side effects."""

    step: StepRow
    operation: Operation
    call: Call
    receipt: ReceiptRow | None


@dataclass(frozen=True, slots=True)
class Inquire:
    """Ask the target what became of an earlier intent."""

    step: StepRow
    operation: Operation
    call: Call
    receipt: ReceiptRow
    known: Known
    seconds_since_intent: float


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start another run; ``waits`` says whether the step waits for its end. Starting it again finds it there."""

    step: StepRow
    run_id: UUID
    workflow: str
    version: int | None
    inputs: JsonObject
    waits: bool


@dataclass(frozen=True, slots=True)
class OtherRun:
    """What became of ``StartRun``: the run's status, result and error; ``problem`` if it could not be started."""

    status: str = ""
    result: Json = None
    error: JsonObject | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing more is to be done with this step now: it parked, failed, succeeded from a receipt, or was canceled."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """The effect happened, and what came back cannot be kept; ``problem`` says why. ``done`` is what can be."""

    done: Done
    problem: str


Next: TypeAlias = ReadBefore | LookUp | Perform | Inquire | StartRun | Over
Nonce: TypeAlias = Callable[[], str]
