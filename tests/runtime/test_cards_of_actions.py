"""A card says how its action stands: what people said of it, and then what became of it (O-3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.port import NotSent, Refused
from core.terms import Stopped
from evidence.chain import Actor
from runtime.requests import pausing
from tests.support.runtime_again import ALLOW, ASKED, PROBED, approved_by, begun
from tests.support.runtime_cards_of_actions import card

pytestmark = pytest.mark.req("O-3")
MAIL = "probe.mail.send"


async def asking(runtime: Any) -> tuple[Any, Any]:
    """A run whose action is asked about: the run, and the question."""
    run_id = await begun(runtime, PROBED, approved_by("leads", 1))
    await runtime.worker().work_off()
    return run_id, await runtime.question()


async def state(runtime: Any, question: Any) -> str:
    return str((await card(runtime, question)).state)


async def test_it_shows_each_state_of_its_action(runtime: Any, gate: Any) -> None:
    _, question = await asking(runtime)
    assert await state(runtime, question) == "pending"
    await runtime.vote("lea", "approve")
    assert await state(runtime, question) == "recorded"
    runtime.outside.gates["a"] = gate
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    assert await state(runtime, question) == "executing"
    gate.opened.set()
    await working
    assert await state(runtime, question) == "applied"


@pytest.mark.parametrize(("last", "shown"), [(None, "applied"), (Refused("400", "no such thing"), "failed")])
async def test_of_several_attempts_it_shows_the_last(runtime: Any, last: Any, shown: str) -> None:
    runtime.outside.script["a"] = [NotSent("busy"), *([last] if last else [])]
    _, question = await asking(runtime)
    await runtime.vote("lea", "approve")
    await runtime.worker().work_off()
    first = await card(runtime, question)
    assert (str(first.state), first.detail) == ("failed", "busy")
    await runtime.wait_is_due()
    second = await card(runtime, question)
    assert (str(second.state), second.detail) == (shown, last.message if last else "")
    assert len(await runtime.books.approvals()) == 1


async def test_of_several_receipts_of_the_same_action_it_shows_the_last(runtime: Any) -> None:
    """Policy asks others in between, which is another question; then it asks the first ones again."""
    runtime.outside.script["a"] = [NotSent("busy"), NotSent("busy")]
    _, first = await asking(runtime)
    questions = [first]
    for version, group, person in ((2, "security", "lea"), (3, "leads", "sam")):
        await runtime.vote(person, "approve")
        await runtime.worker().work_off()
        assert await state(runtime, questions[-1]) == "failed"
        await runtime.policy(approved_by(group, version))
        await runtime.wait_is_due()
        questions.append(await runtime.question())
    await runtime.vote("leo", "approve")
    await runtime.worker().work_off()
    receipts = await runtime.books.receipts()
    assert [receipt.status for receipt in receipts] == ["failed", "failed", "succeeded"]
    assert receipts[0].action_digest == receipts[2].action_digest != receipts[1].action_digest
    assert [await state(runtime, question) for question in questions] == ["applied", "failed", "applied"]


async def test_a_pause_is_shown_while_something_is_still_to_go_out(runtime: Any, gate: Any) -> None:
    _, question = await asking(runtime)
    verb = (runtime.faces, runtime.definitions, "acme", Stopped.TENANT, "")
    await pausing.pause(*verb, "An emergency.", Actor("person", "olga"))
    assert "An emergency." in (await card(runtime, question)).paused
    await runtime.vote("lea", "approve")
    assert "An emergency." in (await card(runtime, question)).paused
    await pausing.resume(*verb, "", Actor("person", "olga"))
    runtime.outside.gates["a"] = gate
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await pausing.pause(*verb, "Another one.", Actor("person", "olga"))
    shown = await card(runtime, question)
    assert (str(shown.state), shown.paused) == ("executing", "")
    gate.opened.set()
    await working
    shown = await card(runtime, question)
    assert (str(shown.state), shown.paused) == ("applied", "")


@pytest.mark.parametrize(("answer", "shown"), [("happened", "applied"), ("again", "applied"), ("fail", "rejected")])
async def test_an_answer_about_a_doubt_is_recorded_before_it_is_acted_on(runtime: Any, answer: str, shown: str) -> None:
    await begun(runtime, ASKED, ALLOW)
    await runtime.crash(runtime.gate_type(), MAIL)
    await runtime.worker().work_off()
    question = await runtime.question()
    assert await state(runtime, question) == "pending"
    assert (await runtime.vote("olga", answer)).counted
    assert await state(runtime, question) == ("rejected" if answer == "fail" else "recorded")
    await runtime.worker().work_off()
    assert await state(runtime, question) == shown
