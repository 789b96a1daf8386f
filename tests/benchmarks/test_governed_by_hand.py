"""The job by hand that Counterseal is compared with does that job: judges, asks, counts, doubts, chains and signs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from benchmarks.documents import policy
from benchmarks.peers.drivers.governed import Action, Governed, Head, Policy, RefusedError, governed
from benchmarks.peers.drivers.harness import Effects
from tests.support.databases import Databases

FREE, ASKS = Action("w1", 7, 0), Action("w1", 7, 2)


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[str]:
    with databases.made("by_hand") as url:
        yield url


@pytest.fixture
async def by_hand(empty_database: str) -> AsyncIterator[Governed]:
    async with governed(empty_database) as found:
        yield found


@pytest.mark.parametrize(
    ("changed", "outcome", "rules"),
    [
        ({}, "allow", ["usual"]),
        ({"action.changed": ["priority"], "action.fields.priority": "urgent"}, "needs_approval", ["usual", "priority"]),
        ({"action.changed": ["priority"], "action.fields.priority": "1"}, "deny", ["rule-1", "usual", "priority"]),
        ({"action.changed": ["priority"]}, "deny", []),  # a rule fails: the priority is no fact
        ({"counters.writes_in_run": 100_002}, "deny", ["rule-2"]),
        ({"counters.writes_in_run": 100_000}, "deny", []),  # no rule fires
    ],
)
def test_fifty_rules_in_one_program_judge_as_the_policy_says(
    changed: dict[str, object], outcome: str, rules: Sequence[str]
) -> None:
    said = Policy(policy(50)).judge(FREE.facts() | changed)
    assert (said.outcome, said.rules) == (outcome, rules)


async def test_a_run_is_asked_counted_performed_chained_and_signed(by_hand: Governed) -> None:
    effects, folder = Effects(), by_hand.folder
    head = await by_hand.effect(FREE, None, effects.perform, "q", approved=False)
    asked = await by_hand.effect(ASKS, head, effects.perform, "q", approved=False)
    assert asked["asked"]
    assert await by_hand.effect(ASKS, head, effects.perform, "q", approved=False) == asked, "a repeated question"
    for person, approves in (("nobody", True), ("ana", False)):
        await by_hand.vote("q", person, approves=approves)
        with pytest.raises(RefusedError, match="too few approvals"):
            await by_hand.effect(ASKS, asked, effects.perform, "q", approved=True)
    await by_hand.vote("q")
    with pytest.raises(RefusedError, match="too few approvals"):
        await by_hand.effect(replace(ASKS, number=8), asked, effects.perform, "q", approved=True)
    assert effects.count == 1
    head = await by_hand.effect(ASKS, asked, effects.perform, "q", approved=True)
    assert effects.count == 2
    closed = await by_hand.close("w1-7", head)
    assert await by_hand.close("w1-7", head) == closed
    assert folder is not None
    assert verified(by_hand, folder / "w1-7.json", closed) == [
        *("decided", "intended", "succeeded"),
        *("decided", "asked", "decided", "approved", "intended", "succeeded", "closed"),
    ]


def verified(by_hand: Governed, path: Path, head: Head) -> list[str]:
    """The kinds of the events in a signed file, after its signature and its chain were checked."""
    said = json.loads(path.read_bytes())
    body = base64.b64decode(said["bundle"])
    by_hand.key.public_key().verify(bytes.fromhex(said["signature"]), body)
    digest, kinds = "", []
    for line in json.loads(body)["lines"]:
        assert json.loads(line)["previous"] == digest
        digest = hashlib.sha256(line.encode()).hexdigest()
        kinds.append(json.loads(line)["event"][0])
    assert digest == head["digest"]
    return kinds


async def test_an_effect_whose_attempt_broke_off_is_in_doubt_and_not_repeated(
    by_hand: Governed, empty_database: str
) -> None:
    effects = Effects()

    def breaks_off() -> dict[str, int]:
        effects.perform()
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await by_hand.effect(FREE, None, breaks_off, "q", approved=False)
    with pytest.raises(RefusedError, match="in doubt"):
        await by_hand.effect(FREE, None, effects.perform, "q", approved=False)
    assert effects.count == 1
    connection = await asyncpg.connect(empty_database)
    try:
        assert await connection.fetchval("SELECT count(*) FROM effects WHERE settled_at IS NULL") == 1
        assert await connection.fetchval("SELECT count(*) FROM audit") == 2
    finally:
        await connection.close()
