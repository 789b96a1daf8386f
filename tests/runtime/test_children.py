"""Runs that runs start: children, inline or waited for, and continuations (X-13, X-14, P-8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.port import Refused
from core.grouping import Grouping
from runtime.engine.model.rows import Commit
from runtime.requests.steering import cancel_run
from tests.support.runtime_children import CHILD, PARENT, WAITING, begun, child_of

CONTINUES = """
workflow: first
version: 1
channels: {next: {}}
steps:
  - {continue_with: {workflow: check, with: {name: "${{ trigger.name }}"}}, set: {next: "${{ output.run }}"}}
"""


@pytest.mark.req("X-13")
@pytest.mark.req("P-8")
async def test_a_child_that_does_not_wait_is_done_inline(runtime: Any) -> None:
    run_id = await begun(runtime)
    assert await runtime.status(run_id) == "succeeded"
    child = await child_of(runtime)
    assert (child.status, child.parent, child.depth, child.reference) == (
        "succeeded",
        run_id,
        1,
        "ada",
    )
    assert await runtime.books.waits() == []
    state = await runtime.state(run_id)
    assert state["channels"] == {"got": {"who": "ada", "status": "succeeded"}, "mine": "parent"}
    await runtime.go_on()
    assert await runtime.books.notices(processed=False) == []
    await runtime.at_rest()
    for run in (run_id, child.id):
        await runtime.history(run)


@pytest.mark.req("X-13")
async def test_a_child_that_waits_is_waited_for(runtime: Any) -> None:
    run_id = await begun(runtime, WAITING)
    assert await runtime.status(run_id) == "waiting"
    wait = await runtime.books.wait(run=run_id)
    child = await child_of(runtime)
    assert (wait.kind, wait.correlation_key) == ("child", str(child.id))
    await runtime.at_rest_but_waiting()
    assert (await runtime.signal(str(child.id), {"who": "mallory"})).code == "kept", "nobody speaks for a run"
    await runtime.signal("go:x", {})
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["got"]["who"] == "ada"
    await runtime.at_rest()


async def test_the_end_of_a_child_is_told_once_however_often_it_is_sent(runtime: Any) -> None:
    run_id = await begun(runtime, WAITING)
    await runtime.signal("go:x", {})
    await runtime.worker().work_off()
    for _ in range(3):
        await runtime.trouble.send_again("return")
        await runtime.errands()
    await runtime.go_on()
    assert (await runtime.events(run_id)).count("wait.completed") == 1


async def test_the_failure_of_a_child_fails_its_parent_or_takes_the_branch(runtime: Any) -> None:
    runtime.outside.script["ada"] = [Refused("400", "No."), Refused("400", "No.")]
    run_id = await begun(runtime)
    error = await runtime.error(run_id)
    assert (await runtime.status(run_id), error["code"], error["class"]) == (
        "failed_terminal",
        "child_failed_terminal",
        "transport",
    )
    branch = ", on_failure: [{id: f, do: probe.value.read, with: {name: f}, set: {got: '${{ error.code }}'}}]"
    await runtime.publish(PARENT.replace("version: 1", "version: 2") % ("", branch))
    second = (await runtime.start("parent", {"name": "ada"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert (await runtime.state(second))["channels"]["got"] == "child_failed_terminal"


@pytest.mark.parametrize(("more", "status"), [("", "canceled"), (", abandon: true", "waiting")])
async def test_canceling_a_parent_cancels_its_child_unless_it_abandons_it(runtime: Any, more: str, status: str) -> None:
    run_id = await begun(runtime, WAITING, ("", more))
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no")
    await runtime.go_on()
    assert (await child_of(runtime)).status == status


async def test_a_child_that_takes_too_long_is_canceled(runtime: Any) -> None:
    run_id = await begun(runtime, WAITING, ("", ", timeout: PT1H"))
    await runtime.trouble.make_waits_due("child")
    await runtime.go_on()
    assert (await runtime.status(run_id), (await child_of(runtime)).status) == ("failed_terminal", "canceled")
    assert (await runtime.error(run_id))["class"] == "timeout"


async def test_a_canceled_child_fails_its_parent(runtime: Any) -> None:
    run_id = await begun(runtime, WAITING)
    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", (await child_of(runtime)).id, runtime.actor, "no")
    await runtime.go_on()
    assert (await runtime.error(run_id))["code"] == "child_canceled"


@pytest.mark.parametrize("which", ["@7", "nothing"])
async def test_a_workflow_that_is_not_there_fails_the_step_with_its_name(runtime: Any, which: str) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CHILD)
    text = PARENT % ("@7", "") if which == "@7" else (PARENT % ("", "")).replace("run: check", "run: nothing")
    await runtime.publish(text)
    run_id = (await runtime.start("parent", {"name": "ada"})).run_id
    await runtime.worker().work_off()
    error = await runtime.error(run_id)
    assert (error["code"], "There is no workflow" in error["message"]) == ("not_started", True)


async def test_a_workflow_that_runs_itself_comes_to_an_end(runtime: Any) -> None:
    text = "workflow: again\nversion: 1\nsteps:\n  - {id: self, run: again}\n"
    run_id = await runtime.go(text)
    assert await runtime.status(run_id) == "failed_terminal"
    assert sorted(run.depth for run in await runtime.books.runs()) == list(range(11))
    await runtime.go_on()
    await runtime.at_rest()


@pytest.mark.parametrize("retired", [False, True])
async def test_a_parents_worker_that_dies_meanwhile_starts_no_second_child(runtime: Any, retired: bool) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CHILD)
    await runtime.publish(PARENT % ("", ""))
    run_id = (await runtime.start("parent", {"name": "ada"})).run_id
    gate = runtime.gate_type(after_effect=True)
    runtime.outside.gates["ada"] = gate
    dying = asyncio.create_task(runtime.worker("dying").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    dying.cancel()
    await asyncio.wait({dying})
    await runtime.trouble.expire_leases()
    if retired:  # no run starts with it any more, but this one has
        await runtime.execute("UPDATE workflows SET retired_at = now() WHERE name = 'check'")
    assert await runtime.sweep() == 2
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert len(await runtime.books.runs(workflow="check")) == 1
    assert [call.input["name"] for call in runtime.outside.effects] == ["ada", "after"]
    await runtime.at_rest()


@pytest.mark.req("X-14")
async def test_a_continuation_is_started_and_not_waited_for(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(WAITING)
    await runtime.publish(CONTINUES)
    run_id = (await runtime.start("first", {"name": "eve"})).run_id
    await runtime.worker().work_off()
    other = await child_of(runtime)
    assert (await runtime.status(run_id), other.status, other.parent) == ("succeeded", "waiting", None)
    assert (await runtime.state(run_id))["channels"]["next"] == str(other.id)
    assert "run.continued" in await runtime.events(run_id)
    await runtime.history(run_id)


@pytest.mark.req("X-14")
async def test_a_worker_that_dies_between_the_other_run_and_its_own_append_continues_once(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(CHILD)
    await runtime.publish(CONTINUES)
    run_id = (await runtime.start("first", {"name": "eve"})).run_id
    gate, apply = runtime.gate_type(), Grouping.apply

    async def held(grouping: Any, item: Any) -> Any:
        if (
            isinstance(item, Commit)
            and any(b'"run.continued"' in line for line in item.lines)
            and not gate.opened.is_set()
        ):
            await gate.hold()
        return await apply(grouping, item)

    monkeypatch.setattr(Grouping, "apply", held)
    dying = asyncio.create_task(runtime.worker("dying").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    assert len(await runtime.books.runs(workflow="check")) == 1, "the other run is there already"
    dying.cancel()
    await asyncio.wait({dying})
    gate.opened.set()
    await runtime.trouble.expire_leases()
    assert await runtime.sweep() > 0
    await runtime.go_on()
    (other,) = await runtime.books.runs(workflow="check")
    assert (await runtime.status(run_id), other.status, other.parent) == ("succeeded", "succeeded", None)
    assert (await runtime.state(run_id))["channels"]["next"] == str(other.id)
    assert [call.input["name"] for call in runtime.outside.effects] == ["eve"]
    await runtime.at_rest()


async def test_a_parent_that_is_canceled_while_its_child_is_begun_takes_it_along(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    slow = "steps:\n  - {id: slow, do: probe.value.read, with: {name: slow}}\n"
    await runtime.publish(CHILD.replace("steps:\n", slow) + "  - {id: go, wait: {signal: go, correlate: x}}\n")
    await runtime.publish(PARENT % ("", ""))
    run_id = (await runtime.start("parent", {"name": "ada"})).run_id
    gate = runtime.gate_type()
    runtime.outside.gates["slow"] = gate
    async with runtime.working(concurrency=1):  # another job would take the child, and the parent would wait for it
        await gate.reached.wait()
        async with runtime.faces.transaction("acme") as connection:
            assert await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "no") == "running"
        gate.opened.set()
        await runtime.until(lambda: runtime.books.runs(workflow="parent", status="canceled"))
    await runtime.go_on()
    assert (await child_of(runtime)).status == "canceled"
    await runtime.at_rest()


async def test_a_child_in_which_nothing_is_to_be_done_has_its_result_all_the_same(runtime: Any) -> None:
    step = "{id: e, do: probe.effect.apply, with: {name: x}}"
    condition = f"  - if: ${{{{ trigger.name == 'eve' }}}}\n    then: [{step}]\n"
    idle = f"workflow: check\nversion: 1\nresult: {{n: '${{{{ trigger.name }}}}'}}\nsteps:\n{condition}"
    run_id = await begun(runtime, idle)
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["got"] == {"n": "ada"}


async def test_a_result_that_cannot_be_made_fails_the_run(runtime: Any) -> None:
    run_id = await begun(runtime, CHILD.replace("${{ state.seen }}", "${{ state.seen.nothing }}"))
    child = await child_of(runtime)
    assert (child.status, child.error["step"]) == ("failed_terminal", "result")
    assert (await runtime.error(run_id))["code"] == "child_failed_terminal"
    await runtime.at_rest()


async def test_a_run_in_which_nothing_is_to_be_done_ends_where_it_begins(runtime: Any) -> None:
    step = "{id: e, do: probe.effect.apply, with: {name: x}}"
    for version, condition, status in ((1, "false", "succeeded"), (2, "trigger.nothing", "failed_terminal")):
        text = (
            f"workflow: idle\nversion: {version}\nsteps:\n  - if: ${{{{ {condition} == true }}}}\n    then: [{step}]\n"
        )
        if version == 1:
            run_id = await runtime.go(text)
        else:
            await runtime.publish(text)
            run_id = (await runtime.start("idle", ref="2")).run_id
        assert await runtime.status(run_id) == status
        await runtime.history(run_id)
    await runtime.at_rest()
