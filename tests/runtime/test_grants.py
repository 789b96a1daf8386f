"""An approver allows the same again in advance: exactly within its bounds; each other case asks (promises 1, 12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from core.errors import ConsistencyError
from core.terms import Grant
from evidence.chain import Actor
from evidence.history import History
from runtime.requests.granting import grants_of, revoke_grant
from runtime.requests.views import RunReader
from tests.support.agents import Agents, agent, call, calls, says
from tests.support.people import add_person, deactivate, leave_group, remove_person
from tests.support.runtime_agents import APPROVAL as AGENTS

pytestmark = pytest.mark.req("promise 1")
RULE = """
policy: p
version: VERSION
rules:
  - id: asks
    match: {connector: probe}
    outcome: needs_approval
    tier: TIER
    approvers: [{group: leads, of: OF}]
    grants: {uses: USES, for: PT4H}MORE
"""
# The first action is approved, and something happens before the second one.
TWO = """
workflow: w
version: 1
reference: r
steps:
  - {id: a, do: probe.record.update, with: {name: r, fields: {priority: "1"}}}
  - {id: go, wait: {signal: go, correlate: "${{ trigger.key }}"}}
  - {id: b, do: OPERATION, with: INPUT}
"""
SAME = ("probe.record.update", '{name: r, fields: {priority: "2"}}')
MANY = """
workflow: w
version: 1
steps:
  - {id: first, do: probe.record.update, with: {name: r, fields: {priority: first}}}
  - foreach: ${{ trigger.values }}
    as: v
    max_parallel: PARALLEL
    steps:
      - {id: set, do: probe.record.update, with: {name: r, fields: {priority: "${{ v }}"}}}
"""
TEN = Grant(10, 3600)


def rule(*, of: int = 1, uses: int = 10, more: str = "", version: int = 1, tier: str = "medium") -> str:
    text = RULE.replace("VERSION", str(version)).replace("OF", str(of)).replace("USES", str(uses)).replace("TIER", tier)
    return text.replace("MORE", more)


async def begun(
    runtime: Any, text: str, policy: str = "", trigger: Any = None, grant: Grant | None = TEN, givers: Any = ("lea",)
) -> UUID:
    """A run whose first action was approved by these, with this grant."""
    await runtime.tenant()
    await runtime.policy(policy or rule())
    await runtime.publish(text)
    for person in ("lea", "leo", "requester"):
        await runtime.person(person, () if person == "requester" else ("leads",))
    run_id: UUID = (await runtime.start("w", trigger or {"key": "k"})).run_id
    await runtime.worker().work_off()
    for giver in givers:
        assert (await runtime.vote(giver, "approve", grant=grant)).counted, giver
    await runtime.worker().work_off()
    return run_id


def two(operation: str = SAME[0], given: str = SAME[1]) -> str:
    return TWO.replace("OPERATION", operation).replace("INPUT", given)


async def goes_on(runtime: Any, key: str = "k") -> list[Any]:
    """Let the second action come; the questions that are open then."""
    await runtime.signal(f"go:{key}")
    await runtime.worker().work_off()
    return list(await runtime.books.approvals(open=True))


async def grant_of(runtime: Any, run_id: UUID) -> Any:
    async with runtime.faces.transaction("acme") as connection:
        (found,) = await grants_of(connection, "acme", runtime.definitions, run_id)
    return found


async def over(runtime: Any, run_id: UUID) -> bool:
    return bool((await grant_of(runtime, run_id)).state != "open")


async def revoked(runtime: Any, run_id: UUID) -> None:
    named = ("acme", runtime.definitions, run_id, (await grant_of(runtime, run_id)).grant)
    async with runtime.faces.transaction("acme") as connection:
        await revoke_grant(connection, *named, Actor("person", "leo"), "no more")


async def test_the_same_passes_without_a_question_and_receipt_and_evidence_name_the_grant(runtime: Any) -> None:
    run_id = await begun(runtime, two())
    assert await goes_on(runtime) == []
    assert await runtime.status(run_id) == "succeeded"
    grant = await grant_of(runtime, run_id)
    assert (grant.used, grant.uses, grant.by, grant.of["target"]) == (1, 10, ("lea",), "record/r")
    receipt = await runtime.books.receipt(step="b")
    assert (receipt.action["grant"], receipt.action["approval"]) == (str(grant.grant), None)
    assert {one.outcome for one in await runtime.books.decisions()} == {"needs_approval"}, "every use is judged"
    await runtime.history(run_id)
    replayed = await RunReader(runtime.faces, runtime.definitions).replay("acme", run_id)
    assert replayed.ok, replayed.difference


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("grant.given", None),
        ("grant.given", {"covers": "another"}),
        ("grant.given", {"uses": 0}),
        ("grant.given", {"uses": 11}),
        ("grant.given", {"until": "2020-01-01T00:00:00.000000Z"}),
        ("grant.given", {"approval": str(UUID(int=0))}),
        ("approval.voted", {"grant": None}),
        ("step.parked", "revoked"),
    ],
)
async def test_an_auditor_sees_a_use_that_nobody_has_allowed(runtime: Any, kind: str, change: Any) -> None:
    run_id = await begun(runtime, two())
    await goes_on(runtime)
    lines = [json.loads(event.line) for event in await runtime.books.events(run_id)]
    (grant,) = [line["data"]["grant"] for line in lines if line["type"] == "grant.given"]
    history, last = History(), [at for at, line in enumerate(lines) if line["type"] == kind][-1]
    for seq, line in enumerate(lines):
        told = {"step": None, **line, "seq": seq}
        if seq == last and change == "revoked":
            told |= {"type": "grant.revoked", "data": {"grant": grant}}
        elif seq == last and change is not None:
            told["data"] = {**told["data"], **change}
        if seq != last or change is not None:
            history.observe(told)
    assert history.unauthorised != []


async def test_a_grant_for_an_agent_is_that_agents(agents: Agents) -> None:
    same = call("probe_effect_apply", {"name": "x", "value": "1"})
    policy = AGENTS.replace("approvers:", "grants: {uses: 3, for: PT4H}\n    approvers:")
    text = agent() + "  - {id: after, do: probe.effect.apply, with: {name: x, value: '1'}}\n"
    run_id = await agents.go(calls(same), calls(same), says("Done."), policy=policy, workflow=text)
    runtime: Any = agents.runtime
    await runtime.person("lea", ("leads",))
    assert (await runtime.vote("lea", "approve", grant=Grant(3, 3600, agent=True))).counted
    await runtime.go_on()
    grant = await grant_of(runtime, run_id)
    assert (grant.used, grant.agent, len(runtime.outside.effects)) == (1, "triage", 2)
    assert [one.step for one in await runtime.books.approvals(open=True)] == ["after"]
    await runtime.history(run_id)


Happens = Callable[[Any, UUID], Awaitable[Any]]


def policy(text: str) -> Happens:
    return lambda runtime, _: runtime.policy(text)


def person(change: Any, *more: str) -> Happens:
    return lambda runtime, _: change(runtime.database, "acme", "lea", *more)


async def nothing(runtime: Any, run_id: UUID) -> None:
    """Nothing happens in between."""


# What differs from the approved action, the grant, and what happens before the second action.
ASKS: dict[str, tuple[tuple[str, str], Grant | None, Happens]] = {
    "no grant": (SAME, None, nothing),
    "another operation": (("probe.effect.apply", "{name: r}"), TEN, nothing),
    "another target": ((SAME[0], '{name: s, fields: {priority: "2"}}'), TEN, nothing),
    "another field": ((SAME[0], "{name: r, fields: {owner: zed}}"), TEN, nothing),
    "a field more": ((SAME[0], '{name: r, fields: {priority: "2", owner: zed}}'), TEN, nothing),
    "its giver is gone": (SAME, TEN, person(remove_person)),
    "its giver is not active": (SAME, TEN, person(deactivate)),
    "its giver has left the group": (SAME, TEN, person(leave_group, "leads")),
    "taken back": (SAME, TEN, revoked),
    "another tier": (SAME, TEN, policy(rule(version=2, tier="high"))),
    "another quorum": (SAME, TEN, policy(rule(version=2, of=2))),
    "another rule beside it": (SAME, TEN, policy(rule(version=2, more="""
  - {id: too, match: {connector: probe}, outcome: needs_approval, approvers: [{group: leads}]}"""))),
    "no grants any more": (SAME, TEN, policy(rule(version=2).replace("    grants: {uses: 10, for: PT4H}\n", ""))),
    "other bounds": (SAME, TEN, policy(rule(version=2, uses=5))),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKS)
async def test_whatever_differs_asks_again(runtime: Any, case: str) -> None:
    of, grant, happens = ASKS[case]
    run_id = await begun(runtime, two(*of), grant=grant)
    await happens(runtime, run_id)
    assert [one.step for one in await goes_on(runtime)] == ["b"]
    assert len(runtime.outside.effects) == 1
    await runtime.history(run_id)


async def test_a_denial_wins(runtime: Any) -> None:
    run_id = await begun(runtime, two())
    await runtime.policy(rule(version=2, more="\n  - {id: no, match: {connector: probe}, outcome: deny}"))
    assert await goes_on(runtime) == []
    assert await runtime.status(run_id) == "failed_terminal"


async def test_another_run_asks(runtime: Any) -> None:
    await begun(runtime, two())
    other = (await runtime.start("w", {"key": "other"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert [(one.run, one.step) for one in await goes_on(runtime, "other")] == [(other, "b")]


async def test_what_was_rejected_elsewhere_is_not_let_out(runtime: Any) -> None:
    run_id = await begun(runtime, two())
    refused = TWO.replace("workflow: w", "workflow: other").replace("- {id: a", "- {id: z").replace('"1"', '"2"')
    await runtime.publish(refused.replace("OPERATION", SAME[0]).replace("INPUT", SAME[1]))
    other = (await runtime.start("other", {"key": "z"}, ref="3")).run_id
    await runtime.worker().work_off()
    (asked,) = [one.id for one in await runtime.books.approvals(open=True) if one.run == other]
    assert (await runtime.vote("leo", "reject", on=asked)).counted
    await goes_on(runtime)
    assert len(runtime.outside.effects) == 1
    assert (await runtime.error(run_id))["code"] == "rejected"


async def test_it_ends_with_its_time(runtime: Any) -> None:
    run_id = await begun(runtime, two(), grant=Grant(10, 1))
    await runtime.until(lambda: over(runtime, run_id))
    assert [one.step for one in await goes_on(runtime)] == ["b"]
    assert (await grant_of(runtime, run_id)).state == "expired"
    await runtime.history(run_id)


async def test_who_shapes_a_later_action_gives_nothing_for_it(runtime: Any) -> None:
    """The signal's sender is the giver: what it carries is theirs, so others are asked, who see that."""
    text = two(SAME[0], '{name: r, fields: {priority: "${{ steps.go.output.value }}"}}')
    await begun(runtime, text)
    await runtime.signal("go:k", {"value": "9"}, actor=Actor("person", "lea"))
    await runtime.worker().work_off()
    (asked,) = await runtime.books.approvals(open=True)
    assert (asked.step, len(runtime.outside.effects)) == ("b", 1)


@pytest.mark.parametrize(
    ("grants", "asks"),
    [((TEN, None), True), ((None, TEN), True), ((TEN, Grant(3, 60)), False)],
)
async def test_a_quorum_gives_it_only_if_each_needed_vote_does(
    runtime: Any, grants: tuple[Grant | None, ...], asks: bool
) -> None:
    run_id = await begun(runtime, two(), rule(of=2), givers=())
    for giver, grant in zip(("lea", "leo"), grants, strict=True):
        assert (await runtime.vote(giver, "approve", grant=grant)).counted
    await runtime.worker().work_off()
    assert bool(await goes_on(runtime)) == asks
    if not asks:
        assert (await grant_of(runtime, run_id)).uses == 3, "the smallest bounds of all"


@pytest.mark.parametrize(
    ("grant", "choice"),
    [(Grant(11, 60), "approve"), (Grant(0, 60), "approve"), (Grant(1, 14401), "approve"), (Grant(1, 0), "approve"),
     (Grant(1, 60, agent=True), "approve"), (TEN, "reject")],
)  # fmt: skip
async def test_nobody_gives_more_than_policy_lets_them(runtime: Any, grant: Grant, choice: str) -> None:
    await begun(runtime, two(), givers=())
    assert (await runtime.vote("lea", choice, grant=grant)).code == "grant_refused"
    assert await runtime.books.approvals(open=True) != []


async def test_who_had_a_part_may_approve_if_policy_says_so_and_never_in_advance(runtime: Any) -> None:
    await begun(runtime, two(), rule(more="\n    allow: [requester]"), givers=())
    await remove_person(runtime.database, "acme", "requester")
    await add_person(runtime.database, "acme", "requester", ("leads",))
    assert (await runtime.vote("requester", "approve", grant=TEN)).code == "grant_refused"
    assert (await runtime.vote("requester", "approve")).counted


@pytest.mark.parametrize("parallel", [1, 8])
async def test_uses_are_exact_under_races(runtime: Any, parallel: int) -> None:
    values = [str(number) for number in range(14)]
    text = MANY.replace("PARALLEL", str(parallel))
    run_id = await begun(runtime, text, trigger={"values": values})
    workers = [runtime.worker(f"w{number}", concurrency=4) for number in range(3)]
    await asyncio.gather(*(worker.work_off() for worker in workers))
    await runtime.trouble.make_waits_due("retry")  # whoever lost every race goes on
    await runtime.sweep()
    await asyncio.gather(*(worker.work_off() for worker in workers))
    assert (await grant_of(runtime, run_id)).used == 10
    assert len(runtime.outside.effects) == 11
    asked = await runtime.books.approvals(open=True)
    assert len(asked) == (1 if parallel == 1 else 4)
    await runtime.history(run_id)


async def test_it_is_taken_back_once(runtime: Any) -> None:
    run_id = await begun(runtime, two())
    await revoked(runtime, run_id)
    assert (await grant_of(runtime, run_id)).state == "revoked"
    with pytest.raises(ConsistencyError):
        await revoked(runtime, run_id)
    (told,) = [one for one in await runtime.books.events(run_id) if one.type == "grant.revoked"]
    assert told.actor == {"kind": "person", "id": "leo"}
