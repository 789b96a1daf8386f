"""A turn costs what is new in it: rows and bytes do not grow with the turns before (P-14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from runtime.store import journal
from tests.support.agents import ALLOW, Agents, agent, call, calls, says

LIMITS = "limits: {turns: 500, calls: 5000, tokens: 1000000000}"
TURN = calls(call("probe_value_read", {"name": "a"}, "one"), call("probe_effect_apply", {"name": "b"}, "two"))


async def written(agents: Agents, turns: int) -> tuple[dict[str, int], Sequence[Any], list[int]]:
    """The rows in every table, the appends, and the sizes of the checkpoints, of a run with so many turns."""
    runtime: Any = agents.runtime
    before = await runtime.books.counts()
    agents.model.turns = [TURN] * turns + [says("Done.")]
    started = await runtime.start("agents", {"text": "x"}, ref=str(turns))
    await runtime.worker().work_off()
    assert await runtime.status(started.run_id) == "succeeded"
    after = await runtime.books.counts()
    rows = {name: after[name] - before[name] for name in after}
    sizes = [checkpoint.size for checkpoint in await runtime.books.checkpoints(run=started.run_id)]
    return rows, await runtime.books.appends(started.run_id), sizes


def of_turn(appends: Sequence[Any], turn: int) -> tuple[int, int]:
    """The appends from this turn's beginning to that of the next one: how many, and their bytes."""
    first, end = (
        next(place for place, append in enumerate(appends) if f'"step":"triage/{number}"'.encode() in append[0])
        for number in (turn, turn + 1)
    )
    return end - first, sum(size for _, size in appends[first:end])


@pytest.mark.req("P-14")
@pytest.mark.timeout(240)
async def test_the_turn_after_a_hundred_costs_as_much_as_the_second(agents: Agents) -> None:
    runtime = agents.runtime
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(agent(more=LIMITS))
    await written(agents, 1)
    few, _, _ = await written(agents, 3)
    many, appends, sizes = await written(agents, 103)
    views = ("journal", "run_lines")
    assert {**many, **dict.fromkeys(views, 0)} == {**few, **dict.fromkeys(views, 0)}
    (rows, bytes_), (later_rows, later_bytes) = of_turn(appends, 2), of_turn(appends, 101)
    assert later_rows == rows
    # Its number has two digits more, and so have the counters.
    assert abs(later_bytes - bytes_) < 0.05 * bytes_, (bytes_, later_bytes)
    assert max(sizes[-8:]) < max(sizes[:8]) + 32
    assert len(agents.asked[-1]) > 300, "the model is shown all of it"


@pytest.mark.req("P-14")
async def test_a_worker_reads_of_a_conversation_what_was_told_since(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the book by one worker; another worker, which knows nothing of it, reads all once."""
    runtime, of_step = agents.runtime, journal.of_step
    read: list[tuple[int, int]] = []

    async def counted(*place: Any, after: int = 0) -> Any:
        last, told = await of_step(*place, after=after)
        read.append((after, len(told)))
        return last, told

    monkeypatch.setattr(journal, "of_step", counted)
    await runtime.tenant()
    await runtime.policy(ALLOW)
    await runtime.publish(agent(more=LIMITS))
    await written(agents, 30)
    first, *rest = [events for _, events in read]
    assert first <= 8
    assert max(rest) <= 12, "no more than the turn before"
    assert sum(rest) + first < 31 * 20, "each event is read once"
    assert [after for after, _ in read] == sorted(after for after, _ in read)
