"""Effects that steps and runs share by their key: one of them does it, and the others use what came of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from connectors.port import NotSent, Probe, ProbeVerdict
from core.db import Connection
from runtime.engine.book.instructions import Shared
from runtime.requests.views import RunReader
from runtime.store import effects
from runtime.store.views import Graphs
from tests.support.tampering import Tampering

ALLOW = "policy: allow\nversion: 1\nrules: [{id: all, match: {connector: probe}, outcome: allow}]\n"

TICKET = """
workflow: ticket
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: open, do: probe.ticket.open, with: {name: t}}
  - {id: read, do: probe.value.read, with: {name: "${{ string(steps.open.output.applied) }}"}}
"""


async def ticket_runs(runtime: Any, *refs: str, numbers: tuple[str, ...] = ("INC1", "INC1")) -> list[Any]:
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(TICKET)
    return [
        (await runtime.start("ticket", {"number": number}, ref=ref)).run_id
        for ref, number in zip(refs, numbers, strict=True)
    ]


@pytest.mark.req("Q-15")
@pytest.mark.req("U-6")
async def test_an_effect_that_is_recorded_is_not_done_again_but_its_result_used(runtime: Any) -> None:
    first, second = await ticket_runs(runtime, "1", "2")
    await runtime.worker().work_off()
    await runtime.worker().work_off()
    assert [await runtime.status(run) for run in (first, second)] == ["succeeded", "succeeded"]
    assert len(runtime.outside.effects) == 1
    one, other = await runtime.books.steps(key="open")
    assert one.output == other.output == {"name": "t", "applied": 1}
    assert "action.recalled" in await runtime.events(second)
    await runtime.history(first)


async def test_another_reference_is_another_effect(runtime: Any) -> None:
    await ticket_runs(runtime, "1", "2", numbers=("INC1", "INC2"))
    while await runtime.worker().work_off():
        pass
    assert len(runtime.outside.effects) == 2


@pytest.mark.req("Q-15")
async def test_an_effect_under_way_elsewhere_is_waited_for(runtime: Any, gate: Any) -> None:
    first, second = await ticket_runs(runtime, "1", "2")
    runtime.outside.gates["t"] = gate
    working = asyncio.create_task(runtime.worker("w1").work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    await runtime.worker("w2").work_off()
    assert await runtime.status(second) == "waiting"
    gate.opened.set()
    await working
    await runtime.go_on()
    assert [await runtime.status(run) for run in (first, second)] == ["succeeded", "succeeded"]
    assert len(runtime.outside.effects) == 1
    await runtime.at_rest()


@pytest.mark.req("Q-15")
async def test_an_effect_in_doubt_elsewhere_is_waited_for_until_the_doubt_ends(runtime: Any, gate: Any) -> None:
    first, second = await ticket_runs(runtime, "1", "2")
    await runtime.person("olga", ("operators",))
    await runtime.crash(gate, "t")
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "nobody knows")
    await runtime.go_on()
    assert [await runtime.status(run) for run in (first, second)] == ["waiting_approval", "waiting"]
    before = (await runtime.books.run(second)).version
    await runtime.sweep()
    assert (await runtime.books.run(second)).version == before, "waiting writes nothing"
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.go_on()
    assert await runtime.status(second) == "failed_terminal"
    assert (await runtime.error(second))["code"] == "output_unknown"
    assert len(runtime.outside.effects) == 0


@pytest.mark.req("Q-14")
@pytest.mark.req("Q-15")
async def test_an_effect_that_failed_here_and_was_done_elsewhere_is_not_done_here_too(runtime: Any) -> None:
    first, second = await ticket_runs(runtime, "1", "2")
    runtime.outside.script["t"] = [NotSent("refused")]
    await runtime.worker().work_off()  # the first run fails to send and waits; the second one takes the key over
    assert {await runtime.status(run) for run in (first, second)} == {"failed_retryable", "succeeded"}
    await runtime.wait_is_due()
    assert [await runtime.status(run) for run in (first, second)] == ["succeeded", "succeeded"]
    assert len(runtime.outside.effects) == 1
    for run_id in (first, second):
        known = await runtime.history(run_id)
        assert {str(receipt.id): receipt.status for receipt in await runtime.books.receipts(run=run_id)} == {
            receipt: str(found.status) for receipt, found in known.receipts.items()
        }
    await runtime.at_rest()


@pytest.mark.req("Q-15")
async def test_something_else_under_the_same_key_is_a_conflict(runtime: Any) -> None:
    text = TICKET.replace("probe.ticket.open, with: {name: t}", 'probe.ticket.file, with: {name: t, value: "%s"}')
    await runtime.tenant()
    await runtime.policy(ALLOW)
    for version, value in enumerate(("a", "b"), 1):
        await runtime.publish((text % value).replace("version: 1", f"version: {version}"))
        run = (await runtime.start("ticket", {"number": "INC1"}, ref=value)).run_id
        await runtime.worker().work_off()
    assert await runtime.status(run) == "failed_terminal"
    assert (await runtime.error(run))["code"] == "effect_conflict"
    assert len(runtime.outside.effects) == 1


# -- who holds a key -------------------------------------------------------------------------------------------------


async def test_only_a_shared_key_has_a_row(runtime: Any) -> None:
    await runtime.go(TICKET.replace("probe.ticket.open", "probe.effect.apply"), {"number": "INC1"})
    assert [receipt.status for receipt in await runtime.books.receipts()] == ["succeeded"]
    assert await runtime.books.effects() == []


@pytest.mark.req("Q-14")
async def test_a_row_follows_its_receipt_and_whoever_takes_the_key(runtime: Any, gate: Any) -> None:
    (first,) = await ticket_runs(runtime, "1", numbers=("INC1",))
    runtime.outside.script["t"] = [NotSent("refused")]
    await runtime.worker().work_off()
    (failed,) = await runtime.books.receipts()
    assert await held_by(runtime) == [(failed.key, first, failed.id, "failed")]
    second = (await runtime.start("ticket", {"number": "INC1"}, ref="2")).run_id
    runtime.outside.gates["t"] = gate
    working = asyncio.create_task(runtime.worker().work_off())
    await asyncio.wait_for(gate.reached.wait(), 60)
    taken = await runtime.books.receipt(run=second)
    assert await held_by(runtime) == [(failed.key, second, taken.id, "intended")]
    gate.opened.set()
    await working
    assert await held_by(runtime) == [(failed.key, second, taken.id, "succeeded")]


async def test_a_person_who_gives_a_doubt_up_lets_the_key_go(runtime: Any, gate: Any) -> None:
    """The vote's own append moves the row, under the login of the faces."""
    (first,) = await ticket_runs(runtime, "1", numbers=("INC1",))
    await runtime.person("olga", ("operators",))
    await runtime.crash(gate, "t")
    runtime.outside.verdict = Probe(ProbeVerdict.CANNOT_TELL, "nobody knows")
    await runtime.worker().work_off()
    assert [status for *_, status in await held_by(runtime)] == ["in_doubt"]
    assert (await runtime.vote("olga", "fail")).counted
    assert [status for *_, status in await held_by(runtime)] == ["failed"]
    second = (await runtime.start("ticket", {"number": "INC1"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert [await runtime.status(run) for run in (first, second)] == ["failed_terminal", "succeeded"]
    assert [(run, status) for _, run, _, status in await held_by(runtime)] == [(second, "succeeded")]
    assert len(runtime.outside.effects) == 1


async def held_by(runtime: Any) -> list[tuple[str, UUID, UUID, str]]:
    return [(effect.key, effect.run, effect.receipt, effect.status) for effect in await runtime.books.effects()]


class Meanwhile:
    """A rival that overtakes a look-up of a key once, between the look and the intent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
        self.found: list[str | None] = []
        self._happens, self._by_key = happens, effects.by_key
        monkeypatch.setattr(effects, "by_key", self.by_key)

    async def by_key(self, connection: Connection, graphs: Graphs, tenant: str, key: str) -> Shared | None:
        found = await self._by_key(connection, graphs, tenant, key)
        self.found.append(found and str(found.life))
        if len(self.found) == 1:
            await self._happens()
        return found


@pytest.mark.req("Q-14")
@pytest.mark.parametrize("late", ["the first", "the one who takes over", "the one who failed"])
async def test_who_looked_before_another_took_the_key_looks_again(
    runtime: Any, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """A failed effect lets its key go: but to one run only, and the one that failed may have come too late."""
    (failed,) = await ticket_runs(runtime, "1", numbers=("INC1",))
    runtime.outside.script["t"] = [] if late == "the first" else [NotSent("refused")]
    if late != "the first":
        await runtime.worker().work_off()
        assert await runtime.status(failed) == "failed_retryable"
    if late == "the one who takes over":
        await runtime.start("ticket", {"number": "INC1"}, ref="2")
    other = None

    async def overtake() -> None:
        nonlocal other
        other = (await runtime.start("ticket", {"number": "INC1"}, ref="3")).run_id
        await runtime.worker("w2").work_off()

    meanwhile = Meanwhile(monkeypatch, overtake)
    await (runtime.wait_is_due() if late == "the one who failed" else runtime.worker().work_off())
    assert meanwhile.found[0] == (None if late == "the first" else "failed")
    assert meanwhile.found[-1] == "succeeded"
    await runtime.wait_is_due()
    assert {run.status for run in await runtime.books.runs()} == {"succeeded"}
    assert len(runtime.outside.effects) == 1
    (effect,) = await runtime.books.effects()
    assert effect.run == other
    for run in await runtime.books.runs():
        await runtime.history(run.id)
    await runtime.at_rest()


# -- what somebody has changed ---------------------------------------------------------------------------------------


@pytest.mark.tampers
@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (lambda row: row.effect_failed(), "The effect .* is not stored"),
        (lambda row: row.effect_of_nobody(), "The receipt_id of the effect"),
        (lambda row: row.lost_effect(), "The effect .* is not stored"),
    ],
    ids=["failed", "of nobody", "lost"],
)
async def test_a_row_that_was_altered_is_found(
    runtime: Any, database_url: str, alter: Callable[[Tampering], Awaitable[None]], words: str
) -> None:
    (first,) = await ticket_runs(runtime, "1", numbers=("INC1",))
    await runtime.worker().work_off()
    await alter(Tampering(database_url))
    report = await RunReader(runtime.faces, runtime.definitions).replay("acme", first)
    assert re.search(words, str(report.difference)), report.difference


@pytest.mark.tampers
async def test_the_book_says_what_became_of_an_effect_and_not_its_row(runtime: Any, database_url: str) -> None:
    await ticket_runs(runtime, "1", numbers=("INC1",))
    await runtime.worker().work_off()
    await Tampering(database_url).effect_failed()
    second = (await runtime.start("ticket", {"number": "INC1"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert (await runtime.status(second), len(runtime.outside.effects)) == ("succeeded", 1)


@pytest.mark.tampers
async def test_an_effect_of_which_no_book_tells_is_not_done_again(runtime: Any, database_url: str, quiet: Any) -> None:
    await ticket_runs(runtime, "1", numbers=("INC1",))
    await runtime.worker().work_off()
    await Tampering(database_url).effect_of_nobody()
    second = (await runtime.start("ticket", {"number": "INC1"}, ref="2")).run_id
    await runtime.worker().work_off()
    assert "does not tell of the receipt" in (await runtime.books.step("open", run=second)).error["message"]
    assert len(runtime.outside.effects) == 1
