"""The card of an approval as a face draws it: its state, what became of its action, and what holds it back."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.content import CardContent, CardState
from approvals.model import Approval, ApprovalKind, ApprovalStatus, CardView
from evidence.receipts import ReceiptStatus
from runtime.store import approvals
from runtime.store.approvals import StoredApproval, card_view
from tests.support.rows import uid

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = uid(2)
NOTHING: Any = None
CONTENT: Any = SimpleNamespace(workflow="w", connector="c")
PAUSES: dict[str, Any] = {
    key: {"by": by, "reason": "no", "at": NOON.isoformat()}
    for key, by in (("tenant", "ann"), ("workflow:w", "bob"), ("connector:c", "cat"), (f"run:{RUN}", "dan"))
}
OTHERS: dict[str, Any] = {
    key: {"by": "eve", "reason": "no", "at": NOON.isoformat()}
    for key in ("workflow:v", "connector:d", f"run:{uid(9)}", "workflow:c", "connector:w")
}


def stored(status: ApprovalStatus, *, consumed: bool = False, reason: str | None = None, **paused: Any) -> Any:
    terms: Any = SimpleNamespace(two_person=True)
    votes: Any = ("the votes",)
    approval = Approval(
        id=uid(1), tenant_id="acme", run_id=RUN, step_key="a", kind=ApprovalKind.ACTION, status=status,
        action_digest="d", nonce="n", terms=terms, requester="ann", contributors=(), votes=votes,
        expires_at=NOON, escalated=False,
    )  # fmt: skip
    row: dict[str, Any] = {
        "approval": approval, "card": {"the": "card"}, "choice": None, "reason": reason, "workspace_id": "main",
        "consumed": consumed, "now": NOON, "created_at": NOON, "directory_digest": None, "message": None,
        "paused": paused,
    }  # fmt: skip
    return StoredApproval(**row)


@pytest.fixture(autouse=True)
def _content(monkeypatch: pytest.MonkeyPatch) -> None:
    def content(card: Any) -> Any:
        assert card == {"the": "card"}
        return CONTENT

    monkeypatch.setattr(CardContent, "from_json", content)
    monkeypatch.setattr(approvals, "progress", lambda approval: ("the progress", approval.id))


def receipt(status: ReceiptStatus, *late: str, **more: Any) -> Any:
    return {"status": status, "late": [{"says": each} for each in late], **more}


APPROVED = ApprovalStatus.APPROVED


def view(state: CardState, detail: str = "", **more: Any) -> CardView:
    progress: Any = ("the progress", uid(1))
    votes: Any = ("the votes",)
    return CardView(
        uid(1), "n", ApprovalKind.ACTION, CONTENT, state, votes, progress, two_person=True, detail=detail, **more
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (ApprovalStatus.REQUESTED, CardState.PENDING),
        (ApprovalStatus.REJECTED, CardState.REJECTED),
        (ApprovalStatus.EXPIRED, CardState.EXPIRED),
        (ApprovalStatus.CANCELED, CardState.CANCELED),
        (ApprovalStatus.SUPERSEDED, CardState.SUPERSEDED),
        (APPROVED, CardState.RECORDED),
    ],
)
@pytest.mark.parametrize("reason", [None, "because"])
def test_a_card_says_how_its_question_stands(status: ApprovalStatus, state: CardState, reason: str | None) -> None:
    found = card_view(stored(status, reason=reason), None, "a link")
    assert found == view(state, reason or "", link="a link")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (ReceiptStatus.INTENDED, CardState.EXECUTING),
        (ReceiptStatus.SUCCEEDED, CardState.APPLIED),
        (ReceiptStatus.FAILED, CardState.FAILED),
        (ReceiptStatus.IN_DOUBT, CardState.IN_DOUBT),
    ],
)
@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({}, ""),
        ({"resolution": "it is there", "error": {"message": "no"}}, "it is there"),
        ({"resolution": None, "error": {"message": "no"}}, "no"),
        ({"resolution": "", "error": {}}, ""),
        ({"resolution": None, "error": None}, ""),
    ],
)
def test_a_card_says_what_became_of_its_action(status: Any, state: CardState, more: Any, detail: str) -> None:
    found = card_view(stored(APPROVED, consumed=True, reason="because"), receipt(status, **more))
    assert found == view(state, detail)


def test_the_receipt_of_another_attempt_says_nothing_of_an_approval_that_was_not_used() -> None:
    """But what was told late about the action is shown wherever the action is."""
    found = card_view(stored(APPROVED, reason="because"), receipt(ReceiptStatus.SUCCEEDED, "One.", "Two."))
    assert found == view(CardState.RECORDED, "because", late="One. Two.")
    rejected = card_view(stored(ApprovalStatus.REJECTED, consumed=True), receipt(ReceiptStatus.SUCCEEDED))
    assert rejected == view(CardState.REJECTED)


@pytest.mark.req("V-13")
@pytest.mark.parametrize(("status", "consumed", "shown"), [
    (ApprovalStatus.REQUESTED, False, True), (APPROVED, False, True), (APPROVED, True, False),
    (ApprovalStatus.REJECTED, False, False), (ApprovalStatus.EXPIRED, False, False),
])  # fmt: skip
def test_a_card_names_the_pauses_that_hold_its_action_back_while_it_may_still_go_out(
    status: ApprovalStatus, consumed: bool, shown: bool
) -> None:
    found = card_view(stored(status, consumed=consumed, **PAUSES, **OTHERS), receipt(ReceiptStatus.INTENDED))
    told = "; ".join(
        f"{what} is paused since 2026-01-01 12:00 UTC by {by}: no"
        for what, by in (("tenant", "ann"), ("workflow w", "bob"), ("connector c", "cat"), (f"run {RUN}", "dan"))
    )
    assert found.paused == (told if shown else "")
    one = card_view(stored(ApprovalStatus.REQUESTED, **{"connector:c": PAUSES["connector:c"]}), None)
    assert one.paused == "connector c is paused since 2026-01-01 12:00 UTC by cat: no"
