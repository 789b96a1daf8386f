"""The first values of channels, without a database: made of the trigger, or copied from the run above."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import InputError
from runtime.definition.workflow import load_workflow
from runtime.engine.book.channels import Inherited, bounded, first_entries, first_values, misfit
from runtime.engine.model.graph import Channel, Reducer
from tests.engine.governing import CATALOG, HEAD

pytestmark = pytest.mark.req("P-7")

BODY = "  - {id: a, do: probe.effect.apply, with: {name: x}}\n"


def channels(text: str) -> dict[str, Channel]:
    head = HEAD.replace("steps:\n", f"channels: {{{text}}}\nsteps:\n")
    return dict(load_workflow(head + BODY, "test.yaml", CATALOG).graph.channels)


def test_a_channel_begins_as_the_trigger_says() -> None:
    declared = channels('names: {reduce: append, initial: "${{ trigger.names }}", keep: 2}, plain: {initial: 3}')
    made = first_values(declared, {"trigger": {"names": ["a", "b", "c"]}}, {})
    assert made == {"names": ["b", "c"]}, "it keeps its last items, and what is declared needs no telling"


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({}, "cannot be made from this trigger"),
        ({"names": "a"}, "append begins with a list"),
        ({"names": None}, "append begins with a list"),
    ],
)
def test_a_trigger_that_does_not_fit_is_refused_with_its_place(trigger: dict[str, Any], said: str) -> None:
    declared = channels('names: {reduce: append, initial: "${{ trigger.names }}"}')
    with pytest.raises(InputError, match=said) as raised:
        first_values(declared, {"trigger": trigger}, {})
    assert raised.value.where == "channels.names.initial"


@pytest.mark.req("P-8")
def test_what_is_inherited_wins_over_what_is_made() -> None:
    declared = channels('names: {reduce: append, initial: "${{ trigger.names }}", keep: 2}')
    given = {"names": Inherited(["x", "y", "z"], Reducer.APPEND)}
    assert first_values(declared, {"trigger": {}}, given) == {"names": ["y", "z"]}


@pytest.mark.req("P-8")
@pytest.mark.parametrize("text", ["other: {reduce: append}", "names: {reduce: union}", "names: {}"])
def test_a_channel_that_is_folded_otherwise_inherits_nothing(text: str) -> None:
    with pytest.raises(InputError, match="no channel 'names' that is folded by append"):
        first_values(channels(text), {}, {"names": Inherited([], Reducer.APPEND)})


LISTS, NUMBERS = ["append", "union"], ["sum", "max", "min"]
FITS: Any = [
    *((name, value, fits) for name in LISTS for value, fits in (([], True), ({}, False), ("a", False), (None, False))),
    *((name, value, fits) for name in NUMBERS for value, fits in ((1, True), (1.5, True), (True, False), ("1", False))),
    ("merge", {}, True), ("merge", [], False), ("sum", None, False), ("max", None, True), ("min", None, True),
    ("replace", True, True), ("replace", None, True),
]  # fmt: skip


@pytest.mark.parametrize(("reducer", "value", "fits"), FITS)
def test_a_reducer_begins_with_what_it_can_fold(reducer: str, value: Any, fits: bool) -> None:
    problem = misfit(Reducer(reducer), value)
    assert (problem is None) is fits
    assert fits or str(problem).startswith(f"{reducer} begins with a")


def test_a_bound_keeps_the_last_items_and_nothing_else() -> None:
    kept = channels("names: {reduce: append, keep: 1}")["names"]
    assert bounded(kept, ["a", "b"]) == ["b"]
    assert bounded(kept, "ab") == "ab"
    assert bounded(channels("names: {reduce: append}")["names"], ["a", "b"]) == ["a", "b"]


def test_a_ledger_begins_with_what_its_channel_begins_with() -> None:
    declared = channels(
        "names: {reduce: append, ledger: true}, one: {ledger: true, initial: 7}, none: {ledger: true},"
        " plain: {initial: 3}"
    )
    unkept = channels("names: {reduce: append}, n: {reduce: sum, initial: 4}")
    assert first_entries(unkept, {"names": ["a"], "n": 7}) == []
    empty = channels(
        "n: {reduce: sum, initial: 0, ledger: true}, o: {reduce: merge, initial: {}, ledger: true},"
        " l: {reduce: append, initial: [1], ledger: true}, s: {initial: 5, ledger: true}"
    )
    assert [row.channel for row in first_entries(empty, {"l": []})] == ["s"]
    assert [(row.channel, row.value) for row in first_entries(empty, {"l": [], "n": 3, "o": {"a": 1}, "s": 0})] == [
        ("n", 3), ("o", {"a": 1}),
    ]  # fmt: skip
    rows = first_entries(declared, {"names": ["a", "b"]})
    assert [(row.channel, row.superstep, row.step_key, row.value) for row in rows] == [
        ("names", 0, "[0]", "a"), ("names", 0, "[1]", "b"), ("one", 0, "[0]", 7),
    ]  # fmt: skip
