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


def test_the_values_of_a_receipt_are_committed_by_their_paths(workshop: Any) -> None:
    """Each under its own path and as it is: of an error its message alone; what is absent is left out."""
    late = ({"attempt": 1, "detail": "d", "output": {"a": 1}}, {"attempt": 2, "external_id": "x"})
    told = {"target": "t", "idempotency_key": "k", "external_id": "e", "resolution": "r"}
    bare = replace(workshop.receipt("r1"), error=None, late=(), **told)
    place = "/receipt/r1"
    values = {f"{place}/{name}": value for name, value in told.items()}
    assert bare.values() == values
    whole = replace(bare, error={"message": "m", "code": "c"}, late=late)
    assert whole.values() == {
        **values,
        f"{place}/error": "m",
        f"{place}/late/0/detail": "d",
        f"{place}/late/0/output": {"a": 1},
        f"{place}/late/1/external_id": "x",
    }
    least = replace(bare, external_id=None, resolution=None)
    assert least.values() == {f"{place}/{name}": told[name] for name in ("target", "idempotency_key")}
    empty = replace(
        bare,
        **dict.fromkeys(told, ""),
        error={"message": "", "code": "c"},
        late=({"detail": "", "output": {}, "external_id": ""},),
    )
    assert empty.values() == {
        **{f"{place}/{name}": "" for name in (*told, "error", "late/0/detail", "late/0/external_id")},
        f"{place}/late/0/output": {},
    }, "what is empty is a value"


@pytest.mark.req("Q-4", "U-7")
def test_every_value_of_a_receipt_is_committed_to_and_none_is_shown(workshop: Any) -> None:
    """Also what late answers said, each under its number; an empty text is a value, and only nothing is none."""
    late = (
        {"attempt": 1, "known": "failed", "detail": "secret-1", "external_id": "secret-2", "output": {"secret": 3}},
        {"attempt": 2, "known": "unanswered", "sent": False, "epoch": 0},
        {"attempt": 2, "known": "succeeded", "detail": "", "external_id": None, "output": 0},
    )
    receipt = replace(
        workshop.receipt("r1"), late=late, external_id="", resolution="", error={"message": ""}, target="",
        settled_at=None, attempt=2, lease_epoch=7,
        reverse={"operation": "x.y.undo", "input": {"b": "secret-4", "a": None, "c/d": 0}},
    )  # fmt: skip
    key = workshop.run_key
    evidence = receipt.to_evidence(key)
    assert "secret" not in json.dumps(evidence)
    assert receipt.values() == {
        "/receipt/r1/late/0/detail": "secret-1", "/receipt/r1/late/0/external_id": "secret-2",
        "/receipt/r1/late/0/output": {"secret": 3}, "/receipt/r1/late/2/detail": "", "/receipt/r1/late/2/output": 0,
        "/receipt/r1/error": "", "/receipt/r1/external_id": "", "/receipt/r1/idempotency_key": "s1:r1",
        "/receipt/r1/resolution": "", "/receipt/r1/target": "",
    }  # fmt: skip
    assert evidence["committed"] == [[path, commit(key, path, value)] for path, value in receipt.values().items()]
    assert evidence["late"] == [
        {"attempt": 1, "known": "failed"},
        {"attempt": 2, "known": "unanswered", "sent": False, "epoch": 0},
        {"attempt": 2, "known": "succeeded"},
    ]
    assert (evidence["settled_at"], evidence["attempt"], evidence["lease_epoch"]) == (None, 2, 7)
    undone = {"a": None, "b": "secret-4", "c~1d": 0}
    paths = {f"/receipt/r1/reverse/{name}": value for name, value in undone.items()}
    assert evidence["reverse"] == {
        "operation": "x.y.undo", "fields": ["a", "b", "c/d"],
        "committed": [[path, commit(key, path, value)] for path, value in paths.items()],
    }  # fmt: skip
    bare = replace(receipt, late=(), reverse=None, external_id=None, resolution=None, error=None)
    assert [*bare.values()] == ["/receipt/r1/idempotency_key", "/receipt/r1/target"]
    shown = bare.to_evidence(key)
    assert ("late" in shown, shown["reverse"]) == (False, None)
