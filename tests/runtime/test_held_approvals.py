"""While a card is open, others write the record: one vote, one effect; the book replays, and the bundle verifies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime_again import UPDATED, approved_by, begun
from tests.support.runtime_ends_of_approvals import card
from tests.support.verified import sound

pytestmark = pytest.mark.req("promise 3")


async def test_six_writes_of_others_take_one_vote_and_one_effect(runtime: Any, tmp_path: Path) -> None:
    runtime.outside.records["a"] = {"version": 1, "fields": {"priority": "low"}}
    run_id = await begun(runtime, UPDATED, approved_by("leads", 1))
    await runtime.worker().work_off()
    for n in range(6):
        runtime.outside.records["a"] = {"version": 2 + n, "fields": {"priority": "low", "owner": f"other{n}"}}
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert [call.before.version for call in runtime.outside.effects] == ["7"]
    assert len(await runtime.books.approvals()) == 1
    await sound(runtime, run_id, tmp_path)


async def test_a_value_that_has_changed_is_named_and_one_that_is_there_is_not_written(
    runtime: Any, tmp_path: Path
) -> None:
    runtime.outside.records["a"] = {"version": 1, "fields": {"priority": "low"}}
    run_id = await begun(runtime, UPDATED, approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    runtime.outside.records["a"] = {"version": 2, "fields": {"priority": "high"}}
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert runtime.outside.effects == []
    said = (await card(runtime, question)).detail
    assert "priority was 'low' when people were asked, and is 'high' now" in said
    receipt = await runtime.books.receipt()
    assert (receipt.status, receipt.resolution, receipt.attempt) == ("succeeded", "nothing to do", 0)
    await sound(runtime, run_id, tmp_path)
