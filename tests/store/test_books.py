"""The questions of tests/support, asked once about a run that has something of everything."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.books import books_at

TEXT = """
workflow: full
version: 1
reference: ${{ run.id }}
channels: {seen: {reduce: append, ledger: true}}
steps:
  - {id: a, do: probe.effect.apply, with: {name: a}, set: {seen: "${{ output.applied }}"}}
  - {id: g, approve: {summary: Go on?, approvers: {group: owners}}}
  - {id: s, wait: {signal: s, correlate: x}}
"""


async def full(runtime: Any) -> Any:
    run_id = await runtime.go(TEXT)
    await runtime.person("ana", ("owners",))
    await runtime.vote("ana", "approve")
    await runtime.worker().work_off()
    await runtime.signal("s:x", {})
    await runtime.worker().work_off()
    return run_id


async def test_the_book_of_a_run_holds_everything_on_record(runtime: Any, database_url: str) -> None:
    run_id = await full(runtime)
    async with books_at(database_url) as books:
        book = await books.book_of(run_id)
    assert (book.run.id, book.run.status, book.run.workflow) == (run_id, "succeeded", "full")
    assert {key: (step.status, step.over) for key, step in book.steps.items()} == dict.fromkeys(
        "ags", ("succeeded", True)
    )
    assert book.steps["a"].output == {"name": "a", "applied": 1}
    assert [event.seq for event in book.events] == list(range(book.run.audit_count))
    assert (book.events[0].type, book.events[-1].type) == ("run.opened", "run.closed")
    assert {decision.outcome for decision in book.decisions} == {"allow"}
    assert [(receipt.step, receipt.status, receipt.external_id) for receipt in book.receipts] == [
        ("a", "succeeded", "e1")
    ]
    assert [(vote.person, vote.choice) for question in book.approvals for vote in question.votes] == [
        ("ana", "approve")
    ]
    assert {wait.kind: wait.status for wait in book.waits} == {"approval": "completed", "signal": "completed"}
    assert [checkpoint.superstep for checkpoint in book.checkpoints] == list(range(book.run.superstep + 1))
    assert "bundle" in {command.kind for command in book.commands}
    assert book.bundles == ()
    assert [notice.processed for notice in book.notices] == [True]


async def test_one_fact_is_asked_for_by_words(runtime: Any) -> None:
    await full(runtime)
    books = runtime.books
    assert (await books.step("a")).key == "a"
    assert {step.key for step in await books.steps(key={"a", "g"})} == {"a", "g"}
    with pytest.raises(AssertionError, match="3 fit"):
        await books.step()
    with pytest.raises(AssertionError, match="0 fit"):
        await books.step("nothing")
    with pytest.raises(AttributeError, match="colour"):
        await books.steps(colour="red")
