"""Deciding over HTTP and in Slack: the same questions, the same rules, one decision."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from app.access import Role
from app.http.approvals import REFUSED
from approvals.quorum import RefusalCode
from core.canonical import sha256_hex


@pytest.mark.req("U-8")
async def test_an_approved_action_is_performed_once(installation: Any) -> None:
    run_id, approval_id, _ = await installation.asked()
    client = await installation.client(Role.APPROVER, subject="ann")
    (open_,) = (await client.get("/v1/approvals?status=requested")).json()["items"]
    assert open_["approval_id"] == str(approval_id)
    body = {"choice": "approve", "digest": open_["digest"]}
    answers = await asyncio.gather(*(client.post(f"/v1/approvals/{approval_id}/votes", json=body) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert installation.outside.effects == []
    await installation.work()
    assert len(installation.outside.effects) == 1
    assert await installation.status(run_id) == "succeeded"
    shown = (await client.get(f"/v1/approvals/{approval_id}")).json()
    assert (shown["status"], shown["state"]) == ("approved", "applied")
    assert [(vote["person"], vote["channel"]) for vote in shown["votes"]] == [("ann", "http")]


async def test_a_rejection_needs_a_reason_and_ends_the_run(installation: Any) -> None:
    run_id, approval_id, _ = await installation.asked()
    client = await installation.client(Role.APPROVER, subject="bob")
    path = f"/v1/approvals/{approval_id}/votes"
    without = await client.post(path, json={"choice": "reject"})
    assert (without.status_code, without.json()["code"]) == (422, "reason_missing")
    answer = await client.post(path, json={"choice": "reject", "reason": "too risky"})
    assert (answer.status_code, answer.json()["status"]) == (200, "rejected")
    await installation.work()
    assert (await installation.status(run_id), installation.outside.effects) == ("failed_terminal", [])


async def test_votes_that_do_not_count_are_4xx_and_change_nothing(installation: Any) -> None:
    _, approval_id, _ = await installation.asked()
    path = f"/v1/approvals/{approval_id}/votes"
    cases = [
        ("eve", {"choice": "approve"}, 403, "not_eligible"),
        ("nobody", {"choice": "approve"}, 403, "not_eligible"),
        ("tess", {"choice": "approve"}, 403, "separation_of_duties"),
        ("ann", {"choice": "approve", "digest": sha256_hex(b"something else")}, 409, "changed"),
        ("ann", {"choice": "happened", "reason": "x"}, 422, "wrong_choice"),
        ("ann", {"choice": "reject", "reason": "x" * 2001}, 422, "reason_too_long"),
        ("ann", {"choice": "nonsense"}, 422, "input"),
        ("ann", {"choice": "approve", "digest": "short"}, 422, "input"),
    ]
    for person, body, status, code in cases:
        client = await installation.client(Role.APPROVER, subject=person)
        answer = await client.post(path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), (person, body)
    assert await installation.books.votes() == []
    refused = await installation.tenant_events("approval.vote_refused")
    assert [(event["actor"]["id"], event["data"]["code"]) for event in refused] == [
        (person, code) for person, _, _, code in cases[:4]
    ]
    unknown = await (await installation.client(Role.APPROVER)).post(
        f"/v1/approvals/{uuid4()}/votes", json={"choice": "approve"}
    )
    assert unknown.status_code == 404


def test_every_refusal_has_a_status_below_500() -> None:
    assert set(REFUSED) == set(RefusalCode)
    assert all(200 <= status < 500 for status in REFUSED.values())


async def test_hidden_values_are_shown_only_to_those_who_are_asked(installation: Any) -> None:
    _, approval_id, _ = await installation.asked()
    secret = "4711-secret"
    asked = await installation.client(Role.APPROVER, subject="ann")
    shown = await asked.get(f"/v1/approvals/{approval_id}")
    assert (shown.json()["masked"], secret in shown.text) == (False, True)
    assert secret not in (await asked.get("/v1/approvals")).text
    others = [("eve", Role.APPROVER), ("ann", Role.OPERATOR), ("ann", Role.ADMIN), ("root", Role.AUDITOR)]
    for person, role in others:
        client = await installation.client(role, subject=person)
        answer = await client.get(f"/v1/approvals/{approval_id}")
        assert (answer.json()["masked"], secret in answer.text) == (True, False), (person, role)


async def test_pages_show_every_approval_once(installation: Any) -> None:
    asked = [str((await installation.asked(f"INC{number}"))[1]) for number in range(3)]
    client = await installation.client(Role.OPERATOR)
    first = (await client.get("/v1/approvals?limit=2")).json()
    second = (await client.get("/v1/approvals", params={"limit": 2, "cursor": first["next"]})).json()
    assert [item["approval_id"] for item in first["items"] + second["items"]] == asked[::-1]
    assert second["next"] is None


@pytest.mark.req("U-8")
async def test_a_click_in_slack_decides_once_however_often_it_comes(installation: Any) -> None:
    run_id, approval_id, nonce = await installation.asked()
    ann, bob = (installation.click(approval_id, nonce, user) for user in ("U0ANN", "U0BOB"))
    answers = await asyncio.gather(*(installation.slack(click) for click in [ann] * 10 + [bob]))
    assert {answer.status_code for answer in answers} == {200}
    (vote,) = await installation.books.votes()
    assert (vote.choice, vote.channel) == ("approve", "slack")
    assert (await installation.books.event_types(run_id)).count("approval.decided") == 1
    assert len(await installation.books.commands(kind="note")) == 11  # every click is answered
    await installation.work()
    assert len(installation.outside.effects) == 1


async def test_a_rejection_in_slack_comes_from_its_modal(installation: Any) -> None:
    _, approval_id, nonce = await installation.asked()
    empty = await installation.slack(installation.submission(approval_id, nonce, "reject", ""))
    assert empty.json()["response_action"] == "errors"
    answer = await installation.slack(installation.submission(approval_id, nonce, "reject", "no"))
    assert answer.status_code == 200
    assert "counted" in answer.text
    question = await installation.books.approval(id=approval_id)
    assert (question.status, question.reason) == ("rejected", "no")


async def test_somebody_whom_the_directory_does_not_know_is_told_how_to_be_linked(installation: Any) -> None:
    _, approval_id, nonce = await installation.asked()
    assert (await installation.slack(installation.click(approval_id, nonce, "U0WHO"))).status_code == 200
    note = await installation.books.command(kind="note")
    assert "slack: U0WHO" in note.payload["text"]
    modal = await installation.slack(installation.submission(approval_id, nonce, "reject", "no", "U0WHO"))
    assert "slack: U0WHO" in modal.text
    events = await installation.tenant_events("approval.vote_refused")
    assert [event["actor"] for event in events] == [{"kind": "slack_user", "id": "T0DEMO:U0WHO"}]
    assert await installation.books.votes() == []


async def test_a_click_on_another_tenants_or_nobodys_card_is_refused(installation: Any) -> None:
    await installation.publish("other")
    _, approval_id, nonce = await installation.asked(tenant="other")
    for identifier in (approval_id, uuid4()):
        assert (await installation.slack(installation.click(identifier, nonce))).status_code == 400
        modal = await installation.slack(installation.submission(identifier, nonce, "reject", "no"))
        assert (modal.status_code, "not known here" in modal.text) == (200, True)
    assert await installation.books.votes() == []


async def test_a_click_on_an_old_card_says_so(installation: Any) -> None:
    _, approval_id, _ = await installation.asked()
    assert (await installation.slack(installation.click(approval_id, "an-old-nonce"))).status_code == 200
    note = await installation.books.command(kind="note")
    assert "out of date" in note.payload["text"]
    assert await installation.books.votes() == []


async def test_without_slack_there_is_no_slack_endpoint(serve: Any, settings: Any) -> None:
    installation = await serve(settings.model_copy(update={"slack_bot_token": None}))
    client = await installation.client()
    assert (await client.post("/slack/events", content=b"payload={}")).status_code == 404
