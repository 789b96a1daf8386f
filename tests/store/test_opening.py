"""A stolen login of the faces opens no run but the one that its lines tell, with a version that runs start with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest

from evidence.chain import Actor
from runtime.engine.model.rows import Commit
from runtime.requests import publishing
from runtime.store import faces
from tests.support.store_claims import ONE

pytestmark = pytest.mark.tampers

Forge = Callable[[Commit, faces.NewRun], tuple[Commit, faces.NewRun]]


async def opened(runtime: Any, monkeypatch: pytest.MonkeyPatch, forge: Forge) -> Any:
    """Start a run, and open a forged one before it: what the database answers to the forgery."""
    real, answers = faces.open_run, []

    async def forging(at: Any, commit: Commit, run: faces.NewRun) -> Any:
        told, commit.lines = commit.lines, [*commit.lines]
        own, commit.run_id = commit.run_id, uuid4()
        try:
            answers.append(await real(runtime.faces, *forge(commit, replace(run, trigger_ref="forged"))))
        except asyncpg.InsufficientPrivilegeError as error:
            answers.append(str(error))
        commit.lines, commit.run_id = told, own
        return await real(at, commit, run)

    monkeypatch.setattr(faces, "open_run", forging)
    assert (await runtime.start("one")).created
    (answer,) = answers
    return answer


async def published(runtime: Any, *versions: int) -> None:
    await runtime.tenant()
    await runtime.policy()
    for version in versions:
        await runtime.publish(ONE.replace("version: 1", f"version: {version}"))


def said(commit: Commit, line: int = 0, **told: Any) -> Commit:
    """The commit with another first line, or with another one of this number."""
    commit.lines[line] = orjson.dumps({**orjson.loads(commit.lines[line]), **told})
    return commit


@pytest.mark.req("Q-16")
@pytest.mark.parametrize("kind", ["decision.made", "action.intended", "approval.decided", "run.canceled", "run.forked"])
async def test_a_run_opens_with_its_opening_alone(runtime: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Promise 1: no intent, no allow and no vote stands in the book of a run that nobody has worked on."""
    await published(runtime, 1)
    answer = await opened(runtime, monkeypatch, lambda commit, run: (said(commit, type=kind), run))
    assert answer == "no face may append this"


async def test_no_run_opens_at_a_time_that_is_still_to_come(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await published(runtime, 1)
    ahead = "2999-01-01T00:00:00.000000Z"
    answer = await opened(runtime, monkeypatch, lambda commit, run: (said(commit, ts=ahead), run))
    assert answer is None, "its caller reads the clock again"


async def test_no_later_line_of_an_opening_is_of_a_time_that_is_still_to_come(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines of an opening have one time: a later one that is ahead was forged."""
    await published(runtime, 1)
    ahead = "2999-01-01T00:00:00.000000Z"
    answer = await opened(runtime, monkeypatch, lambda commit, run: (said(commit, -1, ts=ahead), run))
    assert answer == "no face may append this"


@pytest.mark.req("X-1")
@pytest.mark.req("V-4")
@pytest.mark.parametrize(
    "forged",
    [{"workflow_digest": "0" * 64}, {"workflow_version": 3}, {"workflow_version": 1, "pinned": False}],
    ids=["another text", "no such version", "an older version"],
)
async def test_a_run_opens_with_what_was_published(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, forged: dict[str, Any]
) -> None:
    await published(runtime, 1, 2)
    if "pinned" in forged:
        forged = {**forged, "workflow_digest": await digest_of(runtime, 1)}
    assert await opened(runtime, monkeypatch, lambda commit, run: (commit, replace(run, **forged))) is None


@pytest.mark.req("X-1")
@pytest.mark.req("V-4")
async def test_no_run_opens_with_a_version_that_was_retired(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await published(runtime, 1, 2)
    async with runtime.faces.transaction("acme") as connection:
        await publishing.retire_workflow(connection, "acme", "one", 1, Actor("person", "root"))
    old = {"workflow_version": 1, "pinned": True, "workflow_digest": await digest_of(runtime, 1)}
    assert await opened(runtime, monkeypatch, lambda commit, run: (commit, replace(run, **old))) is None


async def digest_of(runtime: Any, version: int) -> str:
    (digest,) = await runtime.one("SELECT digest FROM workflows WHERE version = $1", version)
    return str(digest)
