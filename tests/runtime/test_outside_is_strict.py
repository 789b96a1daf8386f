"""The outside system of these tests fails a test by itself: what landed twice or was not meant is found."""

from __future__ import annotations

import pytest

from connectors.port import Call, Parked, Refused
from tests.support.outside import Outside


def call(
    operation: str = "probe.effect.apply", key: str = "k1", name: str = "a", correlation: str | None = None
) -> Call:
    return Call(operation, {"name": name}, key, 5.0, correlation_key=correlation)


async def test_the_same_key_lands_once() -> None:
    outside = Outside()
    await outside.perform(call())
    await outside.perform(call(key="k2"))
    outside.check_strictly()
    await outside.perform(call())
    with pytest.raises(AssertionError, match=r"probe.effect.apply a: landed 2 times under one key"):
        outside.check_strictly()
    assert outside.landed() == {"k1": 2, "k2": 1}


async def test_what_a_target_dedupes_or_a_person_orders_may_land_again() -> None:
    outside = Outside(may_repeat={"b"})
    for _ in range(2):
        await outside.perform(call("probe.key.put"))
        await outside.perform(call(name="b", key="k2"))
    outside.check_strictly()


async def test_a_read_before_the_act_that_has_nothing_to_read_is_found() -> None:
    outside = Outside()
    assert isinstance(await outside.read_before(call()), Refused)
    with pytest.raises(AssertionError, match="nothing to read"):
        outside.check_strictly()


async def test_a_case_that_nobody_began_is_not_canceled() -> None:
    outside = Outside()
    begun = call("probe.case.open", correlation="c1")
    assert isinstance(await outside.perform(begun), Parked)
    await outside.cancel(begun, "case-1")
    outside.check_strictly()
    await outside.cancel(call("probe.case.open", correlation="c2"), None)
    with pytest.raises(AssertionError, match="nobody had begun it"):
        outside.check_strictly()


@pytest.mark.parametrize(("key", "correlation", "words"), [("", "c1", "a key"), ("k1", None, "a correlation key")])
async def test_a_call_that_cannot_be_found_again_is_found(key: str, correlation: str | None, words: str) -> None:
    outside = Outside()
    await outside.perform(call("probe.case.open", key, correlation=correlation))
    with pytest.raises(AssertionError, match=f"without {words}"):
        outside.check_strictly()
