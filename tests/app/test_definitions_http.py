"""Definitions over HTTP: publish, list, look at, retire; the schemas; and what is wrong, with its place."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from app.access import Role
from core.canonical import digest
from tests.support.asking import owning

TEXT = """
workflow: extra
version: 1
title: Something extra
reference: x
steps:
  - {id: a, do: probe.effect.apply, with: {name: x}}
  - {id: b, do: probe.effect.apply, with: {name: y}}
  - id: c
    needs: [a]
    do: probe.danger.apply
    with: {name: z}
"""


@pytest.mark.req("X-1")
@pytest.mark.req("X-3")
async def test_a_version_is_published_listed_and_shown(installation: Any) -> None:
    client = await installation.client(Role.ADMIN, subject="root")
    made = await client.post("/v1/workflows", json={"source": TEXT})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/workflows/extra/1")
    (listed,) = (await client.get("/v1/workflows", params={"name": "extra"})).json()["items"]
    assert (listed["published_by"], listed["retired_at"], listed["connectors"]) == ("root", None, ["probe"])
    assert listed["operations"] == ["probe.danger.apply", "probe.effect.apply"]
    shown = (await client.get(made.headers["location"])).json()
    assert (shown["source"], shown["digest"], shown["problem"]) == (TEXT, made.json()["digest"], None)
    row = await installation.one("SELECT operations FROM workflows WHERE name = 'extra'")
    assert shown["operations"] == {name: digest(declared) for name, declared in row["operations"].items()}
    assert shown["definition_digest"]
    outline = shown["outline"]
    assert (outline["title"], [step["id"] for step in outline["steps"]]) == ("Something extra", ["a", "b", "c"])
    assert {step["id"]: step["stage"] for step in outline["steps"]} == {"a": 1, "b": 2, "c": 2}
    names = [(item["name"], item["version"]) for item in (await client.get("/v1/workflows")).json()["items"]]
    assert names == [("asking", 1), ("extra", 1), ("simple", 1)]


async def test_every_fault_of_a_document_has_its_place(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    broken = TEXT.replace("probe.danger.apply", "probe.danger.aply").replace("{name: y}", "{nme: y}")
    answer = await client.post("/v1/workflows", json={"source": broken, "file": "extra.yaml"})
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    problems = answer.json()["problems"]
    assert [(fault["file"], fault["line"]) for fault in problems] == [("extra.yaml", line) for line in (8, 8, 11)]
    assert "Did you mean 'probe.danger.apply'?" in [fault["remedy"] for fault in problems]
    assert (await client.get("/v1/workflows/extra/1")).status_code == 404


async def test_a_version_is_retired_once_and_for_good(installation: Any) -> None:
    client = await installation.client(Role.ADMIN, subject="root")
    for number in (1, 2):
        await client.post("/v1/workflows", json={"source": TEXT.replace("version: 1", f"version: {number}")})
    second = await client.post("/v1/workflows/extra/2/retire")
    assert second.json() == {"name": "extra", "version": 2, "changed": True, "starts_with": 1}
    first = await client.post("/v1/workflows/extra/1/retire")
    assert first.json() == {"name": "extra", "version": 1, "changed": True, "starts_with": None}
    again = await client.post("/v1/workflows/extra/1/retire")
    assert (again.status_code, again.json()["changed"]) == (200, False)
    retired = await installation.tenant_events("workflow.retired")
    assert [(event["data"], event["actor"]["id"]) for event in retired] == [
        ({"name": "extra", "version": 2}, "root"),
        ({"name": "extra", "version": 1}, "root"),
    ]
    listed = (await client.get("/v1/workflows", params={"name": "extra"})).json()["items"]
    assert all(item["retired_at"] for item in listed)
    back = await client.post("/v1/workflows", json={"source": TEXT})
    assert (back.status_code, back.json()["changed"], back.json()["retired"]) == (200, False, True)
    start = await client.post("/v1/runs", json={"workflow": "extra", "input": {}})
    assert start.status_code in (404, 409)
    assert await installation.books.runs(workflow="extra") == []


async def test_a_webhook_starts_no_retired_version(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    assert (await client.post("/v1/workflows/simple/1/retire")).json()["starts_with"] is None
    event = {"table": "incident", "event": "insert", "number": "INC7", "sys_id": "s7", "sys_mod_count": "0"}
    answer = await installation.webhook(event)
    assert (answer.status_code, answer.json()["runs"]) == (200, [])
    assert await installation.books.runs() == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/workflows/simpel/1", "Did you mean 'simple'?"),
        ("/v1/workflows/nothing-like-it/1", "Published: asking, simple."),
        ("/v1/workflows/simple/2", "Published: 1."),
    ],
)
async def test_what_is_not_there_is_said_with_what_is(installation: Any, path: str, said: str) -> None:
    client = await installation.client(Role.ADMIN)
    for answer in (await client.get(path), await client.post(f"{path}/retire")):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert answer.json()["remedy"] == said
    assert await installation.tenant_events("workflow.retired") == []


async def test_another_tenants_versions_are_not_there(installation: Any) -> None:
    await installation.publish("other")
    client = await installation.client(Role.ADMIN)
    await client.post("/v1/workflows", json={"source": TEXT})
    stranger = await installation.client(Role.ADMIN, tenant="other")
    assert (await stranger.get("/v1/workflows/extra/1")).status_code == 404
    assert (await stranger.post("/v1/workflows/simple/1/retire")).status_code == 200
    assert (await client.get("/v1/workflows/simple/1")).json()["retired_at"] is None


async def test_numbers_and_names_that_cannot_be_are_refused(installation: Any) -> None:
    client = await installation.client(Role.ADMIN)
    for path in ("simple/0", "simple/2147483648", "simple/first", "%00/1", "simple/1%00", "a" * 101 + "/1"):
        assert (await client.get(f"/v1/workflows/{path}")).status_code == 422, path
        assert (await client.post(f"/v1/workflows/{path}/retire")).status_code == 422, path


@pytest.mark.req("X-2")
async def test_a_version_that_this_release_cannot_read_is_shown_with_the_reason(installation: Any) -> None:
    async with owning(installation.engine) as connection:
        await connection.execute("UPDATE workflows SET source = 'workflow: simple\nsteps: 7' WHERE name = 'simple'")
    vars(installation.app.faces).pop("definitions", None)  # as a process that has not compiled it before
    client = await installation.client(Role.ADMIN)
    shown = (await client.get("/v1/workflows/simple/1")).json()
    assert (shown["outline"], shown["definition_digest"]) == (None, None)
    assert "simple@1:2:1" in shown["problem"]
    started = await client.post("/v1/runs", json={"workflow": "simple", "input": {"number": "INC1"}})
    assert started.status_code == 422
    other = await client.post("/v1/runs", json={"workflow": "asking", "input": {"number": "INC1"}})
    assert other.status_code == 201


async def test_schemas_are_served(installation: Any) -> None:
    client = await installation.client(Role.AUDITOR)
    for name in ("workflow", "policy", "directory", "operations"):
        answer = await client.get(f"/v1/schemas/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/schema+json")
        Draft202012Validator.check_schema(answer.json())
    unknown = await client.get("/v1/schemas/nothing")
    assert unknown.status_code == 422
    assert "'workflow'" in unknown.text
