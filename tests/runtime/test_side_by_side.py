"""Several policies in force: judged together, guarded by one number, all of them recorded, and replayed by these."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.requests import consequences, policies
from runtime.requests.views import RunReader
from runtime.store import pauses
from tests.support.runtime_again import PROBED, approved_by

OPS = Actor("person", "ops")
ASKING = approved_by("leads", 1)
LETS = "policy: lets\nversion: 1\nrules:\n  - {id: a, match: {connector: probe}, outcome: allow}\n"
STOPS = "policy: stops\nversion: 1\nrules:\n  - {id: d, match: {connector: probe}, outcome: deny, because: Not now.}\n"
ELSEWHERE = STOPS.replace("version: 1\n", "version: 1\napplies: {workflows: [others-*]}\n")
SECOND = "policy: second\nversion: 1\nrules:\n" + ASKING.partition("rules:\n")[2].replace("leads", "security")


async def begun(runtime: Any, *texts: str) -> Any:
    await runtime.tenant()
    for person, group in (("lea", "leads"), ("leo", "leads"), ("sue", "security")):
        await runtime.person(person, (group,))
    await runtime.policy(texts[0], beside=texts[1:])
    await runtime.publish(PROBED)
    return (await runtime.start("w")).run_id


async def changed(runtime: Any, verb: str, *given: Any, **named: Any) -> policies.Published:
    async with runtime.faces.transaction("acme") as connection:
        done: policies.Published = await getattr(policies, verb)(
            connection, runtime.definitions, "acme", *given, OPS, **named
        )
        return done


async def told_of_policies(runtime: Any) -> list[Any]:
    """The tenant's audit of its policies, in order."""
    lines = [json.loads(event.line) for event in await runtime.books.tenant_events("acme")]
    return [line for line in lines if line["type"].startswith("policy.")]


async def number(runtime: Any) -> int:
    return int((await runtime.one("SELECT stop_number FROM tenants"))[0])


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("policies", "outcome", "names"),
    [
        ((LETS,), "allow", ["lets@1"]),
        ((LETS, STOPS), "deny", ["lets@1", "stops@1"]),
        ((LETS, ELSEWHERE), "allow", ["lets@1"]),
        ((LETS, SECOND), "needs_approval", ["lets@1", "second@1"]),
        ((ELSEWHERE,), "deny", []),
    ],
)
async def test_all_that_apply_judge_and_are_recorded(
    runtime: Any, policies: tuple[str, ...], outcome: str, names: list[str]
) -> None:
    run_id = await begun(runtime, *policies)
    await runtime.worker().work_off()
    decision = (await runtime.books.decisions())[0]
    assert (decision.outcome, decision.policies) == (outcome, names)
    await runtime.history(run_id)
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).difference is None


@pytest.mark.req("Q-16")
async def test_quorums_of_two_policies_add_up(runtime: Any) -> None:
    run_id = await begun(runtime, ASKING, SECOND)
    await runtime.worker().work_off()
    for person in ("lea", "sue"):
        assert (await runtime.status(run_id), runtime.outside.effects) == ("waiting_approval", [])
        assert (await runtime.vote(person, "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    await runtime.history(run_id)


@pytest.mark.req("U-4")
@pytest.mark.parametrize("verb", ["publish", "activate", "retire"])
async def test_every_change_moves_the_number_that_intents_are_guarded_by(runtime: Any, verb: str) -> None:
    await begun(runtime, LETS)
    done = await changed(runtime, "publish_policy", ELSEWHERE, "e.yaml", stage=verb == "activate")
    assert (done.changed, done.staged) == (True, verb == "activate")
    before = await number(runtime)
    if verb == "publish":
        await changed(runtime, "publish_policy", STOPS.replace("version: 1", "version: 2"), "s.yaml")
    elif verb == "activate":
        await changed(runtime, "activate_policy", "stops", 1)
    else:
        await changed(runtime, "retire_policy", "stops")
    assert await number(runtime) == before + 1
    # What changes nothing, and what only tells, moves nothing.
    await changed(runtime, "publish_policy", LETS, "l.yaml")
    await changed(runtime, "retire_policy", "lets", dry_run=True)
    await changed(runtime, "publish_policy", STOPS.replace("version: 1", "version: 9"), "s.yaml", dry_run=True)
    assert await number(runtime) == before + 1


@pytest.mark.req("Q-16")
async def test_a_change_tells_and_records_what_it_leads_to(runtime: Any) -> None:
    run_id = await begun(runtime, ASKING)
    await runtime.worker().work_off()
    question = await runtime.question()
    told = await changed(runtime, "publish_policy", STOPS, "s.yaml", dry_run=True)
    assert told.consequences == {
        "rules": [{"rule": "stops/d", "what": "is new"}],
        "steps": [
            {"workflow": "w@1", "step": "a", "operation": "probe.effect.apply", "before": "always asks people",
             "after": "always denied"}
        ],
        "questions": [{"approval": str(question), "run": str(run_id), "step": "a", "outcome": "deny"}],
        "more": {"rules": 0, "steps": 0, "questions": 0}, "unread": 0, "rollback_from": None,
    }  # fmt: skip
    assert await told_of_policies(runtime) == []
    done = await changed(runtime, "publish_policy", STOPS, "s.yaml")
    assert (done.consequences, done.questions) == (told.consequences, 1)
    (published, activated) = await told_of_policies(runtime)
    assert (published["type"], activated["type"]) == ("policy.published", "policy.activated")
    assert activated["data"]["consequences"] == told.consequences
    await runtime.go_on()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])

    back = await changed(runtime, "retire_policy", "stops")
    assert back.consequences is not None
    assert back.consequences["rules"] == [{"rule": "stops/d", "what": "falls away"}]
    assert (await told_of_policies(runtime))[-1]["type"] == "policy.retired"
    again = await changed(runtime, "retire_policy", "stops")
    assert (again.changed, len(await told_of_policies(runtime))) == (False, 3)


@pytest.mark.req("Q-16")
async def test_a_question_whose_run_cannot_be_read_is_counted_as_unread(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(runtime, ASKING)
    await runtime.worker().work_off()
    await runtime.question()

    async def diverged(*_: Any, **__: Any) -> Any:
        raise ConsistencyError("The book is broken.")

    monkeypatch.setattr(consequences, "load", diverged)
    told = await changed(runtime, "publish_policy", STOPS, "s.yaml", dry_run=True)
    assert told.consequences is not None
    assert (told.consequences["questions"], told.consequences["unread"]) == ([], 1)


async def test_a_lower_version_is_told_as_a_rollback(runtime: Any) -> None:
    await begun(runtime, LETS.replace("version: 1", "version: 3"))
    done = await changed(runtime, "publish_policy", LETS, "l.yaml")
    assert done.consequences is not None
    assert done.consequences["rollback_from"] == 3
    assert (await told_of_policies(runtime))[-1]["data"]["consequences"]["rollback_from"] == 3


@pytest.mark.req("Q-16")
async def test_an_approval_stays_valid_where_the_new_set_decides_the_same(runtime: Any) -> None:
    """A policy beside it that lets the same action out changes nothing for whoever was asked."""
    run_id = await begun(runtime, ASKING)
    await runtime.worker().work_off()
    assert (await runtime.vote("lea", "approve")).counted
    told = await changed(runtime, "publish_policy", LETS, "l.yaml")
    assert told.consequences is not None
    assert told.consequences["questions"] == []
    await runtime.go_on()
    assert (await runtime.status(run_id), len(runtime.outside.effects)) == ("succeeded", 1)
    assert [approval.status for approval in await runtime.books.approvals()] == ["approved"]
    made = await runtime.books.decisions()
    assert [decision.policies for decision in made] == [["p@1"], ["lets@1", "p@1"]]
    await runtime.history(run_id)


@pytest.mark.req("U-4")
async def test_one_that_went_missing_denies_although_another_changes(runtime: Any) -> None:
    run_id = await begun(runtime, LETS, STOPS)
    await runtime.execute("DELETE FROM policies WHERE name = 'stops'")
    await changed(runtime, "publish_policy", LETS.replace("version: 1", "version: 2"), "l.yaml")
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("failed_terminal", [])
    assert "not in the database" in str((await runtime.books.step()).error)


@pytest.mark.req("Q-16")
async def test_a_question_that_is_answered_while_a_change_is_told_is_none(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(runtime, ASKING)
    await runtime.worker().work_off()
    question = await runtime.question()
    await runtime.vote("lea", "approve")
    await runtime.worker().work_off()

    async def listed(*_: Any) -> list[Any]:
        return [question]

    # As it is when the answer comes just after the questions were listed.
    monkeypatch.setattr(pauses, "questions", listed)
    told = await changed(runtime, "publish_policy", STOPS, "s.yaml", dry_run=True)
    assert told.consequences is not None
    assert (told.consequences["questions"], told.consequences["unread"]) == ([], 0)
