"""The role author: composes workflows and extends runs of its own, and rules over nothing (V-6)."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role
from tests.support.app_author import flow
from tests.support.app_stage import PEOPLE, POLICY

MORE = {"steps": [{"id": "extra", "do": "probe.effect.apply", "with": {"name": "extra"}}]}


@pytest.fixture
async def author(installation: Any) -> Any:
    return await installation.client(Role.AUTHOR, subject="ann")


@pytest.mark.req("V-6")
async def test_an_author_checks_and_publishes_workflows(author: Any) -> None:
    checked = await author.post("/v1/workflows/check", json=flow())
    assert (checked.status_code, checked.json()["name"], checked.json()["version"]) == (200, "written", 1)
    assert (await author.get("/v1/workflows?name=written")).json()["items"] == []  # checked, and not published
    wrong = await author.post("/v1/workflows/check", json={"source": flow()["source"].replace("signal:", "sginal:")})
    assert (wrong.status_code, wrong.json()["problems"][0]["line"]) == (422, 6)
    for version in (1, 2):
        published = await author.post("/v1/workflows", json=flow(version))
        assert (published.status_code, published.json()["version"]) == (201, version), published.text
    assert (await author.get("/v1/workflows/written/2")).json()["published_by"] == "ann"


@pytest.mark.req("V-6")
async def test_a_name_belongs_to_whoever_published_it_first(installation: Any, author: Any) -> None:
    assert (await author.post("/v1/workflows", json=flow())).status_code == 201
    other = await installation.client(Role.AUTHOR, subject="bob")
    refused = await other.post("/v1/workflows", json=flow(2))
    assert (refused.status_code, "belongs to ann" in refused.text) == (403, True)
    # An admin may, and does not become the owner by that.
    admin = await installation.client(Role.ADMIN, subject="eve")
    assert (await admin.post("/v1/workflows", json=flow(2))).status_code == 201
    assert (await author.post("/v1/workflows", json=flow(3))).status_code == 201
    assert (await other.post("/v1/workflows", json=flow(4))).status_code == 403
    # What was there before belongs to whoever published that.
    assert (await author.post("/v1/workflows", json=flow(9, "asking"))).status_code == 403


async def started(installation: Any, subject: str, number: str) -> tuple[str, str]:
    """A run of the author's workflow that this subject has started: its id and its version."""
    run_id = await installation.start("written", number, subject=subject)
    await installation.work()
    operator = await installation.client(Role.OPERATOR)
    return str(run_id), (await operator.get(f"/v1/runs/{run_id}")).headers["etag"]


@pytest.mark.req("V-6")
async def test_an_author_extends_runs_of_its_own_and_no_others(installation: Any, author: Any) -> None:
    await author.post("/v1/workflows", json=flow())
    own, version = await started(installation, "ann", "A")
    assert (await author.get(f"/v1/runs/{own}")).headers["etag"] == version
    assert (await author.get(f"/v1/runs/{own}/graph")).status_code == 200
    extended = await author.post(f"/v1/runs/{own}/steps", json=MORE, headers={"If-Match": version})
    assert (extended.status_code, extended.json()["steps"]) == (201, ["extra"]), extended.text
    others, version = await started(installation, "bob", "B")
    for answer in (
        await author.post(f"/v1/runs/{others}/steps", json=MORE, headers={"If-Match": version}),
        await author.post(f"/v1/runs/{others}/steps", json=MORE),
        await author.get(f"/v1/runs/{others}"),
        await author.get(f"/v1/runs/{others}/graph"),
    ):
        assert (answer.status_code, "started in its own name" in answer.text) == (403, True)
    both = await installation.client(Role.AUTHOR, Role.OPERATOR, subject="ann")
    extended = await both.post(f"/v1/runs/{others}/steps", json=MORE, headers={"If-Match": version})
    assert extended.status_code == 201


async def test_an_author_rules_over_nothing(installation: Any, author: Any) -> None:
    await author.post("/v1/workflows", json=flow())
    own, _ = await started(installation, "ann", "A")
    _, question, _ = await installation.asked("Q")
    for method, path, body in (
        ("POST", "/v1/policies", {"source": POLICY}),
        ("POST", "/v1/policies/tests/1/activate", None),
        ("POST", "/v1/workflows/written/1/retire", None),
        ("POST", f"/v1/approvals/{question}/votes", {"choice": "approve"}),
        ("POST", "/v1/signals/said:A", {"output": 1}),
        ("POST", f"/v1/runs/{own}/cancel", {"reason": "x"}),
        ("POST", "/v1/runs", {"workflow": "written", "input": {"number": "C"}}),
        ("POST", "/v1/pauses", {"kind": "tenant", "reason": "x"}),
        ("GET", f"/v1/approvals/{question}", None),
        ("GET", f"/v1/runs/{own}/evidence", None),
        ("GET", f"/v1/runs/{own}/waits", None),
    ):
        answer = await author.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "authorization"), path


def test_the_command_line_acts_as_an_admin(command: Any, tmp_path: Any) -> None:
    (tmp_path / "people.yaml").write_text(PEOPLE)
    (tmp_path / "written.yaml").write_text(flow()["source"])
    command("directory", "publish", str(tmp_path / "people.yaml"))
    command("workflow", "publish", str(tmp_path / "written.yaml"))
    command("token", "create", "--subject", "ann", "--role", "author")


async def test_a_role_that_shows_no_run_shows_an_author_none_of_others(installation: Any, author: Any) -> None:
    await author.post("/v1/workflows", json=flow())
    others, version = await started(installation, "bob", "B")
    both = await installation.client(Role.AUTHOR, Role.TRIGGER, subject="ann")
    assert (await both.get(f"/v1/runs/{others}")).status_code == 403
    extended = await both.post(f"/v1/runs/{others}/steps", json=MORE, headers={"If-Match": version})
    assert extended.status_code == 403
    for role in (Role.ADMIN, Role.OPERATOR, Role.APPROVER, Role.AUDITOR):
        both = await installation.client(Role.AUTHOR, role, subject="ann")
        assert (await both.get(f"/v1/runs/{others}")).status_code == 200
