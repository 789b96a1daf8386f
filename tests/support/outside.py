"""One strict outside system: it records what landed there and under which key, and holds a test to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from connectors.port import SOMEBODY, Before, Call, Done, NotSent, Outcome, Parked, Probe, ProbeVerdict, Refused

# A target of these operations knows a key again: a second call under it changes nothing.
_DEDUPES = frozenset({"probe.key.put"})
_READS = "probe.value.read"
_DURABLE = ("probe.case.open", "probe.case.share", "kyc.papers.request")


class Gate:
    """Holds calls up: before their effect, or after it and before their answer."""

    def __init__(self, *, after_effect: bool = False) -> None:
        self.after_effect = after_effect
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def hold(self) -> None:
        self.reached.set()
        await self.opened.wait()


@dataclass
class Outside:
    """The connector ``probe``: records every effect, answers as the test says, and can be asked what happened.

    ``script`` holds the next answers by name; ``gates`` hold calls up; ``reshape`` changes every answer of a call that
    was done. ``remembers`` is whether it can be asked. ``may_repeat`` are the names whose effect may land once more,
    because a person said so. ``target`` is the system that it says it is; ``closed`` is how its settings refuse
    every call, if they do, ``gone`` that there is no record to read, ``wrote`` are its last writers. ``unread`` are its
    next answers instead of what is read before an effect. ``check_strictly`` ends a test: the same key has not landed
    twice, and nothing was called that nobody expects.
    """

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    effects: list[Call] = field(default_factory=list)
    reads: int = 0
    probes: int = 0
    script: dict[str, list[Outcome | Exception]] = field(default_factory=dict)
    verdict: Probe | None = None
    on_perform: Callable[[Call], None] | None = None
    reshape: Callable[[Done], Done] | None = None
    gates: dict[str, Gate] = field(default_factory=dict)
    canceled: list[tuple[str | None, str | None]] = field(default_factory=list)
    last_call: Call | None = None
    inside: int = 0
    crowd: int = 0
    remembers: bool = True
    target: str = ""
    closed: Refused | None = None
    gone: bool = False
    wrote: tuple[str, ...] = SOMEBODY
    unread: list[NotSent] = field(default_factory=list)
    performed: int = 0
    may_repeat: set[str] = field(default_factory=set)
    _unexpected: list[str] = field(default_factory=list)
    _asked: set[str | None] = field(default_factory=set)

    # -- what a test asks ---------------------------------------------------------------------------------------------

    @property
    def called(self) -> int:
        """The number of calls of any kind."""
        return self.performed + self.reads + self.probes

    def landed(self) -> Counter[str]:
        """The number of effects under each key."""
        return Counter(effect.idempotency_key for effect in self.effects)

    def check_strictly(self) -> None:
        """Fail if an effect landed twice under one key, or if a call came that cannot be meant."""
        counts = self.landed()
        twice = {
            f"{effect.operation} {_name(effect)}: landed {counts[effect.idempotency_key]} times under one key"
            for effect in self.effects
            if counts[effect.idempotency_key] > 1
            and effect.operation not in _DEDUPES
            and _name(effect) not in self.may_repeat
        }
        problems = sorted(twice) + self._unexpected
        assert not problems, "\n".join(problems)

    # -- the port -----------------------------------------------------------------------------------------------------

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        wanted = call.input.get("fields")
        if not isinstance(wanted, dict):
            self._unexpected.append(f"{call.operation} was read before it was done, and has nothing to read")
            return Refused("no_pre_read", "nothing to read")
        self.reads += 1
        if self.unread:
            return self.unread.pop(0)
        if self.gone:
            return Refused("not_found", "there is no such record")
        record = self._record(call)
        values = {name: record["fields"].get(name) for name in wanted}
        return Before(values, str(record["version"]), writers=self.wrote)

    def ready(self, operation: str, inputs: dict[str, Any]) -> Refused | None:
        return self.closed

    async def perform(self, call: Call) -> Outcome:
        self.last_call = call
        self.performed += 1
        self._asked.add(call.correlation_key)
        if not call.idempotency_key and call.operation != _READS:
            self._unexpected.append(f"{call.operation} was called without a key")
        if call.correlation_key is None and call.operation in _DURABLE:
            self._unexpected.append(f"{call.operation} was called without a correlation key")
        if self.on_perform:
            self.on_perform(call)
        self.inside += 1
        self.crowd = max(self.crowd, self.inside)
        gate = self.gates.pop(_name(call), None)
        try:
            if gate is not None and not gate.after_effect:
                await gate.hold()
            outcome = self._answer(call)
            if gate is not None and gate.after_effect:
                await gate.hold()
        finally:
            self.inside -= 1
        return self.reshape(outcome) if self.reshape and isinstance(outcome, Done) else outcome

    def _answer(self, call: Call) -> Outcome:
        name = _name(call)
        answers = self.script.get(name)
        if answers:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, Done):
                return answer
            if call.operation in _DURABLE:
                return answer
        if call.operation == _READS:
            return Done({"value": call.input.get("value", name), **call.input})
        self.effects.append(call)
        if call.operation in _DURABLE:
            return Parked(f"case-{len(self.effects)}")
        if call.operation == "probe.record.update":
            record = self._record(call)
            record["version"] += 1
            record["fields"].update(call.input["fields"])
        return Done({"name": name, "applied": len(self.effects)}, external_id=f"e{len(self.effects)}")

    def _record(self, call: Call) -> dict[str, Any]:
        return self.records.setdefault(_name(call), {"version": 0, "fields": {}})

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        self.probes += 1
        if self.verdict is not None:
            return self.verdict
        if not self.remembers:
            return Probe(ProbeVerdict.CANNOT_TELL, "nobody knows")
        if self.landed()[call.idempotency_key]:
            return Probe(ProbeVerdict.APPLIED, "The effect is there.", Done({"applied": "found"}))
        return Probe(ProbeVerdict.NOT_APPLIED, "The effect is not there.")

    async def cancel(self, call: Call, external_id: str | None) -> Done:
        if call.correlation_key not in self._asked:
            self._unexpected.append(f"{call.operation} was canceled, and nobody had begun it")
        self.canceled.append((call.correlation_key, external_id))
        return Done({})

    async def check(self) -> tuple[bool, str]:
        return True, "in process"

    async def aclose(self) -> None:
        return None


def _name(call: Call) -> str:
    return str(call.input.get("name", call.operation))
