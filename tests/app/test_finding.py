"""An auditor finds runs by who did what in them, over HTTP and on the command line, and sees no other tenant's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.access import Role
from app.cli.outcome import Exit
from runtime.store.read_models import FIRST_TIME, LAST_ID, LAST_TIME
from runtime.store.statements import statements


async def vote(installation: Any, number: str, person: str, choice: str, tenant: str = "default") -> str:
    """A run that asks, and a vote of this person."""
    run_id, approval, _ = await installation.asked(number, tenant)
    client = await installation.client(Role.APPROVER, Role.AUDITOR, subject=person, tenant=tenant)
    shown = (await client.get(f"/v1/approvals/{approval}")).json()
    body = {"choice": choice, "reason": "because", "digest": shown["digest"]}
    await client.post(f"/v1/approvals/{approval}/votes", json=body)
    await installation.work()
    return str(run_id)


async def test_runs_are_found_by_person_part_decision_action_rule_and_period(installation: Any) -> None:
    approved = await vote(installation, "INC1", "ann", "approve")
    rejected = await vote(installation, "INC2", "bob", "reject")
    refused = await vote(installation, "INC3", "eve", "approve")
    simple = str(await installation.start("simple", "INC4", subject="bob"))
    await installation.work()
    await installation.publish("other")
    await vote(installation, "INC1", "ann", "approve", tenant="other")
    client = await installation.client(Role.AUDITOR, subject="aud")
    every = {approved, rejected, refused, simple}
    asked: dict[tuple[tuple[str, object], ...], set[str]] = {
        (): every,
        (("person", "ann"), ("part", "approver")): {approved},
        (("person", "ann"), ("part", "approver"), ("decision", "rejected")): set(),
        (("person", "U0BOB"), ("part", "approver"), ("decision", "rejected")): {rejected},
        (("person", "eve"), ("part", "refused")): {refused},
        (("person", "eve"), ("part", "approver")): set(),
        (("person", "bob"), ("part", "requester")): {simple},
        (("person", "tess"), ("part", "contributor")): {approved, rejected, refused},
        (("decision", "approved"),): {approved},
        (("decision", "allowed"), ("operation", "probe.effect.apply")): {simple},
        (("operation", "probe.danger.apply"), ("decision", "asked")): {approved, rejected, refused},
        (("rule", "dangers"), ("reference", "INC2")): {rejected},
        (("rule", 'dangers"'),): set(),
        (("target", "thing/"), ("decision", "approved")): {approved},
        (("workflow", "simple"),): {simple},
        (("since", "2999-01-01T00:00:00Z"),): set(),
        (("until", "2999-01-01T00:00:00Z"),): every,
        (("until", "2000-01-01T00:00:00Z"),): set(),
        (("person", "ann"), ("part", "approver"), ("until", "2000-01-01T00:00:00Z")): set(),
    }
    for wanted, runs in asked.items():
        found, cursor = list[Any](), ""
        while cursor is not None:
            answer = await client.get("/v1/evidence/runs", params=[*wanted, ("limit", 1), ("cursor", cursor)])
            assert answer.status_code == 200, answer.text
            found, cursor = found + answer.json()["items"], answer.json()["next"]
        assert {one["run_id"] for one in found} == runs, wanted
        assert len(found) == len(runs)
        if dict(wanted).get("person") == "ann" and runs:
            (question,) = found[0]["questions"]
            (answered,) = question["answers"]
            assert (answered["person"], answered["choice"], answered["counted"]) == ("ann", "approve", True)
    for bad, status in ({"person": "ann"}, 400), ({"part": "owner"}, 422), ({"cursor": "x"}, 400):
        assert (await client.get("/v1/evidence/runs", params=bad)).status_code == status
    read = await installation.tenant_events("evidence.read")
    assert {"part": "approver", "person": "ann"} in [one["data"].get("asked") for one in read]


async def test_a_search_reads_no_row_of_another_tenant(installation: Any) -> None:
    """Explain the statement for a login that may see all tenants: no security by row hides what is read."""
    await installation.publish("other")
    await installation.start("simple", "INC1")
    for number in range(30):
        await installation.start("simple", f"INC{number}", tenant="other")
    scan = statements("searching")["scan"]
    values: tuple[Any, ...] = (
        "default",
        LAST_TIME,
        LAST_ID,
        FIRST_TIME,
        100,
        None,
        None,
        None,
        [],
        "ann",
        FIRST_TIME,
        LAST_TIME,
    )
    async with installation.engine.transaction() as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {scan}", *values, "approved", [b"x"])
    reads = [*_reads(told[0]["Plan"])]
    assert {one["Relation Name"] for one in reads} >= {"runs", "approvals", "bundles"}
    for one in reads:
        assert one["Node Type"].startswith(("Index", "Bitmap")), one
        assert one["Actual Rows"] * one["Actual Loops"] <= 1, one
        assert one.get("Rows Removed by Filter", 0) == 0, one


def _reads(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "Relation Name" in plan:
        yield plan
    for each in plan.get("Plans", ()):
        yield from _reads(each)


def test_the_command_line_asks_the_same(command: Any) -> None:
    for more in ([], ["--part", "approver", "--person", "ann"], ["--decision", "denied", "--rule", "x"]):
        assert command.json("evidence", "find", *more) == []
    command("evidence", "find", "--part", "owner", "--person", "a", exit_code=Exit.INPUT)
    command("evidence", "find", "--person", "a", exit_code=Exit.INPUT)
    assert command.json("policy", "list", "--at", "2000-01-01T00:00:00Z") == []
