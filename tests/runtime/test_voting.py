"""From a policy that asks for people to a verified bundle: cards, votes, drift, expiry, escalation."""

from __future__ import annotations

import asyncio
import base64
import zipfile

import pytest

from core.errors import NotFoundError
from runtime.requests.voting import AnswerTo
from tests.support.runtime_voting import ASK, Office


@pytest.mark.req("U-5")
@pytest.mark.req("Q-16")
@pytest.mark.req("Q-17")
@pytest.mark.req("Q-20")
@pytest.mark.req("Q-21")
async def test_an_approved_action_is_performed_once_and_its_bundle_verifies(office: Office) -> None:
    run_id = await office.open()
    assert office.runtime.outside.effects == []
    assert office.board.states() == ["pending"]
    answer = await office.vote("ana", answer_to=AnswerTo("C1", "UANA"))
    assert (answer.counted, answer.status) == (True, "approved")
    assert (await office.runtime.steps(run_id))["raise"] == "ready"
    await office.finish()
    assert await office.runtime.status(run_id) == "succeeded"
    assert len(office.runtime.outside.effects) == 1
    assert office.board.states() == ["applied"]
    assert office.board.posts == 1
    assert office.board.notes == [("UANA", answer.sentence)]
    events = await office.runtime.events(run_id)
    assert events.index("approval.decided") < events.index("action.intended") < events.index("action.succeeded")
    verification = await office.verified(run_id)
    assert verification.ok, verification.to_text()


@pytest.mark.req("O-6")
async def test_a_resume_is_told_apart_by_the_wait_that_it_follows(office: Office) -> None:
    run_id = await office.open()
    wait = await office.runtime.books.wait(run=run_id, kind="approval")
    await office.vote("ana")
    (resumed,) = await office.runtime.books.events(run_id, type="step.resumed")
    assert resumed.data["invocation"] == f"resume:{wait.id}"


SECRET = """
workflow: secret
version: 1
reference: ${{ trigger.name }}
steps:
  - id: tell
    do: probe.secret.send
    with: {name: "${{ trigger.name }}", password: hunter2}
"""


async def test_secrets_of_an_approved_action_stay_out_of_its_bundle(office: Office) -> None:
    run_id = await office.open()
    await office.vote("ana", "reject", "not this one")
    policy = (
        ASK.replace("OF", "1").replace("probe.record.update", "probe.secret.send").replace("version: 1", "version: 2")
    )
    await office.runtime.policy(policy)
    await office.runtime.publish(SECRET)
    run_id = (await office.runtime.start("secret", {"name": "INC2"})).run_id
    await office.finish()
    await office.vote("ana")
    await office.finish()
    assert await office.runtime.status(run_id) == "succeeded"
    assert (await office.verified(run_id)).ok
    with zipfile.ZipFile(office.folder / "bundle.zip") as archive:
        texts = [archive.read(name) for name in archive.namelist() if name != "workflow/secret-1.yaml"]
    assert not any(b"hunter2" in text or base64.b64encode(b"hunter2")[:8] in text for text in texts)


@pytest.mark.req("Q-3")
async def test_a_rejection_ends_the_run_with_the_reason(office: Office) -> None:
    run_id = await office.open()
    assert (await office.vote("ana", "reject")).code == "reason_missing"
    assert (await office.vote("ana", "reject", "not tonight")).status == "rejected"
    await office.finish()
    run = await office.runtime.books.run(run_id)
    assert run.status == "failed_terminal"
    assert run.error == {
        "class": "authorization", "code": "rejected", "by": "ana", "message": "not tonight", "step": "raise",
    }  # fmt: skip
    assert office.runtime.outside.effects == []
    assert office.board.states() == ["rejected"]
    assert (await office.verified(run_id)).ok


async def test_ten_clicks_and_two_approvers_at_once_are_one_decision(office: Office) -> None:
    run_id = await office.open()
    approval = (await office.approval()).id
    people = ["ana"] * 10 + ["ben"] * 10
    answers = await asyncio.gather(*(office.vote(person, approval=approval) for person in people))
    assert sum(answer.counted for answer in answers) == 1
    assert {answer.code for answer in answers} == {"counted", "already_decided"}
    await office.finish()
    assert (await office.runtime.events(run_id)).count("approval.decided") == 1
    assert len(office.runtime.outside.effects) == 1


async def test_a_quorum_of_two_needs_two_people(office: Office) -> None:
    run_id = await office.open(of=2)
    assert (await office.vote("ana")).status == "requested"
    assert (await office.vote("ana")).code == "already_counted"
    assert (await office.vote("ben")).status == "approved"
    await office.finish()
    assert await office.runtime.status(run_id) == "succeeded"
    assert (await office.verified(run_id)).ok


@pytest.mark.req("P-12")
@pytest.mark.parametrize(
    ("person", "code"),
    [("requester", "separation_of_duties"), ("cara", "not_eligible"), ("nobody", "not_in_directory")],
)
async def test_who_may_not_vote_is_told_why_and_the_attempt_is_audited(office: Office, person: str, code: str) -> None:
    run_id = await office.open()
    answer = await office.vote(person)
    assert (answer.counted, answer.code) == (False, code)
    assert await office.runtime.status(run_id) == "waiting_approval"
    assert len(await office.runtime.books.audit(type="approval.vote_refused")) == 1


async def test_another_tenants_approval_does_not_exist(office: Office) -> None:
    await office.open()
    await office.runtime.tenant("evil")
    with pytest.raises(NotFoundError):
        await office.vote("ana", tenant="evil")


async def test_drift_after_the_approval_asks_again_and_supersedes_the_old_card(office: Office) -> None:
    run_id = await office.open()
    first = (await office.approval()).id
    await office.vote("ana")
    record = office.runtime.outside.records["INC1"]
    record["version"] += 1
    record["fields"]["priority"] = "2"
    await office.finish()
    assert office.runtime.outside.effects == []
    assert await office.runtime.status(run_id) == "waiting_approval"
    assert sorted(office.board.states()) == ["pending", "superseded"]
    second = await office.approval()
    assert second.id != first
    assert second.card["changes"] == [{"field": "priority", "before": "2", "after": "1"}]
    assert (await office.vote("ben", approval=first)).code == "changed"
    await office.vote("ben")
    await office.finish()
    assert await office.runtime.status(run_id) == "succeeded"
    assert len(office.runtime.outside.effects) == 1
    assert (await office.verified(run_id)).ok


async def test_a_policy_that_denies_meanwhile_wins_over_the_approval(office: Office) -> None:
    run_id = await office.open()
    await office.vote("ana")
    denial = (
        "policy: ask\nversion: 2\nrules:\n  - {id: none, match: {connector: probe}, outcome: deny, because: Frozen.}\n"
    )
    await office.runtime.policy(denial)
    await office.finish()
    assert await office.runtime.status(run_id) == "failed_terminal"
    assert office.runtime.outside.effects == []
    assert office.board.states() == ["superseded"]
    assert (await office.verified(run_id)).ok


async def test_an_unanswered_question_reminds_escalates_and_expires(office: Office) -> None:
    run_id = await office.open()
    await office.later(hours=1.01)
    assert await office.sweeper.sweep() == 1
    assert await office.sweeper.sweep() == 0
    await office.later(hours=5.01)
    assert await office.sweeper.sweep() == 1
    await office.dispatcher.work_off()
    assert len(office.board.threads) == 2
    assert (await office.approval()).escalated
    await office.later(hours=2.01)
    assert await office.sweeper.sweep() == 1
    await office.finish()
    run = await office.runtime.books.run(run_id)
    assert (run.status, run.error["code"]) == ("failed_terminal", "expired")
    assert office.runtime.outside.effects == []
    assert office.board.states() == ["expired"]


async def test_after_the_escalation_the_managers_may_decide(office: Office) -> None:
    run_id = await office.open()
    await office.later(hours=1.01)
    await office.sweeper.sweep()
    await office.later(hours=5.01)
    await office.sweeper.sweep()
    assert (await office.vote("cara")).status == "approved"
    await office.finish()
    assert await office.runtime.status(run_id) == "succeeded"


@pytest.mark.req("O-8")
@pytest.mark.parametrize("fault", ["lost", "landed"])
async def test_a_card_whose_post_is_in_doubt_is_looked_for_and_never_doubled(office: Office, fault: str) -> None:
    office.board.fault = fault
    await office.open()
    await office.runtime.trouble.retry_messages_now("card")
    await office.dispatcher.work_off()
    assert office.board.posts == 1
    assert (await office.approval()).message_ts == "1.0"


async def test_one_drawing_does_for_all_messages_that_wait_to_redraw_a_card(office: Office) -> None:
    """The vote and the action's end each ordered a drawing; the card shows both at once, and nothing is left over."""
    await office.open()
    assert (await office.vote("ana")).counted
    await office.finish()
    assert [order.status for order in await office.runtime.books.commands(kind="card")] == ["dispatched"] * 3
    assert (office.board.posts, office.board.updates, office.board.states()) == (1, 1, ["applied"])


async def test_a_drawing_that_failed_leaves_the_messages_behind_it(office: Office) -> None:
    await office.open()
    assert (await office.vote("ana")).counted
    await office.runtime.worker().work_off()
    card, office.board.cards = office.board.cards, {}
    await office.dispatcher.work_off()  # the messenger raises for both
    office.board.cards = card
    await office.runtime.trouble.retry_messages_now("card")
    await office.dispatcher.work_off()
    assert office.board.states() == ["applied"]
    assert {order.status for order in await office.runtime.books.commands(kind="card")} == {"dispatched"}


async def test_a_canceled_run_cancels_its_question(office: Office) -> None:
    from evidence.chain import Actor
    from runtime.requests.steering import cancel_run

    run_id = await office.open()
    async with office.runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, office.runtime.definitions, "acme", run_id, Actor("person", "ana"), "no")
    await office.finish()
    assert await office.runtime.status(run_id) == "canceled"
    assert (await office.runtime.steps(run_id))["raise"] == "canceled"
    assert office.board.states() == ["canceled"]
    canceled = await office.approval("canceled")
    assert (await office.vote("ana", approval=canceled.id)).code == "already_decided"
    assert (await office.verified(run_id)).ok


@pytest.mark.req("O-8")
async def test_a_card_that_nobody_recorded_is_not_doubled_when_its_question_is_decided(office: Office) -> None:
    """The post landed and its record was lost; before that message is tried again, somebody decides."""
    office.board.fault = "landed"
    await office.open()  # the card is in the channel; its message waits for its next attempt
    assert (await office.approval()).message_ts is None
    assert (await office.vote("ana")).status == "approved"  # orders a second message about the card, due at once
    await office.finish()
    assert office.board.posts == 1
