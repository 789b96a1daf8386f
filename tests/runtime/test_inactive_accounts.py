"""Nothing goes out for an account that is switched off, or whose owner is (promises 1, 11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from evidence.chain import Actor
from tests.support.people import deactivate
from tests.support.runtime_again import ALLOW, approved_by
from tests.support.runtime_refusals_hold import GATE, PAY, WITHIN, asked, office, retried, started

pytestmark = pytest.mark.req("promise 11")


async def the_machine(runtime: Any) -> None:
    await deactivate(runtime.database, "acme", "bot")


async def its_owner(runtime: Any) -> None:
    await deactivate(runtime.database, "acme", "raj")


# Who asks, and who is switched off while the question is open, or after it was approved.
ACCOUNTS: dict[str, tuple[str, Callable[[Any], Awaitable[None]]]] = {
    "a machine": ("bot", the_machine),
    "a machine's owner": ("bot", its_owner),
    "a person": ("raj", its_owner),
    "a person by e-mail": ("email:raj@x.example", its_owner),
}


@pytest.mark.parametrize("who", ACCOUNTS)
@pytest.mark.parametrize("name", ["pay", "within", "gate"])
async def test_after_the_approval_nothing_goes_out(runtime: Any, who: str, name: str) -> None:
    account, switched_off = ACCOUNTS[who]
    await office(runtime, PAY, WITHIN, GATE)
    run_id = await started(runtime, account, "1", name)
    question = (await asked(runtime))[0]
    assert (await runtime.vote("lea", "approve")).counted
    await switched_off(runtime)
    await runtime.go_on()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"
    (seen,) = [one for one in await runtime.books.approvals() if one.id == question.id]
    assert seen.status == "superseded"
    assert await runtime.books.end_of(question.id) == "requester_inactive"


@pytest.mark.parametrize("who", ACCOUNTS)
@pytest.mark.parametrize("name", ["pay", "gate"])
async def test_while_it_is_asked_the_question_is_void(runtime: Any, who: str, name: str) -> None:
    account, switched_off = ACCOUNTS[who]
    await office(runtime, PAY, GATE)
    run_id = await started(runtime, account, "1", name)
    (question,) = await asked(runtime)
    await switched_off(runtime)
    await runtime.sweep()
    assert await asked(runtime) == []
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_terminal"
    assert "is not active any more" in (await runtime.error(run_id))["message"]
    assert len(await runtime.books.commands(kind="card")) >= 2
    assert (await runtime.vote("lea", "approve", on=question.id)).code == "changed"


async def test_what_policy_allows_does_not_go_out_either(runtime: Any) -> None:
    await office(runtime, PAY, policy=ALLOW)
    await its_owner(runtime)
    run_id = await started(runtime, "bot", "1")
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])


async def test_another_person_who_retries_takes_it_over(runtime: Any, tmp_path: Path) -> None:
    await office(runtime, PAY, policy=approved_by("leads", 1))
    run_id = await started(runtime, "bot", "1")
    await its_owner(runtime)
    await runtime.sweep()
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_terminal"
    await retried(runtime, tmp_path, run_id, Actor("person", "ben"))
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
