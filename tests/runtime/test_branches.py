"""Branches of steps that fail, take too long or are rejected; loops; the run's reference (X-8, X-10, X-12, X-18)."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.port import InDoubt, NotSent, Refused

HEAD = (
    "workflow: w\nversion: 1\nreference: r1\nchannels: {why: {reduce: append}, n: {reduce: sum, initial: 0}}\nsteps:\n"
)
SEEN = "${{ error.class }}/${{ error.code }} ${{ error.step }}"
AFTER = "  - {id: after, do: probe.effect.apply, with: {name: after}}\n"


def note(name: str) -> str:
    return f"{{id: {name}, do: probe.value.read, with: {{name: {name}}}, set: {{why: '{name} {SEEN}'}}}}"


@pytest.mark.req("X-10")
@pytest.mark.req("X-18")
@pytest.mark.parametrize(
    ("outcome", "seen"),
    [
        (Refused("400", "No."), "transport/400"),
        (Refused("403", "No."), "authorization/403"),
        (NotSent("away"), "transport/not_sent"),
    ],
)
async def test_a_failure_takes_its_branch_and_the_run_goes_on(runtime: Any, outcome: Any, seen: str) -> None:
    runtime.outside.script["e"] = [outcome] * 3
    text = HEAD + f"  - {{id: e, do: probe.effect.apply, with: {{name: e}}, on_failure: [{note('f')}]}}\n" + AFTER
    run_id = await runtime.go(text)
    for _ in range(2):
        await runtime.wait_is_due()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["why"] == [f"f {seen} e"]
    assert (await runtime.steps(run_id))["e"] == "failed_terminal"
    assert (await runtime.state(run_id))["status"]["e"] == "failed"
    await runtime.at_rest()
    await runtime.history(run_id)


@pytest.mark.req("X-10")
async def test_a_denied_action_takes_the_branch_as_well(runtime: Any) -> None:
    policy = "policy: p\nversion: 1\nrules: [{id: reads, match: {operation: probe.value.read}, outcome: allow}]\n"
    text = HEAD + f"  - {{id: e, do: probe.effect.apply, with: {{name: e}}, on_failure: [{note('f')}]}}\n"
    run_id = await runtime.go(text, policy=policy)
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["why"] == ["f authorization/policy_denied e"]
    assert runtime.outside.effects == []


GATE = (
    HEAD
    + f"""  - id: ok
    approve: {{summary: Go?, approvers: {{group: bosses}}, expires: PT1H}}
    on_rejected: [{note("rejected")}]
    on_timeout: [{note("late")}]
"""
    + AFTER
)


@pytest.mark.req("X-10")
async def test_rejected_and_expired_are_different_branches(runtime: Any) -> None:
    run_id = await runtime.go(GATE)
    await runtime.person("bo", ("bosses",))
    await runtime.vote("bo", "reject")
    assert await runtime.status(run_id) == "running"
    await runtime.go_on()
    assert (await runtime.state(run_id))["channels"]["why"] == ["rejected authorization/rejected ok"]
    second = (await runtime.start("w", {"n": 2}, ref="2")).run_id
    await runtime.worker().work_off()
    await runtime.wait_is_due()
    await runtime.go_on()
    assert (await runtime.state(second))["channels"]["why"] == ["late timeout/expired ok"]
    assert {await runtime.status(run_id), await runtime.status(second)} == {"succeeded"}
    assert len(runtime.outside.effects) == 2
    await runtime.at_rest()
    for run in (run_id, second):
        await runtime.history(run)


async def test_a_rejected_action_takes_its_branch_and_is_never_sent(runtime: Any) -> None:
    policy = (
        "policy: p\nversion: 1\nrules:\n  - {id: a, match: {operation: probe.effect.apply}, outcome: needs_approval,"
        " approvers: [{group: bosses}]}\n  - {id: r, match: {operation: probe.value.read}, outcome: allow}\n"
    )
    text = HEAD + f"  - {{id: e, do: probe.effect.apply, with: {{name: e}}, on_rejected: [{note('no')}]}}\n"
    run_id = await runtime.go(text, policy=policy)
    await runtime.person("bo", ("bosses",))
    await runtime.vote("bo", "reject")
    await runtime.go_on()
    assert (await runtime.status(run_id), runtime.outside.effects) == ("succeeded", [])
    assert (await runtime.state(run_id))["channels"]["why"] == ["no authorization/rejected e"]
    await runtime.history(run_id)


async def test_a_doubt_that_people_end_as_failed_takes_the_branch(runtime: Any) -> None:
    runtime.outside.script["m"] = [InDoubt("no answer")]
    runtime.outside.script["probe.mail.send"] = [InDoubt("no answer")]
    branches = f"on_rejected: [{note('r')}], on_failure: [{note('f')}]"
    text = HEAD + f"  - {{id: m, do: probe.mail.send, with: {{text: x}}, {branches}}}\n"
    run_id = await runtime.go(text)
    await runtime.person("op", ("operators",))
    await runtime.wait_is_due()
    await runtime.vote("op", "fail")
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert (await runtime.state(run_id))["channels"]["why"] == ["f consistency/given_up m"]
    await runtime.history(run_id)


async def test_a_failure_in_a_branch_without_one_of_its_own_fails_the_run(runtime: Any) -> None:
    runtime.outside.script["e"] = [Refused("1", "No.")]
    runtime.outside.script["g"] = [Refused("2", "No.")]
    inner = f"{{id: g, do: probe.effect.apply, with: {{name: g}}, on_failure: [{note('deep')}]}}"
    text = HEAD + f"  - {{id: e, do: probe.effect.apply, with: {{name: e}}, on_failure: [{inner}, {note('f')}]}}\n"
    run_id = await runtime.go(text)
    assert (await runtime.state(run_id))["channels"]["why"] == ["deep transport/2 g", "f transport/1 e"]
    runtime.outside.script["e"] = [Refused("1", "No.")]
    runtime.outside.script["g"] = [Refused("2", "No.")]
    plain = "{id: g, do: probe.effect.apply, with: {name: g}}"
    await runtime.publish(
        HEAD.replace("version: 1", "version: 2")
        + f"  - {{id: e, do: probe.effect.apply, with: {{name: e}}, on_failure: [{plain}]}}\n"
    )
    second = (await runtime.start("w", ref="2")).run_id
    await runtime.worker().work_off()
    assert (await runtime.status(second), (await runtime.error(second))["step"]) == ("failed_terminal", "g")


@pytest.mark.req("X-12")
async def test_a_loop_goes_on_while_its_condition_holds(runtime: Any) -> None:
    body = "steps: [{id: e, do: probe.effect.apply, with: {name: '${{ string(index) }}'}, set: {n: '${{ 1 }}'}}]"
    run_id = await runtime.go(HEAD + f"  - {{while: '${{{{ state.n < 4 }}}}', {body}}}\n" + AFTER)
    assert await runtime.status(run_id) == "succeeded"
    assert [call.input["name"] for call in runtime.outside.effects] == ["0", "1", "2", "3", "after"]
    assert (await runtime.state(run_id))["channels"]["n"] == 4


async def test_a_loop_that_would_not_end_fails_the_run(runtime: Any) -> None:
    body = "steps: [{id: e, do: probe.value.read, with: {name: x}}]"
    run_id = await runtime.go(HEAD + f"  - {{while: '${{{{ state.n < 4 }}}}', max: 3, {body}}}\n")
    assert await runtime.status(run_id) == "failed_terminal"
    assert "still holds after 3 iterations" in (await runtime.error(run_id))["message"]
    assert runtime.outside.crowd == 1


@pytest.mark.req("X-12")
async def test_a_wait_inside_an_iteration_resumes_inside_it(runtime: Any) -> None:
    text = (
        HEAD
        + """  - foreach: ${{ trigger.items }}
    max_parallel: 2
    steps:
      - {id: go, wait: {signal: go, correlate: "${{ item }}"}}
      - {id: e, do: probe.effect.apply, with: {name: "${{ item }}"}, set: {why: "${{ item }}"}}
"""
    )
    run_id = await runtime.go(text, {"items": ["a", "b", "c"]})
    assert sorted(await runtime.steps(run_id)) == ["foreach_0[0].go", "foreach_0[1].go"]
    for item in ("b", "a", "c"):
        assert (await runtime.signal(f"go:{item}", {})).code == "delivered"
        await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert [call.input["name"] for call in runtime.outside.effects] == ["b", "a", "c"]
    await runtime.at_rest()
    await runtime.history(run_id)


@pytest.mark.req("X-8")
async def test_a_step_names_the_run_anew_in_the_commit_of_its_result(runtime: Any) -> None:
    text = (
        HEAD
        + "  - {id: e, do: probe.value.read, with: {name: INC7}, reference: '${{ output.name }}'}\n"
        + "  - {id: f, do: probe.ticket.open, with: {name: '${{ run.reference }}'}}\n"
    )
    run_id = await runtime.go(text)
    run = await runtime.books.run(run_id)
    assert (run.status, run.reference) == ("succeeded", "INC7")
    (call,) = runtime.outside.effects
    assert call.input == {"name": "INC7"}
    assert (await runtime.events(run_id)).count("run.reference_set") == 1
    await runtime.history(run_id)


@pytest.mark.req("P-7")
async def test_a_bounded_channel_keeps_its_history_in_the_ledger(runtime: Any) -> None:
    head = HEAD.replace("why: {reduce: append}", "why: {reduce: append, keep: 2, ledger: true}")
    body = "steps: [{id: e, do: probe.value.read, with: {name: '${{ item }}'}, set: {why: '${{ item }}'}}]"
    run_id = await runtime.go(head + f"  - {{foreach: '${{{{ trigger.items }}}}', {body}}}\n", {"items": list("abcd")})
    assert (await runtime.state(run_id))["channels"]["why"] == ["c", "d"]
    entries = await runtime.books.entries()
    assert [(entry.channel, entry.value) for entry in entries] == [("why", value) for value in "abcd"]
    assert entries[0].step == "foreach_0[0].e"
