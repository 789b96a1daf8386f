"""A question binds what it showed: an answer to a question that the run would ask differently now does not count.

Promise 3, before the action is performed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from approvals.model import Choice, VoteChannel
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.voting import VoteRequest, Voting

PAY = """
workflow: pay
version: 1
reference: ${{ trigger.name }}
channels: {amount: {initial: 10}}
steps:
  - id: changed
    needs: []
    wait: {signal: amount, correlate: x}
    set: {amount: "${{ signal.payload.amount }}"}
    reference: ${{ signal.payload.reference }}
  - id: ok
    needs: []
    approve: {summary: "Pay ${{ state.amount }} EUR?", approvers: {group: owners}QUORUM}
  - id: pay
    needs: [ok]
    do: probe.effect.apply
    with: {name: pay, value: "${{ string(state.amount) }}"}
"""
SLOW = PAY.replace(
    "  - id: ok",
    '  - {id: slow, needs: [changed], do: probe.effect.apply, with: {name: slow}, set: {amount: "${{ 1000000 }}"}}\n'
    "  - id: ok",
)


async def opened(runtime: Any, text: str = PAY, quorum: str = "") -> UUID:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text.replace("QUORUM", quorum))
    for person in ("ana", "ben"):
        await runtime.person(person, ("owners",))
    run_id: UUID = (await runtime.start("pay", {"name": "INV1"})).run_id
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "waiting_approval"
    return run_id


async def raised(runtime: Any, amount: Any = 1_000_000, reference: str = "INV1") -> None:
    """A signal changes what the gate asks about, while it is open."""
    await runtime.signal("amount:x", {"amount": amount, "reference": reference})
    await runtime.worker().work_off()


async def cards(runtime: Any) -> list[tuple[str, str]]:
    return [(approval.card["title"], approval.status) for approval in await runtime.books.approvals()]


def paid(runtime: Any) -> list[Any]:
    return [call.input.get("value") for call in runtime.outside.effects if call.input["name"] == "pay"]


async def assert_verified(runtime: Any, run_id: UUID, folder: Path) -> None:
    signer = FileSigner.load_or_create(folder / "key.pem")
    bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    bundle = await runtime.books.bundle(run=run_id)
    verification = verify_bundle(folder / "blobs" / bundle.uri.removeprefix("file:"))
    assert verification.ok, verification.to_text()


@pytest.mark.parametrize("choice", ["approve", "reject"])
async def test_an_answer_to_a_gate_that_would_ask_something_else_now_does_not_count(
    runtime: Any, tmp_path: Path, choice: str
) -> None:
    run_id = await opened(runtime)
    first = await runtime.question()
    await raised(runtime)
    answer = await runtime.vote("ana", choice)
    assert (answer.counted, answer.code, answer.status) == (False, "changed", "superseded")
    assert "changed" in answer.sentence
    assert "new" in answer.sentence
    await runtime.worker().work_off()
    assert await cards(runtime) == [("Pay 10 EUR?", "superseded"), ("Pay 1000000 EUR?", "requested")]
    assert await runtime.books.votes() == []
    assert (await runtime.vote("ana", "approve", on=first)).code == "changed"
    events = await runtime.events(run_id)
    assert events.index("approval.vote_refused") < events.index("approval.superseded")
    assert "approval.voted" not in events
    assert paid(runtime) == []
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert paid(runtime) == ["1000000"]
    await assert_verified(runtime, run_id, tmp_path)


async def test_an_answer_to_a_gate_that_would_ask_the_same_counts(runtime: Any) -> None:
    run_id = await opened(runtime)
    await raised(runtime, amount=10)
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), paid(runtime)) == ("succeeded", ["10"])


async def test_a_gate_binds_the_reference_that_its_card_shows(runtime: Any) -> None:
    await opened(runtime)
    await raised(runtime, amount=10, reference="INV2")
    assert (await runtime.vote("ana", "approve")).code == "changed"
    await runtime.worker().work_off()
    card = (await runtime.books.approval(open=True)).card
    assert (card["reference"], card["target"]) == ("INV2", "INV2")


async def test_of_a_quorum_the_votes_before_the_change_are_void_too(runtime: Any) -> None:
    run_id = await opened(runtime, quorum=", quorum: 2")
    assert (await runtime.vote("ana", "approve")).counted
    await raised(runtime)
    assert (await runtime.vote("ben", "approve")).code == "changed"
    await runtime.worker().work_off()
    assert (await runtime.vote("ben", "approve")).status == "requested"
    assert (await runtime.vote("ana", "approve")).status == "approved"
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


async def test_a_change_between_the_decision_and_the_going_on_asks_again(runtime: Any, late_gate: Any) -> None:
    """The signal's own step is still at work when the vote arrives: what it writes comes with the next barrier."""
    run_id = await opened(runtime, SLOW)
    runtime.outside.gates["slow"] = late_gate
    await runtime.signal("amount:x", {"amount": 10, "reference": "INV1"})
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(late_gate.reached.wait(), 60)
    answer = await runtime.vote("ana", "approve")
    assert (answer.counted, answer.status) == (True, "approved")
    late_gate.opened.set()
    await working
    await runtime.worker().work_off()
    assert await cards(runtime) == [("Pay 10 EUR?", "superseded"), ("Pay 1000000 EUR?", "requested")]
    assert paid(runtime) == []
    assert (await runtime.vote("ana", "approve")).status == "approved"
    await runtime.worker().work_off()
    assert (await runtime.status(run_id), paid(runtime)) == ("succeeded", ["1000000"])


@pytest.mark.parametrize("voted", [False, True])
async def test_a_gate_that_cannot_be_asked_any_more_fails_its_step_and_no_vote_counts(
    runtime: Any, voted: bool, late_gate: Any
) -> None:
    run_id = await opened(runtime, SLOW.replace("${{ 1000000 }}", "${{ {'not': 'a number'} }}"))
    runtime.outside.gates["slow"] = late_gate
    await runtime.signal("amount:x", {"amount": 10, "reference": "INV1"})
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(late_gate.reached.wait(), 60)
    if voted:
        assert (await runtime.vote("ana", "approve")).counted
    late_gate.opened.set()
    await working
    if not voted:
        assert (await runtime.vote("ana", "approve")).code == "changed"
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "failed_terminal"
    error = await runtime.error(run_id)
    assert (error["class"], error["step"]) == ("expression", "ok")
    assert "a map" in error["message"]
    assert await cards(runtime) == [("Pay 10 EUR?", "superseded")]
    assert paid(runtime) == []


async def test_a_vote_and_a_change_at_once_never_let_out_what_was_not_shown(runtime: Any) -> None:
    """Whichever is first: what is paid is what the approved card said."""
    run_id = await opened(runtime)
    question = await runtime.question()
    voting = Voting(runtime.faces, runtime.definitions)
    request = VoteRequest("acme", question, "ana", Choice.APPROVE, "", VoteChannel.SLACK)

    async def paid_or_asked() -> bool:
        asked = any("1000000" in title and status == "requested" for title, status in await cards(runtime))
        return asked or await runtime.status(run_id) == "succeeded"

    async with runtime.working():
        answer, _ = await asyncio.gather(
            voting.vote(request), runtime.signal("amount:x", {"amount": 1_000_000, "reference": "INV1"})
        )
        await runtime.until(paid_or_asked)
        if await runtime.status(run_id) != "succeeded":
            assert paid(runtime) == []
            assert (await runtime.vote("ana", "approve")).counted
        await runtime.until(lambda: runtime.books.runs(status="succeeded"))
    (approved,) = [title for title, status in await cards(runtime) if status == "approved"]
    assert approved == f"Pay {'10' if answer.counted and len(await cards(runtime)) == 1 else '1000000'} EUR?"


ESCALATED = """
workflow: pay
version: 1
reference: ${{ trigger.name }}
steps:
  - id: renamed
    needs: []
    wait: {signal: amount, correlate: x}
    reference: ${{ signal.payload.reference }}
  - id: told
    needs: []
    wait: {signal: told, correlate: x}
    timeout: PT1H
    on_timeout: {escalate: owners}
"""


async def test_a_gate_that_a_timeout_has_made_is_bound_as_well(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(ESCALATED)
    await runtime.person("ana", ("owners",))
    run_id = (await runtime.start("pay", {"name": "INV1"})).run_id
    await runtime.worker().work_off()
    await runtime.trouble.make_waits_due(step="told")
    await runtime.sweep()
    await runtime.worker().work_off()
    await raised(runtime, reference="INV2")
    assert (await runtime.vote("ana", "approve")).code == "changed"
    await runtime.worker().work_off()
    titles = [title for title, _ in await cards(runtime)]
    assert ["INV1" in titles[0], "INV2" in titles[1]] == [True, True]
    assert (await runtime.vote("ana", "approve")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"


TASK = """
workflow: pay
version: 1
reference: ${{ trigger.name }}
channels: {amount: {initial: 10}, said: {}}
steps:
  - id: changed
    needs: []
    wait: {signal: amount, correlate: x}
    set: {amount: "${{ signal.payload.amount }}"}
  - id: look
    needs: []
    task:
      title: "Is ${{ state.amount }} EUR right?"
      form: {type: object, required: [right], properties: {right: {type: boolean}}}
      assign: {group: owners}
    set: {said: "${{ output.right }}"}
"""


async def test_a_task_that_would_ask_something_else_now_is_put_anew(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(TASK)
    await runtime.person("ana", ("owners",))
    run_id = (await runtime.start("pay", {"name": "INV1"})).run_id
    await runtime.worker().work_off()
    await raised(runtime)
    answer = await runtime.complete("ana", {"right": True})
    assert (answer.accepted, answer.code) == (False, "changed")
    await runtime.worker().work_off()
    assert [(task.context["title"], task.status) for task in await runtime.books.waits(kind="task")] == [
        ("Is 10 EUR right?", "canceled"), ("Is 1000000 EUR right?", "waiting"),
    ]  # fmt: skip
    assert (await runtime.complete("ana", {"right": True})).accepted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["said"] is True
    await assert_verified(runtime, run_id, tmp_path)


async def test_what_became_of_an_action_is_asked_about_the_action_and_not_about_the_state(
    runtime: Any, gate: Any
) -> None:
    """A question about doubt is about what was recorded before it went out; nothing that changes later changes it."""
    mail = PAY.replace("approve: {summary: \"Pay ${{ state.amount }} EUR?\", approvers: {group: owners}QUORUM}",
                       "do: probe.mail.send\n    with: {text: \"Pay ${{ string(state.amount) }}\"}")  # fmt: skip
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(mail)
    await runtime.person("ana", ("operators",))
    run_id = (await runtime.start("pay", {"name": "INV1"})).run_id
    await runtime.crash(gate, "probe.mail.send")
    await runtime.worker().work_off()
    await raised(runtime)
    assert (await runtime.vote("ana", "happened")).counted
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
