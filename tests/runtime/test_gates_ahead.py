"""Steps that are added to a run come after every gate that the run has still to pass (promises 1 and 12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.errors import ConsistencyError, DefinitionError, InputError
from runtime.requests.steering import Extending
from runtime.requests.views import RunReader

GATE = "{id: ok, approve: {summary: Go on?, approvers: {group: leads}}}"
PAY = {"id": "pay", "needs": [], "do": "probe.effect.apply", "with": {"name": "pay"}}
GO = "  - {id: go, wait: {signal: go, correlate: x}}\n"
CHILD = f"workflow: child\nversion: 1\nreference: r\nsteps:\n{GO}  - {GATE}\n"
GRANDCHILD = "workflow: middle\nversion: 1\nreference: r\nsteps:\n  - {id: inner, run: child}\n"
NONE = "workflow: plain\nversion: 1\nreference: r\nsteps:\n" + GO
ALLOW = "policy: p\nversion: 1\n{}rules: [{{id: all, match: {{connector: probe}}, outcome: allow}}]\n"
LATE = "  - {id: go, wait: {signal: go, correlate: x}, timeout: PT1H, on_timeout: LATE}\n"
BOT = "model: m, instructions: i, input: x"

# By the place of the gate: the steps of a workflow that waits for a signal first, all before the gate.
AHEAD = {
    "behind a signal": GO + f"  - {GATE}\n",
    "without an edge between": (
        f"  - {{id: nap, wait: {{for: PT1H}}}}\n  - {GATE}\n" + GO.replace("{id: go", "{id: go, needs: []")
    ),
    "in a branch that is not taken yet": GO + f"  - {{if: '${{{{ true }}}}', then: [{GATE}]}}\n",
    "in a loop": GO + f"  - {{foreach: '${{{{ [1] }}}}', as: one, steps: [{GATE}]}}\n",
    "in a loop of a loop": (
        GO + "  - {while: '${{ true }}', max: 1, steps: [{id: inner, foreach: '${{ [1] }}', as: one, steps: ["
        + GATE + "]}]}\n"
    ),
    "in a branch for failures": LATE.replace("LATE", f"[{GATE}]"),
    "in an escalation": LATE.replace("LATE", "{escalate: leads}"),
    "in a run within": GO + "  - {id: sub, run: child}\n",
    "in a run within that goes on": "  - {id: sub, run: child}\n",
    "two runs within": GO + "  - {id: sub, run: middle}\n",
    "two runs within that go on": "  - {id: sub, run: middle}\n",
    "in a run that nobody has published": GO + "  - {id: sub, run: nothing}\n",
    "in a tool of an agent": GO + f"  - {{id: bot, agent: {{{BOT}, tools: [{{run: child}}]}}}}\n",
}  # fmt: skip


def flow(steps: str, name: str = "w") -> str:
    return f"workflow: {name}\nversion: 1\nreference: r\nsteps:\n{steps}"


async def begun(runtime: Any, steps: str, extensions: str = "") -> UUID:
    await runtime.tenant()
    await runtime.policy(ALLOW.format(extensions))
    for text in (CHILD, GRANDCHILD, NONE, flow(steps)):
        await runtime.publish(text)
    for person in ("ana", "ben"):
        await runtime.person(person, ("leads",))
    run_id: UUID = (await runtime.start("w", {})).run_id
    await runtime.worker().work_off()
    return run_id


async def adds(runtime: Any, run_id: UUID, *steps: dict[str, Any], before: tuple[str, ...] = ()) -> Any:
    version = (await runtime.books.run(id=run_id)).version
    source = {"steps": [*steps], "before": [*before]}
    answer = await Extending(runtime.faces, runtime.definitions).extend("acme", run_id, runtime.actor, source, version)
    await runtime.worker().work_off()
    return answer


def paid(runtime: Any) -> list[str]:
    return [call.input["name"] for call in runtime.outside.effects]


@pytest.mark.parametrize("place", AHEAD)
async def test_nothing_that_is_added_goes_out_before_a_gate_that_is_ahead(runtime: Any, place: str) -> None:
    run_id = await begun(runtime, AHEAD[place])
    await adds(runtime, run_id, PAY)
    assert paid(runtime) == []
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)).ok


@pytest.mark.parametrize("choice", ["approve", "reject"])
async def test_it_goes_out_when_the_gate_has_let_it(runtime: Any, choice: str) -> None:
    run_id = await begun(runtime, AHEAD["behind a signal"])
    await adds(runtime, run_id, PAY)
    again = runtime.restarted()
    await again.signal("go:x", {})
    await again.worker().work_off()
    assert paid(again) == []
    assert (await again.vote("ana", choice)).counted
    await again.worker().work_off()
    assert paid(again) == (["pay"] if choice == "approve" else [])
    assert (await RunReader(again.faces, again.definitions).replay("acme", run_id)).ok


@pytest.mark.parametrize(
    "steps",
    [
        GO,
        f"  - {GATE}\n" + GO,
        f"  - {{if: '${{{{ false }}}}', then: [{GATE}]}}\n" + GO,
        "  - {id: fork, if: '${{ false }}', then: ["
        + GATE
        + "], else: [{id: go, wait: {signal: go, correlate: x}}]}\n",
        GO + "  - {id: sub, run: plain}\n",
    ],
)
async def test_a_gate_that_is_passed_or_skipped_holds_up_nothing(runtime: Any, steps: str) -> None:
    run_id = await begun(runtime, steps)
    if await runtime.books.approvals(open=True):
        await runtime.vote("ana", "approve")
        await runtime.worker().work_off()
    await adds(runtime, run_id, PAY)
    assert paid(runtime) == ["pay"]


async def test_a_gate_that_is_skipped_later_frees_what_waits_for_it(runtime: Any) -> None:
    steps = GO + f"  - {{if: '${{{{ steps.go.output.ask }}}}', then: [{GATE}]}}\n"
    run_id = await begun(runtime, steps)
    await adds(runtime, run_id, PAY)
    assert paid(runtime) == []
    await runtime.signal("go:x", {"ask": False})
    await runtime.worker().work_off()
    assert (paid(runtime), await runtime.status(run_id)) == (["pay"], "succeeded")


@pytest.mark.parametrize("before", ["ok", "next"])
async def test_nothing_is_put_before_a_gate(runtime: Any, before: str) -> None:
    run_id = await begun(runtime, GO + f"  - {{id: next, do: probe.value.read, with: {{name: r}}}}\n  - {GATE}\n")
    with pytest.raises(InputError, match="the gate 'ok' is still ahead of it") as caught:
        await adds(runtime, run_id, PAY, before=(before,))
    assert caught.value.where == "before"


async def test_nothing_is_added_to_a_child_while_a_gate_above_is_ahead(runtime: Any) -> None:
    await begun(runtime, f"  - {{id: sub, run: plain}}\n  - {GATE}\n")
    child = await runtime.books.run(workflow="plain")
    with pytest.raises(ConsistencyError, match="is still ahead"):
        await adds(runtime, child.id, PAY)
    assert paid(runtime) == []


BY_NAME = "extensions: {before_gates: [probe.value.*, probe.effect.apply]}\n"


@pytest.mark.parametrize(
    ("extensions", "steps", "early"),
    [
        (BY_NAME, [PAY], True),
        (BY_NAME, [{"id": "read", "needs": [], "do": "probe.value.read", "with": {"name": "r"}}, PAY], True),
        ("extensions: {before_gates: [probe.value.read]}\n", [PAY], False),
        # One step that is not named keeps all of them back.
        (BY_NAME, [PAY, {"id": "file", "needs": [], "do": "probe.key.put", "with": {"name": "f"}}], False),
        (BY_NAME, [PAY, {"id": "nap", "wait": {"for": "PT1H"}}], False),
        # What another run or an agent would do is not said by their names.
        ("extensions: {before_gates: ['*']}\n", [{"id": "x", "needs": [], "run": "pays"}], False),
        (
            "extensions: {before_gates: ['*']}\n",
            [{"id": "x", "needs": [], "continue_with": {"workflow": "pays"}}],
            False,
        ),
        (f"applies: {{workflows: [other-*]}}\n{BY_NAME}", [PAY], False),
    ],
)
async def test_a_policy_lets_what_it_names_come_before_gates(
    runtime: Any, extensions: str, steps: list[dict[str, Any]], early: bool
) -> None:
    run_id = await begun(runtime, AHEAD["behind a signal"], extensions)
    await runtime.publish(flow("  - {id: pay, do: probe.effect.apply, with: {name: pay}}\n", "pays"))
    await adds(runtime, run_id, *steps)
    await runtime.errands()
    await runtime.worker().work_off()
    assert ("pay" in paid(runtime)) is early


def test_a_policy_names_what_there_is(runtime: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"no operation that can come before a gate matches 'probe\.efect\.apply'"
    ):
        runtime.definitions.compile_policy(ALLOW.format("extensions: {before_gates: [probe.efect.apply]}\n"), "p.yaml")
