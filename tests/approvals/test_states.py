"""Every pair of state and event."""

from __future__ import annotations

import pytest

from approvals.model import APPROVAL, ApprovalEvent, ApprovalStatus
from core.errors import ConsistencyError

LEGAL = {
    ("requested", "approve"): "approved",
    ("requested", "reject"): "rejected",
    ("requested", "expire"): "expired",
    ("requested", "cancel"): "canceled",
    ("requested", "supersede"): "superseded",
    ("approved", "supersede"): "superseded",
}


@pytest.mark.req("Q-3")
@pytest.mark.parametrize("event", ApprovalEvent)
@pytest.mark.parametrize("state", ApprovalStatus)
def test_all_pairs(state: ApprovalStatus, event: ApprovalEvent) -> None:
    expected = LEGAL.get((state.value, event.value))
    if expected is None:
        with pytest.raises(ConsistencyError):
            APPROVAL.next[state, event]
    else:
        assert APPROVAL.next[state, event].value == expected


def test_all_but_requested_and_approved_are_final() -> None:
    final = {state.value for state in ApprovalStatus if state in APPROVAL.terminal}
    assert final == {"rejected", "expired", "canceled", "superseded"}
