"""Replay: every checkpoint of a real run derived again from what is recorded, and every tampering found (promise 5)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from connectors.port import NotSent, Refused
from core.errors import ConsistencyError, NotFoundError
from runtime.requests.views import ReplayReport, RunReader
from tests.support.tampering import Tampering

HEAD = """
workflow: w
version: 1
reference: ${{ trigger.ref }}
result: ${{ state.n }}
channels:
  seen: {reduce: append, initial: [], ledger: true}
  few: {reduce: append, keep: 2, initial: []}
  n: {reduce: sum, initial: 0}
steps:
"""
READ = "do: probe.value.read, with: {{name: {}}}, set: {{seen: '${{{{ output.value }}}}', n: '${{{{ 1 }}}}'}}"


def read(name: str) -> str:
    return f"{{id: {name}, {READ.format(name)}}}"


CHILD = """
workflow: child
version: 1
reference: r
result: ${{ trigger.given }}
steps:
  - {id: a, do: probe.value.read, with: {name: a}}
  - {id: hold, wait: {signal: held, correlate: "${{ trigger.given }}"}}
"""
QUICK = "workflow: quick\nversion: 1\nreference: r\nresult: 42\nsteps:\n  - {id: a, do: probe.value.read, with: {}}\n"


async def nothing(_: Any, __: UUID) -> None:
    return None


async def answers(runtime: Any, _: UUID) -> None:
    await runtime.person("ana", ("owners",))
    await runtime.vote("ana", "approve")


async def rejects(runtime: Any, _: UUID) -> None:
    await runtime.person("ana", ("owners",))
    await runtime.vote("ana", "reject")


async def signals(runtime: Any, _: UUID) -> None:
    await runtime.signal("told:r1", {"value": "told"})


async def fills(runtime: Any, _: UUID) -> None:
    await runtime.person("kim", ("kyc",))
    assert (await runtime.complete("kim", {"name": "Ada"})).accepted


async def is_due(runtime: Any, _: UUID) -> None:
    await runtime.wait_is_due()


async def adds(runtime: Any, run_id: UUID) -> None:
    extra = {"id": "extra", "do": "probe.value.read", "with": {"name": "${{ steps.one.output.value }}"}}
    await runtime.extend(run_id, {"steps": [extra], "before": ["last"]})
    await signals(runtime, run_id)


async def cancels(runtime: Any, run_id: UUID) -> None:
    from runtime.requests.steering import cancel_run

    async with runtime.faces.transaction("acme") as connection:
        await cancel_run(connection, runtime.definitions, "acme", run_id, runtime.actor, "enough")


async def ends_outside(runtime: Any, run_id: UUID) -> None:
    wait = await runtime.books.wait(run=run_id)
    await runtime.signal(wait.correlation_key, {"papers": 3})


async def tells_child(runtime: Any, _: UUID) -> None:
    await runtime.signal("held:7", {})


LOOP = """
  - {id: items, do: probe.value.read, with: {value: "${{ trigger.items }}"}}
  - id: each
    foreach: ${{ steps.items.output.value }}
    as: thing
    max_parallel: 2
    steps:
      - id: put
        do: probe.effect.apply
        with: {name: "${{ thing }}"}
        set: {seen: "${{ thing }}", few: "${{ index }}"}
      - {id: got, do: probe.value.read, with: {value: "${{ steps.put.output.applied }}"}, set: {n: "${{ 1 }}"}}
"""
SIGNAL = (
    "  - {id: told, wait: {signal: told, correlate: '${{ run.reference }}'}, timeout: P2D,"
    " set: {seen: '${{ signal.payload.value }} by ${{ signal.by }}'}, reference: '${{ output.value }}'}\n"
)
TASK = (
    "  - {id: t, task: {title: T, form: {type: object, properties: {name: {type: string}}},"
    " assign: {group: kyc}}, set: {seen: '${{ output.name }} by ${{ signal.by }}'}}\n"
)
REFUSED = (
    "  - {id: e, do: probe.effect.apply, with: {name: refused}, on_failure: ["
    "{id: f, do: probe.value.read, with: {name: f}, set: {seen: '${{ error.message }}'}}]}\n"
)
# `<name>` stands for a step of that name that reads.
WORKFLOWS: dict[str, tuple[str, Callable[[Any, UUID], Awaitable[None]], str]] = {
    "sequence": ("  - <a>\n  - <b>\n", nothing, "succeeded"),
    "nothing to do": ("  - {id: l, foreach: '${{ [] }}', steps: [<a>]}\n", nothing, "succeeded"),
    "parallel parts": (
        "".join(f"  - {{id: p{n}, needs: [], {READ.format(f'p{n}')}}}\n" for n in range(4)), nothing, "succeeded",
    ),
    "branch of a condition": (
        "  - {if: '${{ trigger.ref == \"r1\" }}', then: [<yes>], else: [<no>]}\n",
        nothing, "succeeded",
    ),
    "loop": (LOOP, nothing, "succeeded"),
    "while": ("  - {id: again, while: '${{ state.n < 3 }}', max: 5, steps: [<a>]}\n", nothing, "succeeded"),
    "while without end": ("  - {id: again, while: '${{ true }}', max: 2, steps: [<a>]}\n", nothing,
                          "failed_terminal"),
    "gate": ("  - {id: g, approve: {summary: Go?, approvers: {group: owners}}}\n  - <a>\n", answers,
             "succeeded"),
    "gate rejected": ("  - {id: g, approve: {summary: Go?, approvers: {group: owners}}}\n", rejects, "failed_terminal"),
    "gate rejected into its branch": (
        "  - {id: g, approve: {summary: Go?, approvers: {group: owners}}, on_rejected: [<a>]}\n",
        rejects, "succeeded",
    ),
    "gate, parked": ("  - {id: g, approve: {summary: Go?, approvers: {group: owners}}}\n", nothing, "waiting_approval"),
    "signal": (SIGNAL + "  - <a>\n", signals, "succeeded"),
    "signal too late": (SIGNAL, is_due, "failed_terminal"),
    "timer": ("  - wait: {for: PT1H}\n  - <a>\n", is_due, "succeeded"),
    "task": (
        TASK, fills, "succeeded",
    ),
    "failure": ("  - {id: e, do: probe.effect.apply, with: {name: refused}}\n", nothing, "failed_terminal"),
    "failure with a branch": (
        REFUSED, nothing, "succeeded",
    ),
    "retry": ("  - {id: e, do: probe.effect.apply, with: {name: later}}\n", is_due, "succeeded"),
    "canceled": (
        f"  - {{id: a, needs: [], {READ.format('a')}}}\n  - {{id: s, needs: [], wait: {{for: PT1H}}}}\n",
        cancels, "canceled",
    ),
    "extended": (f"  - <one>\n{SIGNAL}  - <last>\n", adds, "succeeded"),
    "durable": ("  - {id: case, do: probe.case.open, with: {name: a}, set: {n: '${{ output.papers }}'}}\n",
                ends_outside, "succeeded"),
    "child that waits": ("  - {id: c, run: child, with: {given: 7}, set: {n: '${{ output }}'}}\n", tells_child,
                         "succeeded"),
    "child that does not": ("  - {id: c, run: quick, with: {}, set: {n: '${{ signal.payload }}'}}\n", nothing,
                            "succeeded"),
    "continuation": ("  - {id: c, continue_with: {workflow: quick, with: {}}, set: {seen: '${{ output.run }}'}}\n",
                     nothing, "succeeded"),
    "an expression's fault": (
        "  - {id: a, do: probe.value.read, with: {name: a}, set: {n: '${{ output.absent }}'}}\n", nothing,
        "failed_terminal",
    ),
    "a write that does not fit": (
        "  - {id: a, do: probe.value.read, with: {name: a}, set: {n: '${{ output.value }}'}}\n", nothing,
        "failed_terminal",
    ),
}  # fmt: skip


async def replayed(runtime: Any, run_id: UUID) -> ReplayReport:
    return await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)


async def played(runtime: Any, name: str) -> UUID:
    steps, then, status = WORKFLOWS[name]
    steps = re.sub(r"<(\w+)>", lambda found: read(found[1]), steps)
    runtime.outside.script = {"refused": [Refused("no", "never")], "later": [NotSent("away")]}
    await runtime.tenant()
    await runtime.policy()
    for text in (CHILD, QUICK, HEAD + steps):
        await runtime.publish(text)
    run_id: UUID = (await runtime.start("w", {"ref": "r1", "items": ["x", "y", "z"]})).run_id
    await runtime.worker().work_off()
    await then(runtime, run_id)
    await runtime.go_on()
    assert await runtime.status(run_id) == status, await runtime.error(run_id)
    return run_id


@pytest.mark.req("P-9")
@pytest.mark.req("X-15")
@pytest.mark.parametrize("name", WORKFLOWS)
async def test_every_checkpoint_of_a_run_is_derived_again(runtime: Any, name: str) -> None:
    run_id = await played(runtime, name)
    before = await runtime.fingerprint()
    report = await replayed(runtime, run_id)
    assert (report.difference, report.ok) == (None, True)
    assert report.equal == len(await runtime.books.checkpoints(run=run_id)) >= 1
    assert await runtime.fingerprint() == before, "a replay writes nothing"


async def test_a_run_whose_worker_died_is_replayed_as_well(runtime: Any, gate: Any) -> None:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(HEAD + "  - {id: e, do: probe.effect.apply, with: {name: e}}\n" + f"  - {read('a')}\n")
    run_id = (await runtime.start("w", {"ref": "r1"})).run_id
    await runtime.crash(gate, "e")
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert "lease.expired" in await runtime.events(run_id)
    assert (await replayed(runtime, run_id)).ok


FORGED = {"value": "forged"}


OTHER = "commits to other values than those that are stored"
DAY = timedelta(days=1)
# A run of a kind, what somebody changes in the database, and how a replay names it. These rows are found by keys …
ROWS: dict[str, tuple[str, Callable[[Tampering], Awaitable[None]], str]] = {
    "how a question was answered": ("gate", lambda row: row.rejected(), "The status of the approval"),
    "why somebody voted": ("gate", lambda row: row.vote_reason("another"), "The reason of the vote"),
    "a vote that is gone": ("gate", lambda row: row.lost_vote(), "The vote .* is not stored"),
    "what a wait ended with": ("signal", lambda row: row.wait_output("signal", "forged"), "result of the wait .* told"),
}
# … and of these, every face says so too.
ALTERED: dict[str, tuple[str, Callable[[Tampering], Awaitable[None]], str]] = {
    "what the run hands over": ("sequence", lambda row: row.result(99), "The result of the run"),
    "where an effect landed": ("retry", lambda row: row.receipt_target("elsewhere"), f"action.intended. {OTHER}"),
    "what the target called it": ("retry", lambda row: row.external_id("e9"), f"action.succeeded. {OTHER}"),
    "a receipt that is gone": ("retry", lambda row: row.lost_receipt(), "chain is broken"),
    "whom an approval is for": ("gate", lambda row: row.told_value("requester", "eve"), f"approval.requested. {OTHER}"),
    "what a card shows": ("gate", lambda row: row.told_value("shown", {}), f"approval.requested. {OTHER}"),
    "an output": ("sequence", lambda row: row.told_value("output", FORGED), f"step.succeeded. {OTHER}"),
    "a write": ("sequence", lambda row: row.told_value("values", {"n": 99}), f"step.succeeded. {OTHER}"),
    "a failure": ("failure", lambda row: row.told_value("detail", {"class": "timeout"}), f"action.failed. {OTHER}"),
    "why it was allowed": ("retry", lambda row: row.told_value("facts", {}), f"decision.made. {OTHER}"),
    "what a loop went through": ("loop", lambda row: row.told_value("choices", [[]]), f"checkpoint.committed. {OTHER}"),
    "the trigger": ("sequence", lambda row: row.told_value("inputs", {"ref": "r1"}), f"run.opened. {OTHER}"),
    "a value that has no canonical form": ("sequence", lambda row: row.told_value("output", 2**63), OTHER),
    "values that are no values": ("sequence", lambda row: row.unreadable_values(), "an append cannot be read"),
    "values that are gone": ("sequence", lambda row: row.lost_values(), OTHER),
    "the key to the values": ("sequence", lambda row: row.lost_key(), "The run's key was deleted"),
    "a byte of a line": ("sequence", lambda row: row.audit_line(3), "chain is broken"),
    "when something was": ("sequence", lambda row: row.told_earlier("step.succeeded", DAY), "chain is broken"),
    "a checkpoint that is gone": ("sequence", lambda row: row.lost_audit("checkpoint.committed"), "chain is broken"),
    "the workflow": ("sequence", lambda row: row.workflow(), "The workflow w@1 is not what it was"),
    "the end": ("sequence", lambda row: row.lost_audit("run.closed"), "do not come to the head"),
}


@pytest.mark.tampers
@pytest.mark.req("P-3")
@pytest.mark.parametrize("what", [*ROWS, *ALTERED])
async def test_what_was_altered_is_found_and_named_and_never_shown(runtime: Any, database_url: str, what: str) -> None:
    name, alter, words = {**ROWS, **ALTERED}[what]
    run_id = await played(runtime, name)
    await alter(Tampering(database_url))
    runtime = runtime.restarted()
    report = await replayed(runtime, run_id)
    assert not report.ok
    assert report.difference is not None
    assert re.search(words, report.difference), report.difference
    reader = RunReader(runtime.faces, runtime.definitions)
    if what in ALTERED:
        with pytest.raises(ConsistencyError, match=words):
            await reader.at("acme", run_id)
        with pytest.raises(ConsistencyError, match=words):
            await reader.checkpoints("acme", run_id, 0)


@pytest.mark.parametrize("name", WORKFLOWS)
async def test_a_run_is_shown_as_it_was_at_each_checkpoint(runtime: Any, name: str) -> None:
    run_id = await played(runtime, name)
    reader = RunReader(runtime.faces, runtime.definitions)
    numbers = [row["superstep"] for row in (await reader.at("acme", run_id, range(100))).checkpoints]
    shown = [(await reader.checkpoints("acme", run_id, number))[0] for number in numbers]
    stored = await runtime.books.checkpoints(run=run_id)
    assert [(row["superstep"], row["digest"], row["state"]) for row in shown] == [
        (row.superstep, row.digest, row.state) for row in stored
    ]
    steps = (await reader.at("acme", run_id)).steps
    assert all(step["created_at"] <= (step["finished_at"] or step["created_at"]) for step in steps)
    with pytest.raises(NotFoundError, match="no checkpoint 999"):
        await reader.checkpoints("acme", run_id, 999)


async def test_a_run_of_another_tenant_is_no_run(runtime: Any) -> None:
    run_id = await played(runtime, "sequence")
    await runtime.tenant("other")
    for tenant, run in (("other", run_id), ("acme", uuid4())):
        with pytest.raises(NotFoundError, match="no run"):
            await RunReader(runtime.faces, runtime.definitions).replay(tenant, run)
        with pytest.raises(NotFoundError, match="no run"):
            await RunReader(runtime.faces, runtime.definitions).at(tenant, run)


SEES_ITSELF = """workflow: w
version: 1
reference: "${{ run.id }}"
channels: {seen: {reduce: append}, began: {initial: "${{ run.started_at }}"}}
result: {began: "${{ state.began }}", seen: "${{ state.seen }}", last: "${{ run.checkpoint }}"}
steps:
  - {id: one, do: probe.effect.apply, with: {name: "${{ step.id }} ${{ string(run.checkpoint) }}"}}
  - {id: rest, wait: {for: PT1S}, set: {seen: ["${{ step.id }}", "${{ run.checkpoint }}"]}}
  - id: again
    if: "${{ run.checkpoint == 4 && step.id == 'again' && string(run.started_at) != '' }}"
    then:
      - id: each
        foreach: "${{ [step.id] }}"
        as: step
        steps:
          - {id: two, set: {seen: "${{ step }}"}}
      - {id: late, set: {seen: "${{ run.started_at }}"}}
"""


@pytest.mark.req("X-4")
@pytest.mark.req("X-21")
async def test_a_run_sees_when_it_began_its_checkpoint_and_its_step(runtime: Any) -> None:
    run_id = await runtime.go(SEES_ITSELF)
    await runtime.wait_is_due()
    run = await runtime.books.run(run_id)
    (opened, *_) = await runtime.books.events(run_id)
    state = (await runtime.state(run_id))["channels"]
    assert runtime.outside.effects[0].input["name"] == "one 0"
    assert datetime.fromisoformat(state["began"]) == datetime.fromisoformat(opened.ts)
    assert state["seen"][:2] == [["rest", 3], "each"]
    assert state["seen"][2] == state["began"]
    assert run.status == "succeeded"
    assert (await replayed(runtime, run_id)).ok
    await runtime.history(run_id)
