"""The state machines of run, step, wait, command and shared effect, one table each.

The database also refuses moves that are not in these tables: migrations/versions has the same moves as triggers, and a
test compares the two. A step row may be inserted past ``ready`` if one transaction plans and claims it (``succeeded``
if there was nothing to do outside), and as ``canceled`` if the run ended in that transaction. The same holds for the
rows of a wait or an approval. From then on only these moves exist.
"""

from __future__ import annotations

from enum import StrEnum

from core.machine import Machine


class RunState(StrEnum):
    """The status of a run. ``waiting``: for a task, a timer, a signal, a child run or work outside.

    An open run whose steps are done is ``waiting`` for more of them; it succeeds when it is closed.
    """

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED_RETRYABLE = "failed_retryable"
    FAILED_TERMINAL = "failed_terminal"
    CANCELED = "canceled"


class RunEvent(StrEnum):
    """An event that moves a run."""

    START = "start"
    PARK = "park"
    WAIT = "wait"
    RETRY_LATER = "retry_later"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    REOPEN = "reopen"


RUN: Machine[RunState, RunEvent] = Machine(
    "run",
    frozenset({RunState.QUEUED}),
    {
        (RunState.QUEUED, RunEvent.START): RunState.RUNNING,
        (RunState.QUEUED, RunEvent.CANCEL): RunState.CANCELED,
        (RunState.RUNNING, RunEvent.PARK): RunState.WAITING_APPROVAL,
        (RunState.RUNNING, RunEvent.WAIT): RunState.WAITING,
        (RunState.RUNNING, RunEvent.RETRY_LATER): RunState.FAILED_RETRYABLE,
        (RunState.RUNNING, RunEvent.SUCCEED): RunState.SUCCEEDED,
        (RunState.RUNNING, RunEvent.FAIL): RunState.FAILED_TERMINAL,
        (RunState.RUNNING, RunEvent.CANCEL): RunState.CANCELED,
        (RunState.WAITING_APPROVAL, RunEvent.RESUME): RunState.RUNNING,
        (RunState.WAITING_APPROVAL, RunEvent.FAIL): RunState.FAILED_TERMINAL,
        (RunState.WAITING_APPROVAL, RunEvent.CANCEL): RunState.CANCELED,
        (RunState.WAITING, RunEvent.RESUME): RunState.RUNNING,
        (RunState.WAITING, RunEvent.SUCCEED): RunState.SUCCEEDED,
        (RunState.WAITING, RunEvent.FAIL): RunState.FAILED_TERMINAL,
        (RunState.WAITING, RunEvent.CANCEL): RunState.CANCELED,
        (RunState.FAILED_RETRYABLE, RunEvent.RESUME): RunState.RUNNING,
        (RunState.FAILED_RETRYABLE, RunEvent.FAIL): RunState.FAILED_TERMINAL,
        (RunState.FAILED_RETRYABLE, RunEvent.CANCEL): RunState.CANCELED,
        (RunState.FAILED_TERMINAL, RunEvent.REOPEN): RunState.RUNNING,
    },
    frozenset({RunState.FAILED_TERMINAL}),
)


class StepState(StrEnum):
    """The status of a step."""

    READY = "ready"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED_RETRYABLE = "failed_retryable"
    FAILED_TERMINAL = "failed_terminal"
    CANCELED = "canceled"


class StepEvent(StrEnum):
    """An event that moves a step."""

    CLAIM = "claim"
    LEASE_EXPIRE = "lease_expire"
    PARK = "park"
    WAIT = "wait"
    RETRY_LATER = "retry_later"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


STEP: Machine[StepState, StepEvent] = Machine(
    "step",
    frozenset(
        {
            StepState.READY,
            StepState.RUNNING,
            StepState.WAITING_APPROVAL,
            StepState.WAITING,
            StepState.SUCCEEDED,
            StepState.FAILED_TERMINAL,
            StepState.CANCELED,
        }
    ),
    {
        (StepState.READY, StepEvent.CLAIM): StepState.RUNNING,
        (StepState.READY, StepEvent.CANCEL): StepState.CANCELED,
        (StepState.RUNNING, StepEvent.LEASE_EXPIRE): StepState.READY,
        (StepState.RUNNING, StepEvent.PARK): StepState.WAITING_APPROVAL,
        (StepState.RUNNING, StepEvent.WAIT): StepState.WAITING,
        (StepState.RUNNING, StepEvent.RETRY_LATER): StepState.FAILED_RETRYABLE,
        (StepState.RUNNING, StepEvent.SUCCEED): StepState.SUCCEEDED,
        (StepState.RUNNING, StepEvent.FAIL): StepState.FAILED_TERMINAL,
        (StepState.RUNNING, StepEvent.CANCEL): StepState.CANCELED,
        (StepState.WAITING_APPROVAL, StepEvent.RESUME): StepState.READY,
        (StepState.WAITING_APPROVAL, StepEvent.FAIL): StepState.FAILED_TERMINAL,
        (StepState.WAITING_APPROVAL, StepEvent.CANCEL): StepState.CANCELED,
        (StepState.WAITING, StepEvent.RESUME): StepState.READY,
        (StepState.WAITING, StepEvent.FAIL): StepState.FAILED_TERMINAL,
        (StepState.WAITING, StepEvent.CANCEL): StepState.CANCELED,
        (StepState.FAILED_RETRYABLE, StepEvent.RESUME): StepState.READY,
        (StepState.FAILED_RETRYABLE, StepEvent.FAIL): StepState.FAILED_TERMINAL,
        (StepState.FAILED_RETRYABLE, StepEvent.CANCEL): StepState.CANCELED,
    },
)


class WaitKind(StrEnum):
    """The kinds of wait that park a step. All but an approval and a retry leave it ``waiting``.

    ``hold``: the step has failed for good, and people decide about it. ``permit``: an agent is to fetch its permit, or
    to report on its action.
    """

    APPROVAL = "approval"
    RETRY = "retry"
    PAUSE = "pause"
    TASK = "task"
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    EXTERNAL = "external"
    SHARED = "shared"
    AGENT = "agent"
    HOLD = "hold"
    PERMIT = "permit"


class WaitState(StrEnum):
    """The status of a wait."""

    WAITING = "waiting"
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"


class WaitEvent(StrEnum):
    """An event that moves a wait. Completing one twice is ignored before this table is asked."""

    COMPLETE = "complete"
    TIME_OUT = "time_out"
    CANCEL = "cancel"


WAIT: Machine[WaitState, WaitEvent] = Machine(
    "wait",
    frozenset({WaitState.WAITING, WaitState.CANCELED}),
    {
        (WaitState.WAITING, WaitEvent.COMPLETE): WaitState.COMPLETED,
        (WaitState.WAITING, WaitEvent.TIME_OUT): WaitState.TIMED_OUT,
        (WaitState.WAITING, WaitEvent.CANCEL): WaitState.CANCELED,
    },
)


class CommandState(StrEnum):
    """The status of a command of the outbox. ``deferred`` waits for an approval, a barrier or the run's start."""

    PENDING = "pending"
    DEFERRED = "deferred"
    LEASED = "leased"
    DISPATCHED = "dispatched"
    REJECTED = "rejected"
    FAILED = "failed"


class CommandEvent(StrEnum):
    """An event that moves a command."""

    RELEASE = "release"
    LEASE = "lease"
    CLAIM = "claim"
    RETURN = "return"
    DISPATCH = "dispatch"
    REJECT = "reject"
    FAIL = "fail"


COMMAND: Machine[CommandState, CommandEvent] = Machine(
    "command",
    frozenset({CommandState.PENDING, CommandState.DEFERRED}),
    {
        (CommandState.DEFERRED, CommandEvent.RELEASE): CommandState.PENDING,
        (CommandState.DEFERRED, CommandEvent.REJECT): CommandState.REJECTED,
        (CommandState.PENDING, CommandEvent.LEASE): CommandState.LEASED,
        (CommandState.PENDING, CommandEvent.CLAIM): CommandState.DISPATCHED,
        (CommandState.PENDING, CommandEvent.REJECT): CommandState.REJECTED,
        (CommandState.LEASED, CommandEvent.RETURN): CommandState.PENDING,
        (CommandState.LEASED, CommandEvent.DISPATCH): CommandState.DISPATCHED,
        (CommandState.LEASED, CommandEvent.REJECT): CommandState.REJECTED,
        (CommandState.LEASED, CommandEvent.FAIL): CommandState.FAILED,
        (CommandState.DISPATCHED, CommandEvent.RETURN): CommandState.PENDING,
        (CommandState.FAILED, CommandEvent.RETURN): CommandState.PENDING,
    },
)


class EffectState(StrEnum):
    """The status of an effect that steps and runs share. ``begun``: it goes on outside, and its holder waits for it.

    ``left``: its holder no longer waits; a step that shares it takes it over, or it is ended outside. ``failed`` frees
    its key: the next step performs it anew.
    """

    INTENDED = "intended"
    IN_DOUBT = "in_doubt"
    BEGUN = "begun"
    LEFT = "left"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class EffectEvent(StrEnum):
    """An event that moves a shared effect."""

    INTEND = "intend"
    DOUBT = "doubt"
    BEGIN = "begin"
    LEAVE = "leave"
    TAKE_OVER = "take_over"
    SUCCEED = "succeed"
    FAIL = "fail"


EFFECT: Machine[EffectState, EffectEvent] = Machine(
    "effect",
    frozenset({EffectState.INTENDED}),
    {
        (EffectState.INTENDED, EffectEvent.DOUBT): EffectState.IN_DOUBT,
        (EffectState.INTENDED, EffectEvent.BEGIN): EffectState.BEGUN,
        (EffectState.INTENDED, EffectEvent.SUCCEED): EffectState.SUCCEEDED,
        (EffectState.INTENDED, EffectEvent.FAIL): EffectState.FAILED,
        (EffectState.IN_DOUBT, EffectEvent.INTEND): EffectState.INTENDED,
        (EffectState.IN_DOUBT, EffectEvent.BEGIN): EffectState.BEGUN,
        (EffectState.IN_DOUBT, EffectEvent.SUCCEED): EffectState.SUCCEEDED,
        (EffectState.IN_DOUBT, EffectEvent.FAIL): EffectState.FAILED,
        (EffectState.BEGUN, EffectEvent.SUCCEED): EffectState.SUCCEEDED,
        (EffectState.BEGUN, EffectEvent.FAIL): EffectState.FAILED,
        (EffectState.BEGUN, EffectEvent.LEAVE): EffectState.LEFT,
        (EffectState.LEFT, EffectEvent.TAKE_OVER): EffectState.BEGUN,
        (EffectState.LEFT, EffectEvent.FAIL): EffectState.FAILED,
        (EffectState.FAILED, EffectEvent.INTEND): EffectState.INTENDED,
    },
)
