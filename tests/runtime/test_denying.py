"""An operation that is denied until a time goes out no more; open questions about it are void (promise 11)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.errors import DefinitionError, InputError, NotFoundError
from evidence.chain import Actor
from runtime.requests import denying
from runtime.requests.policies import publish_policy

ASK = """
policy: ask
version: 1
rules:
  - {id: ask, match: {operation: probe.effect.apply}, outcome: needs_approval, approvers: [{group: leads, of: 1}]}
  - {id: read, match: {operation: probe.value.read}, outcome: allow}
"""
WORKFLOW = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: read, do: probe.value.read, with: {name: b}}
  - {id: act, do: probe.effect.apply, with: {name: a}}
"""
OPERATION = "probe.effect.apply"
ACTOR = Actor("test", "olga")
NEVER = datetime.now(UTC) + timedelta(days=30)


async def ask(runtime: Any, function: Any, *given: Any) -> Any:
    async with runtime.faces.transaction("acme") as connection:
        if function is denying.listed:
            return await function(connection, "acme")
        return await function(connection, runtime.definitions, "acme", *given)


async def test_a_denial_voids_questions_stops_the_operation_and_ends_when_it_is_lifted(runtime: Any) -> None:
    first = await runtime.go(WORKFLOW, policy=ASK)
    await runtime.person("lea", ("leads",))
    assert await runtime.status(first) == "waiting_approval"
    done = await ask(runtime, denying.deny, OPERATION, NEVER, "The vendor has an outage.", ACTOR)
    assert (done.operation, done.over) == (OPERATION, False)
    await runtime.sweep()
    await runtime.worker().work_off()
    assert (await runtime.status(first), runtime.outside.effects) == ("failed_terminal", [])
    assert await runtime.books.approvals(open=True) == []
    assert "The vendor has an outage." in str(await runtime.error(first))
    second = (await runtime.start("w", ref="2")).run_id
    await runtime.worker().work_off()
    assert await runtime.status(second) == "failed_terminal", "nobody is asked, either"
    ((listed,)) = await ask(runtime, denying.listed)
    assert (listed.operation, listed.reason, listed.by) == (OPERATION, "The vendor has an outage.", "olga")
    assert [(await ask(runtime, denying.lift, OPERATION, ACTOR)).changed for _ in range(2)] == [True, False]
    third = (await runtime.start("w", ref="3")).run_id
    await runtime.worker().work_off()
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(third), len(runtime.outside.effects)) == ("succeeded", 1)
    for run in (first, second, third):
        await runtime.history(run)


async def test_a_denial_ends_by_its_time_and_a_newer_one_takes_its_place(runtime: Any) -> None:
    await runtime.tenant("acme")
    await runtime.policy()
    await runtime.publish(WORKFLOW)
    await ask(runtime, denying.deny, OPERATION, NEVER, "Long.", ACTOR)
    await ask(runtime, denying.deny, OPERATION, datetime.now(UTC) + timedelta(seconds=1), "Short.", ACTOR)

    async def over() -> bool:
        ((listed,)) = await ask(runtime, denying.listed)
        return bool(listed.over) and listed.reason == "Short."

    await runtime.until(over)
    run_id = (await runtime.start("w")).run_id
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


@pytest.mark.parametrize(
    ("operation", "until", "reason", "error"),
    [
        ("probe.effect.aply", NEVER, "x", NotFoundError),
        (OPERATION, NEVER, " ", InputError),
        (OPERATION, NEVER.replace(tzinfo=None), "x", InputError),
        (OPERATION, NEVER - timedelta(days=31), "x", InputError),
        (OPERATION, NEVER + timedelta(days=366), "x", InputError),
    ],
)
async def test_what_cannot_be_denied_says_so(
    runtime: Any, operation: str, until: datetime, reason: str, error: type[Exception]
) -> None:
    await runtime.tenant("acme")
    with pytest.raises(error):
        await ask(runtime, denying.deny, operation, until, reason, ACTOR)
    with pytest.raises(NotFoundError):
        await ask(runtime, denying.lift, operation, ACTOR)
    own = ASK.replace("policy: ask", "policy: counterseal-deny.probe.effect.apply")
    with pytest.raises(DefinitionError, match="reserved"):
        await ask(runtime, publish_policy, own, "own.yaml", ACTOR)
