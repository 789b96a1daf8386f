"""The events of a run: a closed set, each with typed facts (promise 6: the event is the move).

An event has two kinds of fields. A public field stands in the event's audit line. A ``Private`` field holds a value: it
lies beside the line in the journal, and the line commits to it path by path (``book.recorded``). A field that has its
default value is left out. ``fold`` derives a run's state from these events and from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from evidence.events import EventType
from runtime.engine.model.events.of_actions import (
    ActionDoubtResolved,
    ActionFailed,
    ActionHeld,
    ActionInDoubt,
    ActionIntended,
    ActionLate,
    ActionRecalled,
    ActionSucceeded,
    ActionUnneeded,
    DecisionMade,
)
from runtime.engine.model.events.of_approvals import (
    ApprovalConsumed,
    ApprovalDecided,
    ApprovalDelivered,
    ApprovalEdited,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReassigned,
    ApprovalReminded,
    ApprovalRequested,
    ApprovalSaid,
    ApprovalSuperseded,
    ApprovalVoted,
    ApprovalVoteRefused,
    GrantEnded,
    GrantGiven,
    GrantRevoked,
    PreflightFailed,
)
from runtime.engine.model.events.of_runs import (
    CheckpointCommitted,
    RunCanceled,
    RunClosed,
    RunContinued,
    RunExtended,
    RunForked,
    RunMigrated,
    RunOpened,
    RunPaused,
    RunReferenceSet,
    RunReopened,
    RunResumed,
    RunSealed,
    RunStarted,
)
from runtime.engine.model.events.of_steps import (
    AgentAnswered,
    AgentBegan,
    HoldAnswered,
    LeaseExpired,
    StepCanceled,
    StepFailed,
    StepHeld,
    StepParked,
    StepResumed,
    StepRetryScheduled,
    StepSetBack,
    StepStarted,
    StepSucceeded,
    WaitCanceled,
    WaitCompleted,
    WaitOpened,
    WaitPostponed,
    WaitTimedOut,
)

Event: TypeAlias = (
    RunOpened | RunStarted | RunReferenceSet | RunExtended | RunContinued | RunCanceled | RunClosed
    | RunPaused | RunResumed | RunReopened | RunSealed | RunMigrated | RunForked
    | StepStarted | StepSucceeded | StepFailed | StepParked | StepRetryScheduled | StepResumed | StepSetBack
    | StepCanceled | StepHeld | HoldAnswered | LeaseExpired
    | WaitOpened | WaitPostponed | WaitCompleted | WaitTimedOut | WaitCanceled
    | AgentBegan | AgentAnswered
    | DecisionMade | PreflightFailed
    | ApprovalRequested | ApprovalVoted | ApprovalVoteRefused | ApprovalDecided | ApprovalConsumed
    | ApprovalSaid | ApprovalReassigned | ApprovalEdited
    | ApprovalDelivered | ApprovalSuperseded | ApprovalExpired | ApprovalReminded | ApprovalEscalated
    | GrantGiven | GrantRevoked | GrantEnded
    | ActionIntended | ActionSucceeded | ActionFailed | ActionInDoubt | ActionHeld | ActionDoubtResolved
    | ActionRecalled | ActionLate | ActionUnneeded
    | CheckpointCommitted
)  # fmt: skip

EVENTS: Mapping[EventType, type[Event]] = {kind.TYPE: kind for kind in Event.__args__}
