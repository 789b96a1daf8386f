"""Effects that an earlier release knew by the input as it was given are not done once more (promise 2).

Since then a call is made in its canonical form, and its key is taken from that. Old receipts are made here by the
engine itself, which is kept from making inputs canonical.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from connectors import proposal
from connectors.catalog import Source, load_catalog
from connectors.port import Connectors, InDoubt, NotSent
from runtime.definition.catalog import Definitions
from runtime.work import calling
from tests.support.runtime_stage import OPERATIONS

DECLARED = """
operations:
  - name: shop.order.place
    connector: http
    handler: http:send
    side_effects: external_call
    risk: low
    summary: "{method} {url}"
    target: "{url}"
    in_doubt: %s
    idempotency: {scope: %s}
    input_schema:
      type: object
      required: [method, url]
      properties: {method: {type: string}, url: {type: string}, headers: {type: object}}
      additionalProperties: false
    output_schema: {type: object}
    retry: {attempts: 1}
"""
ORDER = """
workflow: order
version: 1
reference: R1
steps: [{id: a, do: shop.order.place, with: {method: POST, url: 'HTTP://Shop.test:80/%7eorders', headers: {x-a: b}}}]
"""
ALLOW = "policy: p\nversion: 1\nrules: [{id: all, match: {connector: http}, outcome: allow}]\n"


async def world_of(runtime: Any, scope: str = "tenant", doubt: str = "idempotent") -> Any:
    catalog = load_catalog([Source("probe.yaml", OPERATIONS), Source("shop.yaml", DECLARED % (doubt, scope))])
    parts = {"catalog": catalog, "definitions": Definitions(catalog)}
    found = replace(runtime, connectors=Connectors({"http": runtime.outside}), **parts)
    await found.tenant()
    await found.policy(ALLOW)
    await found.publish(ORDER)
    return found


@contextmanager
def earlier(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inputs are proposed, kept and sent as they were given."""
    with monkeypatch.context() as patched:
        patched.setattr(proposal, "canonical", lambda _, values: values)
        patched.setattr(calling, "unsendable", lambda *_: None)
        yield


async def done(world: Any, ref: str) -> str:
    run = (await world.start("order", ref=ref)).run_id
    await world.go_on()
    return str(await world.status(run))


@pytest.mark.req("Q-15")
@pytest.mark.parametrize("scope", ["reference", "tenant"])
async def test_what_an_earlier_release_has_done_is_reused(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    world = await world_of(runtime, scope)
    with earlier(monkeypatch):
        assert await done(world, "old") == "succeeded"
    assert runtime.outside.effects[0].input["url"] == "HTTP://Shop.test:80/%7eorders"
    assert [await done(world, "new"), await done(world, "newer")] == ["succeeded", "succeeded"]
    assert len(runtime.outside.effects) == 1


async def test_what_an_earlier_release_began_is_waited_for_and_what_failed_is_done_once(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, late_gate: Any
) -> None:
    world = await world_of(runtime)
    place = runtime.outside.perform
    with earlier(monkeypatch):
        runtime.outside.perform = held(place, late_gate)
        old = (await world.start("order", ref="old")).run_id
        working = asyncio.create_task(world.worker("old").work_off())
        await asyncio.wait_for(late_gate.reached.wait(), 60)
        runtime.outside.perform = place
    new = (await world.start("order", ref="new")).run_id
    await world.worker("new").work_off()
    assert await world.status(new) == "waiting"
    late_gate.opened.set()
    await working
    await world.go_on()
    assert [await world.status(run) for run in (old, new)] == ["succeeded", "succeeded"]
    assert len(runtime.outside.effects) == 1


async def test_a_failure_of_an_earlier_release_is_followed_by_one_effect(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, place = await world_of(runtime), runtime.outside.perform
    with earlier(monkeypatch):
        runtime.outside.perform = says(NotSent("closed"))
        assert await done(world, "old") == "failed_terminal"
        runtime.outside.perform = place
    assert [await done(world, "new"), await done(world, "newer")] == ["succeeded", "succeeded"]
    assert [call.input["url"] for call in runtime.outside.effects] == ["http://shop.test/~orders"]


async def test_a_doubt_about_a_form_that_is_not_sent_any_more_is_for_people(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that can be sent now is what its target knows, and a refusal says nothing about the first call."""
    world, place = await world_of(runtime, "step"), runtime.outside.perform
    await world.person("olga", ("operators",))
    with earlier(monkeypatch):

        async def lost(call: Any) -> Any:
            await place(call)
            await asyncio.Event().wait()

        runtime.outside.perform = lost
        run = (await world.start("order", ref="old")).run_id
        working = asyncio.create_task(world.worker("old").work_off())
        await world.until(lambda: asyncio.sleep(0, runtime.outside.effects))
        working.cancel()
        await asyncio.wait({working})
        runtime.outside.perform = place
    await world.trouble.expire_leases()
    await world.time_passes()
    await world.go_on()
    assert await world.status(run) == "waiting_approval"
    await world.vote("olga", "happened")
    await world.go_on()
    assert (await world.status(run), len(runtime.outside.effects)) == ("succeeded", 1)


def held(place: Any, gate: Any) -> Any:
    async def perform(call: Any) -> Any:
        outcome = await place(call)
        await gate.hold()
        return outcome

    return perform


def says(outcome: NotSent | InDoubt) -> Any:
    async def perform(_: Any) -> Any:
        return outcome

    return perform
