"""A run is its requester's, whatever they were called; a key and an own run are those of an account (promise 12)."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role
from evidence.chain import Actor
from runtime.requests.starting import StartRequest, start_named
from tests.support.app_author import flow


async def opened_by(installation: Any, text: str, number: str) -> str:
    """A run that somebody outside started, who is called so."""
    faces = installation.app.faces
    given = ("default", "main", "servicenow", number, {"number": number}, text, Actor("webhook", "w"))
    started = await start_named(faces.database, faces.definitions, "written", None, StartRequest(*given))
    return str(started.run_id)


@pytest.mark.req("V-6")
@pytest.mark.parametrize("text", ["ann", "Ann", " ann", "person:ann"])
async def test_a_run_whose_opener_is_called_like_an_author_is_not_the_authors(installation: Any, text: str) -> None:
    author = await installation.client(Role.AUTHOR, subject="ann")
    await author.post("/v1/workflows", json=flow())
    run = await opened_by(installation, text, "A")
    assert (await author.get(f"/v1/runs/{run}")).status_code == 403
    operator = await installation.client(Role.OPERATOR, subject="bob")
    assert (await operator.get(f"/v1/runs/{run}")).json()["requester"] == "ann"
    found = (await operator.get("/v1/runs", params={"requested_by": "ANN"})).json()["items"]
    assert [one["run_id"] for one in found] == [run]
    assert (await operator.get("/v1/runs", params={"requested_by": "bob"})).json()["items"] == []


async def test_an_idempotency_key_is_its_callers(installation: Any) -> None:
    author = await installation.client(Role.AUTHOR, subject="ann")
    await author.post("/v1/workflows", json=flow())
    ann = await installation.client(Role.TRIGGER, subject="ann")
    bob = await installation.client(Role.TRIGGER, subject="bob")
    start, key = {"workflow": "written", "input": {"number": "A"}}, {"Idempotency-Key": "k"}
    mine = await ann.post("/v1/runs", json=start, headers=key)
    assert mine.status_code == 201, mine.text
    again = await ann.post("/v1/runs", json=start, headers=key)
    assert (again.status_code, again.json()["run_id"]) == (200, mine.json()["run_id"])
    other = await bob.post("/v1/runs", json=start, headers=key)
    assert (other.status_code, mine.json()["run_id"] in other.text) == (409, False)
