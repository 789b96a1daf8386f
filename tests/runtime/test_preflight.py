"""Preflight: nobody is asked what nobody could answer, or what would fail after the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.port import Connectors, Refused
from tests.support.outside import Gate

PAY = """
workflow: pay
version: 1
steps:
  - {id: pay, do: probe.effect.apply, with: {name: pay}}
"""
CHANGE = """
workflow: pay
version: 1
steps:
  - {id: pay, do: probe.record.update, with: {name: r1, fields: {owner: ana}}}
"""
GATE = """
workflow: pay
version: 1
steps:
  - {id: pay, approve: {summary: Pay?, approvers: [{group: owners, of: 2}]}}
"""
LATER = """
workflow: pay
version: 1
steps:
  - {id: first, do: probe.value.read, with: {name: first}}
  - {id: pay, needs: [first], do: probe.effect.apply, with: {name: pay}}
"""
OK = "approve: {summary: Pay?, approvers: [{group: owners, of: 2}]}"
ASK = """
policy: ask
version: 1
rules:
  - {id: reading, match: {operation: probe.value.read}, outcome: allow}
  - id: paying
    match: {operation: "probe.*"}
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
"""
KEPT_OUT = (
    "It asks for 2 of the group 'owners', which has 2 people in the directory, of whom 1 may decide this. "
    "Whoever shaped it does not decide it: Requester requested this."
)
SLACK = ASK.replace("{group: owners, of: 2}", "{slack_group: S0OWNERS, of: 1}")


async def begun(runtime: Any, text: str = PAY, policy: str = ASK, people: str = "ana", **worker: Any) -> Any:
    await runtime.tenant()
    await runtime.policy(policy, filled=False)
    await runtime.publish(text, filled=False)
    for person in people.split():
        await runtime.person(person, ("owners",))
    run_id = (await runtime.start("pay")).run_id
    await runtime.worker(**worker).work_off()
    return run_id


async def not_asked(runtime: Any, run_id: Any, check: str, code: str) -> str:
    """Assert that nobody was asked, the book says at what it failed, and the run says why. Returns the reason."""
    assert await runtime.books.approvals() == []
    assert await runtime.status(run_id) == "failed_terminal"
    (told,) = await runtime.books.events(run_id, type="preflight.failed")
    assert told.data["check"] == check
    error = await runtime.error(run_id)
    assert (error["code"], error["step"]) == (code, "pay")
    assert runtime.outside.effects == []
    await runtime.history(run_id)
    return str(error["message"])


@pytest.mark.req("Q-16")
@pytest.mark.parametrize("text", [PAY, GATE])
@pytest.mark.parametrize(
    ("people", "said"),
    [
        ("", "It asks for 2 of the group 'owners', which has nobody in the directory, for none is published."),
        ("ana", "It asks for 2 of the group 'owners', which has 1 person in the directory, of whom 1 may decide this."),
        ("ana requester", KEPT_OUT),
    ],
)
async def test_nobody_is_asked_what_too_few_may_decide(runtime: Any, text: str, people: str, said: str) -> None:
    run_id = await begun(runtime, text, people=people)
    reason = await not_asked(runtime, run_id, "people", "nobody_may_decide")
    assert reason.startswith(f"Nobody was asked. {said}")
    assert "Publish a directory" in reason


@pytest.mark.parametrize("text", [PAY, GATE])
async def test_with_enough_people_they_are_asked(runtime: Any, text: str) -> None:
    await begun(runtime, text, people="ana ben requester")
    await runtime.vote("ana", "approve")
    assert (await runtime.vote("ben", "approve")).status == "approved"


async def test_an_escalation_to_enough_people_is_a_way_to_an_answer(runtime: Any) -> None:
    escalated = ASK.replace("of: 2}]", "of: 2}]\n    escalate: {after: PT1H, to: {group: duty}}")
    await runtime.tenant()
    await runtime.person("dan", ("duty",))
    await runtime.policy(escalated, filled=False)
    await runtime.publish(PAY)
    await runtime.start("pay")
    await runtime.worker().work_off()
    assert await runtime.question()


async def test_two_people_who_are_one_are_too_few(runtime: Any) -> None:
    two = ASK.replace("of: 2}]", "of: 1}, {group: duty, of: 1}]\n    two_person: true")
    await runtime.tenant()
    await runtime.person("ana", ("owners", "duty"))
    await runtime.policy(two, filled=False)
    await runtime.publish(PAY)
    run_id = (await runtime.start("pay")).run_id
    await runtime.worker().work_off()
    assert "2 different people" in await not_asked(runtime, run_id, "people", "nobody_may_decide")


@pytest.mark.parametrize("asks", ["policy", "gate"])
async def test_who_was_added_just_now_is_counted(runtime: Any, asks: str) -> None:
    """The worker knows the directory as it was when it met the run; its refusal is decided anew on the one of now."""
    gate = Gate()
    runtime.outside.gates["first"] = gate
    await runtime.tenant()
    await runtime.policy(ASK.replace('"probe.*"', "probe.effect.apply"), filled=False)
    text = LATER if asks == "policy" else LATER.replace("do: probe.effect.apply, with: {name: pay}", OK)
    await runtime.publish(text, filled=False)
    await runtime.person("ana", ("owners",))
    await runtime.start("pay")
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.person("ben", ("owners",))
    gate.opened.set()
    await working
    assert await runtime.question()


@pytest.mark.parametrize("text", [PAY, CHANGE])
async def test_without_its_connector_nobody_is_asked(runtime: Any, text: str) -> None:
    runtime.connectors = Connectors({})
    run_id = await begun(runtime, text, people="ana ben")
    assert await runtime.books.approvals() == []
    error = await runtime.error(run_id)
    assert (error["code"], error["class"]) == ("not_configured", "transport")
    assert "'probe' is not configured" in error["message"]
    if text == PAY:
        await not_asked(runtime, run_id, "connector", "not_configured")


async def test_nobody_is_asked_about_a_call_that_the_settings_refuse(runtime: Any) -> None:
    runtime.outside.closed = Refused("host_not_allowed", "pay.example is not among the allowed hosts; add it")
    run_id = await begun(runtime, people="ana ben")
    reason = await not_asked(runtime, run_id, "target", "host_not_allowed")
    assert reason.startswith("Nobody was asked, because probe.effect.apply could not be performed: pay.example is not")


async def test_nobody_is_asked_about_a_record_that_is_not_there(runtime: Any) -> None:
    runtime.outside.gone = True
    run_id = await begun(runtime, CHANGE, people="ana ben")
    assert (await runtime.books.approvals(), (await runtime.error(run_id))["code"]) == ([], "not_found")


class _Slack:
    """Slack's user groups as a test says: ``None`` is away."""

    def __init__(self, *answers: dict[str, frozenset[str]] | None) -> None:
        self._answers = [*answers]

    async def members(self, wanted: Any) -> dict[str, frozenset[str]] | None:
        assert [group.key for group in wanted] == ["slack_group:S0OWNERS"]
        return self._answers.pop(0)


def _in_it(*users: str) -> dict[str, frozenset[str]]:
    return {"slack_group:S0OWNERS": frozenset(users)}


@pytest.mark.parametrize(
    ("slack", "said"),
    [
        (None, "whose members cannot be looked up"),
        (_Slack({}), "whose members cannot be looked up"),
        (_Slack(_in_it()), "has nobody in the directory"),
        (_Slack(_in_it("USTRANGER")), "has nobody in the directory"),
        (_Slack(_in_it("UREQUESTER")), "of whom 0 may decide this"),
    ],
)
async def test_a_slack_group_without_anybody_who_may_decide_is_not_asked(runtime: Any, slack: Any, said: str) -> None:
    run_id = await begun(runtime, policy=SLACK, people="ana requester", slack=slack)
    assert said in await not_asked(runtime, run_id, "people", "nobody_may_decide")


async def test_a_slack_group_that_slack_can_name_is_asked(runtime: Any) -> None:
    await begun(runtime, policy=SLACK, people="ana", slack=_Slack(_in_it("UANA")))
    assert await runtime.question()


async def test_while_slack_is_away_nobody_is_asked_and_nothing_fails(runtime: Any) -> None:
    slack = _Slack(None, _in_it("UANA"))
    run_id = await begun(runtime, policy=SLACK, people="ana", slack=slack)
    assert (await runtime.books.approvals(), await runtime.steps(run_id)) == ([], {"pay": "waiting"})
    await runtime.trouble.make_waits_due()
    await runtime.sweep()
    await runtime.worker(slack=slack).work_off()
    assert await runtime.question()
