"""The events of a run: a closed set, each with typed facts (promise 6: the event is the move).

An event has two kinds of fields. A public field stands in the event's audit line. A ``Private`` field holds a value:
it lies beside the line in the journal, and the line commits to it path by path (``runtime.engine.told``). A field with
a default is left out where it has that default. ``fold`` makes a run's state of these events and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Any, TypeAlias
from uuid import UUID

from core.canonical import Json, JsonObject
from core.errors import ConsistencyError
from evidence.events import EventType
from evidence.receipts import LateAnswer, Resolution
from runtime.engine.events.of_actions import (
    ActionDoubtResolved,
    ActionFailed,
    ActionHeld,
    ActionInDoubt,
    ActionIntended,
    ActionLate,
    ActionRecalled,
    ActionSucceeded,
    DecisionMade,
)
from runtime.engine.events.of_approvals import (
    ApprovalConsumed,
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    ApprovalSuperseded,
    ApprovalVoted,
    ApprovalVoteRefused,
)
from runtime.engine.events.of_runs import (
    CheckpointCommitted,
    RunCanceled,
    RunClosed,
    RunContinued,
    RunExtended,
    RunOpened,
    RunReferenceSet,
    RunStarted,
)
from runtime.engine.events.of_steps import (
    LeaseExpired,
    StepCanceled,
    StepFailed,
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
from runtime.engine.states import RunState, WaitKind

__all__ = [
    "EVENTS",
    "ActionDoubtResolved",
    "ActionFailed",
    "ActionHeld",
    "ActionInDoubt",
    "ActionIntended",
    "ActionLate",
    "ActionRecalled",
    "ActionSucceeded",
    "ApprovalConsumed",
    "ApprovalDecided",
    "ApprovalEscalated",
    "ApprovalExpired",
    "ApprovalReminded",
    "ApprovalRequested",
    "ApprovalSuperseded",
    "ApprovalVoteRefused",
    "ApprovalVoted",
    "CheckpointCommitted",
    "DecisionMade",
    "Event",
    "LeaseExpired",
    "RunCanceled",
    "RunClosed",
    "RunContinued",
    "RunExtended",
    "RunOpened",
    "RunReferenceSet",
    "RunStarted",
    "StepCanceled",
    "StepFailed",
    "StepParked",
    "StepResumed",
    "StepRetryScheduled",
    "StepSetBack",
    "StepStarted",
    "StepSucceeded",
    "WaitCanceled",
    "WaitCompleted",
    "WaitOpened",
    "WaitPostponed",
    "WaitTimedOut",
    "from_parts",
    "parts",
]

# Public fields that have another name in the audit line, because Python reserves it.
_LINE_NAMES = {("StepFailed", "kind"): "class", ("ActionFailed", "kind"): "class"}


Event: TypeAlias = (
    RunOpened | RunStarted | RunReferenceSet | RunExtended | RunContinued | RunCanceled | RunClosed
    | StepStarted | StepSucceeded | StepFailed | StepParked | StepRetryScheduled | StepResumed | StepSetBack
    | StepCanceled | LeaseExpired
    | WaitOpened | WaitPostponed | WaitCompleted | WaitTimedOut | WaitCanceled
    | DecisionMade
    | ApprovalRequested | ApprovalVoted | ApprovalVoteRefused | ApprovalDecided | ApprovalConsumed
    | ApprovalSuperseded | ApprovalExpired | ApprovalReminded | ApprovalEscalated
    | ActionIntended | ActionSucceeded | ActionFailed | ActionInDoubt | ActionHeld | ActionDoubtResolved
    | ActionRecalled | ActionLate
    | CheckpointCommitted
)  # fmt: skip

EVENTS: Mapping[EventType, type[Event]] = {kind.TYPE: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    line_name: str
    private: bool
    default: object
    read: Callable[[Any], Any]


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "UUID": UUID,
    "RunState": RunState,
    "WaitKind": WaitKind,
    "Resolution": Resolution,
    "LateAnswer": LateAnswer,
}


def _fields(kind: type[Event]) -> tuple[_Field, ...]:
    found = []
    for item in fields(kind):
        declared = str(item.type)
        reader = _READERS.get(declared.removesuffix(" | None"), _as_it_is)
        line_name = _LINE_NAMES.get((kind.__name__, item.name), item.name)
        found.append(_Field(item.name, line_name, declared.startswith("Private["), item.default, reader))
    return tuple(found)


def _as_it_is(value: Any) -> Any:
    return value


_FIELDS: Mapping[EventType, tuple[_Field, ...]] = {kind: _fields(cls) for kind, cls in EVENTS.items()}


def _plain(value: Any) -> Json:
    return str(value) if isinstance(value, UUID | StrEnum) else value


def parts(event: Event) -> tuple[JsonObject, JsonObject]:
    """An event's public facts, which stand in its line, and its private values, which lie beside it."""
    facts: JsonObject = {}
    values: JsonObject = {}
    for item in _FIELDS[event.TYPE]:
        value = getattr(event, item.name)
        if item.default is MISSING or value != item.default:
            (values if item.private else facts)[item.line_name] = _plain(value)
    return facts, values


def from_parts(kind: EventType, facts: Mapping[str, Any], values: Mapping[str, Any]) -> Event:
    """The event that ``parts`` took apart. ``ConsistencyError`` if a field is missing or has another type."""
    cls = EVENTS.get(kind)
    if cls is None:
        raise ConsistencyError(f"{kind} is no event of a run")
    read: dict[str, Any] = {}
    for item in _FIELDS[kind]:
        source = values if item.private else facts
        if item.line_name in source:
            value = source[item.line_name]
            try:
                read[item.name] = None if value is None else item.read(value)
            except (ValueError, TypeError, AttributeError):
                raise ConsistencyError(f"{kind} has {value!r} as its {item.line_name}") from None
        elif item.default is MISSING:
            raise ConsistencyError(f"{kind} lacks its {item.line_name}")
    return cls(**read)
