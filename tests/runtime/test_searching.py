"""Runs are found by the values that their workflow marks: exactly, and in their own tenant."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from uuid import UUID

import pytest

from core.errors import DefinitionError, InputError
from runtime.definition.workflow import load_workflow
from runtime.requests.finding import by_values
from runtime.store.read_models import RunFilter, runs_page

TEXT = (
    "workflow: w\nversion: 1\n"
    "search: {customer: '${{ trigger.customer }}', order: '${{ trigger.order }}'}\n"
    "steps:\n  - {id: one, do: probe.effect.apply, with: {name: one}}\n"
)


async def found(runtime: Any, *pairs: str, tenant: str = "acme") -> list[UUID]:
    async with runtime.faces.transaction(tenant) as connection:
        return [row["run_id"] for row in await runs_page(connection, tenant, by_values(RunFilter(), pairs), 10)]


async def test_a_run_is_found_by_all_of_its_values_and_by_no_others(runtime: Any) -> None:
    first = await runtime.go(TEXT, {"customer": "ACME", "order": 7})
    runtime.outside.may_repeat.add("one")
    second = (await runtime.start("w", {"customer": "ACME", "order": True}, ref="2")).run_id
    third = (await runtime.start("w", {"customer": None, "order": "7"}, ref="3")).run_id
    cases: dict[tuple[str, ...], list[UUID]] = {
        ("customer=ACME",): [second, first],
        ("order=7",): [third, first],
        ("customer=ACME", "order=7"): [first],
        ("customer=ACME", "order=true"): [second],
        ("customer=acme",): [],
        ("customer=ACM%",): [],
        ("other=ACME",): [],
        (): [third, second, first],
    }
    for pairs, runs in cases.items():
        assert await found(runtime, *pairs) == runs, pairs
    await runtime.tenant("other")
    assert await found(runtime, "customer=ACME", tenant="other") == []


@pytest.mark.parametrize("given", [None, ["a"], "x" * 201, ""])
async def test_a_run_that_could_not_be_found_is_not_started(runtime: Any, given: Any) -> None:
    await runtime.tenant()
    await runtime.publish(TEXT)
    with pytest.raises(InputError, match="search"):
        await runtime.start("w", {} if given is None else {"customer": given, "order": 1})


@pytest.mark.parametrize("pair", ["customer", "=ACME", "customer=", "customer=" + "x" * 201])
def test_what_is_no_name_and_value_is_refused(pair: str) -> None:
    with pytest.raises(InputError):
        by_values(RunFilter(), [pair])


SECRET = """workflow: w
version: 1
search: {card: "${{ %s }}"}
trigger:
  type: object
  properties:
    card: {type: object, properties: {number: {type: string, x-secret: true}, kind: {type: string}}}
    all: {type: object, x-secret: true, properties: {part: {type: string}}}
    far: {$ref: '#/$defs/far'}
    list: {type: array, items: {type: string, x-secret: true}}
  $defs: {far: {type: object, properties: {it: {type: string, x-secret: true}}}}
steps: [{set: {}, reference: r}]
"""


@pytest.mark.parametrize(
    ("read", "refused"),
    [
        ("trigger.card.number", True),
        ("'card ' + trigger.card.number", True),
        ("trigger.all.part", True),
        ("trigger.far.it", True),
        ("trigger.list[0]", True),
        ("trigger.card['number']", True),
        ("size(trigger)", True),
        ("trigger.card.kind", False),
    ],
)
def test_nothing_secret_is_searched_for(runtime: Any, read: str, refused: bool) -> None:
    with pytest.raises(DefinitionError, match="marks it as secret") if refused else nullcontext():
        load_workflow(SECRET % read, "w.yaml", runtime.catalog, typed=True)
