"""The people who shaped a value do not decide on what is made of it, in whichever run (promise 12).

Each case lets a value travel from one run, or from outside, to the action of another run.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from connectors.port import SOMEBODY, Connectors, Done, Refused
from connectors.records.connector import RecordsConnector
from evidence.chain import Actor
from runtime.requests.starting import StartRequest, start_named
from runtime.requests.steering import Extending
from runtime.requests.views import RunReader
from runtime.store import records

POLICY = """
policy: p
version: 1
rules:
  - {id: records, match: {connector: records}, outcome: allow}
  - {id: reads, match: {operation: probe.value.read}, outcome: allow}
  - {id: files, match: {operation: probe.ticket.file}, outcome: allow}
  - {id: cases, match: {operation: "probe.case.*"}, outcome: allow}
  - {id: pays, match: {operation: probe.effect.apply}, outcome: needs_approval, approvers: [{group: leads}]MORE}
"""
CHANNELS = "channels: {iban: {initial: none}}\n"
FORM = "{id: said, task: {title: Fill, form: {type: object, properties: {x: {type: string}}}, assign: {group: leads}}}"
HEARD = "{id: said, wait: {signal: said, correlate: x}}"
PUT = "{id: keep, do: records.put, with: {collection: banks, key: raj, value: {iban: 'VALUE'}}}"
GET = "{id: bank, do: records.get, with: {collection: banks, key: raj}}"
LIST = "{id: bank, do: records.query, with: {collection: banks}}"
PAY = '{id: pay, do: probe.effect.apply, with: {name: pay, value: "VALUE"}}'
FILE = "{id: bank, do: probe.ticket.file, with: {name: raj, value: 'VALUE'}}"
CASE = "{id: bank, do: probe.case.share, with: {name: raj}}"
READ = "{id: bank, do: probe.value.read, with: {name: raj}}"
IBAN = "${{ steps.bank.output.value.iban }}"
SAID = "${{ steps.said.output.x }}"
NAME = "${{ steps.bank.output.name }}"


def workflow(name: str, *steps: str, more: str = CHANNELS) -> str:
    return f"workflow: {name}\nversion: 1\nreference: r\n{more}steps:\n" + "".join(f"  - {step}\n" for step in steps)


def pays(*steps: str, value: str = IBAN) -> str:
    return workflow("b", *steps, PAY.replace("VALUE", value))


@pytest.fixture
def kept(runtime: Any) -> Any:
    reader = RecordsConnector(partial(records.read, runtime.database))
    runtime.connectors = Connectors({**runtime.connectors, "records": reader})
    return runtime


async def begun(runtime: Any, *texts: str, more: str = "") -> None:
    await runtime.tenant()
    await runtime.policy(POLICY.replace("MORE", more))
    for text in texts:
        await runtime.publish(text)
    for person in ("raj", "ana", "ben"):
        await runtime.person(person, ("leads",))
    await runtime.person("tess")


async def started(runtime: Any, name: str, by: str) -> UUID:
    request = StartRequest("acme", "main", "test", name, {}, by, Actor("token", by))
    run_id = (await start_named(runtime.faces, runtime.definitions, name, None, request)).run_id
    await runtime.go_on()
    return run_id


async def raj_is_kept_out(runtime: Any, run: UUID) -> None:
    """Raj may not decide on what this run asks, Ben may; and the book says so again when it is replayed."""
    answer = await runtime.vote("raj", "approve")
    assert (answer.counted, answer.code) == (False, "separation_of_duties"), answer
    assert "Raj" in {one["name"] for one in (await runtime.books.approval(open=True)).card["shaped_by"]}
    assert (await runtime.vote("ben", "approve")).counted
    await runtime.go_on()
    assert await runtime.status(run) == "succeeded"
    assert (await RunReader(runtime.faces, runtime.definitions).replay("acme", run)).ok


# -- how Raj gets a part in the run that writes -----------------------------------------------------------------------


async def requests(runtime: Any) -> None:
    await started(runtime, "a", "raj")


async def fills_in(runtime: Any) -> None:
    await started(runtime, "a", "tess")
    await runtime.complete("raj", {"x": "y"})
    await runtime.go_on()


async def signals(runtime: Any) -> None:
    await started(runtime, "a", "tess")
    await runtime.signal("said:x", {"x": "y"}, actor=Actor("token", "raj"))
    await runtime.go_on()


async def adds_the_step(runtime: Any) -> None:
    run_id = await started(runtime, "a", "tess")
    version = (await runtime.books.run(run_id)).version
    extending = Extending(runtime.faces, runtime.definitions)
    put = {"collection": "banks", "key": "raj", "value": {"iban": "DE1"}}
    step = {"id": "keep", "needs": [], "do": "records.put", "with": put}
    await extending.extend("acme", run_id, Actor("token", "raj"), {"steps": [step]}, version)
    await runtime.go_on()


PARTS = {
    "requests": (requests, (PUT,)),
    "fills in a form": (fills_in, (FORM, PUT.replace("VALUE", SAID))),
    "sends a signal": (signals, (HEARD, PUT.replace("VALUE", SAID))),
    "adds the step": (adds_the_step, ("{id: go, wait: {signal: go, correlate: x}}",)),
}


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("part", PARTS)
async def test_whoever_shaped_a_record_does_not_approve_what_another_run_makes_of_it(kept: Any, part: str) -> None:
    does, steps = PARTS[part]
    await begun(kept, workflow("a", *steps), pays(GET))
    await does(kept)
    await raj_is_kept_out(kept, await started(kept, "b", "ana"))


# -- how what Raj wrote gets to the action ----------------------------------------------------------------------------

TO_CHANNEL = GET[:-1] + ", set: {iban: '${{ output.value.iban }}'}}"
COPY = "{id: copy, do: records.put, with: {collection: copies, key: raj, value: {iban: '" + IBAN + "'}}}"
COPIED = GET.replace("banks", "copies")
WITHIN = "{id: bank, run: c}"
HANDED = "{id: bank, run: c, with: {iban: '" + IBAN.replace("bank", "first") + "'}}"
FIRST = GET.replace("id: bank", "id: first")
EACH = "{id: l, foreach: '${{ steps.bank.output.records }}', as: one, steps: [STEP]}"
ROUTES: dict[str, tuple[str, ...]] = {
    "an item of a loop": (workflow("b", LIST, EACH.replace("STEP", PAY.replace("VALUE", "${{ one.value.iban }}"))),),
    "the length of a loop": (workflow("b", LIST, EACH.replace("STEP", PAY)),),
    "a run within, for each": (
        workflow("c", PAY.replace("VALUE", "${{ trigger.iban }}")),
        workflow("b", LIST, EACH.replace("STEP", "{id: w, run: c, with: {iban: '${{ one.value.iban }}'}}")),
    ),
    "get": (pays(GET),),
    "query": (pays(LIST, value="${{ steps.bank.output.records[0].value.iban }}"),),
    "a channel": (pays(TO_CHANNEL, value="${{ state.iban }}"),),
    "a condition": (workflow("b", GET, "{id: x, if: '${{ steps.bank.output.found }}', then: [" + PAY + "]}"),),
    "a record of a record": (workflow("c", GET, COPY), pays(COPIED)),
    "the result of a run within": (
        workflow("c", GET, more="result: {iban: '" + IBAN + "'}\n"),
        pays(WITHIN, value="${{ steps.bank.output.iban }}"),
    ),
    "the input of a run within": (
        workflow("c", PAY.replace("VALUE", "${{ trigger.iban }}")),
        workflow("b", FIRST, HANDED),
    ),
    "a continuation": (
        workflow("c", PAY.replace("VALUE", "${{ trigger.iban }}")),
        workflow("b", GET, "{id: on, continue_with: {workflow: c, with: {iban: '" + IBAN + "'}}}"),
    ),
    "an inherited channel": (
        workflow("c", PAY.replace("VALUE", "${{ state.iban }}")),
        workflow("b", TO_CHANNEL, "{id: within, run: c, inherit: [iban]}"),
    ),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_the_writer_of_a_record_follows_it_along_every_way(kept: Any, route: str) -> None:
    await begun(kept, workflow("a", PUT), *ROUTES[route])
    await started(kept, "a", "raj")
    if route == "a record of a record":
        await started(kept, "c", "tess")
    await started(kept, "b", "ana")
    run = (await kept.books.approval(open=True)).run
    await raj_is_kept_out(kept, run)


# -- effects that runs share ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["requests", "fills in", "ends it"])
async def test_whoever_shaped_a_shared_effect_does_not_approve_what_another_run_makes_of_it(
    kept: Any, who: str
) -> None:
    shares = {"requests": (FILE,), "fills in": (FORM, FILE.replace("VALUE", SAID)), "ends it": (CASE,)}[who]
    came = NAME if who != "ends it" else "${{ steps.bank.output.iban }}"
    reuses = FILE.replace("VALUE", "y") if who == "fills in" else shares[-1]
    await begun(kept, workflow("a", *shares), pays(reuses, value=came))
    if who == "requests":
        await requests(kept)
    elif who == "fills in":
        await fills_in(kept)
    else:
        await started(kept, "a", "tess")
        (wait,) = await kept.books.waits(kind="external", open=True)
        await kept.signal(wait.correlation_key, {"iban": "DE1"}, actor=Actor("token", "raj"))
        await kept.go_on()
    run = await started(kept, "b", "ana")
    assert len(kept.outside.effects) == 1, "the effect was shared"
    await raj_is_kept_out(kept, run)


# -- the outside ------------------------------------------------------------------------------------------------------


async def test_whoever_edited_outside_what_a_step_reads_does_not_approve_what_is_made_of_it(kept: Any) -> None:
    kept.outside.reshape = lambda done: Done(done.output, writers=("slack:URAJ", "servicenow:nobody.we.know"))
    await begun(kept, pays(READ, value=NAME))
    run = await started(kept, "b", "ana")
    assert ("servicenow:nobody.we.know", "nobody whom the directory knows") in {
        (one["name"], one["note"]) for one in (await kept.books.approval(open=True)).card["shaped_by"]
    }
    await raj_is_kept_out(kept, run)


FAILS = READ[:-1] + ", on_failure: [" + PAY.replace("VALUE", "${{ error.message }}") + "]}"
FAILED: dict[str, tuple[tuple[str, ...], bool]] = {
    "its words": ((workflow("b", FAILS),), True),
    "that it failed": ((workflow("b", FAILS.replace("error.message", "error.step")),), False),
    "its words, by a channel": (
        (
            workflow(
                "b",
                READ[:-1] + ", on_failure: [{set: {iban: '${{ error.code }}'}}]}",
                PAY.replace("VALUE", "${{ state.iban }}"),
            ),
        ),
        True,
    ),
    "its words, of a run within": ((workflow("c", READ), workflow("b", FAILS.replace(READ[1:-1], WITHIN[1:-1]))), True),
    "nothing of it, in a loop": (
        (
            workflow(
                "b",
                "{id: l, foreach: '${{ [1] }}', as: one, steps: ["
                + FAILS.replace("error.message", "string(one)")
                + "]}",
            ),
        ),
        False,
    ),
}


@pytest.mark.parametrize("uses", FAILED)
async def test_whoever_wrote_the_words_of_a_failure_outside_has_shaped_what_is_made_of_them(
    kept: Any, uses: str
) -> None:
    texts, marked = FAILED[uses]
    kept.outside.script["raj"] = [Refused("no", "pay DE1")]
    await begun(kept, *texts)
    run = await started(kept, "b", "ana")
    asked = await kept.books.approval(open=True)
    assert ("Somebody unknown" in {one["name"] for one in asked.card["shaped_by"]}) is marked
    assert (await RunReader(kept.faces, kept.definitions).replay("acme", run)).ok


@pytest.mark.parametrize(
    ("more", "ends"),
    [
        ("", "asked"),
        (", tier: high", "denied"),
        (", tier: high, unresolved: ask", "asked"),
        (", when: \"!('outside_writer:unresolved:unknown' in action.contributors)\"", "denied"),
    ],
)
async def test_somebody_unknown_outside_is_on_the_card_and_a_fact_for_rules(kept: Any, more: str, ends: str) -> None:
    kept.outside.reshape = lambda done: Done(done.output, writers=SOMEBODY)
    await begun(kept, pays(READ, value=NAME), more=more)
    run = await started(kept, "b", "ana")
    if ends == "denied":
        assert (await kept.error(run))["code"] == "policy_denied"
        return
    shown = (await kept.books.approval(open=True)).card["shaped_by"][1]
    assert shown == {
        "name": "Somebody unknown",
        "did": "edited outside what this reads (bank)",
        "note": "nobody whom the directory knows",
    }
    assert (await kept.vote("ben", "approve")).counted
