"""A tenant's records, without a database: the row, the receipt and the end of the step are one append."""

from __future__ import annotations

from typing import Any

import pytest

from core.identity import Role
from runtime.engine.book.contributors import mark
from runtime.engine.life import records
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import RecordRow
from tests.engine.governing import HEAD, Governed, governed
from tests.support.engine_folds import receipt

ALLOW = "policy: records\nversion: 1\nrules: [{id: all, match: {connector: records}, outcome: allow}]\n"
ASKS = ALLOW.replace("outcome: allow", "outcome: needs_approval, approvers: [{group: owners}]")
PUT = HEAD + "  - {id: a, do: records.put, with: {collection: cases, key: c1, value: {n: 1}, if_absent: true}}\n"
AGAIN = HEAD + "  - {id: a, do: records.put, with: {collection: cases, key: c1, value: {n: 2}, version: 3}}\n"
BY = (mark(Role.SOURCE_REQUESTER, "someone"),)
DELETE = HEAD + "  - {id: a, do: records.delete, with: {collection: cases, key: c1, version: 3}}\n"


def written(run: Governed) -> list[RecordRow]:
    assert run.run is not None
    return run.run.records


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (PUT, RecordRow("cases", "c1", {"n": 1}, absent=True, shaped=BY)),
        (AGAIN, RecordRow("cases", "c1", {"n": 2}, expects=3, shaped=BY)),
        (DELETE, RecordRow("cases", "c1", None, expects=3, removes=True)),
    ],
)
def test_what_is_let_out_is_written_in_its_own_append(text: str, row: RecordRow) -> None:
    run = governed(text, ALLOW).drive()
    assert (run.status, run.sent, run.told) == ("succeeded", [], ["intended", "succeeded"])
    assert written(run) == [row]
    assert run.rows["a"].output == {"collection": "cases", "key": "c1"}
    assert run.verified()


GET = HEAD + "  - {id: a, do: records.get, with: {collection: cases, key: c1}}\n"


def write(text: str, values: dict[str, Any], *earlier: RecordRow) -> list[RecordRow]:
    """The rows of an append in which a step writes these values after earlier ones."""
    run = governed(text, ALLOW)
    run.claim("a")
    made = Transition(run.view(), run.workflow.graph)
    made.rows.records, made.run.receipts[receipt().receipt_id] = [*earlier], receipt()
    row = made.run.steps["a"]
    records.write(made, row, run.workflow.operations[row.operation], receipt(), values)
    return made.rows.records


PLACE = {"collection": "m", "key": "k"}


@pytest.mark.req("U-5")
def test_what_people_have_not_approved_is_not_written() -> None:
    run = governed(PUT, ASKS).drive()
    assert (run.status, written(run)) == ("waiting_approval", [])
    run.answer("ana").drive()
    assert (run.status, len(written(run))) == ("succeeded", 1)


@pytest.mark.parametrize(("size", "status"), [(0, "succeeded"), (1, "failed_terminal")])
def test_a_value_has_a_bound(size: int, status: str) -> None:
    filled = "x" * (records.VALUE_BYTES_MAX - len('{"n":""}') + size)
    run = governed(PUT.replace("{n: 1}", f"{{n: {filled}}}"), ALLOW).drive()
    assert (run.status, len(written(run))) == (status, 1 - size)


def test_an_append_that_the_record_refuses_fails_the_step() -> None:
    run = governed(PUT, ALLOW)
    run.claim("a")
    transition = Transition(run.view(), run.workflow.graph)
    records.refused(transition, run.rows["a"])
    run.apply(transition)
    error: Any = run.rows["a"].last_error
    assert (run.status, error["class"], error["code"], run.told) == (
        "failed_terminal", "consistency", "record_conflict", [],
    )  # fmt: skip
