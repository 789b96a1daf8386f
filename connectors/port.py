"""The port to every outside system.

A connector decides nothing: policy has decided, and the runtime has recorded the intent, before ``perform`` is called.
It must report exactly how a call ended, because a call whose effect is unknown is never repeated blindly (promise 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import idna
from msgspec import Struct, field

from connectors.operation import Operation
from core.action import Labels
from core.canonical import JsonObject
from core.errors import ConfigurationError, ConsistencyError
from core.identity import UNKNOWN

PROBE_AGAIN_SECONDS = 15.0
# The writers of an output if the outside system does not tell who wrote the values in it.
SOMEBODY = (UNKNOWN,)
# The member with the marks of those who shaped the records that were read. It is removed from the step's output.
SHAPED = "$shaped"
_MARGIN_SECONDS = 1.0
# The error code if the connector is not configured.
NOT_CONFIGURED = "not_configured"

# The setting that provides each connector.
SETTINGS: Mapping[str, str] = {
    "servicenow": "COUNTERSEAL_SERVICENOW_URL",
    "slack": "COUNTERSEAL_SLACK_BOT_TOKEN",
    "http": "COUNTERSEAL_HTTP_HOSTS",
    "model": "COUNTERSEAL_MODEL_URL",
    "bpmn": "COUNTERSEAL_BPMN_URL",
    "sql": "COUNTERSEAL_SQL_URL",
    "mcp": "COUNTERSEAL_MCP_SERVERS",
}


class Before(Struct, frozen=True):
    """The target as it was read before the write: the values that the diff needs, and the target's version.

    ``facts`` are other facts that a later probe needs, to tell *applied* from *not applied* (such as the last editor).
    ``labels`` are the target's names for fields and values, only for people to read: they are not kept, and no approval
    binds them. ``writers`` are the people who last wrote the record, as principals: if a field of it names an approver,
    its writers do not decide.
    """

    values: JsonObject
    version: str | None
    facts: JsonObject = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    writers: tuple[str, ...] = SOMEBODY

    def kept(self) -> JsonObject:
        """The stored form, which ``of_kept`` reads back."""
        stored: JsonObject = {"values": self.values, "version": self.version, "facts": self.facts}
        return stored if self.writers == SOMEBODY else {**stored, "writers": [*self.writers]}

    @classmethod
    def of_kept(cls, read: Mapping[str, Any]) -> Before:
        """Read what ``kept`` wrote, maybe in an earlier release."""
        writers = tuple(map(str, read.get("writers", SOMEBODY)))
        return cls(read["values"], read["version"], read["facts"], writers=writers)


class Call(Struct, frozen=True):
    """One call of one operation.

    ``idempotency_key`` is the same for every attempt at the same action. ``timeout_seconds`` bounds the whole call.
    ``before`` is the result of ``read_before`` for the approved action, None for operations without a pre-read.
    ``correlation_key`` is set for a durable operation: its completion is signaled to that key, which is the same for
    each attempt, so two starts with it are one process. ``tenant`` is the tenant whose records are read. ``declared``
    is the operation as it was frozen with the run: a connector acts by it, never by a file of its own process.
    """

    operation: str
    input: JsonObject
    idempotency_key: str
    timeout_seconds: float
    before: Before | None = None
    correlation_key: str | None = None
    tenant: str = ""
    declared: Operation | None = None

    @property
    def declaration(self) -> Operation:
        """The declaration by which to act. ``ConsistencyError`` if the call has none: then nothing is sent."""
        if self.declared is None:
            raise ConsistencyError(f"The call of {self.operation} came without the run's declaration.")
        return self.declared


# The secrets that a call used, each as ``name@version``. An outcome holds these names, and never a value.
Lent: TypeAlias = tuple[str, ...]


class Usage(Struct, frozen=True):
    """The usage of a model call, also a failed one. ``cost_usd`` is a decimal string, None if no price is known."""

    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: str | None


class Done(Struct, frozen=True):
    """The effect happened (or the operation has none), with its result.

    ``external_id`` is the target system's own id of the effect, if it has one. ``after`` holds the changed fields as
    the target reports them afterwards, if it does. ``altered`` holds each field that reads back with another value than
    was asked for, as ``asked`` and ``found``: the effect happened, and the step fails. ``writers`` are the people who
    last wrote the values in the output, as principals: ``SOMEBODY`` if the system does not tell, () if nobody outside
    can have written any of them.
    """

    output: JsonObject
    external_id: str | None = None
    after: JsonObject | None = None
    usage: Usage | None = None
    altered: JsonObject = field(default_factory=dict)
    writers: tuple[str, ...] = ()
    secrets: Lent = ()


class Refused(Struct, frozen=True):
    """The target refused: no effect, and a retry will not help (invalid, forbidden, gone). ``usage``: a model's.

    ``sent``: the target was called, and reports a failure; it may have had an effect all the same, so nobody is told
    that there was none. ``void``: the call differs from the approved one. Either uses the approval up.
    """

    code: str
    message: str
    usage: Usage | None = None
    secrets: Lent = ()
    sent: bool = False
    void: bool = False


class NotSent(Struct, frozen=True):
    """The call certainly had no effect; a later retry may help (connection refused, 429). ``usage``: a model's."""

    message: str
    retry_after_seconds: float | None = None
    usage: Usage | None = None
    secrets: Lent = ()


class InDoubt(Struct, frozen=True):
    """The request may have taken effect: a timeout, a lost connection or a 5xx after it left (maybe with a time)."""

    message: str
    secrets: Lent = ()
    retry_after_seconds: float | None = None


class Parked(Struct, frozen=True):
    """A durable operation has begun outside, and a signal to its correlation key will complete it.

    ``external_id`` is the outside system's own id of the process, if it gave one.
    """

    external_id: str | None = None
    output: JsonObject = field(default_factory=dict)
    secrets: Lent = ()


Failure: TypeAlias = Refused | NotSent | InDoubt
Outcome: TypeAlias = Done | Parked | Refused | NotSent | InDoubt


class ProbeVerdict(StrEnum):
    """The result of probing the target for an earlier call."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    CANNOT_TELL = "cannot_tell"


class Probe(Struct, frozen=True):
    """The verdict, the evidence for it in words that a person can check, and the result if the call was applied.

    ``retry_after_seconds`` is set if the verdict is *cannot tell* only because it is too early, or because the target
    could not be asked: probe again after that time, before people are asked. ``busy_seconds`` is the time for which the
    target wants no calls at all.
    """

    verdict: ProbeVerdict
    evidence: str
    done: Done | None = None
    retry_after_seconds: float | None = None
    busy_seconds: float | None = None

    @classmethod
    def unreadable(cls, what: str, failure: Failure) -> Probe:
        """The probe of a target that could not be asked; without a retry if it refused."""
        words = f"{what}: {failure.message}"
        if isinstance(failure, Refused):
            return cls(ProbeVerdict.CANNOT_TELL, words)
        busy = failure.retry_after_seconds
        return cls(ProbeVerdict.CANNOT_TELL, words, None, busy or PROBE_AGAIN_SECONDS, busy)

    @classmethod
    def absent(cls, early: str, late: str, *, seconds_left: float) -> Probe:
        """The probe that found no trace of the call: *cannot tell* for ``seconds_left``, as it may still arrive."""
        if seconds_left > 0:
            return cls(ProbeVerdict.CANNOT_TELL, early, retry_after_seconds=seconds_left + _MARGIN_SECONDS)
        return cls(ProbeVerdict.NOT_APPLIED, late)


class Connector(Protocol):
    """One outside system. Constructed only by ``app``; safe for concurrent use."""

    @property
    def target(self) -> str:
        """The outside system by address and account. People read it, and approvals bind it (promise 3).

        It holds no secrets. It is "" if the action itself names the system, or if none is called.
        """

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Read the target for the diff. Has no side effect. Called only for operations that declare ``diff``."""

    async def perform(self, call: Call) -> Outcome:
        """Perform the call within the deadline. Never raises because of the target or the network."""

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Ask the target if an earlier ``perform`` of this call took effect. Has no side effect."""

    async def check(self) -> tuple[bool, str]:
        """Check if the system is reachable and accepts our credentials; the sentence explains the result or remedy."""

    async def aclose(self) -> None:
        """Release connections."""


class NothingBefore:
    """A mixin for connectors without pre-read: none of their operations declares ``diff``."""

    @property
    def target(self) -> str:
        """An empty name: there is no fixed system, but an action may name one."""
        return ""

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Refuse: there is nothing to read first."""
        return Refused("no_pre_read", f"{call.operation} replaces nothing, so there is nothing to read first")


@runtime_checkable
class DurableConnector(Connector, Protocol):
    """A connector whose operations of kind ``durable`` continue outside after their call."""

    async def cancel(self, call: Call, external_id: str | None) -> Done | Refused | NotSent | InDoubt:
        """End the process that ``perform`` of this call began. ``Done`` if it has ended already or never began."""


@runtime_checkable
class Checkable(Protocol):
    """A connector that can tell from its settings alone that it would refuse a call."""

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """The refusal of this call, with the remedy; None if none is foreseen. Calls nothing."""


class Completion(Struct, frozen=True):
    """The end of a durable operation's process: exactly one of ``output`` and ``error`` is set.

    ``id`` is the same if the completion is delivered again. ``error`` has ``code`` and ``message``. ``writers`` are the
    people who worked in the process, as for ``Done``.
    """

    id: str
    correlation_key: str
    output: JsonObject | None = None
    error: JsonObject | None = None
    writers: tuple[str, ...] = SOMEBODY


@runtime_checkable
class CompletionSource(Protocol):
    """A connector that must be polled for completions, because the outside system cannot call us."""

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        """Fetch completions; waits at most ``wait_seconds`` for the first. ``TransportError`` if that fails.

        The outside system locks each for us for a while, and returns it again if it is not acknowledged by then.
        """

    async def acknowledge(self, completion: Completion) -> None:
        """Tell the outside system that the completion is recorded here. ``TransportError`` on failure."""


@runtime_checkable
class Declared(Protocol):
    """A connector that can check declarations against the outside system, such as names of tables."""

    async def faults(self, declared: Iterable[Operation]) -> Sequence[str] | str:
        """Faults of these declarations; a text with the reason if the outside cannot be asked."""


# The input that holds the address of a call's system, for connectors whose calls name it so.
_ADDRESSES = {"http": "url", "mcp": "mcp_url"}
PLACE_CHARACTERS_MAX = 300


class Pace(NamedTuple):
    """The rate of a target: the most ``calls`` in any minute by all of the tenant's workers together."""

    target: str
    calls: int


class Connectors(dict[str, Connector]):
    """The connectors of one tenant by name. ``app`` builds it from the tenant's settings; it never changes.

    An unknown name raises ``ConfigurationError``, which names the setting that would provide the connector. ``owner``
    is the tenant if it has settings of its own; "" for the settings of the installation. ``rates`` are the most calls
    in a minute for a target, by the name of its connector, or by a host.
    """

    def __init__(
        self,
        found: Mapping[str, Connector] = MappingProxyType({}),
        *,
        owner: str = "",
        rates: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(found)
        self.owner = owner
        self.rates = rates

    @cached_property
    def targets(self) -> Mapping[str, str]:
        """The outside system of each connector, by the connector's name."""
        return {name: connector.target for name, connector in self.items()}

    def __missing__(self, name: str) -> Connector:
        raise self.missing(name)

    def missing(self, name: str) -> ConfigurationError:
        """The error for a connector that is not configured, with the setting that would provide it."""
        setting = SETTINGS.get(name)
        if self.owner and setting:
            remedy = f"Set `{name}` in the tenant's settings: `counterseal tenant apply FILE`."
            return ConfigurationError(f"the connector {name!r} is not set for the tenant {self.owner}.", remedy=remedy)
        remedy = f"Set {setting}." if setting else f"Known connectors: {', '.join(sorted(SETTINGS))}."
        return ConfigurationError(f"the connector {name!r} is not configured.", remedy=remedy)

    def ready(self, name: str, operation: str, inputs: JsonObject) -> Refused | None:
        """The refusal of a call that the settings rule out, so that people are not asked about one that must fail."""
        connector = self.get(name)
        if connector is None:
            return Refused(NOT_CONFIGURED, str(self.missing(name)))
        return connector.ready(operation, inputs) if isinstance(connector, Checkable) else None

    def pace(self, name: str, inputs: JsonObject) -> Pace | None:
        """The rate of the target of a call: that of its host with its port, of its host, or of its connector."""
        if not self.rates:
            return None
        named = _places(inputs.get("url")) if name == "http" else ()
        return next((Pace(one, self.rates[one]) for one in (*named, name) if one in self.rates), None)

    def place(self, name: str, inputs: JsonObject) -> str:
        """The connector and the system that a call goes to: one text, however the call names that system."""
        named = _places(inputs.get(_ADDRESSES[name])) if name in _ADDRESSES else ()
        where = named[0] if named else self.targets.get(name, "")
        return f"{name} {where}".strip()[:PLACE_CHARACTERS_MAX]

    async def check(self) -> Mapping[str, tuple[bool, str]]:
        """Check every connector, concurrently, for ``counterseal doctor``."""
        answers = await asyncio.gather(*(connector.check() for connector in self.values()))
        return dict(zip(self, answers, strict=True))

    async def aclose(self) -> None:
        """Close every connector, even if one fails to close; raises the failures together afterwards."""
        results = await asyncio.gather(*(connector.aclose() for connector in self.values()), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise BaseExceptionGroup("connectors failed to close", failures)


def _places(text: object) -> tuple[str, ...]:
    """The host of a URL with its port, and alone, in canonical form: so all spellings of a host share one rate."""
    try:
        url = urlsplit(str(text))
        host, port = (url.hostname or "").lower(), url.port or (80 if url.scheme == "http" else 443)
        host = (host if host.isascii() else idna.encode(host).decode("ascii")).removesuffix(".")
    except ValueError:  # it is never called
        return ()
    return f"{host}:{port}", host
