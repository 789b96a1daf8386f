"""Publications of somebody who is only an author do not act by themselves: an admin lets them (promises 1 and 12)."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role
from tests.support.app_stage import POLICY
from tests.support.people import add_person, fill_groups

STEP = "{id: pay, do: probe.effect.apply, with: {name: pay}}"
TRIGGER = "triggers: {servicenow: {table: change, events: [insert]}}\n"
EVENT = {"table": "change", "event": "insert", "number": "C1", "sys_id": "c1", "sys_mod_count": "0"}
NAMED = POLICY.replace("policy: tests", "policy: named").replace(
    "rules:", "applies: {workflows: [incident-*]WHO}\nrules:"
)


def flow(name: str, step: str = STEP, version: int = 1, head: str = "") -> dict[str, str]:
    return {"source": f"workflow: {name}\nversion: {version}\nreference: r\n{head}steps:\n  - {step}\n"}


async def clients(installation: Any) -> tuple[Any, Any]:
    return await installation.client(Role.AUTHOR, subject="ann"), await installation.client(Role.ADMIN, subject="eve")


async def begins(installation: Any, admin: Any, name: str, version: int | None = None) -> int:
    body = {"workflow": name, "input": {}, **({} if version is None else {"version": version})}
    return int((await admin.post("/v1/runs", json=body)).status_code)


async def test_a_trigger_of_an_author_starts_nothing_before_an_admin_has_activated_it(installation: Any) -> None:
    author, admin = await clients(installation)
    published = await author.post("/v1/workflows", json=flow("lunch", head=TRIGGER))
    assert (published.status_code, published.json()["waits"]) == (201, True)
    assert published.json()["waits_for"] == "it has a trigger"
    assert (await installation.webhook(EVENT)).json()["runs"] == []
    assert (await begins(installation, admin, "lunch"), await begins(installation, admin, "lunch", 1)) == (409, 409)
    (listed,) = (await author.get("/v1/workflows?name=lunch")).json()["items"]
    assert listed["waits_for"] == (await author.get("/v1/workflows/lunch/1")).json()["waits_for"] == "it has a trigger"
    again = await author.post("/v1/workflows", json=flow("lunch", head=TRIGGER))
    assert (again.status_code, again.json()["waits"], again.json()["retired"]) == (200, True, False)
    for role in set(Role) - {Role.ADMIN, Role.AGENT}:
        other = await installation.client(role, subject="ann")
        assert (await other.post("/v1/workflows/lunch/1/activate")).status_code == 403
    activated = await admin.post("/v1/workflows/lunch/1/activate")
    assert (activated.status_code, activated.json()["changed"]) == (200, True)
    assert (await admin.post("/v1/workflows/lunch/1/activate")).json()["changed"] is False
    assert len(await installation.tenant_events("workflow.activated")) == 1
    assert len((await installation.webhook(EVENT)).json()["runs"]) == 1


async def test_what_an_admin_activated_goes_on_until_the_next_version_is_activated(installation: Any) -> None:
    author, admin = await clients(installation)
    for version in (1, 2):
        await author.post("/v1/workflows", json=flow("lunch", version=version, head=TRIGGER))
        if version == 1:
            await admin.post("/v1/workflows/lunch/1/activate")
    await installation.webhook(EVENT)
    (run,) = await installation.books.runs(workflow="lunch")
    detail = (await admin.get(f"/v1/runs/{run.id}")).json()
    assert detail["workflow_version"] == 1
    assert await begins(installation, admin, "lunch", 2) == 409


@pytest.mark.parametrize(
    ("who", "name", "waits"),
    [
        ("", "incident-lunch", True),
        ("", "lunch", False),
        (", authors: {group: writers}", "incident-lunch", False),
        (", authors: {group: others}", "incident-lunch", True),
    ],
)
async def test_names_that_a_policy_covers_belong_to_those_whom_it_names(
    installation: Any, who: str, name: str, waits: bool
) -> None:
    author, admin = await clients(installation)
    await add_person(installation.engine, "default", "ann", ("writers",))
    await fill_groups(installation.engine, "default", NAMED)
    put = await admin.post("/v1/policies", json={"source": NAMED.replace("WHO", who)})
    assert put.status_code == 201, put.text
    published = await author.post("/v1/workflows", json=flow(name))
    assert (published.status_code, published.json()["waits"]) == (201, waits), published.text
    assert await begins(installation, admin, name) == (409 if waits else 201)
    if waits:
        assert published.json()["waits_for"] == "the policy named names it, and not its author"
        await admin.post(f"/v1/workflows/{name}/1/activate")
        assert await begins(installation, admin, name) == 201


RUNS = {
    "run": "{id: sub, run: helper}",
    "continue_with": "{id: sub, continue_with: {workflow: helper}}",
    "an agent's tool": "{id: sub, agent: {model: m, instructions: i, input: x, tools: [{run: helper}]}}",
    "an escalation": "{id: sub, wait: {signal: s, correlate: x}, timeout: PT1H, "
    "on_timeout: {escalate: leads, start: {workflow: helper}}}",
    "a loop": "{id: l, foreach: '${{ [1] }}', as: one, steps: [{id: sub, run: helper}]}",
    "that very version": "{id: sub, run: helper@2}",
}


@pytest.mark.parametrize("how", RUNS)
@pytest.mark.parametrize("through", ["", "middle"])
async def test_a_newer_version_of_what_others_run_waits(installation: Any, how: str, through: str) -> None:
    """Others run it, or run what runs it."""
    author, admin = await clients(installation)
    assert not (await author.post("/v1/workflows", json=flow("helper"))).json()["waits"]
    step = RUNS[how]
    if through:
        assert (await author.post("/v1/workflows", json=flow("middle", step))).status_code == 201
        step = "{id: mid, run: middle}"
    assert (await admin.post("/v1/workflows", json=flow("outer", step, head=TRIGGER))).status_code == 201
    newer = await author.post("/v1/workflows", json=flow("helper", version=2))
    assert (newer.status_code, newer.json()["waits_for"]) == (201, "the workflow outer runs it"), newer.text


async def test_an_older_version_that_others_run_by_its_number_still_runs_the_newest(installation: Any) -> None:
    """A newer version of the one in the middle, which runs nothing more, hides nothing."""
    author, admin = await clients(installation)
    await author.post("/v1/workflows", json=flow("helper"))
    await author.post("/v1/workflows", json=flow("middle", RUNS["run"]))
    assert (await admin.post("/v1/workflows", json=flow("outer", "{id: mid, run: middle@1}"))).status_code == 201
    assert not (await author.post("/v1/workflows", json=flow("middle", version=2))).json()["waits"]
    newer = await author.post("/v1/workflows", json=flow("helper", version=2))
    assert newer.json()["waits_for"] == "the workflow outer runs it", newer.text


async def test_what_only_its_author_runs_waits_for_nobody(installation: Any) -> None:
    author, admin = await clients(installation)
    await author.post("/v1/workflows", json=flow("helper"))
    await author.post("/v1/workflows", json=flow("own", RUNS["run"]))
    await admin.post("/v1/workflows", json=flow("pinned", "{id: sub, run: helper@1}"))
    newer = await author.post("/v1/workflows", json=flow("helper", version=2))
    assert (newer.status_code, newer.json()["waits"]) == (201, False)
    assert await begins(installation, admin, "helper") == 201
