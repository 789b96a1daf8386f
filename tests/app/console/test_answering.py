"""Answers, forms and what operators do: bound to what was shown, refused with the reason, nothing typed is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.access import Role
from runtime.engine.life import doubt
from runtime.requests import policies, publishing
from tests.support.app_stage import POLICY
from tests.support.arrivals import Arrivals
from tests.support.outside import Gate
from tests.support.people import leave_group

TYPED = "Agreed with the duty manager & all <others>."


async def test_an_answer_counts_once_and_is_bound_to_what_was_shown(stage: Any) -> None:
    installation, approval = stage.installation, stage.ids["pending"]
    ann, bob = await stage.door.enter("ann", Role.APPROVER), await stage.door.enter("bob", Role.APPROVER)
    path = stage.pages["pending"]
    refused = {
        "no digest": (422, {"choice": "approve", "digest": ""}, "names no question"),
        "no choice": (422, {"reason": TYPED}, "Choose an answer"),
        "another answer": (422, {"choice": "again", "reason": TYPED}, "Choose an answer"),
        "no reason": (422, {"choice": "reject"}, "Write a reason"),
        "only spaces": (422, {"choice": "reject", "reason": "  "}, "Write a reason"),
        "too long": (422, {"choice": "reject", "reason": "x" * 3000}, "2000"),
        "another digest": (409, {"choice": "approve", "digest": "a" * 64, "reason": TYPED}, "changed while you looked"),
    }
    for name, (status, fields, words) in refused.items():
        answer = await ann.send(path, **fields)
        assert (name, answer.status_code) == (name, status)
        assert words in answer.text, name
        kept = "Agreed with the duty manager &amp; all &lt;others&gt;." in answer.text
        assert kept == (fields.get("reason") == TYPED), name
    assert (await installation.books.approval(id=approval)).status == "requested"
    assert (await ann.send(path, choice="approve")).headers["location"] == f"/console{path}?answered"
    assert "Your answer was counted" in (await ann.get(f"{path}?answered")).text
    (vote,) = await installation.books.votes(approval=approval)
    assert (vote.person, vote.choice, vote.channel) == ("ann", "approve", "console")
    await installation.work()
    assert await installation.status(stage.ids["run"]) == "succeeded"
    late = await bob.vote(approval, (await installation.books.approval(id=approval)).action_digest)
    assert late == "already_decided"
    text = (await bob.get(path)).text
    assert 'name="choice"' not in text
    assert "Applied" in text
    assert "<h1>INC1 is done</h1>" in (await ann.get(stage.pages["run"])).text


async def test_who_shaped_it_or_is_not_asked_sees_why_in_place_of_the_buttons(stage: Any) -> None:
    installation, path = stage.installation, stage.pages["pending"]
    digest = (await installation.books.approval(id=stage.ids["pending"])).action_digest
    await leave_group(installation.engine, "default", "bob", "leads")
    cases = {
        ("tess", Role.APPROVER): ("you requested this, and somebody else has to", "separation_of_duties"),
        ("eve", Role.APPROVER): ("it asks members of leads, and you are not one", "not_eligible"),
        ("bob", Role.APPROVER): ("it asks members of leads, and you are not one", "not_eligible"),
        ("ann", Role.OPERATOR): ("does not have the role approver", "no_role"),
    }
    for (person, role), (words, code) in cases.items():
        browser = await stage.door.enter(person, role)
        text = (await browser.get(path)).text
        aside = text[text.index('id="decide"') :]
        assert words in aside, (person, aside[:600])
        assert "<button" not in aside
        assert await browser.vote(stage.ids["pending"], digest) == code
    assert (await installation.books.approval(id=stage.ids["pending"])).status == "requested"


async def test_a_question_that_changed_shows_what_is_different(stage: Any) -> None:
    installation, path = stage.installation, stage.pages["pending"]
    ann = await stage.door.enter("ann", Role.APPROVER)
    form = await ann.form(path, choice="approve", reason=TYPED)
    found = installation.app.faces
    async with found.database.transaction("default") as connection:
        text = POLICY.replace("version: 1", "version: 2").replace("of: 1", "of: 2")
        await policies.publish_policy(connection, found.definitions, "default", text, "p", stage.door.tester)
    await installation.app.sweeper().sweep()
    await installation.work()
    answer = await ann.post(path, form)
    assert answer.status_code == 409, answer.text
    assert "The question changed while you looked" in answer.text
    assert "Agreed with the duty manager" in answer.text
    newer = re.search(r'href="/console(/approvals/[0-9a-f-]+)">Look at the new question', answer.text)
    assert newer is not None
    assert (await ann.send(newer[1], choice="approve")).status_code == 303


async def test_values_from_outside_take_a_tick_and_a_reason(stage: Any) -> None:
    ann = await stage.door.enter("ann", Role.APPROVER)
    path = stage.pages["strange"]
    assert "Nobody of yours chose this value" in (await ann.get(path)).text
    for fields in ({"reason": "I know it"}, {"seen": "1"}, {}):
        answer = await ann.send(path, choice="approve", **fields)
        assert (answer.status_code, "field err" in answer.text) == (422, True), fields
    assert (await ann.send(path, choice="approve", reason="I know it", seen="1")).status_code == 303


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    found = Arrivals()
    monkeypatch.setattr(doubt, "rest", found.rest)
    return found


async def test_a_doubt_and_a_gate_are_answered(stage: Any, arrivals: Arrivals) -> None:
    installation = stage.installation
    ann = await stage.door.enter("ann", Role.APPROVER)
    gate = installation.outside.gates["INC1"] = Gate(after_effect=True)
    await ann.send(stage.pages["pending"], choice="approve")
    slow = stage.door.task(installation.app.worker().work_off())
    await gate.reached.wait()
    await installation.trouble.expire_leases()
    await installation.app.sweeper().sweep()
    arrivals.everything_so_far()
    await installation.work()
    asked = await installation.books.approval(run=stage.ids["run"], kind="in_doubt")
    path = f"/approvals/{asked.id}"
    text = (await ann.get(path)).text
    assert "Did this happen" in text
    assert "In doubt" in (await ann.get("/inbox")).text
    answer = await ann.send(path, choice="happened")
    assert (answer.status_code, "Write what you saw, and where" in answer.text) == (422, True)
    assert (await ann.send(path, choice="happened", reason="It is there.")).status_code == 303
    gate.opened.set()
    await slow
    await installation.work()
    assert await installation.status(stage.ids["run"]) == "succeeded"
    assert (await ann.send(stage.pages["gate"], choice="approve")).status_code == 303
    await installation.work()
    assert await installation.status(stage.ids["branches run"]) == "succeeded"


async def test_a_task_is_filled_in(stage: Any) -> None:
    installation, path = stage.installation, stage.pages["task"]
    ann, eve = await stage.door.enter("ann", Role.APPROVER), await stage.door.enter("eve", Role.APPROVER)
    assert "you are none of them" in (await eve.get(path)).text
    good = {"f.name": "Ada", "f.share": "2.5", "f.kind": "person", "f.many": ["x", "y"], "f.sure": "false"}
    digest = (await ann.form(path))["digest"]
    assert (await eve.post(path, {**await eve.form("/inbox"), "digest": digest, **good})).status_code == 403
    wrong = await ann.send(path, **{**good, "f.share": "lots", "f.name": "<b>"})
    assert wrong.status_code == 422
    assert "It is not a number" in wrong.text
    assert 'value="&lt;b&gt;"' in wrong.text
    assert (await ann.send(path, digest="0" * 64, **good)).status_code == 409
    assert (await ann.send(path, **good)).headers["location"] == f"/console{path}?done"
    await installation.work()
    run = await installation.books.run(stage.ids["forms run"])
    assert run.status == "succeeded"
    assert run.result == {"name": "Ada", "share": 2.5, "kind": "person", "many": ["x", "y"], "sure": False}


async def test_operators_steer_runs_after_they_have_seen_each(stage: Any) -> None:
    installation, ids = stage.installation, stage.ids
    op = await stage.door.enter("eve", Role.OPERATOR)
    text = (await op.get(stage.pages["rejected run"])).text
    assert "INC2 was rejected at danger" in text
    assert "Not today, says the owner." in text
    assert "Speak with whoever rejected it" in text
    several = f"/runs/several?do=cancel&run={ids['run']}&run={ids['rejected run']}"
    page = (await op.get(several)).text
    assert "It is over, so it stays" in page
    assert await installation.status(ids["run"]) == "waiting_approval", "looking changes nothing"
    form = await op.form(several)
    assert (await op.post("/runs/several", form)).status_code == 422
    answer = await op.post("/runs/several", {**form, "reason": "wrong order"})
    assert answer.status_code == 303
    assert await installation.status(ids["run"]) == "canceled"
    again = await op.post("/runs/several", {**form, "reason": "wrong order"})
    assert (again.status_code, "1 of 1 could not be done" in again.text) == (409, True)
    retried = await op.send(stage.pages["rejected run"], reason="the owner agrees now")
    assert retried.status_code == 405, "the form has its own address"
    form = {**await op.form(stage.pages["rejected run"]), "reason": "the owner agrees now"}
    assert (await op.post(f"{stage.pages['rejected run']}/retry", form)).status_code == 303
    await installation.work()
    assert await installation.status(ids["rejected run"]) == "waiting_approval"


async def test_pauses_stand_on_every_page_and_admins_put_policies_in_force(stage: Any) -> None:
    op, admin = await stage.door.enter("eve", Role.OPERATOR), await stage.door.enter("bob", Role.ADMIN)
    form = await op.form("/health")
    wrong = {"what": "workflow", "name": "nowhere", "reason": "r"}
    assert (await op.post("/health/pause", {**form, **wrong})).status_code == 422
    answer = await op.post("/health/pause", {**form, "what": "workflow", "name": "asking", "reason": "month's end"})
    assert answer.status_code == 303
    for browser, path in ((op, "/runs"), (admin, "/policies"), (op, "/health")):
        assert "Workflow asking is paused" in (await browser.get(path)).text
    assert (await op.post("/health/resume", {**form, "what": "workflow", "name": "asking"})).status_code == 303
    assert "is paused" not in (await op.get("/runs")).text
    foreseen = (await admin.get(stage.pages["activate"])).text
    assert "What it would lead to" in foreseen
    assert "PT4H" in foreseen
    form = await admin.form(stage.pages["activate"])
    csrf = (await op.form("/runs"))["csrf"]
    assert (await op.post(stage.pages["activate"], {**form, "csrf": csrf})).status_code == 404
    assert (await admin.post(stage.pages["activate"], form)).headers["location"] == "/console/policies"
    (made,) = [e for e in await stage.installation.tenant_events("policy.activated") if e["data"]["version"] == 2]
    assert made["actor"] == {"kind": "person", "id": "bob"}


async def test_two_people_put_a_policy_in_force(stage: Any) -> None:
    found = stage.installation.app.faces
    people = "directory: tests\nversion: 9\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob}]\n"
    people += "groups: {leads: [ann, bob], policy_approvers: [ann, bob]}\n"
    async with found.database.transaction("default") as connection:
        await publishing.publish_directory(connection, "default", people, "p", stage.door.tester)
    ann = await stage.door.enter("ann", Role.ADMIN, Role.APPROVER)
    bob = await stage.door.enter("bob", Role.APPROVER)
    form = await ann.form(stage.pages["activate"])
    assert (await ann.post(stage.pages["activate"], form)).headers["location"].endswith("?waits")
    await stage.installation.work()
    text = (await bob.get("/policies")).text
    assert "strangers 2 is proposed" in text
    asked = re.search(r'href="/console(/approvals/[0-9a-f-]+)">Look at the question', text)
    assert asked is not None
    assert "separation" in await ann.vote(asked[1].rpartition("/")[2], (await bob.form(asked[1]))["digest"])
    assert (await bob.send(asked[1], choice="approve")).status_code == 303
    await stage.installation.work()
    assert "is proposed" not in (await bob.get("/policies")).text
