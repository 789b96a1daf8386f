"""Approvers from the record: one person is found, or it is denied; nobody has named their own approver (promise 12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.errors import DefinitionError
from evidence.chain import Actor
from runtime.definition.people import load_directory, of_policy
from runtime.requests.publishing import publish_directory

pytestmark = pytest.mark.req("promise 12")
PAY = """
workflow: w
version: 1
steps:
  - {id: pay, do: probe.effect.apply, with: {name: pay, value: "${{ trigger.who }}"}}
"""
HAND = """
workflow: w
version: 1
steps:
  - id: hand
    do: probe.record.update
    with: {name: r, fields: {owner: zed, priority: "1"}}
"""
RULE = """
policy: p
version: VERSION
rules:
  - id: asks
    match: {connector: probe}
    outcome: needs_approval
    approvers: [APPROVER]
    escalate: {after: PT1H, to: {group: duty}}MORE
"""
MANAGER, OWNER, GIVEN = (
    "{manager_of: requester}",
    "{person: '${{ action.before.owner }}'}",
    "{person: '${{ action.fields.value }}'}",
)
PEOPLE = {
    "requester": "name: Raj Quist, manager: ana",
    "ana": "name: Ana Lee, email: ana@example.com, servicenow: a1b2, manager: cy",
    "ben": "name: Ben Ortiz",
    "cy": "name: Cy Diaz",
    "dot": "name: Dot Duty",
}


def directory(version: int = 1, **changes: str | None) -> str:
    people = "".join(f"  - {{id: {one}, {more}}}\n" for one, more in {**PEOPLE, **changes}.items() if more is not None)
    robots = "service_accounts: [{id: robot, owner: ben}]\n"
    return f"directory: d\nversion: {version}\npeople:\n{people}{robots}groups: {{duty: [dot, ben]}}\n"


async def publish(runtime: Any, text: str) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await publish_directory(connection, "acme", text, "d.yaml", Actor("test", "tester"))


async def begun(
    runtime: Any, approver: str, *, who: str = "", owner: Any = "ana", wrote: str = "ben", more: str = "", **people: Any
) -> UUID:
    await runtime.tenant()
    rule = RULE.replace("APPROVER", approver).replace("VERSION", "1").replace("MORE", more)
    await runtime.policy(rule, filled=False)
    await publish(runtime, directory(**people))
    await runtime.publish(HAND if approver == OWNER else PAY, filled=False)
    runtime.outside.records["r"] = {"version": 1, "fields": {"owner": owner, "priority": "3"}}
    runtime.outside.wrote = (wrote,)
    run_id: UUID = (await runtime.start("w", {"who": who})).run_id
    await runtime.worker().work_off()
    return run_id


ASKED = {
    "the requester's manager": (MANAGER, {}, "Ana Lee, manager of Raj Quist"),
    "by id, whom a field names": (OWNER, {}, "Ana Lee, named by owner"),
    "by e-mail": (OWNER, {"owner": "ANA@example.com"}, "Ana Lee, named by owner"),
    "by sys_id": (OWNER, {"owner": "a1b2"}, "Ana Lee, named by owner"),
    "whom a step's input names": (GIVEN, {"who": "ana"}, "Ana Lee, named by value"),
}


@pytest.mark.parametrize("case", ASKED)
async def test_exactly_one_person_is_asked_and_the_card_says_why(runtime: Any, case: str) -> None:
    approver, given, words = ASKED[case]
    run_id = await begun(runtime, approver, **given)
    asked = await runtime.books.approval(open=True)
    assert asked.card["chosen"] == [words]
    for other in ("ben", "dot", "cy", "requester"):
        assert not (await runtime.vote(other, "approve")).counted, other
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.history(run_id)


DENIED = {
    "no manager": (MANAGER, {"requester": "name: Raj Quist"}, "names no manager of Raj Quist"),
    "a requester whom nobody knows": (MANAGER, {"requester": None}, "does not know the manager of"),
    "a manager who is not active": (
        MANAGER,
        {"ana": "name: Ana Lee, active: false"},
        "Ana Lee, manager of Raj Quist, is not active",
    ),
    "a field that is empty": (OWNER, {"owner": ""}, "action.before.owner names nobody"),
    "a field without a text": (OWNER, {"owner": 7}, "action.before.owner names nobody"),
    "a field that names nobody known": (OWNER, {"owner": "zoe"}, "names 'zoe', who is not one person"),
    "a service account": (OWNER, {"owner": "robot"}, "a service account, which never decides"),
    "who wrote the field, by id": (OWNER, {"wrote": "ana"}, "Ana Lee, named by owner, edited outside what this reads"),
    "who wrote the field, by e-mail": (
        OWNER,
        {"wrote": "servicenow:ana@example.com"},
        "edited outside what this reads",
    ),
    "a writer whom nobody knows": (
        OWNER,
        {"wrote": "unknown"},
        "edited outside what this reads, and the directory knows nobody",
    ),
    "the requester, in their own record": (OWNER, {"owner": "requester"}, "Raj Quist, named by owner, requested this"),
    "the requester, in their own input": (GIVEN, {"who": "requester"}, "Raj Quist, named by value, requested this"),
}


@pytest.mark.parametrize("case", DENIED)
async def test_nobody_is_asked_and_no_wider_group(runtime: Any, case: str) -> None:
    approver, given, words = DENIED[case]
    run_id = await begun(runtime, approver, **given)
    assert await runtime.status(run_id) == "failed_terminal"
    assert words in (await runtime.error(run_id))["message"]
    assert await runtime.books.approvals() == []
    assert (await runtime.books.decision()).outcome == "deny"
    await runtime.history(run_id)


@pytest.mark.parametrize("approved", [False, True])
@pytest.mark.parametrize(
    ("changes", "next_"),
    [
        ({"requester": "name: Raj Quist, manager: ben"}, "ben"),
        ({"requester": "name: Raj Quist"}, None),
        ({"ana": "name: Ana Lee, active: false"}, None),
    ],
)
async def test_another_manager_voids_what_the_last_one_was_asked(
    runtime: Any, changes: dict[str, str], next_: str | None, approved: bool
) -> None:
    run_id = await begun(runtime, MANAGER)
    first = await runtime.question()
    if approved:
        assert (await runtime.vote("ana", "approve")).counted
    await publish(runtime, directory(2, **changes))
    if not approved:
        assert not (await runtime.vote("ana", "approve")).counted, "the right to vote is that of now"
        while await runtime.sweep():
            pass
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    if next_ is None:
        assert await runtime.status(run_id) == "failed_terminal"
        return
    second = await runtime.books.approval(open=True)
    assert second.id != first
    assert second.card["chosen"] == ["Ben Ortiz, manager of Raj Quist"]
    assert not (await runtime.vote("ana", "approve")).counted
    assert (await runtime.vote(next_, "approve")).counted
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1
    await runtime.history(run_id)


async def test_another_value_of_the_field_asks_another_person(runtime: Any) -> None:
    await begun(runtime, OWNER)
    assert (await runtime.vote("ana", "approve")).counted
    runtime.outside.records["r"]["fields"]["owner"] = "cy"
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert (await runtime.books.approval(open=True)).card["chosen"] == ["Cy Diaz, named by owner"]


async def test_unknown_writers_are_let_pass_only_if_the_rule_says_so(runtime: Any) -> None:
    await begun(runtime, OWNER, wrote="unknown", more="\n    unresolved: ask")
    shaped = (await runtime.books.approval(open=True)).card["shaped_by"]
    assert ("Somebody unknown", "edited outside what this reads (hand)") in [
        (one["name"], one["did"]) for one in shaped
    ]


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"ana": "name: Ana, manager: zoe"}, ["'zoe', who manages 'ana', is not among the people."]),
        ({"ana": "name: Ana, manager: ana"}, ["'ana' would manage themselves: ana → ana."]),
        (
            {"cy": "name: Cy, manager: ana"},
            ["'ana' would manage themselves: ana → cy → ana.", "'cy' would manage themselves: cy → ana → cy."],
        ),
    ],
)
def test_a_directory_says_who_cannot_be_a_manager(changes: dict[str, str], at: list[str]) -> None:
    with pytest.raises(DefinitionError) as failed:
        load_directory(directory(**changes), "d.yaml")
    assert [problem.message for problem in failed.value.problems] == at


@pytest.mark.parametrize(
    ("approver", "more", "words"),
    [
        ("{manager_of: subject}", "", "requester"),
        ("{person: '${{ action.target }}'}", "", "pattern"),
        ("{person: '${{ action.before.shoe }}'}", "", "action.before.shoe is no text"),
        ("{person: '${{ action.fields.amount }}'}", "", "action.fields.amount is no text"),
        (OWNER, "\n    allow: [outside_writer]", "could name themselves"),
        ("{manager_of: requester, of: 2}", "", "one person"),
        ("{manager_of: requester, group: leads}", "", "exactly one"),
    ],
)
def test_a_policy_says_what_names_nobody(runtime: Any, approver: str, more: str, words: str) -> None:
    text = RULE.replace("APPROVER", approver).replace("VERSION", "1").replace("MORE", more)
    with pytest.raises(DefinitionError, match=words):
        runtime.definitions.compile_policy(text, "p.yaml")


def test_one_person_fills_one_seat_of_two() -> None:
    text = RULE.replace("APPROVER", MANAGER).replace("VERSION", "1").replace("MORE", "\n    two_person: true")
    found = of_policy(text, "p.yaml", {"duty": frozenset({"dot", "ben"})})
    assert "two_person asks for 2 different people" in found.problems[0].message
