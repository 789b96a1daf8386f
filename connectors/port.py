"""The port through which every outside system is reached.

A connector never decides: policy has, and the runtime has recorded the intent, before ``perform`` is called. It must
say honestly how a call ended, because a call whose effect is unknown is never repeated blindly (promise 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from core.canonical import JsonObject
from core.errors import ConfigurationError

PROBE_AGAIN_SECONDS = 15.0
_MARGIN_SECONDS = 1.0
# The code of a refusal for want of the connector.
NOT_CONFIGURED = "not_configured"

# By connector, the setting that provides it.
SETTINGS: Mapping[str, str] = {
    "servicenow": "COUNTERSEAL_SERVICENOW_URL",
    "slack": "COUNTERSEAL_SLACK_BOT_TOKEN",
    "http": "COUNTERSEAL_HTTP_HOSTS",
    "model": "COUNTERSEAL_MODEL_URL",
    "bpmn": "COUNTERSEAL_BPMN_URL",
    "sql": "COUNTERSEAL_SQL_URL",
}


class Before(Struct, frozen=True):
    """The target as read before the write: the values the diff needs, and the target's version at that moment.

    ``facts`` is what a later probe needs to tell *applied* from *not applied* (such as who changed it last).
    """

    values: JsonObject
    version: str | None
    facts: JsonObject = field(default_factory=dict)


class Call(Struct, frozen=True):
    """One call of one operation.

    ``idempotency_key`` is the same for every attempt at the same action. ``timeout_seconds`` bounds the whole call.
    ``before`` is what ``read_before`` returned for the approved action, None for operations without a pre-read.
    ``correlation_key`` is given to a durable operation: whoever completes it signals that key. It is the same for every
    attempt, so a process that is started with it twice is one process (V-9). ``tenant`` is whose records are read.
    """

    operation: str
    input: JsonObject
    idempotency_key: str
    timeout_seconds: float
    before: Before | None = None
    correlation_key: str | None = None
    tenant: str = ""


class Usage(Struct, frozen=True):
    """The usage of a model call, also of a failed one. ``cost_usd`` is a decimal string, None if no price is known."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: str | None


class Done(Struct, frozen=True):
    """The effect happened (or there is none), and this is what came back.

    ``external_id`` is the target system's own id of the effect, if it has one. ``after`` holds the changed fields as
    the target reports them afterwards, if it does.
    """

    output: JsonObject
    external_id: str | None = None
    after: JsonObject | None = None
    usage: Usage | None = None


class Refused(Struct, frozen=True):
    """The target refused: no effect, and trying again will not help (invalid, no right, gone). ``usage``: a model's."""

    code: str
    message: str
    usage: Usage | None = None


class NotSent(Struct, frozen=True):
    """A call without effect, certainly; trying again later may help (connection refused, 429). ``usage``: a model's."""

    message: str
    retry_after_seconds: float | None = None
    usage: Usage | None = None


class InDoubt(Struct, frozen=True):
    """The request may have taken effect: a timeout, a lost connection or a 5xx after it left."""

    message: str


class Parked(Struct, frozen=True):
    """A durable operation has begun outside, and a signal to its correlation key will complete it (V-3).

    ``external_id`` is the outside system's own id of what runs there, if it said one.
    """

    external_id: str | None = None
    output: JsonObject = field(default_factory=dict)


Failure: TypeAlias = Refused | NotSent | InDoubt
Outcome: TypeAlias = Done | Parked | Refused | NotSent | InDoubt


class ProbeVerdict(StrEnum):
    """The result of asking the target about an earlier call."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    CANNOT_TELL = "cannot_tell"


class Probe(Struct, frozen=True):
    """The verdict, the evidence for it in words that a person can check, and the result if the call was applied.

    ``retry_after_seconds`` is set if the verdict is *cannot tell* only because it is too early, or because the
    target could not be asked just now: ask again after so long, before people are asked.
    """

    verdict: ProbeVerdict
    evidence: str
    done: Done | None = None
    retry_after_seconds: float | None = None

    @classmethod
    def unreadable(cls, what: str, failure: Failure) -> Probe:
        """The probe of a target that could not be asked; if it refused, asking again will not help."""
        again = None if isinstance(failure, Refused) else PROBE_AGAIN_SECONDS
        if isinstance(failure, NotSent):
            again = failure.retry_after_seconds or again
        return cls(ProbeVerdict.CANNOT_TELL, f"{what}: {failure.message}", retry_after_seconds=again)

    @classmethod
    def absent(cls, early: str, late: str, *, seconds_left: float) -> Probe:
        """The probe without a trace of the call: for ``seconds_left`` it cannot tell, as the call may be on its way."""
        if seconds_left > 0:
            return cls(ProbeVerdict.CANNOT_TELL, early, retry_after_seconds=seconds_left + _MARGIN_SECONDS)
        return cls(ProbeVerdict.NOT_APPLIED, late)


class Connector(Protocol):
    """One outside system. Constructed only by ``app``; safe for concurrent use."""

    @property
    def target(self) -> str:
        """The system that is called, by address and account, for people to read and for approvals to bind (promise 3).

        Public, and without secrets. It is "" where an action itself names the system, or none is called.
        """

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Read the target for the diff. Has no side effect. Called only for operations that declare ``diff``."""

    async def perform(self, call: Call) -> Outcome:
        """Do it, within the deadline. Never raises for anything the target or the network does."""

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Ask the target whether an earlier ``perform`` of this call took effect. Has no side effect."""

    async def check(self) -> tuple[bool, str]:
        """Check if the system is reachable and accepts our credentials; the sentence says so, or what to do."""

    async def aclose(self) -> None:
        """Release connections."""


class NothingBefore:
    """The half of a connector whose operations replace nothing: none of them declares ``diff``."""

    @property
    def target(self) -> str:
        """No system besides what an action names itself."""
        return ""

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Refuse: there is nothing that could be read first."""
        return Refused("no_pre_read", f"{call.operation} replaces nothing, so there is nothing to read first")


@runtime_checkable
class DurableConnector(Connector, Protocol):
    """An outside system whose operations of kind ``durable`` go on after their call."""

    async def cancel(self, call: Call, external_id: str | None) -> Done | Refused | NotSent | InDoubt:
        """End what ``perform`` of this call has begun. What has ended already, or never began, is ``Done``."""


@runtime_checkable
class Checkable(Protocol):
    """A connector that can say from its settings alone that a call would be refused."""

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """Say what stands in the way of this call, with the remedy; None if nothing is known. Calls nothing."""


class Completion(Struct, frozen=True):
    """A report on something that a durable operation began: exactly one of ``output`` and ``error`` is set.

    ``id`` names this completion: a repeated one has the same. ``error`` has ``code`` and ``message``.
    """

    id: str
    correlation_key: str
    output: JsonObject | None = None
    error: JsonObject | None = None


@runtime_checkable
class CompletionSource(Protocol):
    """A connector that has to be asked for completions, if the outside cannot call us back."""

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        """Fetch completions, after waiting at most so long for one. ``TransportError`` if the outside cannot be asked.

        Each is held for us for a while; one that is not acknowledged by then is returned again.
        """

    async def acknowledge(self, completion: Completion) -> None:
        """Report that it is recorded here and need not be returned again. ``TransportError`` on failure."""


@runtime_checkable
class Declared(Protocol):
    """A connector whose declarations name what the outside has to have."""

    async def faults(self, names: Container[str] | None = None) -> Sequence[str] | str:
        """Faults of the declarations, or of the named ones; a text that says why, if the outside cannot be asked."""


class Connectors(dict[str, Connector]):
    """Each connector under its name. ``app`` builds it once from the settings, and nothing changes it afterwards.

    ``ConfigurationError`` for another name: it says which setting would provide that connector.
    """

    @cached_property
    def targets(self) -> Mapping[str, str]:
        """The system behind each connector, by the connector's name."""
        return {name: connector.target for name, connector in self.items()}

    def __missing__(self, name: str) -> Connector:
        raise self.missing(name)

    def missing(self, name: str) -> ConfigurationError:
        """The error that says that there is no such connector, and what would provide it."""
        setting = SETTINGS.get(name)
        remedy = f"Set {setting}." if setting else f"Known connectors: {', '.join(sorted(SETTINGS))}."
        return ConfigurationError(f"the connector {name!r} is not configured.", remedy=remedy)

    def ready(self, name: str, operation: str, inputs: JsonObject) -> Refused | None:
        """Say what stands in the way of a call by the settings: people are asked about none that would be refused."""
        connector = self.get(name)
        if connector is None:
            return Refused(NOT_CONFIGURED, str(self.missing(name)))
        return connector.ready(operation, inputs) if isinstance(connector, Checkable) else None

    async def check(self) -> Mapping[str, tuple[bool, str]]:
        """Ask every connector how it is, all at once: ``counterseal doctor``."""
        answers = await asyncio.gather(*(connector.check() for connector in self.values()))
        return dict(zip(self, answers, strict=True))

    async def aclose(self) -> None:
        """Close every connector, also when one of them fails to; the failures are raised together afterwards."""
        results = await asyncio.gather(*(connector.aclose() for connector in self.values()), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise BaseExceptionGroup("connectors failed to close", failures)
