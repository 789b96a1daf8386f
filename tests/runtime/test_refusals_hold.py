"""A refused action is not asked again at the request of whoever was refused (promise 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.catalog import Source, load_catalog
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.steering import Extending
from tests.support.people import add_person
from tests.support.runtime_again import approved_by
from tests.support.runtime_refusals_hold import GATE, PAY, WITHIN, asked, office, retried, started
from tests.support.runtime_stage import OPERATIONS

pytestmark = pytest.mark.req("promise 12")

OTHER = PAY.replace("workflow: pay", "workflow: another").replace("id: a", "id: z")


async def rejected(runtime: Any, who: str = "lea") -> None:
    assert (await runtime.vote(who, "reject")).counted
    await runtime.worker().work_off()


async def test_who_was_refused_asks_nobody_again_by_retrying_twelve_times(runtime: Any, tmp_path: Path) -> None:
    await office(runtime)
    run_id = await started(runtime, "raj", "1")
    await rejected(runtime)
    for _ in range(12):
        await retried(runtime, tmp_path, run_id, Actor("person", "raj"))
        assert await asked(runtime) == []
        error = await runtime.error(run_id)
        assert error["code"] == "rejected"
        assert "by Lea (asked by Raj): because." in error["message"]
    assert len(await runtime.books.approvals()) == 1


async def test_another_person_may_ask_again_and_the_card_lists_every_refusal(runtime: Any, tmp_path: Path) -> None:
    await office(runtime, policy=approved_by("leads", 1).replace("}]}", "}], allow: [requester, retrier]}"))
    run_id = await started(runtime, "raj", "1")
    await rejected(runtime, "lea")
    await retried(runtime, tmp_path, run_id, Actor("person", "ben"))
    assert (await asked(runtime))[0].card["evidence"].count("It was rejected before") == 1
    await rejected(runtime, "leo")
    for again in ("raj", "ben"):
        await retried(runtime, tmp_path, run_id, Actor("person", again))
        assert await asked(runtime) == []
    await add_person(runtime.database, "acme", "dee", ("leads",))
    await retried(runtime, tmp_path, run_id, Actor("person", "dee"))
    (question,) = await asked(runtime)
    said = question.card["evidence"]
    assert [said.count(words) for words in ("It was rejected before", "by Lea", "by Leo", "Ben")] == [2, 1, 1, 1]
    assert (await runtime.vote("dee", "approve")).code == "separation_of_duties", "who asks again never decides"
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    assert len(runtime.outside.effects) == 1
    told = [event for event in await runtime.books.events(run_id) if event.type == "approval.requested"]
    assert len(told) == 3


# How the same is asked again: who, by which workflow; and whether people are asked.
DOORS = {
    "a new run of the same person": ("raj", "pay", False),
    "another spelling": ("Raj ", "pay", False),
    "an e-mail": ("email:RAJ@x.example", "pay", False),
    "a Slack account": ("slack:URAJ", "pay", False),
    "their machine": ("bot", "pay", False),
    "a machine of another": ("robot", "pay", False),
    "somebody unknown": ("mallory", "pay", False),
    "another workflow": ("raj", "another", False),
    "a child": ("raj", "within", False),
    "another person": ("ben", "pay", True),
    "another person, by a child": ("ben", "within", True),
}


@pytest.mark.parametrize("door", DOORS)
async def test_it_binds_at_every_door_of_the_tenant(runtime: Any, door: str) -> None:
    who, name, asks = DOORS[door]
    await office(runtime, PAY, OTHER, WITHIN)
    await started(runtime, "raj", "1")
    await rejected(runtime)
    run_id = await started(runtime, who, "2", name)
    await runtime.go_on()
    assert len(await asked(runtime)) == asks
    if not asks:
        assert await runtime.status(run_id) == "failed_terminal"
    assert runtime.outside.effects == []


async def test_whoever_was_refused_does_not_ask_again_by_adding_a_step_to_the_run_of_another(runtime: Any) -> None:
    waits = "workflow: waits\nversion: 1\nsteps:\n  - {id: w, wait: {signal: go, correlate: x}}\n"
    await office(runtime, PAY, waits)
    await started(runtime, "raj", "1")
    await rejected(runtime)
    run_id = await started(runtime, "ben", "2", "waits")
    step = {"id": "z", "needs": [], "do": "probe.effect.apply", "with": {"name": "a", "amount": 5}}
    version = (await runtime.books.run(run_id)).version
    extending = Extending(runtime.faces, runtime.definitions)
    await extending.extend("acme", run_id, Actor("person", "raj"), {"steps": [step]}, version)
    await runtime.go_on()
    assert await asked(runtime) == []
    assert await runtime.status(run_id) == "failed_terminal"


async def test_it_binds_in_its_own_tenant_only(runtime: Any) -> None:
    await office(runtime)
    await started(runtime, "raj", "1")
    await rejected(runtime)
    await runtime.tenant("globex")
    await runtime.policy(approved_by("leads", 1), "globex")
    await runtime.publish(PAY, "globex")
    request = StartRequest("globex", "main", "test", "1", {}, "raj", Actor("person", "raj"))
    await start_named(runtime.faces, runtime.definitions, "pay", None, request)
    await runtime.worker().work_off()
    assert len(await runtime.books.approvals(open=True, tenant="globex")) == 1


HOLDS = {
    "the usual time": ("", 24 * 3600),
    "as policy names it": (", rejection: {holds: PT1H}", 3600),
}


@pytest.mark.parametrize("name", HOLDS)
async def test_it_binds_for_the_time_that_policy_names(runtime: Any, name: str) -> None:
    text, seconds = HOLDS[name]
    await office(runtime, policy=approved_by("leads", 1).replace("}]}", "}]" + text + "}"))
    await started(runtime, "raj", "1")
    await rejected(runtime)
    row = await runtime.one("SELECT extract(epoch FROM until - at)::int AS holds FROM refusals")
    assert row["holds"] == seconds
    await runtime.execute("UPDATE refusals SET until = now()")
    await started(runtime, "raj", "2")
    assert len(await asked(runtime)) == 1


# The same in other words: how it is proposed again.
WORDS = {
    "blanks, case and what cannot be seen": "do: probe.effect.apply, with: {name: ' \u200bA  ', amount: 5}",
    "an empty member": "do: probe.effect.apply, with: {amount: 5, value: '', name: a}",
    "another operation": "do: probe.effect.sibling, with: {name: a, amount: 5}",
}


@pytest.mark.parametrize("how", WORDS)
async def test_it_binds_the_same_in_other_words(runtime: Any, how: str) -> None:
    named = OPERATIONS.replace("probe.effect.apply", "probe.effect.sibling").split("  - name: probe.record")[0]
    sibling = Source("sibling.yaml", named)
    catalog = load_catalog([Source("probe.yaml", OPERATIONS), sibling])
    runtime.catalog, runtime.definitions = catalog, Definitions(catalog)
    again = PAY.replace("version: 1", "version: 2").replace(
        "do: probe.effect.apply, with: {name: a, amount: 5}", WORDS[how]
    )
    await office(runtime)
    await started(runtime, "raj", "1")
    await rejected(runtime)
    await runtime.publish(again)
    run_id = await started(runtime, "raj", "2")
    assert (await asked(runtime), await runtime.status(run_id)) == ([], "failed_terminal")


async def test_other_groups_and_other_calls_are_asked(runtime: Any) -> None:
    await office(runtime)
    await started(runtime, "raj", "1")
    await rejected(runtime)
    await runtime.publish(PAY.replace("version: 1", "version: 2").replace("amount: 5", "amount: 6"))
    await started(runtime, "raj", "2")
    assert len(await asked(runtime)) == 1, "another call"
    await runtime.publish(PAY.replace("version: 1", "version: 3"))
    await runtime.policy(approved_by("security", 2))
    await started(runtime, "raj", "3")
    assert len(await asked(runtime)) == 2, "another group"


async def test_a_gate_binds_for_the_same_input(runtime: Any, tmp_path: Path) -> None:
    await office(runtime, GATE)
    run_id = await started(runtime, "raj", "1", "gate", {"case": "C1"})
    await rejected(runtime)
    await retried(runtime, tmp_path, run_id, Actor("person", "raj"))
    await started(runtime, "raj", "2", "gate", {"case": "C1"})
    assert await asked(runtime) == []
    await started(runtime, "raj", "3", "gate", {"case": "C2"})
    assert len(await asked(runtime)) == 1


async def test_whoever_retries_does_not_carry_their_own_approval_again(runtime: Any, tmp_path: Path) -> None:
    from connectors.port import Refused

    await office(runtime)
    runtime.outside.script["a"] = [Refused("busy", "not now")]
    run_id = await started(runtime, "raj", "1")
    assert (await runtime.vote("lea", "approve")).counted
    await runtime.worker().work_off()
    await retried(runtime, tmp_path, run_id, Actor("person", "lea"))
    (question,) = await asked(runtime)
    assert runtime.outside.effects == []
    assert (await runtime.vote("lea", "approve")).code == "separation_of_duties"
    assert "failed 1 times" in question.card["evidence"]
