"""One verb for many runs: the plan says exactly which can and which cannot, and each gets its result."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from core.errors import InputError
from evidence.chain import Actor
from runtime.requests import several
from runtime.requests.several import Verb, where_of

WORKFLOW = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: act, do: probe.effect.apply, with: {name: "${{ trigger.n }}"}}
"""
DENY = """
policy: allow-all
version: 2
rules:
  - {id: no, match: {operation: probe.effect.apply}, outcome: deny}
"""
ACTOR = Actor("test", "olga")
# COUNTERSEAL_BULK_RUNS=1000 tries a thousand, which takes minutes.
RUNS, BAD = int(os.environ.get("COUNTERSEAL_BULK_RUNS", "60")), 30


async def failed(runtime: Any, count: int, bad: int) -> None:
    """So many runs have failed, and of so many the evidence of their end is not stored yet."""
    await runtime.tenant("acme")
    await runtime.policy(DENY)
    await runtime.publish(WORKFLOW)
    for begin in range(0, count, 50):
        refs = range(begin, min(begin + 50, count))
        await asyncio.gather(*(runtime.start("w", {"n": str(ref)}, ref=str(ref)) for ref in refs))
    await runtime.worker().work_off()
    await runtime.trouble.stores_bundles("acme", but=bad)
    await runtime.policy(DENY.replace("deny}", "allow}").replace("version: 2", "version: 3"))


def place(runtime: Any, verb: Verb) -> tuple[Any, Any, str, Verb]:
    return runtime.faces, runtime.definitions, "acme", verb


async def test_a_bulk_retry_of_many_runs_says_which_cannot_and_does_the_others(runtime: Any) -> None:
    await failed(runtime, RUNS, BAD)
    before = await runtime.books.runs()
    plan = await several.plan(*place(runtime, Verb.RETRY), where_of(["status=failed", "workflow=w"]), ACTOR, "Mended.")
    assert Counter(one.ok for one in plan) == {True: RUNS - BAD, False: BAD}
    assert {one.says for one in plan if not one.ok} == {
        "The evidence of how this run ended is not stored yet. Try again soon."
    }
    assert await runtime.books.runs() == before, "a plan changes nothing"
    done = [one async for one in several.carry_out(*place(runtime, Verb.RETRY), plan, ACTOR, "Mended.")]
    assert [(one.run_id, one.ok) for one in done] == [(one.run_id, one.ok) for one in plan]
    await runtime.worker().work_off()
    ended = {one.id: one.status for one in await runtime.books.runs()}
    assert {one.run_id: ended[one.run_id] for one in done} == {
        one.run_id: "succeeded" if one.ok else "failed_terminal" for one in done
    }
    assert Counter(effect.input["name"] for effect in runtime.outside.effects).most_common(1)[0][1] == 1
    again = await several.plan(*place(runtime, Verb.RETRY), where_of(["status=failed"]), ACTOR, "Mended.")
    assert len(again) == BAD, "what is done is not found again"


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.PAUSE])
async def test_other_verbs_and_filters(runtime: Any, verb: Verb) -> None:
    await failed(runtime, 3, 0)
    waiting = [(await runtime.start("w", {"n": "x"}, ref=f"w{ref}")).run_id for ref in range(2)]
    for texts, count in (
        (["workflow=w"], 5),
        (["error=policy_denied"], 3),
        (["error=other"], 0),
        (["status=queued", "after=2020-01-01T00:00:00Z", "version=1", "requested-by=requester"], 2),
        (["before=2020-01-01T00:00:00Z"], 0),
    ):
        assert len(await several.plan(*place(runtime, verb), where_of(texts), ACTOR, "x")) == count, texts
    plan = await several.plan(*place(runtime, verb), where_of(["workflow=w"]), ACTOR, "x")
    done = [one async for one in several.carry_out(*place(runtime, verb), plan, ACTOR, "x")]
    assert [one.run_id for one in done if one.ok] == waiting
    assert [one.ok for one in done] == [one.ok for one in plan]
    await runtime.worker().work_off()
    assert runtime.outside.effects == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "is empty"),
        (["status"], "is no filter"),
        (["state=failed"], "Write KEY=VALUE"),
        (["status=broken"], "is no status"),
        (["status=failed", "status=queued"], "is no filter"),
        (["after=2026-01-01T00:00:00"], "Such as 2026-11-01T00:00:00Z"),
        (["version=x"], "Such as 2"),
    ],
)
def test_a_filter_says_what_is_wrong(texts: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        where_of(texts)
