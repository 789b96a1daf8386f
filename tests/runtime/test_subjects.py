"""The person whom an action is about does not decide on it, unless policy says so (promise 12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from connectors.port import InDoubt
from core.errors import InputError

pytestmark = pytest.mark.req("promise 12")
HEAD = "workflow: w\nversion: 1\nreference: r\nsubject: ${{ trigger.whom }}\nsteps:\n"
PAY = "  - {id: pay, do: probe.effect.apply, with: {name: pay}}\n"
GATE = "  - {id: ok, approve: {summary: Go on?, approvers: {group: leads}}}\n"
MAIL = "  - {id: mail, do: probe.mail.send, with: {text: hello}}\n"
RULE = """
policy: p
version: 1
rules:
  - {id: pays, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]MORE}
"""
SAYS = "You may not decide this: you would be affected by this, and somebody else has to."


async def begun(runtime: Any, steps: str = PAY, more: str = "", whom: Any = "ana", rule: str = RULE) -> UUID:
    await runtime.tenant()
    await runtime.policy(rule.replace("MORE", more))
    for person in ("ana", "ben", "requester"):
        await runtime.person(person, () if person == "requester" else ("leads", "operators"))
    await runtime.publish(HEAD + steps)
    run_id: UUID = (await runtime.start("w", {"whom": whom})).run_id
    await runtime.worker().work_off()
    return run_id


ALLOW = RULE.replace("outcome: needs_approval, approvers: [{group: leads}]MORE", "outcome: allow")


@pytest.mark.parametrize("whom", ["ana", " Ana", ["zoe.unknown", "ana"]])
@pytest.mark.parametrize(("steps", "rule"), [(PAY, RULE), (GATE, RULE), (MAIL, ALLOW)])
async def test_they_are_refused_about_an_action_at_a_gate_and_about_a_doubt(
    runtime: Any, steps: str, rule: str, whom: Any
) -> None:
    runtime.outside.script["probe.mail.send"] = [InDoubt("no answer")]
    run_id = await begun(runtime, steps, whom=whom, rule=rule)
    if rule == ALLOW:
        await runtime.wait_is_due()
    choice = "fail" if rule == ALLOW else "approve"
    answer = await runtime.vote("ana", choice)
    assert (answer.counted, answer.code, answer.sentence) == (False, "separation_of_duties", SAYS)
    card = (await runtime.books.approval(open=True)).card
    assert ("Ana", "would be affected by this") in [(one["name"], one["did"]) for one in card["shaped_by"]]
    assert (await runtime.vote("ben", choice)).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == ("failed_terminal" if rule == ALLOW else "succeeded")
    await runtime.history(run_id)


async def test_policy_may_let_them_decide_and_the_card_says_so(runtime: Any) -> None:
    await begun(runtime, more=", allow: [subject]")
    (_, one) = (await runtime.books.approval(open=True)).card["shaped_by"]
    assert (one["name"], one["note"]) == ("Ana", "may decide all the same")
    assert (await runtime.vote("ana", "approve")).counted


@pytest.mark.parametrize("whom", ["nobody.known", "", None, 7, [], ["ben", None]])
async def test_somebody_whom_the_directory_does_not_know_denies_at_tier_high(runtime: Any, whom: Any) -> None:
    run_id = await begun(runtime, more=", tier: high", whom=whom)
    assert await runtime.status(run_id) == "failed_terminal"
    message = (await runtime.books.step("pay")).error["message"]
    assert "would be affected by this, and the directory knows nobody of that name" in message


async def test_rules_read_whom_it_is_about(runtime: Any) -> None:
    rule = RULE.replace("outcome: needs_approval, approvers: [{group: leads}]MORE", "outcome: allow").rstrip()
    when = "'subject:ana' in action.contributors"
    deny = f'\n  - {{id: not-ana, match: {{connector: probe}}, when: "{when}", outcome: deny}}\n'
    assert await runtime.status(await begun(runtime, rule=rule + deny)) == "failed_terminal"


async def test_a_run_whose_subject_cannot_be_made_does_not_start(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.publish(HEAD + PAY)
    with pytest.raises(InputError, match="the workflow's subject cannot be made from this trigger"):
        await runtime.start("w", {})
