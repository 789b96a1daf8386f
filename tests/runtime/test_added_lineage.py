"""Judge as added whatever follows from an added step: its adder does not decide on it (promise 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from evidence.chain import Actor
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.definition.model import KINDS, SET
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.requests.steering import Extending
from runtime.requests.views import RunReader
from tests.support.agents import Agents, call, calls, says

OPEN = "workflow: w\nversion: 1\nreference: r\nsteps:\n  - {id: go, wait: {signal: go, correlate: never}}\n"
PAYS = '{id: pay, do: probe.effect.apply, with: {name: "${{ trigger.name }}"}}'
CHILD = f"workflow: child\nversion: 1\nreference: r\nsteps:\n  - {PAYS}\n"
OUTER = (
    'workflow: outer\nversion: 1\nsteps:\n  - {id: inner, run: child, with: {name: "${{ trigger.name }}"}}\n'
    '  - {id: after, continue_with: {workflow: last, with: {name: "${{ trigger.name }}"}}}\n'
)
LAST = CHILD.replace("workflow: child", "workflow: last")
# Published steps act unasked. What is added is asked about, whoever makes the call.
POLICY = """
policy: p
version: 1
rules:
  - {id: all, match: {connector: probe}, when: step.origin != 'extension', outcome: allow}
  - {id: model, match: {connector: model}, outcome: allow}
  - id: added
    match: {operation: probe.effect.apply}
    when: step.origin == 'extension' && step.added_by == 'ana'
    outcome: needs_approval
    approvers: [{group: leads}]
"""
PAY = {"id": "pay", "do": "probe.effect.apply", "with": {"name": "x"}}
BAD = {"id": "bad", "do": "probe.effect.apply", "with": {"name": "x", "amount": "${{ int(trigger.no) }}"}}
GATE = {"approve": {"summary": "Go on?", "approvers": {"group": "leads"}}}
TASK = {
    "title": "Fill",
    "form": {"type": "object", "properties": {"x": {"type": "string"}}},
    "assign": {"group": "leads"},
}
AGENT = {"model": "script-given", "instructions": "Do.", "input": "x", "tools": ["probe.effect.apply"]}
RUNS = {**AGENT, "tools": [{"run": "outer", "name": "outer", "with": {"name": "x"}}]}


async def stored(runtime: Any, folder: Path) -> None:
    """Store the evidence of runs that are over: only then are they tried again."""
    signer = FileSigner.load_or_create(folder / "key.pem")
    bundling = Bundling(FileBlobStore(folder / "blobs"), signer, "test", runtime.definitions)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()


async def due(runtime: Any) -> None:
    await runtime.time_passes()
    await runtime.trouble.make_waits_due(step="extra")
    await runtime.go_on()


async def rejected(runtime: Any) -> None:
    assert (await runtime.vote("ben", "reject")).counted
    await runtime.worker().work_off()


async def escalated(runtime: Any) -> None:
    await due(runtime)
    await runtime.errands()


# By kind of step: what is added, and what has to happen before it would act.
ROWS: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "do": [(PAY, None), ({**BAD, "on_failure": [PAY]}, None)],
    "if": [({"if": "${{ true }}", "then": [PAY]}, None), ({"if": "${{ false }}", "then": [BAD], "else": [PAY]}, None)],
    "foreach": [({"foreach": "${{ [1] }}", "steps": [{"id": "each2", "foreach": "${{ [2] }}", "steps": [PAY]}]}, None)],
    "while": [({"while": "${{ true }}", "max": 1, "steps": [PAY]}, None)],
    "approve": [({"id": "ok", **GATE, "on_rejected": [PAY]}, rejected)],
    "wait": [
        ({"wait": {"signal": "ping", "correlate": "pong"}, "timeout": "PT1H", "on_timeout": [PAY]}, due),
        ({"wait": {"signal": "ping", "correlate": "pong"}, "timeout": "PT1H",
          "on_timeout": {"escalate": "leads", "start": {"workflow": "child", "with": {"name": "x"}}}}, escalated),
    ],
    "task": [({"task": TASK, "timeout": "PT1H", "on_timeout": [PAY]}, due)],
    "run": [({"run": "child", "with": {"name": "x"}}, None), ({"run": "outer", "with": {"name": "x"}}, None)],
    "continue_with": [
        ({"continue_with": {"workflow": name, "with": {"name": "x"}}}, None) for name in ("child", "outer")
    ],
    "agent": [({"id": "triage", "agent": AGENT}, None), ({"id": "triage", "agent": RUNS}, None)],
    SET: [({"id": "named", "reference": "${{ string(int(trigger.no)) }}", "on_failure": [PAY]}, None)],
}  # fmt: skip
EVERY = [(kind, number) for kind in ROWS for number in range(len(ROWS[kind]))]


async def begun(runtime: Any, policy: str = POLICY) -> UUID:
    await runtime.tenant()
    await runtime.policy(policy)
    for text in (CHILD, LAST, OUTER, OPEN):
        await runtime.publish(text)
    for person in ("ana", "ben"):
        await runtime.person(person, ("leads",))
    run_id: UUID = (await runtime.start("w", {})).run_id
    await runtime.worker().work_off()
    return run_id


async def adds(runtime: Any, run_id: UUID, who: str, *steps: dict[str, Any], **more: Any) -> Any:
    version = (await runtime.books.run(run_id)).version
    source = {"steps": [{"id": "extra", "needs": [], **step} for step in steps], **more}
    extending = Extending(runtime.faces, runtime.definitions)
    return await extending.extend("acme", run_id, Actor("person", who), source, version)


def test_every_kind_of_step_has_a_row() -> None:
    assert {*ROWS} == {*KINDS, SET}


@pytest.mark.parametrize(("kind", "number"), EVERY, ids=str)
async def test_what_follows_from_an_added_step_is_judged_as_added(agents: Agents, kind: str, number: int) -> None:
    runtime: Any = agents.runtime
    step, then = ROWS[kind][number]
    tool = call("outer") if step.get("agent") is RUNS else call("probe_effect_apply", {"name": "x"})
    agents.model.turns = [calls(tool), says("done")]
    run_id = await begun(runtime)
    await adds(runtime, run_id, "ana", step)
    await runtime.worker().work_off()
    if then is not None:
        await then(runtime)
    asked = await runtime.books.approvals(open=True)
    asked = [one for one in asked if one.kind == "action"]
    assert len(asked) == 1
    assert runtime.outside.effects == []
    refused = await runtime.vote("ana", "approve", on=asked[0].id)
    assert (refused.counted, refused.code) == (False, "separation_of_duties")
    assert (await runtime.vote("ben", "approve", on=asked[0].id)).counted
    await runtime.worker().work_off()
    assert [one.input["name"] for one in runtime.outside.effects] == ["x"]
    for run in await runtime.books.runs():
        assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run.id)).ok


async def test_what_was_published_beside_an_added_step_is_not_added(agents: Agents) -> None:
    runtime: Any = agents.runtime
    await begun(runtime)
    run_id = (await runtime.start("outer", {"name": "y"}, ref="2")).run_id
    await runtime.go_on()
    assert await runtime.status(run_id) == "succeeded"
    assert [one.input["name"] for one in runtime.outside.effects] == ["y", "y"]


async def test_a_retried_step_is_still_added(runtime: Any, tmp_path: Path) -> None:
    run_id = await begun(runtime)
    await adds(runtime, run_id, "ana", PAY)
    await runtime.worker().work_off()
    await rejected(runtime)
    await runtime.trouble.forget_refusals()
    assert await runtime.status(run_id) == "failed_terminal"
    await stored(runtime, tmp_path)
    await runtime.retry(run_id)
    await runtime.worker().work_off()
    assert (await runtime.vote("ana", "approve")).code == "separation_of_duties"
    assert runtime.outside.effects == []
