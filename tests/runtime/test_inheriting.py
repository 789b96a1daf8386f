"""First values of channels: literals, expressions, and copies of the channels of the run above."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connectors.catalog import Catalog
from core.errors import DefinitionError, InputError
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from runtime.definition.workflow import load_workflow
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher

HEAD = "workflow: w\nversion: 1\nchannels: {c: %s}\nsteps: [{set: {c: %s}}]\n"
PARENT = """
workflow: parent
version: 1
retention: PT1H
channels:
  messages: {reduce: append, ledger: true, initial: ["${{ trigger.text }}"]}
  back: {}
steps:
  - set: {messages: second}
  - {id: child, run: "heir%s", inherit: [messages], set: {messages: "${{ output }}"}}
"""
HEIR = """
workflow: heir
version: 1
result: "${{ state.messages }}"
channels: {messages: {reduce: append, keep: 2, ledger: true}}
steps:
  - set: {messages: own}
"""


@pytest.mark.req("P-7")
@pytest.mark.parametrize(
    ("channel", "write", "begins"),
    [
        ("{reduce: append, initial: '${{ trigger.list }}'}", "1", [7, 8, 9]),
        ("{reduce: append, keep: 2, initial: '${{ trigger.list }}'}", "1", [8, 9]),
        ("{reduce: append, initial: ['${{ trigger.text }}', x]}", "1", ["t", "x"]),
        ("{reduce: merge, initial: {a: '${{ trigger.text }}'}}", "{b: 1}", {"a": "t"}),
        ("{reduce: sum, initial: '${{ trigger.list[0] }}'}", "'${{ 1 }}'", 7),
        ("{initial: 'No ${{ run.workflow }}'}", "x", "No w"),
    ],
)
async def test_a_channel_begins_with_what_its_expression_gives(
    runtime: Any, channel: str, write: str, begins: Any
) -> None:
    run = await runtime.go(HEAD % (channel, write), {"list": [7, 8, 9], "text": "t"}, policy=None)
    first, *_ = await runtime.books.checkpoints(run=run)
    assert first.state["channels"] == {"c": begins}
    assert await runtime.status(run) == "succeeded"


@pytest.mark.req("P-7")
@pytest.mark.parametrize(
    ("channel", "wants"),
    [("{reduce: append, initial: x}", "a list"), ("{reduce: union, initial: {a: 1}}", "a list"),
     ("{reduce: merge, initial: []}", "an object"), ("{reduce: sum, initial: '7'}", "a number"),
     ("{reduce: max, initial: true}", "a number")],
)  # fmt: skip
def test_a_literal_of_the_wrong_type_is_refused_when_the_document_is_checked(channel: str, wants: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_workflow(HEAD % (channel, "1"), "w.yaml", Catalog({}))
    (problem,) = raised.value.problems
    assert (problem.line, wants in problem.message) == (3, True)


@pytest.mark.req("P-7")
def test_an_expression_over_what_no_start_knows_is_refused() -> None:
    with pytest.raises(DefinitionError, match="state"):
        load_workflow(HEAD % ("{initial: '${{ state.c }}'}", "1"), "w.yaml", Catalog({}))


@pytest.mark.req("P-7")
@pytest.mark.parametrize(
    ("trigger", "words"), [({"list": "x"}, "begins with a list"), ({}, "cannot be made from this trigger")]
)
async def test_what_an_expression_gives_is_checked_at_the_start(runtime: Any, trigger: Any, words: str) -> None:
    await runtime.tenant()
    await runtime.publish(HEAD % ("{reduce: append, initial: '${{ trigger.list }}'}", "1"))
    with pytest.raises(InputError) as raised:
        await runtime.start("w", trigger)
    assert words in str(raised.value)
    assert "channels.c.initial" in str(raised.value)
    assert await runtime.books.runs() == []


@pytest.mark.req("P-7")
async def test_the_ledger_holds_every_item_the_first_ones_too(runtime: Any) -> None:
    text = HEAD % ("{reduce: append, keep: 1, ledger: true, initial: [a, '${{ trigger.text }}']}", "c")
    run = await runtime.go(text, {"text": "b"}, policy=None)
    assert [entry.value for entry in await runtime.books.entries()] == ["b", "c"]
    assert (await runtime.state(run))["channels"] == {"c": ["c"]}


async def inherited(runtime: Any, version: str = "") -> tuple[UUID, UUID]:
    await runtime.tenant()
    await runtime.publish(HEIR)
    await runtime.publish(PARENT % version)
    parent = (await runtime.start("parent", {"text": "first"})).run_id
    await runtime.go_on()
    return parent, (await runtime.books.run(workflow="heir")).id


@pytest.mark.req("P-8")
async def test_a_child_has_a_copy_of_its_own_and_only_its_result_comes_back(runtime: Any) -> None:
    parent, child = await inherited(runtime)
    assert (await runtime.books.run(parent)).status == "succeeded"
    assert (await runtime.state(child))["channels"] == {"messages": ["second", "own"]}
    assert (await runtime.state(parent))["channels"]["messages"] == ["first", "second", ["second", "own"]]
    of_parent = [entry.value for entry in await runtime.books.entries(run=parent)]
    assert of_parent == ["first", "second", ["second", "own"]]
    assert [entry.value for entry in await runtime.books.entries(run=child)] == ["first", "second", "own"]


@pytest.mark.req("P-8")
@pytest.mark.parametrize("declared", ["{}", "{other: {reduce: append}}", "{messages: {reduce: union}}"])
@pytest.mark.parametrize("version", ["", "@1"])
async def test_a_copy_needs_a_channel_that_is_folded_alike(runtime: Any, declared: str, version: str) -> None:
    from runtime.requests.publishing import publish_workflow

    await runtime.tenant()
    await runtime.publish(f"workflow: heir\nversion: 1\nchannels: {declared}\nsteps: [{{wait: {{for: PT1H}}}}]\n")
    words = "no channel 'messages' that is folded by append"
    async with runtime.faces.transaction("acme") as connection:
        published = publish_workflow(connection, runtime.definitions, "acme", PARENT % version, "p.yaml", runtime.actor)
        if version:
            with pytest.raises(InputError, match=words):
                await published
            return
        await published
    parent = (await runtime.start("parent", {"text": "first"})).run_id
    await runtime.go_on()
    assert words in (await runtime.error(parent))["message"]
    assert len(await runtime.books.runs()) == 1


@pytest.mark.req("P-8")
def test_only_declared_channels_are_inherited() -> None:
    text = (PARENT % "").replace("inherit: [messages]", "inherit: [nothing]")
    with pytest.raises(DefinitionError, match="no channel 'nothing'"):
        load_workflow(text, "w.yaml", Catalog({}))


@pytest.mark.req("P-8")
@pytest.mark.req("X-20")
async def test_what_goes_from_a_run_goes_from_those_that_inherited_it(runtime: Any, tmp_path: Path) -> None:
    await runtime.tenant()
    text = "the secret of Ada"
    await runtime.publish(HEIR.replace("  - set", "  - {id: within, run: heir-of-heir, inherit: [messages]}\n  - set"))
    await runtime.publish(HEIR.replace("heir", "heir-of-heir"))
    await runtime.publish(PARENT % "")
    parent = (await runtime.start("parent", {"text": text})).run_id
    await runtime.worker().work_off()
    assert await runtime.books.mentions(text)
    bundling = Bundling(FileBlobStore(tmp_path), FileSigner.load_or_create(tmp_path / "k"), "t", runtime.definitions)
    await runtime.trouble.make_purge_due(parent)
    await runtime.trouble.drop_messages_except("bundle")
    await Dispatcher(runtime.database, bundling.handlers(), "d").work_off()
    for _ in range(3):
        await runtime.sweep()
    assert [run.purged_at is not None for run in await runtime.books.runs()] == [True] * 3
    assert await runtime.books.mentions(text) == set()
    events = await runtime.books.tenant_events("acme")
    told = [event.data["run"] for event in events if event.type == "run.purged"]
    assert set(told) == {str(run.id) for run in await runtime.books.runs()}
