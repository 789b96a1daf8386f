"""Versions side by side: a run keeps the graph and the declarations it started with, whatever is published later."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from connectors.catalog import Source, load_catalog
from connectors.port import Connectors
from core.errors import ConsistencyError, NotFoundError
from evidence.chain import Actor
from runtime.definition.catalog import Definitions
from runtime.requests import publishing
from runtime.store import documents

DECLARED = """
operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: external_call
    risk: low
    summary: "Set {name}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
"""
DECLARED_LATER = DECLARED.replace("thing/", "object/").replace("Set ", "Change ").replace("risk: low", "risk: medium")

FIRST = """
workflow: two-versions
version: 1
reference: ${{ trigger.number }}
steps:
  - id: ok
    approve: {summary: "Go on with ${{ trigger.number }}?", approvers: {group: leads}}
  - {id: old_step, do: probe.effect.apply, with: {name: first}}
"""
SECOND = """
workflow: two-versions
version: 2
reference: ${{ trigger.number }}
steps:
  - id: ok
    approve: {summary: "Really go on with ${{ trigger.number }}?", approvers: {group: leads}}
  - {id: new_step, do: probe.effect.apply, with: {name: second}}
  - {id: another, do: probe.effect.apply, with: {name: third}}
"""


def _started_anew(runtime: Any, declarations: str) -> Any:
    """The same database, and processes that know nothing but these declarations."""
    catalog = load_catalog([Source("probe.yaml", declarations)])
    return replace(
        runtime, catalog=catalog, definitions=Definitions(catalog), connectors=Connectors({"probe": runtime.outside})
    )


async def _question_of(runtime: Any, run_id: UUID) -> UUID:
    found: UUID = (await runtime.books.approval(run=run_id, open=True)).id
    return found


async def _targets(runtime: Any, run_id: UUID) -> dict[str, str]:
    return {receipt.step: receipt.target for receipt in await runtime.books.receipts(run=run_id)}


@pytest.mark.req("V-4")
@pytest.mark.req("X-1")
async def test_runs_of_two_versions_go_on_side_by_side_after_a_restart(runtime: Any) -> None:
    before = _started_anew(runtime, DECLARED)
    await before.tenant()
    await before.policy()
    await before.person("ann", ("leads",))
    await before.publish(FIRST)
    first = (await before.start("two-versions", {"number": "INC1"}, ref="1")).run_id
    await before.worker().work_off()

    after = _started_anew(runtime, DECLARED_LATER)
    await after.publish(SECOND)
    second = (await after.start("two-versions", {"number": "INC2"}, ref="2")).run_id
    await after.worker().work_off()
    for run_id in (second, first):  # the newer one first: nothing of it may reach the older one
        await after.vote("ann", "approve", on=await _question_of(after, run_id))
        await after.worker().work_off()

    assert [await after.status(run_id) for run_id in (first, second)] == ["succeeded", "succeeded"]
    assert await after.steps(first) == {"ok": "succeeded", "old_step": "succeeded"}
    assert await after.steps(second) == {"ok": "succeeded", "new_step": "succeeded", "another": "succeeded"}
    assert await _targets(after, first) == {"old_step": "thing/first"}
    assert await _targets(after, second) == {"new_step": "object/second", "another": "object/third"}
    await after.history(first)
    await after.history(second)
    await after.at_rest()


@pytest.mark.req("V-4")
async def test_a_retired_version_starts_nothing_and_its_runs_go_on(runtime: Any) -> None:
    before = _started_anew(runtime, DECLARED)
    await before.tenant()
    await before.policy()
    await before.person("ann", ("leads",))
    await before.publish(FIRST)
    first = (await before.start("two-versions", {"number": "INC1"})).run_id
    await before.worker().work_off()
    async with before.faces.transaction("acme") as connection:
        retired = await publishing.retire_workflow(connection, "acme", "two-versions", 1, Actor("person", "root"))
    assert (retired.changed, retired.starts_with) == (True, None)

    after = _started_anew(runtime, DECLARED_LATER)
    async with after.faces.transaction("acme") as connection:
        with pytest.raises(ConsistencyError, match="Every version of workflow 'two-versions' is retired"):
            await documents.startable_workflow(connection, "acme", "two-versions", None)
    await after.vote("ann", "approve")
    await after.worker().work_off()
    assert await after.status(first) == "succeeded"
    assert await _targets(after, first) == {"old_step": "thing/first"}


async def test_what_cannot_be_started_is_said_with_what_there_is(runtime: Any) -> None:
    await runtime.tenant()
    await runtime.tenant("other")

    async def start(name: str, version: int | None = None, tenant: str = "acme") -> int:
        async with runtime.faces.transaction(tenant) as connection:
            return (await documents.startable_workflow(connection, tenant, name, version)).version

    async def retire(version: int) -> publishing.Retired:
        async with runtime.faces.transaction("acme") as connection:
            return await publishing.retire_workflow(
                connection, "acme", "two-versions", version, Actor("person", "root")
            )

    with pytest.raises(NotFoundError, match=r"There is no workflow 'two-versions'\. Nothing is published"):
        await start("two-versions")
    for version in (1, 2, 3):
        await runtime.publish(FIRST.replace("version: 1", f"version: {version}"))
    assert (await start("two-versions"), await start("two-versions", 1)) == (3, 1)
    with pytest.raises(NotFoundError, match=r"'two-version'\. Did you mean 'two-versions'"):
        await start("two-version")
    with pytest.raises(NotFoundError, match=r"'nothing-like-it'\. Published: two-versions"):
        await start("nothing-like-it")
    with pytest.raises(NotFoundError, match="Nothing is published"):
        await start("two-versions", tenant="other")
    assert (await retire(3)).starts_with == 2
    again = await retire(3)
    assert (again.changed, again.starts_with) == (False, 2)
    assert await start("two-versions") == 2
    with pytest.raises(NotFoundError, match=r"version 9\. Published: 3 \(retired\), 2, 1"):
        await start("two-versions", 9)
    with pytest.raises(ConsistencyError, match=r"version 3 is retired, .* New runs can have: 2, 1\."):
        await start("two-versions", 3)
    with pytest.raises(NotFoundError, match="version 9"):
        await retire(9)


@pytest.mark.req("V-4")
async def test_a_version_is_the_one_that_a_run_has_started_with_or_none(runtime: Any) -> None:
    """A text under the same name and number that has another digest is not what the run goes by."""
    text = "workflow: kept\nversion: 1\nsteps: [{id: a, wait: {for: P1D}}]\n"
    for tenant in ("acme", "other"):
        await runtime.tenant(tenant)
    await runtime.publish(text)
    digest = sha256(text.encode()).hexdigest()
    gone = "^Workflow kept version {} is not what it was when the run started.$"
    async with runtime.faces.transaction("acme") as connection:
        for definitions in (Definitions(runtime.catalog), runtime.definitions):
            for number, wanted in ((1, "0" * 64), (2, digest)):
                with pytest.raises(NotFoundError, match=gone.format(number)):
                    await definitions.workflow(connection, "acme", "kept", number, wanted)
            found = await definitions.workflow(connection, "acme", "kept", 1, digest)
            assert (found.name, found.version, found.digest) == ("kept", 1, digest)
            with pytest.raises(NotFoundError, match=gone.format(1)):
                await definitions.workflow(connection, "acme", "kept", 1, "0" * 64)
    async with runtime.faces.transaction("other") as connection:
        with pytest.raises(NotFoundError, match=gone.format(1)):
            await Definitions(runtime.catalog).workflow(connection, "other", "kept", 1, digest)
