"""A warning of the doctor ends when its cause does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app import doctor
from app.access import Role
from runtime.store import replication
from runtime.store.replication import Unavailable

EVENT = {"table": "incident", "event": "insert", "sys_id": "s1", "sys_mod_count": "0"}
NEWER = """
workflow: simple
version: 2
reference: ${{ run.id }}
triggers:
  servicenow: {table: incident, events: [insert], dedupe: "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"}
steps: [{id: first, do: probe.effect.apply, with: {name: x}}]
"""
NOBODY = """
directory: tests
version: 3
people: [{id: ann, name: Ann}, {id: bob, name: Bob}, {id: tess, name: Tess}]
groups: {leads: []}
"""
SOMEBODY = NOBODY.replace("leads: []", "leads: [ann]").replace("version: 3", "version: 4")


MORE = "policy: more\nversion: 1\nrules: [{id: no, match: {operation: servicenow.*}, outcome: deny}]\n"
THING = (
    "operations:\n- {name: crm.thing.get, connector: http, handler: 'http:send', side_effects: none, risk: low,"
    " summary: Get it, target: thing, input_schema: {type: object, required: [method, url], properties:"
    " {method: {type: string}, url: {type: string}}}, output_schema: {type: object}}\n"
)
Act = Callable[[Any], Awaitable[None]]


async def unfit(one: Any) -> None:
    assert (await one.webhook(EVENT)).status_code == 422


async def fit(one: Any) -> None:
    assert (await one.webhook({**EVENT, "sys_id": "s2", "number": "INC2"})).status_code == 202


async def newer(one: Any) -> None:
    await one.add(NEWER)


async def retired(one: Any) -> None:
    client = await one.client(Role.ADMIN)
    assert (await client.post("/v1/workflows/simple/1/retire")).status_code == 200


async def nobody(one: Any) -> None:
    await one.asked()
    await one.people(NOBODY)


async def somebody(one: Any) -> None:
    await one.people(SOMEBODY)


async def paused(one: Any) -> None:
    client = await one.client(Role.OPERATOR)
    assert (await client.post("/v1/pauses", json={"what": "tenant", "reason": "Month-end."})).is_success


async def resumed(one: Any) -> None:
    client = await one.client(Role.OPERATOR)
    assert (await client.post("/v1/pauses/resume", json={"what": "tenant", "reason": "Over."})).is_success


async def untrusted(one: Any) -> None:
    """An author publishes a workflow with a trigger, which waits for an admin."""
    client = await one.client(Role.AUTHOR)
    answer = await client.post("/v1/workflows", json={"source": NEWER.replace("simple", "mine")})
    assert answer.is_success, answer.text


async def overtaken(one: Any) -> None:
    await one.add(NEWER.replace("simple", "mine").replace("version: 2", "version: 3"))


def unusable(kind: str, name: str) -> Act:
    """A start that could not use a document of the folder."""

    async def begins(one: Any) -> None:
        found = [Unavailable(kind, name, f"{kind}.yaml", "It could not be read.")]
        await one.app.faces.ask("default", replication.replace, found)

    return begins


def published(kind: str, text: str) -> Act:
    async def ends(one: Any) -> None:
        client = await one.client(Role.ADMIN)
        answer = await client.post(f"/v1/{kind}", json={"source": text})
        assert answer.is_success, answer.text

    return ends


declared = published("operations", THING)
CAUSES: dict[str, tuple[str, Act, Act]] = {
    "an event fits": ("trigger of simple", unfit, fit),
    "the workflow is repaired": ("trigger of simple", unfit, newer),
    "the workflow is retired": ("trigger of simple", unfit, retired),
    "somebody can decide": ("questions", nobody, somebody),
    "the pause is lifted": ("paused", paused, resumed),
    "a directory is published": ("unavailable directory tests", unusable("directory", "tests"), somebody),
    "another directory is published": ("unavailable directory", unusable("directory", ""), somebody),
    "a policy is published": ("unavailable policy more", unusable("policy", "more"), published("policies", MORE)),
    "declarations are published": (
        "unavailable operations",
        unusable("operations", ""),
        published("operations", THING),
    ),
    "a newer version has taken its place": ("workflow mine@2", untrusted, overtaken),
}


@pytest.mark.parametrize("end", CAUSES)
async def test_a_warning_ends_with_its_cause(installation: Any, end: str) -> None:
    what, begins, ends = CAUSES[end]

    async def warned() -> bool:
        faces = installation.app.faces
        found = [one async for one in doctor.of_tenant("default", faces.database, faces.definitions)]
        return any(one.what == what and one.state in (doctor.State.WARNING, doctor.State.BROKEN) for one in found)

    assert not await warned()
    await begins(installation)
    assert await warned()
    await ends(installation)
    assert not await warned()
