"""Receipts move only as their table says, and their evidence holds no values."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import ConsistencyError
from evidence.commitments import blind, commit, disclosure, open_disclosure
from evidence.receipts import RECEIPT, ReceiptEvent, ReceiptStatus

S, E = ReceiptStatus, ReceiptEvent
LEGAL = {
    (S.INTENDED, E.SUCCEED): S.SUCCEEDED,
    (S.INTENDED, E.FAIL): S.FAILED,
    (S.INTENDED, E.DOUBT): S.IN_DOUBT,
    (S.FAILED, E.RETRY): S.INTENDED,
    (S.IN_DOUBT, E.RETRY): S.INTENDED,
    (S.IN_DOUBT, E.RESOLVE_APPLIED): S.SUCCEEDED,
    (S.IN_DOUBT, E.RESOLVE_FAILED): S.FAILED,
}


@pytest.mark.req("Q-4")
@pytest.mark.parametrize(("status", "event"), list(product(S, E)))
def test_every_pair_of_the_table(status: ReceiptStatus, event: ReceiptEvent) -> None:
    if (status, event) in LEGAL:
        assert RECEIPT.next[status, event] is LEGAL[status, event]
    else:
        with pytest.raises(ConsistencyError):
            RECEIPT.next[status, event]


def test_only_success_is_final_and_an_intent_is_never_simply_repeated() -> None:
    assert [status for status in S if status in RECEIPT.terminal] == [S.SUCCEEDED]
    assert (S.INTENDED, E.RETRY) not in RECEIPT.table
    assert RECEIPT.initial == {S.INTENDED}


@pytest.mark.req("Q-4")
def test_evidence_says_what_happened_and_how_to_reverse_it_without_values(workshop: Any) -> None:
    receipt = replace(workshop.receipt("r1"), error={"message": "secret-error"}, external_id="secret-id")
    evidence = receipt.to_evidence(workshop.run_key)
    text = json.dumps(evidence)
    assert "secret" not in text
    assert receipt.target not in text
    assert receipt.idempotency_key not in text
    assert receipt.action_digest not in text
    assert evidence["action"] == blind(workshop.run_key, receipt.action_digest)
    assert (evidence.get("step"), evidence.get("run")) == (receipt.step_key, str(receipt.run_id))
    assert (evidence["operation"], evidence["status"]) == (receipt.operation, "succeeded")
    assert evidence["reversible"] is True
    reverse = evidence["reverse"]
    assert (reverse["operation"], reverse["fields"]) == (receipt.operation, ["priority"])
    path = "/receipt/r1/reverse/priority"
    assert reverse["committed"] == [[path, commit(workshop.run_key, path, "3")]]


def test_what_is_committed_can_be_disclosed(workshop: Any) -> None:
    receipt = workshop.receipt("r1")
    committed = receipt.to_evidence(workshop.run_key)["committed"]
    opened = [open_disclosure(disclosure(workshop.run_key, path, value)) for path, value in receipt.values().items()]
    assert [[item.path, item.commitment] for item in opened] == committed
    assert "/receipt/r1/error" not in receipt.values()


def test_an_open_receipt_is_not_settled(workshop: Any) -> None:
    receipt = replace(workshop.receipt("r1"), status=S.INTENDED, settled_at=None, reverse=None)
    evidence = receipt.to_evidence(workshop.run_key)
    assert evidence["settled_at"] is None
    assert evidence["reverse"] is None
