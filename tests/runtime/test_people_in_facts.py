"""Facts about people are ids of the directory: no spelling of a name passes a rule about somebody (promise 12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from evidence.chain import Actor
from runtime.requests.starting import KeyTaken, StartRequest, start_named
from runtime.requests.steering import Extending
from tests.support.people import add_person, remove_person

SYS_ID = "46d44a23a9fe19810012d100cca80666"
SPELLINGS = (
    *("raj.quist", "Raj.Quist", "raj.quist ", " RAJ.QUIST", "person:raj.quist", "token:raj.quist", "rq"),
    *("Raj.Q@Example.com", "email:raj.q@example.com", SYS_ID, f"servicenow:{SYS_ID.upper()}", "slack:U0RAJ"),
    *("raj\u200b.quist", "\uff52aj.quist"),
)
PRINCIPALS = ("email:raj.q@example.com", f"servicenow:{SYS_ID}", "os:rq", "slack:U0RAJ")
POLICY = """
policy: p
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: raj, match: {operation: probe.effect.apply}, when: WHEN, outcome: deny, because: Raj does nothing.}
"""
FORM = "{id: said, task: {title: T, form: {type: object, properties: {x: {type: string}}}, assign: {group: leads}}}"
HEARD = "{id: said, wait: {signal: said, correlate: x}}"
GO = "{id: go, wait: {signal: go, correlate: x}}"
PAY = "{id: pay, do: probe.effect.apply, with: {name: '%s'}}"
SAID = "${{ steps.said.output.x }}"


def workflow(*steps: str) -> str:
    return "workflow: w\nversion: 1\nreference: r\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)


async def begun(runtime: Any, when: str, by: str, *steps: str, kind: str = "webhook") -> UUID:
    await runtime.tenant()
    await runtime.policy(POLICY.replace("WHEN", f'"{when}"'))
    await add_person(runtime.database, "acme", "raj.quist", ("leads",), principals=PRINCIPALS)
    await runtime.publish(workflow(*steps))
    return await started(runtime, by, kind=kind)


async def started(runtime: Any, by: str, ref: str = "1", kind: str = "webhook") -> UUID:
    request = StartRequest("acme", "main", "test", ref, {}, by, Actor(kind, "door"))
    run_id: UUID = (await start_named(runtime.faces, runtime.definitions, "w", None, request)).run_id
    await runtime.worker().work_off()
    return run_id


async def denied(runtime: Any, run: UUID) -> bool:
    return (await runtime.error(run) or {}).get("message") == "Raj does nothing."


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_no_spelling_of_a_requester_passes_a_rule_about_them(runtime: Any, spelling: str) -> None:
    run = await begun(runtime, "run.requested_by == 'raj.quist'", spelling, PAY % "x")
    assert await denied(runtime, run)
    assert runtime.outside.effects == []


@pytest.mark.parametrize("fact", ["step.added_by == 'raj.quist'", "'step_adder:raj.quist' in action.contributors"])
@pytest.mark.parametrize("spelling", ["raj.quist", "Raj.Quist", " raj.quist"])
async def test_no_spelling_of_whoever_added_a_step_passes_a_rule_about_them(
    runtime: Any, fact: str, spelling: str
) -> None:
    run = await begun(runtime, fact, "somebody", GO)
    version = (await runtime.books.run(run)).version
    step = {"id": "more", "needs": [], "do": "probe.effect.apply", "with": {"name": "x"}}
    extending = Extending(runtime.faces, runtime.definitions)
    await extending.extend("acme", run, Actor("token", spelling), {"steps": [step]}, version)
    await runtime.worker().work_off()
    assert await denied(runtime, run)


@pytest.mark.parametrize("spelling", ["raj.quist", "Raj.Quist ", SYS_ID])
async def test_no_spelling_of_whoever_sent_a_signal_passes_a_rule_about_them(runtime: Any, spelling: str) -> None:
    fact = "'signal_sender:raj.quist' in action.contributors"
    run = await begun(runtime, fact, "somebody", HEARD, PAY % SAID)
    await runtime.signal("said:x", {"x": "y"}, actor=Actor("webhook", spelling))
    await runtime.worker().work_off()
    assert await denied(runtime, run)


async def test_whoever_filled_in_a_form_is_a_person_in_facts(runtime: Any) -> None:
    fact = "'form_filler:raj.quist' in action.contributors"
    run = await begun(runtime, fact, "somebody", FORM, PAY % SAID)
    await runtime.complete("raj.quist", {"x": "y"})
    await runtime.worker().work_off()
    assert await denied(runtime, run)


@pytest.mark.parametrize(
    "fact",
    [
        "run.requested_by == 'unresolved:Eve '",
        "run.requested_by_text == 'Eve '",
        "action.contributors[0] == 'requester:unresolved:Eve '",
        "action.contributors_text[0] == 'requester:Eve '",
    ],
)
async def test_a_text_that_stands_for_nobody_stays_visible_and_equals_no_person(runtime: Any, fact: str) -> None:
    assert await denied(runtime, await begun(runtime, fact, "Eve ", PAY % "x"))


async def test_a_run_keeps_its_requester_after_they_have_left_the_directory(runtime: Any) -> None:
    run = await begun(runtime, "run.requested_by == 'raj.quist'", "Raj.Quist", HEARD, PAY % "x")
    await remove_person(runtime.database, "acme", "raj.quist")
    await runtime.signal("said:x", {"x": "y"})
    await runtime.worker().work_off()
    assert await denied(runtime, run)


async def test_a_key_hands_out_nobody_elses_run(runtime: Any) -> None:
    mine = await begun(runtime, "false", "raj.quist", PAY % "x")
    assert await started(runtime, "Raj.Q@example.com") == mine
    for other in ("eve", "raj", "requester"):
        with pytest.raises(KeyTaken):
            await started(runtime, other)
