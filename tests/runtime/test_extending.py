"""An agent extends a running graph: checked like a definition, governed like any other step, on record (V-5, V-6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import ConsistencyError, InputError, NotFoundError
from runtime.requests.steering import cancel_run

TEXT = """
workflow: w
version: 1
reference: r
channels: {got: {reduce: append, initial: []}}
steps:
  - {id: first, do: probe.value.read, with: {name: first}}
  - {id: go, wait: {signal: go, correlate: x}}
  - {id: last, do: probe.effect.apply, with: {name: last}}
"""


def effect(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "do": "probe.effect.apply", "with": {"name": name}, **more}


async def names(runtime: Any) -> list[str]:
    return [call.input["name"] for call in runtime.outside.effects]


@pytest.mark.req("V-6")
async def test_steps_are_added_before_what_has_not_begun(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    answer = await runtime.extend(run_id, {"steps": [effect("extra"), effect("more")], "before": ["last"]})
    assert (answer.number, answer.steps) == (1, ("extra", "more"))
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert (await runtime.status(run_id), await names(runtime)) == ("succeeded", ["extra", "more", "last"])
    (added,) = await runtime.books.extensions()
    assert (added.number, added.actor, added.source["before"]) == (1, "tester", ["last"])
    assert list(added.operations) == []
    assert (await runtime.events(run_id)).count("run.extended") == 1
    await runtime.history(run_id)


@pytest.mark.req("V-6")
async def test_what_can_begin_begins_at_once_while_the_rest_waits(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    await runtime.extend(run_id, {"steps": [effect("now", needs=["first"])]})
    await runtime.worker().work_off()
    assert (await names(runtime), await runtime.status(run_id)) == (["now"], "waiting")
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    await runtime.at_rest()
    await runtime.history(run_id)


@pytest.mark.req("V-13")
async def test_nothing_is_added_to_a_run_that_is_being_canceled(runtime: Any, gate: Any) -> None:
    """The call that is under way ends, and nothing more is done."""
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish("workflow: w\nversion: 1\nsteps: [{id: a, do: probe.effect.apply, with: {name: ann}}]\n")
    run_id = (await runtime.start("w")).run_id
    runtime.outside.gates["ann"] = gate
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    async with runtime.faces.transaction("acme") as connection:
        canceled = await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "enough")
    assert canceled == "running"
    with pytest.raises(ConsistencyError, match=r"^The run is running; nothing can be added to it\.$"):
        await runtime.extend(run_id, {"steps": [effect("extra")]})
    gate.opened.set()
    await working
    assert (await runtime.status(run_id), await names(runtime)) == ("canceled", ["ann"])


async def test_without_needs_a_step_follows_the_last_one(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    await runtime.extend(run_id, {"steps": [effect("then")]})
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await names(runtime) == ["last", "then"]


async def test_an_extension_reads_what_nobody_had_read_before(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    step = {"id": "tell", "needs": ["first"], "do": "probe.value.read", "with": {"name": "t"},
            "set": {"got": "${{ steps.first.output.name }}"}}  # fmt: skip
    await runtime.extend(run_id, {"steps": [step]})
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert (await runtime.state(run_id))["channels"]["got"] == ["first"]


@pytest.mark.req("V-6")
async def test_an_added_step_is_governed_like_any_other(runtime: Any) -> None:
    policy = (
        "policy: p\nversion: 1\nrules:\n  - {id: reads, match: {operation: probe.value.read}, outcome: allow}\n"
        "  - {id: last, match: {operation: probe.effect.apply}, when: action.fields.name == 'last', outcome: allow}\n"
    )
    run_id = await runtime.go(TEXT, policy=policy)
    await runtime.extend(run_id, {"steps": [effect("evil", needs=[])]})
    await runtime.go_on()
    assert (await runtime.status(run_id), await names(runtime)) == ("failed_terminal", [])
    assert (await runtime.error(run_id))["code"] == "policy_denied"
    await runtime.history(run_id)


async def test_extensions_follow_one_another_and_survive_a_restart(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    await runtime.extend(run_id, {"steps": [effect("a")], "before": ["last"]})
    await runtime.extend(run_id, {"steps": [effect("b", needs=["a"])], "before": ["last"]})
    restarted = runtime.restarted()
    await restarted.signal("go:x", {})
    await restarted.go_on()
    assert (await runtime.status(run_id), await names(runtime)) == ("succeeded", ["a", "b", "last"])


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"steps": []}, "steps"),
    "unknown key": ({"steps": [effect("a")], "afterwards": []}, "afterwards"),
    "taken id": ({"steps": [effect("first")]}, "taken"),
    "unknown operation": ({"steps": [{"id": "a", "do": "probe.effect.aply"}]}, r"steps\[0\].do.*aply"),
    "unknown need": ({"steps": [effect("a", needs=["nobody"])]}, "no step 'nobody'"),
    "unknown before": ({"steps": [effect("a")], "before": ["nobody"]}, "nobody"),
    "into the past": ({"steps": [effect("a", needs=[])], "before": ["first"]}, "has begun already"),
    "into what waits": ({"steps": [effect("a", needs=[])], "before": ["go"]}, "has begun already"),
    "a circle": ({"steps": [effect("a", needs=["last"])], "before": ["last"]}, "circle"),
    "a race": ({"steps": [effect("a", needs=[], set={"got": "${{ steps.go.output }}"})]}, "go"),
    "unknown channel": ({"steps": [effect("a", set={"other": "${{ 1 }}"})]}, "no channel 'other'"),
    "no input": ({"steps": [{"id": "a", "do": "probe.effect.apply"}]}, "needs the input 'name'"),
}


@pytest.mark.req("V-6")
@pytest.mark.req("V-5")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_faulty_extension_is_refused_and_changes_nothing(runtime: Any, fault: str) -> None:
    run_id = await runtime.go(TEXT)
    before = await runtime.fingerprint()
    source, message = FAULTS[fault]
    with pytest.raises(InputError, match=message):
        await runtime.extend(run_id, source)
    assert await runtime.fingerprint() == before


@pytest.mark.req("V-6")
async def test_an_extension_of_another_version_of_the_run_is_refused(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    with pytest.raises(ConsistencyError, match="moved on"):
        await runtime.extend(run_id, {"steps": [effect("a")]}, version=1)
    await runtime.signal("go:x", {})
    await runtime.go_on()
    with pytest.raises(ConsistencyError, match="nothing can be added"):
        await runtime.extend(run_id, {"steps": [effect("a")]})


async def test_a_run_of_another_tenant_cannot_be_extended(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    with pytest.raises(NotFoundError):
        await runtime.extend(run_id, {"steps": [effect("a")]}, version=1, tenant="other")


async def test_an_extension_meanwhile_reaches_the_worker_that_is_at_it(runtime: Any) -> None:
    text = TEXT.replace("go, wait: {signal: go, correlate: x}", "mid, do: probe.effect.apply, with: {name: mid}")
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    run_id = (await runtime.start("w")).run_id
    gate = runtime.gate_type()
    runtime.outside.gates["mid"] = gate
    async with runtime.working():
        await gate.reached.wait()
        await runtime.extend(run_id, {"steps": [effect("between")], "before": ["last"]})
        gate.opened.set()
        await runtime.until(lambda: runtime.books.runs(status="succeeded"))
    assert await names(runtime) == ["mid", "between", "last"]
    await runtime.at_rest()
    await runtime.history(run_id)


async def test_a_form_in_an_extension_keeps_the_order_of_its_fields(runtime: Any) -> None:
    run_id = await runtime.go(TEXT)
    properties = {name: {"type": "string"} for name in ("zeta", "a", "middle")}
    task = {"title": "T", "form": {"type": "object", "properties": properties}, "assign": {"group": "kyc"}}
    await runtime.extend(run_id, {"steps": [{"id": "t", "needs": [], "task": task}]})
    await runtime.restarted().worker().work_off()
    assert (await runtime.books.wait(kind="task")).context["fields"] == ["zeta", "a", "middle"]
