"""Questions about what became of an action go to those who can look, and not those who had approved it."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.port import InDoubt

MAIL = "workflow: mail\nversion: 1\nsteps:\n  - {id: a, do: probe.mail.send, with: {text: hello}}\n"
ASK = """
policy: ask
version: 1
rules:
  - id: mailing
    match: {operation: probe.mail.send}
    outcome: needs_approval
    approvers: [{group: owners}]
"""
ALLOW = "policy: ask\nversion: 1\nrules:\n  - {id: mailing, match: {connector: probe}, outcome: allow}\n"
NAMED = "    in_doubt: {approvers: [{group: desk, of: 2}]}\n"
PEOPLE = {"ana": ("owners",), "olga": ("operators",), "dan": ("desk",), "dora": ("desk",)}


async def asked(runtime: Any, policy: str, *people: str) -> list[tuple[str, int]]:
    """Let an action end in doubt, approved by ana where policy asks; the groups that are asked about it."""
    await runtime.tenant()
    for person in people:
        await runtime.person(person, PEOPLE[person])
    await runtime.policy(policy, filled=False)
    await runtime.publish(MAIL)
    runtime.outside.script["probe.mail.send"] = [InDoubt("the line went dead")]
    await runtime.start("mail")
    await runtime.worker().work_off()
    if policy.startswith(ASK):
        assert (await runtime.vote("ana", "approve")).counted
        await runtime.worker().work_off()
    await runtime.wait_is_due()
    question = await runtime.books.approval(kind="in_doubt", open=True)
    return [(group["group"], group["of"]) for group in question.terms["approvers"]]


@pytest.mark.req("Q-8")
async def test_operators_are_asked_and_not_who_had_approved_it(runtime: Any) -> None:
    assert await asked(runtime, ASK, "ana", "olga") == [("operators", 1)]
    refused = await runtime.vote("ana", "happened")
    assert (refused.counted, refused.code) == (False, "not_eligible")
    assert (await runtime.vote("olga", "happened")).status == "approved"


async def test_without_operators_those_are_asked_who_had_approved_it(runtime: Any) -> None:
    assert await asked(runtime, ASK, "ana") == [("owners", 1)]


async def test_policy_names_others(runtime: Any) -> None:
    assert await asked(runtime, ASK + NAMED, "ana", "olga", "dan", "dora") == [("desk", 2)]


async def test_policy_names_others_for_what_it_allows(runtime: Any) -> None:
    policy = ALLOW.replace("allow}", "allow, in_doubt: {approvers: [{group: desk, of: 2}]}}")
    assert await asked(runtime, policy, "olga", "dan", "dora") == [("desk", 2)]


async def test_who_is_too_few_by_now_is_not_asked(runtime: Any) -> None:
    assert await asked(runtime, ASK + NAMED, "ana", "olga", "dan") == [("operators", 1)]


async def test_a_doubt_has_a_question_also_where_nobody_can_answer_it_yet(runtime: Any) -> None:
    assert await asked(runtime, ALLOW) == [("operators", 1)]
