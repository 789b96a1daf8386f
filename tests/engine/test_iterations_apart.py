"""Steps of one name in several iterations: each knows its own answers, receipts and waits and no others (X-12)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalKind
from core.canonical import derived_id
from evidence.receipts import ReceiptStatus
from runtime.engine import ask
from runtime.engine.commit import ApprovalMove, expected_of, step_id_of, wait_of
from runtime.engine.instructions import known_of, last_receipt, open_wait
from runtime.engine.intend import is_own
from runtime.engine.lives import held_by
from runtime.engine.outside import correlation_of, own_token
from runtime.engine.states import WaitKind, WaitState
from tests.engine.conftest import NOW, RUN_ID
from tests.engine.governing import HEAD, governed
from tests.engine.test_folds import approval, receipt, run_of, step, wait
from tests.engine.test_moves_told import transition

pytestmark = pytest.mark.req("X-12")

KEYS = ("each[0].a", "each[1].a", "each[11].a", "each[1].in[1].a", "a")


def whole() -> Any:
    """A run that holds one receipt, wait, answer and rejection of each of these steps."""
    rows: list[Any] = []
    for number, key in enumerate(KEYS, 1):
        rows += [
            step(key), replace(receipt(ReceiptStatus.SUCCEEDED, key), receipt_id=UUID(int=number)),
            wait(UUID(int=10 + number), key, WaitKind.EXTERNAL, result={"n": number}),
            approval(key=key, number=UUID(int=20 + number)), approval(key=key, number=UUID(int=30 + number)),
        ]  # fmt: skip
    run = run_of(*rows)
    for number, _ in enumerate(KEYS, 1):
        given, no = UUID(int=20 + number), UUID(int=30 + number)
        run.answers[given] = ApprovalMove(given, "approved", "approve", f"Yes {number}.", at=NOW)
        run.answers[no] = ApprovalMove(no, "rejected", "reject", f"No {number}.", at=NOW)
        terms: Any = {"tier": "low", "approvers": [{"group": "g", "of": 1, "source": "group"}]}
        run.approvals[given] = replace(run.approvals[given], terms=terms)
    return run


@pytest.mark.parametrize(("number", "key"), [*enumerate(KEYS, 1)])
def test_a_step_knows_what_is_its_own_in_its_iteration(number: int, key: str) -> None:
    run = whole()
    known = known_of(run, key)
    assert known.given is not None
    assert (known.given.approval_id.int, known.given.kind) == (20 + number, ApprovalKind.ACTION)
    assert (known.receipt, known.wait) == (run.receipts[UUID(int=number)], run.waits[UUID(int=10 + number)])
    assert (last_receipt(run, key), open_wait(run, key)) == (known.receipt, known.wait)
    assert held_by(run, run.receipts[UUID(int=number)]) == run.waits[UUID(int=10 + number)]
    made = transition()
    made.run = run
    assert ask.rejected_before(made, step(key)) == f"It was rejected before: No {number}."
    owners = [row.step_key for row in run.receipts.values() if is_own(made, step(key), row)]
    assert owners == [key]


def test_what_is_derived_of_a_step_is_of_its_iteration_and_of_its_lease() -> None:
    run = whole()
    for derive in (wait_of, expected_of):
        ids = {derive(RUN_ID, replace(step(key), lease_epoch=epoch)) for key in KEYS for epoch in (1, 2)}
        assert len(ids) == 2 * len(KEYS)
    assert len({wait_of(RUN_ID, step(key)) for key in KEYS} | {expected_of(RUN_ID, step(key)) for key in KEYS}) == 10
    assert [step_id_of(RUN_ID, key) for key in KEYS] == [derived_id(RUN_ID, f"step:{key}") for key in KEYS]
    assert len({correlation_of(RUN_ID, key) for key in KEYS}) == len({own_token(run, step(key)) for key in KEYS}) == 5
    over = replace(wait(key=KEYS[0]), status=WaitState.COMPLETED)
    run.waits = {over.wait_id: over}
    assert [open_wait(run, key) for key in KEYS] == [None] * len(KEYS)


LOOP = HEAD + (
    "  - id: each\n    foreach: ${{ [1, 2] }}\n    as: n\n    max_parallel: 2\n    steps:\n"
    "      - {id: a, do: probe.effect.apply, with: {name: x}}\n"
)


@pytest.mark.req("Q-11")
def test_each_iteration_has_an_effect_of_its_own_even_with_the_same_input() -> None:
    run = governed(LOOP)
    for key in ("each[0].a", "each[1].a"):
        run.drive(key)
    keys = [row.idempotency_key for row in run.rows.values() if row.idempotency_key]
    assert (run.sent, len({*keys})) == (["probe.effect.apply"] * 2, 2)
