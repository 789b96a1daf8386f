"""Receipts move only as their table says, and their evidence holds no values."""

from __future__ import annotations

from itertools import product

import pytest

from core.errors import ConsistencyError
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
