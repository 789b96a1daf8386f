"""Channels: what each reducer makes of a write, what it refuses, and how much it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ExpressionError
from runtime.engine.book.barrier import fold_writes, initial_values
from runtime.engine.model.graph import Channel, Reducer


def folded(channel: Channel, *writes: Any) -> Any:
    channels = {channel.name: channel}
    values = initial_values(channels)
    for write in writes:
        values = fold_writes(channels, values, {channel.name: write})
    return values[channel.name]


@pytest.mark.req("P-2")
@pytest.mark.req("X-8")
@pytest.mark.parametrize(
    ("reducer", "writes", "result"),
    [
        (Reducer.REPLACE, [1, "two"], "two"),
        (Reducer.REPLACE, [1, None], None),
        (Reducer.APPEND, [1, [2], None], [1, [2], None]),
        (Reducer.MERGE, [{"a": 1}, {"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        (Reducer.SUM, [1, 2.5], 3.5),
        (Reducer.MAX, [3, 1, 2], 3),
        (Reducer.MIN, [3, 1, 2], 1),
        (Reducer.UNION, ["b", ["a", "b"], {"x": 1}, {"x": 1}], ["b", "a", {"x": 1}]),
        (Reducer.UNION, [1, True, 1.0], [1, True]),
    ],
)
def test_a_reducer(reducer: Reducer, writes: list[Any], result: Any) -> None:
    assert folded(Channel("c", reducer), *writes) == result


@pytest.mark.req("P-7")
def test_a_bounded_channel_keeps_its_last_items() -> None:
    assert folded(Channel("c", Reducer.APPEND, keep=2), 1, 2, 3) == [2, 3]
    assert folded(Channel("c", Reducer.UNION, keep=2), 1, [2, 3]) == [2, 3]


def test_writes_start_from_the_initial_value() -> None:
    assert folded(Channel("c", Reducer.SUM, initial=10), 5) == 15
    assert folded(Channel("c", Reducer.APPEND, initial=[0]), 1) == [0, 1]


@pytest.mark.parametrize(
    ("reducer", "writes"),
    [
        (Reducer.MERGE, [3]),
        (Reducer.SUM, ["one"]),
        (Reducer.SUM, [True]),
        (Reducer.MAX, [[1]]),
        (Reducer.APPEND, []),
        (Reducer.UNION, []),
    ],
)
def test_a_write_that_does_not_fit_names_the_channel(reducer: Reducer, writes: list[Any]) -> None:
    channel = Channel("c", reducer, initial=None if writes else "text")
    with pytest.raises(ExpressionError, match=r"state\.c"):
        folded(channel, *(writes or [1]))


def test_folding_leaves_the_values_before_as_they_were() -> None:
    channels = {"c": Channel("c", Reducer.APPEND)}
    before: dict[str, Any] = {"c": [1]}
    assert fold_writes(channels, before, {"c": 2}) == {"c": [1, 2]}
    assert before == {"c": [1]}


def test_the_unions_of_a_barrier_give_what_they_give_one_by_one() -> None:
    channels = {"c": Channel("c", Reducer.UNION, keep=3), "d": Channel("d", Reducer.UNION)}
    writes: list[Any] = [{"c": [1, 2, 2], "d": "a"}, {"c": [2, 3]}, {"c": 4, "d": ["a", "b", "b"]}, {"c": 1}]
    alone: dict[str, Any] = {"c": [0, 0], "d": None}
    together: dict[str, Any] = dict(alone)
    distinct: dict[str, Any] = {}
    for write in writes:
        alone = fold_writes(channels, alone, write)
        together = fold_writes(channels, together, write, distinct)
    assert together == alone == {"c": [3, 4, 1], "d": ["a", "b"]}
