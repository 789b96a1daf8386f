"""Lends secrets to calls: a value is read at the moment of its call, for a target that its declaration names.

The answer is searched for the values of this call before it is kept. Only a secret's name and version are kept, with
the outcome. If a secret cannot be read, the call was certainly not sent.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from connectors.headers import spelled
from connectors.masking import HEADERS, Secrets
from connectors.operation import HTTP, Operation
from connectors.port import (
    Before,
    Call,
    Checkable,
    Completion,
    CompletionSource,
    Connector,
    Declared,
    Done,
    DurableConnector,
    Failure,
    InDoubt,
    NotSent,
    Outcome,
    Parked,
    Probe,
    Refused,
)
from core.canonical import JsonObject
from core.errors import TransportError
from core.secret_values import Secret, SecretError, Target, Use, Value, Vault, filled, named_in

log = structlog.get_logger(__name__)

NOT_LENT = "secret_not_lent"
# A shorter value could not be distinguished from other words in an answer.
CHARACTERS_MIN = 6
_SECONDS = 10.0

Result = TypeVar("Result")
# A text with references to secrets, and the target that gets the values.
Placed = tuple[str, Target | Use]


class Lender(Struct, frozen=True):
    """Reads the secrets of one tenant, by its declarations. ``declared`` raises ``SecretError`` for an unknown name."""

    declared: Callable[[str], Secret]
    vault: Vault

    async def lend(self, placed: Sequence[Placed]) -> dict[str, Value]:
        """The values of all secrets that these texts refer to. ``SecretError`` if one is not for its target."""
        wanted: dict[str, Secret] = {}
        for text, target in placed:
            for name in named_in(text):
                wanted[name] = self.declared(name)
                wanted[name].check(target)
        try:
            async with asyncio.timeout(_SECONDS):
                found = await asyncio.gather(*(self.vault.read(secret) for secret in wanted.values()))
        except TimeoutError:
            raise SecretError(f"No answer about {', '.join(wanted)} within {_SECONDS:g} s.", again=True) from None
        for name, value in zip(wanted, found, strict=True):
            if len(value.text) < CHARACTERS_MIN:
                raise SecretError(f"The secret {name} has fewer than {CHARACTERS_MIN} characters.")
        return dict(zip(wanted, found, strict=True))


def masks(values: Mapping[str, Value]) -> Secrets:
    """A search for these values in an answer."""
    return Secrets(tuple(sorted({value.text for value in values.values()})))


def versions(values: Mapping[str, Value]) -> tuple[str, ...]:
    """The name and version of each value, as the outcome keeps them."""
    return tuple(f"{name}@{value.version}" for name, value in sorted(values.items()))


class Hosts(Struct, frozen=True):
    """The headers, with references to secrets, that Counterseal adds to calls, by host and port."""

    headers: Mapping[tuple[str, int | None], Mapping[str, str]] = {}

    def of(self, url: str) -> tuple[Target, Mapping[str, str]]:
        """The target of a URL, and the headers for its host. A text that is no URL gets no headers."""
        import httpx

        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            return Target(""), {}
        target = Target(address.raw_host.decode("ascii").lower().strip("[]"), address.port)
        return target, self.headers.get((target.host, target.port), {})


class Lending:
    """A connector that reads its credentials, and the secrets of a call, at the moment of each call.

    ``bare`` is the connector without credentials, for questions that need none. ``make`` builds the connector with the
    values of ``own``, the connector's own references. A built connector is kept as long as these values stay the same.
    """

    def __init__(
        self,
        bare: Connector,
        make: Callable[[Mapping[str, str]], Connector],
        lender: Lender,
        own: Sequence[Placed] = (),
        hosts: Hosts | None = None,
    ) -> None:
        self._bare, self._make, self._lender = bare, make, lender
        self._own, self._hosts = tuple(own), hosts or Hosts()
        self._made: dict[tuple[tuple[str, str], ...], Connector] = {}

    @property
    def target(self) -> str:
        """The outside system by address and account."""
        return self._bare.target

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Read the target for the diff; secret values of this call are masked in the result."""

        async def read(connector: Connector, call: Call, found: Secrets) -> Before | Refused | NotSent | InDoubt:
            before = await connector.read_before(call)
            if not isinstance(before, Before):
                return found.failure(before)
            return replace(before, values=found.object(before.values), facts=found.object(before.facts))

        read_ = await self._called(call, read)
        return NotSent(read_.message, read_.retry_after_seconds) if isinstance(read_, InDoubt) else read_

    async def perform(self, call: Call) -> Outcome:
        """Perform the call with its secrets. The outcome names their versions."""

        async def perform(connector: Connector, call: Call, found: Secrets) -> Outcome:
            return found.outcome(await connector.perform(call))

        return await self._called(call, perform)

    async def cancel(self, call: Call, external_id: str | None) -> Done | Failure:
        """End the process that ``perform`` of this call began."""

        async def cancel(connector: Connector, call: Call, found: Secrets) -> Done | Failure:
            if not isinstance(connector, DurableConnector):
                return Refused("not_durable", "This connector begins nothing that could be ended.")
            ended = await connector.cancel(call, external_id)
            return found.done(ended) if isinstance(ended, Done) else found.failure(ended)

        return await self._called(call, cancel)

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Ask the target if an earlier call took effect."""

        async def probe(connector: Connector, call: Call, found: Secrets) -> Probe:
            return found.probe(await connector.probe(call, seconds_since_intent=seconds_since_intent))

        probed = await self._called(call, probe)
        if isinstance(probed, Probe):
            return probed
        return Probe.unreadable("it could not be asked", NotSent(probed.message))

    def ready(self, operation: str, inputs: JsonObject) -> Refused | None:
        """The refusal that follows from the settings: of the host, or of a secret that is not declared for it."""
        refused = self._bare.ready(operation, inputs) if isinstance(self._bare, Checkable) else None
        if refused is not None:
            return refused
        try:
            for text, target in self._placed(inputs):
                for name in named_in(text):
                    self._lender.declared(name).check(target)
        except SecretError as error:
            return Refused(NOT_LENT, str(error))
        return None

    async def check(self) -> tuple[bool, str]:
        """Check the system with the credentials as they are now."""
        try:
            values = await self._lender.lend(self._own)
            well, words = await self._at(values).check()
        except SecretError as error:
            return False, str(error)
        return well, masks(values).text(words)

    async def faults(self, declared: Iterable[Operation]) -> Sequence[str] | str:
        """Faults of declarations in the outside system, if the connector compares them."""
        try:
            values = await self._lender.lend(self._own)
        except SecretError as error:
            return str(error)
        connector = self._at(values)
        return await connector.faults(declared) if isinstance(connector, Declared) else ()

    async def lent(self) -> Connector:
        """The connector with its present credentials. ``SecretError`` if they cannot be read."""
        return self._at(await self._lender.lend(self._own))

    async def aclose(self) -> None:
        """Release the connections of every built connector."""
        for connector in (self._bare, *self._made.values()):
            await connector.aclose()

    def _placed(self, inputs: JsonObject) -> list[Placed]:
        """Every text with references that this call needs."""
        headers = inputs.get(HEADERS)
        if "url" not in inputs or not isinstance(headers, dict | None):
            return [*self._own]
        target, given = self._hosts.of(str(inputs["url"]))
        clash = sorted({*map(spelled, given)} & {*map(str, headers or ())})
        if clash:
            raise SecretError(f"The header {clash[0]} for {target} is set by the tenant's settings, and by the call.")
        texts = [*(headers or {}).values(), *given.values()]
        return [*self._own, *((text, target) for text in texts if isinstance(text, str))]

    def _filled(self, call: Call, values: Mapping[str, str]) -> Call:
        """The call as it leaves."""
        headers = call.input.get(HEADERS)
        if call.declared is None or call.declared.handler != HTTP:
            return call
        _, given = self._hosts.of(str(call.input.get("url")))
        if not given and not isinstance(headers, dict):
            return call
        every = {**(headers if isinstance(headers, dict) else {}), **{spelled(name): given[name] for name in given}}
        return replace(call, input={**call.input, HEADERS: filled(every, values)})

    def _at(self, values: Mapping[str, Value]) -> Connector:
        """The connector with these credentials; the one for the former values is closed at the end."""
        own = {name for text, _ in self._own for name in named_in(text)}
        key = tuple((name, values[name].text) for name in sorted(own))
        if key not in self._made:
            self._made[key] = self._make(dict(key))
        return self._made[key]

    async def _called(
        self, call: Call, use: Callable[[Connector, Call, Secrets], Awaitable[Result]]
    ) -> Result | Refused | NotSent | InDoubt:
        try:
            is_http = call.declared is not None and call.declared.handler == HTTP
            values = await self._lender.lend(self._placed(call.input) if is_http else self._own)
        except SecretError as error:
            return NotSent(str(error)) if error.again else Refused(NOT_LENT, str(error))
        found = masks(values)
        try:
            sent = self._filled(call, {name: value.text for name, value in values.items()})
            result = await use(self._at(values), sent, found)
        except Exception as error:
            where = found.text("".join(traceback.format_tb(error.__traceback__)))
            log.error("connector raised", kind=type(error).__name__, where=where)
            failed = f"The connector failed: {type(error).__name__}: {error}"
            return InDoubt(found.text(failed), secrets=versions(values))
        if values and isinstance(result, Done | Parked | Refused | NotSent | InDoubt):
            result = replace(result, secrets=versions(values))
        return result


class LendingSource(Lending):
    """A lending connector that must be polled for completions."""

    async def completions(self, *, wait_seconds: float) -> Sequence[Completion]:
        """Fetch completions, with the values of the credentials masked in them."""
        source, found = await self._source()
        fetched = await source.completions(wait_seconds=wait_seconds)
        return [
            replace(
                one,
                output=None if one.output is None else found.object(one.output),
                error=None if one.error is None else found.object(one.error),
            )
            for one in fetched
        ]

    async def acknowledge(self, completion: Completion) -> None:
        """Tell the outside system that the completion is recorded here."""
        source, _ = await self._source()
        await source.acknowledge(completion)

    async def _source(self) -> tuple[CompletionSource, Secrets]:
        try:
            values = await self._lender.lend(self._own)
        except SecretError as error:
            raise TransportError(error.message, remedy=error.remedy) from None
        source = self._at(values)
        assert isinstance(source, CompletionSource), "made of the same settings as the bare one"
        return source, masks(values)


def lending(
    bare: Connector,
    make: Callable[[Mapping[str, str]], Connector],
    lender: Lender,
    own: Sequence[Placed] = (),
    hosts: Hosts | None = None,
) -> Lending:
    """Wrap a bare connector in a lending one with the same abilities."""
    kind = LendingSource if isinstance(bare, CompletionSource) else Lending
    return kind(bare, make, lender, own, hosts)
