"""Answers of outside systems are kept as far as they can be recorded (promises 2 and 4)."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.port import Before, Call, Connectors, Done, NotSent, Outcome, Probe, ProbeVerdict, Refused, Usage
from connectors.proposal import build_action
from core.canonical import unfit
from runtime.engine.book.instructions import Inquire, Known, ReadBefore
from runtime.work.calling import inquire, read_before
from tests.engine.governing import CATALOG, EFFECT, governed
from tests.support.engine_folds import receipt

NAN, DAY = float("nan"), 24 * 3600.0
WORDS = "a\x00b\ud800"


class Strange:
    """A connector with one answer."""

    target = ""

    def __init__(self, answer: Before | Outcome | Probe) -> None:
        self._answer = answer

    async def read_before(self, call: Call) -> Any:
        return self._answer

    async def perform(self, call: Call) -> Any:
        return self._answer

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Any:
        return self._answer

    async def check(self) -> tuple[bool, str]:
        return True, ""

    async def aclose(self) -> None:
        return None


OPERATION = CATALOG.get("probe.effect.apply")
CALL = Call(OPERATION.name, build_action(OPERATION, {"name": "x"}).input, "k", 5.0)
STEP = governed(EFFECT).rows["a"]


async def probed(answer: Probe) -> Probe:
    connectors = Connectors({"probe": Strange(answer)})
    return await inquire(connectors, Inquire(STEP, OPERATION, CALL, receipt(), Known(), 1.0))


async def read(answer: Before | Outcome) -> Any:
    return await read_before(Connectors({"probe": Strange(answer)}), ReadBefore(STEP, OPERATION, CALL, Known()))


@pytest.mark.req("X-18")
@pytest.mark.parametrize(
    ("named", "kept"),
    [(None, None), (NAN, None), (float("inf"), None), (-1.0, 0.0), (7.5, 7.5), (DAY, DAY), (1e300, DAY)],
)
async def test_a_system_may_ask_for_a_delay_that_a_wait_can_have(named: float | None, kept: float | None) -> None:
    answer = await probed(Probe(ProbeVerdict.CANNOT_TELL, "busy", retry_after_seconds=named))
    assert answer.retry_after_seconds == kept
    assert await read(NotSent("busy", named)) == NotSent("busy", kept)


@pytest.mark.parametrize("output", [{"n": NAN}, {"text": "a\x00"}])
async def test_of_a_result_that_cannot_be_recorded_the_rest_is_kept_and_people_are_told(output: Any) -> None:
    """The target's own id is what finds the effect again."""
    usage = Usage("p", "m", 1, 2, None)
    answer = await probed(Probe(ProbeVerdict.APPLIED, "It is there.", Done(output, "e1", usage=usage)))
    assert answer.done is not None
    assert (answer.verdict, answer.done.external_id, answer.done.usage) == (ProbeVerdict.APPLIED, "e1", usage)
    assert "$not_kept" in str(answer.done.output), "what is missing is named in its place"


async def test_words_of_a_system_can_always_be_recorded() -> None:
    answer = await probed(Probe(ProbeVerdict.CANNOT_TELL, WORDS))
    assert unfit(answer.evidence, "It") is None
    refused = await read(Refused("c" * 5000, WORDS))
    assert unfit([refused.code, refused.message], "It") is None
    assert len(refused.code) <= 200, "a refusal's code stands in the audit"


@pytest.mark.parametrize("part", [{"values": {"n": NAN}}, {"version": "a\x00"}, {"facts": {"by": "a\x00"}}])
async def test_a_target_is_recorded_whole_as_it_was_read_or_the_action_is_refused(part: dict[str, Any]) -> None:
    fit: dict[str, Any] = {"values": {"a": 1}, "version": "1", "facts": {"by": "ann"}}
    assert await read(Before(**fit)) == Before(**fit)
    assert isinstance(await read(Before(**{**fit, **part})), Refused)
