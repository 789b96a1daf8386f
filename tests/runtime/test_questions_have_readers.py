"""No question waits in vain: if its last reader leaves it moves, is asked anew, or ends with the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from approvals.model import ApprovalKind
from evidence.chain import Actor
from runtime.requests.publishing import publish_directory
from tests.support.people import add_person, deactivate, leave_group, remove_person
from tests.support.runtime_again import ASKED, PROBED, approved_by, begun
from tests.support.runtime_ends_of_approvals import card

pytestmark = pytest.mark.req("Q-3")

GATE = """
workflow: w
version: 1
steps:
  - {id: a, approve: {summary: "Go on?", approvers: {group: leads}}}
"""
ESCALATES = """
policy: p
version: 1
rules:
  - id: ask
    match: {connector: probe}
    outcome: needs_approval
    approvers: [{group: leads}]
    escalate: {after: PT6H, to: {group: duty}}
"""
STAND_INS = tuple(f"stand-in-{number}" for number in range(4))
# The ways in which a voter is lost, for all members of the group.
LOSSES: dict[str, Callable[[Any, str], Awaitable[None]]] = {
    "leaves the directory": lambda runtime, who: remove_person(runtime.database, "acme", who),
    "leaves the group": lambda runtime, who: leave_group(runtime.database, "acme", who, "leads"),
    "is deactivated": lambda runtime, who: deactivate(runtime.database, "acme", who),
}


async def all_lost(runtime: Any, how: str) -> None:
    for who in ("lea", "leo", *STAND_INS):
        await LOSSES[how](runtime, who)
    while await runtime.sweep():
        pass


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("text", [PROBED, GATE], ids=["an action", "a gate"])
async def test_a_question_without_a_reader_ends_with_the_reason(runtime: Any, text: str, how: str) -> None:
    run_id = await begun(runtime, text, approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    await all_lost(runtime, how)
    assert await runtime.books.approvals(open=True) == []
    await runtime.worker().work_off()
    assert (await runtime.error(run_id))["code"] == "nobody_may_decide"
    assert "Nobody was asked." in (await card(runtime, question)).detail
    assert str((await card(runtime, question)).state) == "superseded"
    assert await runtime.books.commands(kind="voided")


async def test_it_moves_to_its_escalation_while_that_has_readers(runtime: Any) -> None:
    await begun(runtime, PROBED, ESCALATES)
    await add_person(runtime.database, "acme", "dan", ("duty",))
    await runtime.worker().work_off()
    question = await runtime.question()
    assert (await runtime.vote("dan", "approve")).code == "not_eligible"
    await all_lost(runtime, "leaves the group")
    seen = await runtime.books.approval(open=True)
    assert (seen.id, seen.escalated) == (question, True)
    assert await runtime.books.commands(kind="escalate")
    assert (await runtime.vote("dan", "approve")).counted
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1


async def test_a_doubt_is_put_to_others(runtime: Any) -> None:
    await begun(runtime, ASKED, approved_by("leads", 1))
    await runtime.worker().work_off()
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.crash(runtime.gate_type(), "probe.mail.send")
    await runtime.worker().work_off()
    first = await runtime.books.approval(open=True)
    assert first.kind == ApprovalKind.IN_DOUBT
    await leave_group(runtime.database, "acme", "olga", "operators")
    while await runtime.sweep():
        pass
    await runtime.worker().work_off()
    second = await runtime.books.approval(open=True)
    assert second.id != first.id
    assert (await runtime.vote("leo", "fail")).counted, "those who approved it are asked instead"


async def test_publishing_a_directory_warns_of_the_questions_that_lose_their_last_voter(runtime: Any) -> None:
    await begun(runtime, PROBED, approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    text = "directory: d\nversion: 7\npeople:\n  - {id: olga, name: Olga}\ngroups: {operators: [olga]}\n"
    async with runtime.faces.transaction("acme") as connection:
        published = await publish_directory(connection, "acme", text, "d.yaml", Actor("test", "tester"))
    assert any(str(question) in words and "Nobody can decide" in words for words in published.warnings)


@pytest.mark.parametrize("how", LOSSES)
async def test_a_question_that_others_can_decide_stays(runtime: Any, how: str) -> None:
    await begun(runtime, PROBED, approved_by("leads", 1))
    await runtime.worker().work_off()
    question = await runtime.question()
    await LOSSES[how](runtime, "lea")
    while await runtime.sweep():
        pass
    assert await runtime.question() == question
    assert (await runtime.vote("leo", "approve")).counted
