"""Answers of connectors: each is kept as far as it can be recorded, and the rest of it is not (promises 2 and 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import Before, Call, Connectors, Done, InDoubt, NotSent, Probe, ProbeVerdict, Refused, Usage
from core.canonical import INTEGER_MAX, clean
from core.unkept import first_marker
from runtime.engine.errors import UNUSABLE
from runtime.work import calling

DAY = 24 * 3600.0
NAN, INFINITE = float("nan"), float("inf")
WORDS = "a\x00b\ud800"


class Says:
    """A connector with one answer, which it gives after so many turns of the loop."""

    target = ""

    def __init__(self, answer: Any, turns: int = 0) -> None:
        self._answer, self._turns = answer, turns

    async def read_before(self, call: Call) -> Any:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        return self._answer

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Any:
        return self._answer


async def said(answer: Any, verb: Any, *, turns: int = 0, seconds: float = 5.0) -> Any:
    """Return what is made of an answer to this verb."""
    connectors: Any = Connectors({"probe": Says(answer, turns)})
    work: Any = SimpleNamespace(
        operation=SimpleNamespace(connector="probe"), call=Call("o", {}, "k", seconds), seconds_since_intent=1.0
    )
    return await verb(connectors, work)


async def probed(**more: Any) -> Probe:
    probe: Probe = await said(Probe(ProbeVerdict.APPLIED, "It is there.", **more), calling.inquire)
    return probe


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        (None, None),
        (0, 0),
        (0.0, 0.0),
        (NAN, None),
        (INFINITE, None),
        (-INFINITE, None),
        (-1, 0),
        (7.5, 7.5),
        (DAY, DAY),
        (1e300, DAY),
    ],
)
async def test_a_delay_from_outside_is_one_that_a_wait_can_have(named: float | None, kept: float | None) -> None:
    found = (await probed(retry_after_seconds=named)).retry_after_seconds
    assert (found, found is None) == (kept, kept is None)
    answer = await said(NotSent("busy", named), calling.read_before)
    assert answer == NotSent("busy", kept)


async def test_words_from_outside_are_such_as_can_be_recorded() -> None:
    asked = await said(Probe(ProbeVerdict.CANNOT_TELL, WORDS), calling.inquire)
    assert asked.evidence == clean(WORDS)
    refused = await said(Refused("c" * 201, WORDS), calling.read_before)
    assert (len(refused.code), refused.message) == (200, clean(WORDS))
    assert await said(Refused("c" * 200, "no"), calling.read_before) == Refused("c" * 200, "no")
    assert (await said(NotSent(WORDS), calling.read_before)).message == clean(WORDS)
    assert await said(InDoubt(WORDS), calling.read_before) == InDoubt(clean(WORDS))


@pytest.mark.parametrize("output", [{"n": NAN}, {"text": "a\x00"}, [1], "done", None])
async def test_of_a_result_that_cannot_be_stored_the_rest_is_kept_and_said(output: Any) -> None:
    usage = Usage("p", "m", 1, 2, None)
    probe = await probed(done=Done(output, "e1", usage=usage))
    assert probe.done is not None
    assert (probe.done.external_id, probe.done.usage, probe.evidence) == ("e1", usage, "It is there.")
    assert first_marker(probe.done.output) is not None


async def test_an_id_from_outside_is_kept_up_to_its_length() -> None:
    for length, kept in ((1000, 1000), (1001, 1000)):
        done = (await probed(done=Done({}, "e" * length))).done
        assert done is not None
        assert len(done.external_id or "") == kept
    for named in ("", None):
        done = (await probed(done=Done({}, named))).done
        assert (done and done.external_id) == named


FIT = Usage("openai", "gpt", 0, INTEGER_MAX, "0.1")


@pytest.mark.parametrize(
    "changes",
    [
        *({name: number} for name in ("input_tokens", "output_tokens") for number in (-1, INTEGER_MAX + 1, True, 1.0)),
        *({name: text} for name in ("provider", "model", "cost_usd") for text in (7, "a\x00", "x" * 201)),
    ],
)
async def test_usage_that_no_line_can_hold_is_dropped_and_nothing_else(changes: dict[str, Any]) -> None:
    fit = Done({"a": 1}, "e1", usage=FIT)
    assert (await probed(done=fit)).done == fit
    assert (await probed(done=replace(fit, usage=replace(FIT, **changes)))).done == replace(fit, usage=None)


@pytest.mark.parametrize("part", [{"values": {"n": NAN}}, {"version": "a\x00"}, {"facts": {"by": "a\x00"}}])
async def test_a_target_that_was_read_is_recorded_whole_or_not_at_all(part: dict[str, Any]) -> None:
    fit = Before({"a": 1}, "1", {"by": "ann"})
    assert await said(fit, calling.read_before) == fit
    answer = await said(replace(fit, **part), calling.read_before)
    assert (type(answer), getattr(answer, "code", None)) == (Refused, UNUSABLE)


@pytest.mark.req("X-18")
@pytest.mark.parametrize("seconds", [0.0, 0.5, 100.0])
async def test_a_call_has_its_own_time_and_the_grace(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    given: list[float] = []

    @asynccontextmanager
    async def timeout(span: float) -> AsyncIterator[None]:
        given.append(span)
        yield

    monkeypatch.setattr(calling, "asyncio", SimpleNamespace(timeout=timeout))
    assert await said(Before({}, "1"), calling.read_before, seconds=seconds) == Before({}, "1")
    assert given == [seconds + calling.GRACE.total_seconds()]


@pytest.mark.parametrize("since", [0.0, 0.25, 90.0])
async def test_a_target_is_told_how_old_the_intent_is(since: float) -> None:
    told: list[float] = []

    async def probe(_: Any, *, seconds_since_intent: float) -> Probe:
        told.append(seconds_since_intent)
        return Probe(ProbeVerdict.NOT_APPLIED, "It is not there.")

    connectors: Any = Connectors({"probe": SimpleNamespace(probe=probe)})
    call = Call("o", {}, "k", 5.0)
    work: Any = SimpleNamespace(operation=SimpleNamespace(connector="probe"), call=call, seconds_since_intent=since)
    await calling.inquire(connectors, work)
    assert told == [since]


@pytest.mark.req("X-18")
async def test_a_connector_that_overruns_its_time_has_the_grace_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = Before({"a": 1}, "1")
    assert await said(fit, calling.read_before, turns=20, seconds=0.0) == fit
    monkeypatch.setattr(calling, "GRACE", timedelta(0))
    late = await said(fit, calling.read_before, turns=20, seconds=0.0)
    assert late == InDoubt("No answer within 0 seconds.")
