"""A policy that takes two people is a governed question: asked in Slack, decided once, in force with its vote."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role
from app.cli.outcome import Exit
from approvals.content import CardContent
from approvals.slack.details import content_lines
from core.errors import AuthorizationError, DefinitionError
from evidence.chain import Actor
from runtime.definition.reserved import POLICY_CHANGE, POLICY_CHANGE_SOURCE
from runtime.requests.starting import StartRequest, start_named
from tests.support.app_activating import GROUP, TWO, active, admin, people

THREE = GROUP.replace("policy_approvers: [ann, bob]", "policy_approvers: [ann, bob, eve]")
CHANNEL = "C0INC"
NEW = TWO.replace("because: Two.", "because: It was changed.") + (
    "  - {id: cases-again, match: {operation: probe.case.open}, outcome: deny}\n"
)
RENAMED = NEW.replace("id: dangers", "id: perils")


@pytest.fixture
async def shown(serve: Any, settings: Any, slack_world: Any) -> Any:
    """An installation with a channel for its cards, and a tenant in which a policy takes two people."""
    installation = await serve(settings.model_copy(update={"slack_channel": CHANNEL}))
    await installation.publish()
    await people(installation, THREE)
    installation.slack_world = slack_world
    return installation


async def proposed(installation: Any, text: str = RENAMED, by: str = "ann") -> Any:
    """Ann proposes it, and the others are asked: the question."""
    answer = await (await admin(installation, by)).post("/v1/policies", json={"source": text})
    assert (answer.status_code, answer.json()["waits"]) == (200, True), answer.text
    await installation.work()
    return await installation.books.approval(open=True)


def card(installation: Any, question: Any) -> Any:
    (found,) = [one for one in installation.slack_world.state.messages(CHANNEL) if str(question.id) in str(one.blocks)]
    return found


def all_words(installation: Any, question: Any) -> str:
    """The words of the card, and of the window to which it leads."""
    return f"{card(installation, question).blocks} {content_lines(CardContent.from_json(question.card))}"


async def told(installation: Any, question: Any) -> str:
    """Read what stands below the question's card."""
    row = await installation.books.approval(id=question.id)
    stand_in = installation.slack_world.state.channels[CHANNEL]
    return " ".join(one.text for one in stand_in.replies(row.message_ts))


@pytest.mark.req("U-5")
async def test_a_proposal_asks_the_others_in_slack_and_says_what_changes(shown: Any) -> None:
    question = await proposed(shown)
    assert "policy tests version 2 (digest " in str(card(shown, question).blocks)
    words = all_words(shown, question)
    for part in (
        "policy tests version 2 (digest ",
        "in place of tests version 1 (digest ",
        "Rules added: perils, cases-again.",
        "Rules removed: dangers.",
        "Rules changed: effects, cases.",
        "counterseal.review",
        "counterseal.reject",
    ):
        assert part in words, words
    assert await active(shown) == "tests@1"
    run = await shown.books.run(question.run)
    assert (run.workflow, run.requested_by) == (POLICY_CHANGE, "person:ann")
    line = (await shown.tenant_events("policy.proposed"))[-1]["data"]
    assert (line["name"], line["version"], line["by"]) == ("tests", 2, "ann")


async def test_a_click_that_approves_puts_it_in_force(shown: Any) -> None:
    question = await proposed(shown)
    assert (await shown.slack(shown.click(question.id, question.nonce, "U0BOB"))).status_code == 200
    assert await active(shown) == "tests@2"
    line = (await shown.tenant_events("policy.activated"))[-1]["data"]
    assert (line["author"], line["by"], line["approver"]) == ("ann", "ann", "bob")
    await shown.work()
    assert await shown.status(question.run) == "succeeded"
    assert "Ann, the change of policy that you proposed was approved by Bob and is in force" in await told(
        shown, question
    )


@pytest.mark.req("X-16")
async def test_the_same_click_again_changes_nothing(shown: Any) -> None:
    question = await proposed(shown)
    for _ in range(2):
        await shown.slack(shown.click(question.id, question.nonce, "U0BOB"))
    assert len(await shown.tenant_events("policy.activated")) == 2  # the first one, and this


async def test_whoever_proposed_it_does_not_approve_it(shown: Any) -> None:
    question = await proposed(shown)
    await shown.slack(shown.click(question.id, question.nonce, "U0ANN"))
    await shown.slack(shown.click(question.id, question.nonce, "U0WHO"))
    assert (await active(shown), (await shown.books.approval(open=True)).id) == ("tests@1", question.id)
    refused = await shown.tenant_events("approval.vote_refused")
    assert [one["data"]["code"] for one in refused][:1] == ["separation_of_duties"]


async def test_a_rejection_ends_the_proposal_and_its_author_hears_why(shown: Any) -> None:
    question = await proposed(shown)
    await shown.slack(shown.submission(question.id, question.nonce, "reject", "Too wide", "U0BOB"))
    await shown.work()
    assert (await active(shown), await shown.status(question.run)) == ("tests@1", "failed_terminal")
    assert "Ann, the change of policy that you proposed was rejected by Bob: Too wide" in await told(shown, question)
    # It is over: another proposal is a new question, and the word of the first counts no more.
    bob = await admin(shown, "bob")
    assert (await bob.post("/v1/policies/tests/2/activate")).json()["waits"] is True
    assert await active(shown) == "tests@1"


async def test_a_proposal_that_nobody_answers_expires_and_its_author_hears_it(shown: Any) -> None:
    question = await proposed(shown)
    for _ in ("remind", "remind", "expire"):
        await shown.trouble.make_waits_due(run=question.run)
        await shown.app.sweeper().sweep()
    await shown.work()
    assert (await active(shown), await shown.status(question.run)) == ("tests@1", "failed_terminal")
    assert "Ann, the change of policy that you proposed ended without a decision" in await told(shown, question)


async def test_whoever_proposed_what_nobody_can_be_asked_about_hears_why(shown: Any) -> None:
    """The others leave the group after the proposal, and before a worker puts the question: there is no card."""
    shown.slack_world.state.channels[CHANNEL].members.add("U0ANN")
    answer = await (await admin(shown, "ann")).post("/v1/policies", json={"source": RENAMED})
    assert answer.json()["waits"] is True
    alone = THREE.replace("policy_approvers: [ann, bob, eve]", "policy_approvers: [ann]")
    assert (await people(shown, alone, "bob")).waits
    assert (await people(shown, alone, "eve")).changed
    await shown.work()
    (run,) = await shown.books.runs(workflow=POLICY_CHANGE)
    assert (run.status, await shown.books.approvals(), await active(shown)) == ("failed_terminal", [], "tests@1")
    notes = [one for one in shown.slack_world.state.channels[CHANNEL].messages if one.ephemeral_for]
    assert [(one.ephemeral_for, one.text.partition(",")[0]) for one in notes] == [("U0ANN", "Ann")]
    assert "the change of policy that you proposed is not in force, because nobody can be asked" in notes[0].text
    assert "policy_approvers" in notes[0].text


async def test_the_command_line_and_http_are_other_doors_to_the_same_question(shown: Any) -> None:
    question = await proposed(shown)
    bob = await admin(shown, "bob")
    assert (await bob.post("/v1/policies/tests/2/activate")).json()["changed"] is True
    (vote,) = await shown.books.votes(approval=question.id)
    assert (vote.person, vote.choice, vote.channel) == ("bob", "approve", "http")
    assert await active(shown) == "tests@2"


async def test_another_policy_in_force_ends_what_was_proposed_before(shown: Any) -> None:
    first = await proposed(shown)
    three = RENAMED.replace("version: 2", "version: 3")
    second = await (await admin(shown, "bob")).post("/v1/policies", json={"source": three})
    assert second.json()["waits"] is True
    await shown.work()
    (other,) = [one for one in await shown.books.approvals(open=True) if one.id != first.id]
    await shown.slack(shown.click(other.id, other.nonce, "U0EVE"))
    assert (await active(shown), await shown.status(first.run)) == ("tests@3", "canceled")
    await shown.slack(shown.click(first.id, first.nonce, "U0EVE"))
    assert await active(shown) == "tests@3"


async def test_a_proposal_of_somebody_who_has_left_the_group_is_not_approved(shown: Any) -> None:
    question = await proposed(shown)
    without = THREE.replace("policy_approvers: [ann, bob, eve]", "policy_approvers: [bob, eve]")
    assert (await people(shown, without, "bob")).waits
    assert (await people(shown, without, "eve")).changed
    await shown.slack(shown.click(question.id, question.nonce, "U0BOB"))
    assert await active(shown) == "tests@1"
    assert (await shown.tenant_events("approval.vote_refused"))[-1]["data"]["code"] == "not_eligible"


async def test_taking_a_policy_out_of_force_is_a_question_too(shown: Any) -> None:
    ann = await admin(shown, "ann")
    for _ in range(2):
        assert (await ann.post("/v1/policies/tests/retire")).json()["waits"] is True
    await shown.work()
    (question,) = await shown.books.approvals(open=True)
    assert "Take policy tests version 1 (digest " in str(card(shown, question).blocks)
    words = all_words(shown, question)
    for part in ("Take policy tests version 1 (digest ", "out of force?", "Rules removed: effects, cases, dangers."):
        assert part in words, words
    assert "steps of published workflows, 0 open questions" in words
    assert await active(shown) == "tests@1"
    await shown.slack(shown.click(question.id, question.nonce, "U0BOB"))
    assert [one["active"] for one in (await ann.get("/v1/policies")).json()["items"]] == [False]
    line = (await shown.tenant_events("policy.retired"))[-1]["data"]
    assert (line["name"], line["by"], line["approver"]) == ("tests", "ann", "bob")
    assert {"rule": "tests/effects", "what": "falls away"} in line["consequences"]["rules"], line
    await shown.work()
    assert await shown.status(question.run) == "succeeded"


async def test_a_retirement_ends_what_was_proposed_before_and_the_other_way_round(shown: Any) -> None:
    first = await proposed(shown)
    ann, bob = await admin(shown, "ann"), await admin(shown, "bob")
    assert (await ann.post("/v1/policies/tests/retire")).json()["waits"] is True
    assert (await bob.post("/v1/policies/tests/retire")).json()["changed"] is True
    await shown.work()
    assert await shown.status(first.run) == "canceled"
    assert (await ann.post("/v1/policies/tests/1/activate")).json()["waits"] is True
    assert (await bob.post("/v1/policies/tests/2/activate")).json()["waits"] is True
    assert (await bob.post("/v1/policies/tests/1/activate")).json()["changed"] is True
    assert (await ann.post("/v1/policies/tests/2/activate")).json()["waits"] is True
    assert await active(shown) == "tests@1"


async def test_nothing_is_added_to_the_question_and_it_is_not_put_again_after_its_end(shown: Any) -> None:
    """Else a step of somebody's own would be approved instead, or a proposal against policies of long ago."""
    question = await proposed(shown)
    operator = await shown.client(Role.OPERATOR, subject="eve")
    own = {"steps": [{"id": "own", "approve": {"summary": "Fine?", "approvers": {"group": "admins"}}}]}
    version = (await operator.get(f"/v1/runs/{question.run}")).headers["etag"]
    added = await operator.post(f"/v1/runs/{question.run}/steps", json=own, headers={"If-Match": version})
    assert (added.status_code, "nothing is added" in added.text) == (403, True), added.text
    await shown.slack(shown.submission(question.id, question.nonce, "reject", "Too wide", "U0BOB"))
    await shown.work()
    again = await operator.post(f"/v1/runs/{question.run}/retry", json={"reason": "mended"})
    assert (again.status_code, "not done again" in again.text) == (403, True), again.text


async def test_one_who_is_the_whole_group_is_told_so(shown: Any) -> None:
    alone = THREE.replace("policy_approvers: [ann, bob, eve]", "policy_approvers: [ann]")
    assert (await people(shown, alone, "bob")).waits
    assert (await people(shown, alone, "eve")).changed
    refused = await (await admin(shown, "ann")).post("/v1/policies", json={"source": RENAMED})
    assert (refused.status_code, "is the only one" in refused.text) == (403, True)


async def test_names_of_our_own_are_nobody_elses(shown: Any, tmp_path: Any) -> None:
    with pytest.raises(DefinitionError, match="names that begin with 'counterseal-' are reserved"):
        await shown.add(POLICY_CHANGE_SOURCE)
    client = await shown.client(Role.ADMIN)
    answer = await client.post("/v1/workflows", json={"source": POLICY_CHANGE_SOURCE})
    assert (answer.status_code, "are reserved" in answer.text) == (422, True)


async def test_nobody_starts_our_own_workflows_by_hand(shown: Any) -> None:
    """A forged run would show people one policy, and put another in force."""
    await proposed(shown)
    client = await shown.client(Role.TRIGGER, subject="eve")
    forged = {"policy": "x", "name": "tests", "version": 2, "digest": "0" * 64, "summary": "Fine?"}
    answer = await client.post("/v1/runs", json={"workflow": POLICY_CHANGE, "input": forged})
    assert (answer.status_code, "nobody starts by hand" in answer.text) == (403, True)
    faces = shown.app.faces
    request = StartRequest("default", "main", "workflow", "x", forged, "eve", Actor("run", "x"))
    with pytest.raises(AuthorizationError, match="nobody starts by hand"):
        await start_named(faces.database, faces.definitions, POLICY_CHANGE, None, request)


def test_the_check_refuses_our_own_names(command: Any, tmp_path: Any) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(POLICY_CHANGE_SOURCE)
    (found,) = command.json("workflow", "check", str(path), exit_code=Exit.INPUT)
    assert "are reserved" in found["problems"][0]["message"]
