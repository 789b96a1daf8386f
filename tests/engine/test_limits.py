"""The limits of what a run may say, at their very edge: the longest that is allowed is taken, the next one is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.port import NotSent
from runtime.engine.life.transition import REFERENCE_CHARACTERS_MAX
from runtime.engine.life.waits import CORRELATION_CHARACTERS_MAX, TIMER_MAX
from tests.engine.governing import EFFECT, HEAD, Governed, governed
from tests.support.engine_stage import NOW

SIGNAL = HEAD + '  - {id: a, wait: {signal: s, correlate: "CORRELATE"}}\n'
UNTIL = HEAD + '  - {id: a, wait: {until: "UNTIL"}}\n'
NAMED = HEAD + '  - {id: a, do: probe.effect.apply, with: {name: x}, reference: "NAME"}\n'


def driven(text: str) -> Governed:
    return governed(text).drive()


@pytest.mark.req("X-16")
@pytest.mark.parametrize(("more", "status"), [(0, "waiting"), (1, "failed_terminal")])
def test_a_correlation_has_its_longest_length_and_no_more(more: int, status: str) -> None:
    run = driven(SIGNAL.replace("CORRELATE", "k" * (CORRELATION_CHARACTERS_MAX + more)))
    assert run.status == status


@pytest.mark.req("X-8")
@pytest.mark.parametrize(("more", "status"), [(0, "succeeded"), (1, "failed_terminal")])
def test_a_reference_has_its_longest_length_and_no_more(more: int, status: str) -> None:
    run = driven(NAMED.replace("NAME", "r" * (REFERENCE_CHARACTERS_MAX + more)))
    assert run.status == status


@pytest.mark.req("X-7")
@pytest.mark.parametrize(("more", "status"), [(0, "waiting"), (1, "failed_terminal")])
def test_a_timer_is_as_long_as_it_may_be_and_no_longer(more: int, status: str) -> None:
    until = NOW + TIMER_MAX + timedelta(seconds=more)
    assert driven(UNTIL.replace("UNTIL", until.isoformat())).status == status


@pytest.mark.req("X-7")
@pytest.mark.usefixtures("far_from_utc")
def test_a_moment_without_a_zone_is_refused_and_not_taken_for_one_of_the_machine() -> None:
    until = (NOW + timedelta(hours=1)).replace(tzinfo=None)
    run = driven(UNTIL.replace("UNTIL", until.isoformat()))
    assert (run.status, run.waits) == ("failed_terminal", {})
    assert "has no time zone" in str(run.rows["a"].last_error)


class Bounded(Governed):
    """A run whose SLA ends after ten seconds."""

    def view(self) -> Any:
        return replace(super().view(), deadline_at=NOW + timedelta(seconds=10))


@pytest.mark.req("X-19")
@pytest.mark.parametrize(("seconds", "status"), [(8.5, "waiting"), (9, "failed_terminal"), (11, "failed_terminal")])
def test_nothing_is_tried_again_once_the_time_is_over(seconds: float, status: str) -> None:
    run = governed(EFFECT, said=(NotSent("away", seconds),))
    run.__class__ = Bounded
    run.drive()
    error: Any = run.rows["a"].last_error
    assert run.status == status
    assert ("the SLA leaves no time for another attempt" in error["message"]) == (status == "failed_terminal")
    assert "away" in error["message"]


READ = EFFECT.replace("effect.apply", "value.read")
