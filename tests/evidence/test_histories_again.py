"""Histories in which values are missing, zero or of another type, and in which something is told twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from core.errors import InputError
from evidence.commitments import commit, disclosure, path_of, reason_path
from evidence.crosscheck import _opened
from evidence.events import EventType as E
from evidence.history import History
from tests.evidence import test_every_fault
from tests.evidence.test_every_fault import INTENT, LATE, asked, history
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("U-4")

EXPECTED = Path(__file__).with_name("every_history_again.json")
P = {"name": "p", "version": 1, "digest": "of p"}
DECIDED: dict[str, Any] = {**test_every_fault.DECIDED, "policies": [P]}
ASKS = (E.DECISION_MADE, {**DECIDED, "outcome": "needs_approval"})
GO = (E.ACTION_INTENDED, INTENT)
BEGUN = [(E.DECISION_MADE, DECIDED), GO]
DONE = (E.ACTION_SUCCEEDED, {"receipt": "r1", "receipt_digest": "of the end"})
FAILED = (E.ACTION_FAILED, {"receipt": "r1", "receipt_digest": "of the failure"})
DOUBT = (E.ACTION_IN_DOUBT, {"receipt": "r1", "receipt_digest": "of the doubt"})
AGAIN = (E.ACTION_INTENDED, {**INTENT, "attempt": 2})
CLOSED = (E.RUN_CLOSED, {"status": "succeeded"})


def decided(**more: Any) -> tuple[E, dict[str, Any]]:
    return E.DECISION_MADE, {**DECIDED, **more}


def voted(**more: Any) -> tuple[E, dict[str, Any]]:
    return E.APPROVAL_VOTED, {"approval": "a1", "choice": "approve", **more}


def ended(kind: E, **more: Any) -> tuple[E, dict[str, Any]]:
    return kind, {"approval": "a1", **more}


def reason(seq: int, approval: str = "a1") -> list[str]:
    return [reason_path(approval, "ana", f"t{seq}"), f"reason of {seq}"]


HISTORIES: dict[str, list[Any]] = {
    # The digest is that of the last event alone: an event without one leaves the receipt unbound.
    "done, and late without a digest": [*BEGUN, DONE, (E.ACTION_LATE, LATE)],
    "in doubt, and held without a digest": [*BEGUN, DOUBT, (E.ACTION_HELD, {"receipt": "r1"})],
    "failed, and again": [*BEGUN, FAILED, AGAIN],
    "failed, again, and late of the first": [*BEGUN, FAILED, AGAIN, (E.ACTION_LATE, LATE)],
    "done at the second, and late of the first": [*BEGUN, FAILED, AGAIN, DONE, (E.ACTION_LATE, LATE)],
    "done at the first, and late of a second": [*BEGUN, DONE, (E.ACTION_LATE, {**LATE, "attempt": 2})],
    "late before the end, behind it, and behind the next": [
        *BEGUN, FAILED, (E.ACTION_LATE, LATE), CLOSED, (E.ACTION_LATE, LATE), (E.RUN_REOPENED, {}),
        (E.RUN_CLOSED, {"status": "canceled"}), (E.ACTION_LATE, LATE),
    ],
    "closed, reopened and open": [CLOSED, (E.RUN_REOPENED, {})],
    "late with nothing and zero": [*BEGUN, FAILED, (E.ACTION_LATE, {**LATE, "sent": False, "epoch": 0, "note": None})],
    "opened with nothing": [
        (E.RUN_OPENED, {"workflow": None, "trigger": "", "workspace": None, "committed": [["/triggers/x", "1"]]}),
    ],
    "opened with many": [
        (E.RUN_OPENED, {"workflow": P, "trigger": "api", "workspace": "main", "committed": [
            ["/trigger/b", "2"], ["/trigger/a"], ["/trigger/a", "1", "more"], ["x/trigger/", "3"], [None, "4"],
        ]}),
    ],
    "canceled without a reason, and with one": [
        (E.RUN_CANCELED, {}), (E.RUN_CANCELED, {"committed": [["/cancel/reason", "c1"]]}),
    ],
    "canceled with what is no reason": [
        (E.RUN_CANCELED, {"committed": [
            ["/cancel/reasons", "1"], ["/cancel/reason", 2], ["/cancel/reason", "3", "more"], ("/cancel/reason", "4"),
        ]}),
    ],
    "canceled with the first of two reasons": [
        (E.RUN_CANCELED, {"committed": [["/cancel/reason", "1"], ["/cancel/reason", "2"]]}),
    ],
    # What has no id is followed no further.
    "no id of a receipt": [*BEGUN, (E.ACTION_SUCCEEDED, {"receipt": None}), (E.ACTION_SUCCEEDED, {"receipt": 1})],
    "no id of a decision": [decided(decision=None), decided(decision=True)],
    "no id of an approval": [(E.APPROVAL_REQUESTED, {"approval": 1, "action": "A", "card": "c"})],
    "no id at all": [(E.ACTION_INTENDED, {**INTENT, "receipt": 1, "approval": 1, "decision": 1})],
    "no approval": [
        (E.APPROVAL_REQUESTED, {"approval": None, "action": "A", "card": "c"}), voted(approval=None),
        (E.APPROVAL_DECIDED, {"approval": None, "outcome": "approved"}), (E.APPROVAL_EXPIRED, {"approval": None}),
    ],
    "decided twice by one id": [decided(outcome="deny"), decided(), GO],
    "decided for another, and then for this": [decided(action="B"), decided(decision="d2"), GO],
    "by the second of two decisions": [
        decided(outcome="deny"), decided(decision="d2"), (E.ACTION_INTENDED, {**INTENT, "decision": "d2"}),
    ],
    "policies": [
        decided(policies=[P, {**P, "name": "q", "digest": "1"}]),
        decided(decision="d2", policies=[{**P, "version": 2}, {**P, "digest": "2"}]),
    ],
    "policies without a digest": [
        decided(decision=f"d{number}", policies=policies)
        for number, policies in enumerate(([P, {"name": "q"}], [P, {**P, "digest": 1}], [P, "q"], {"p": P}, None, ""))
    ],
    "by no policy": [
        decided(decision=outcome, policies=[], outcome=outcome) for outcome in ("allow", "needs_approval", "deny", "")
    ],
    "asked twice, the second time of another": [
        ASKS, *asked("A", ()), (E.APPROVAL_REQUESTED, {"approval": "a1", "action": "B", "card": None}), voted(), GO,
    ],
    "asked with what it asks": [
        (E.APPROVAL_REQUESTED, {"approval": "a1", "action": "A", "card": None, "committed": [
            ["/approval/a2/asked", "1"], ["/approval/a1/card", "2"], ["/approval/a1/asked", "3"],
        ]}),
    ],
    "votes and their channels": [
        *asked("A", (), ""), voted(channel="slack"), voted(channel=None), voted(channel=""), voted(choice="reject"),
    ],
    "votes and their reasons": [
        *asked("A", (), ""), voted(), voted(committed=[reason(2)]), voted(committed=[reason(2), reason(3)]), voted(),
        voted(committed=[reason(5, "a2"), reason(4)]),
    ],
    "decided twice": [*asked(), ended(E.APPROVAL_DECIDED, outcome="approved")],
    "decided again": [*asked(), ended(E.APPROVAL_DECIDED, outcome="rejected")],
    "decided after its end": [
        *asked(outcome=""), ended(E.APPROVAL_EXPIRED), ended(E.APPROVAL_DECIDED, outcome="approved"),
    ],
    "decided after it was superseded": [
        *asked(outcome=""), ended(E.APPROVAL_SUPERSEDED), ended(E.APPROVAL_DECIDED, outcome="canceled"),
    ],
    "ended after it was decided": [*asked(), ended(E.APPROVAL_EXPIRED), ended(E.APPROVAL_SUPERSEDED)],
    "voted for and against": [ASKS, *asked(choices=("reject", "approve", "reject")), GO],
    "voted for, and then against twice": [ASKS, *asked(choices=("approve", "reject", "reject")), GO],
    "an outcome that nobody knows": [decided(outcome="perhaps"), *asked(), GO],
    "no outcome": [decided(outcome=""), *asked(), GO],
    "denied by a policy of its own": [
        decided(outcome="deny", policies=[{**P, "digest": "of the denial"}]), decided(decision="d2"),
    ],
    "canceled approval": [ASKS, *asked(outcome="canceled"), GO],
    "one action again by its own approval": [ASKS, *asked(), GO, FAILED, AGAIN, DONE],
    "intended for another": [
        *BEGUN, FAILED, decided(decision="d2", action="B"),
        (E.ACTION_INTENDED, {**INTENT, "decision": "d2", "action": "B", "attempt": 2, "values": "v"}),
    ],
    "intended by another operation": [
        *BEGUN, FAILED, decided(decision="d2", operation="other"),
        (E.ACTION_INTENDED, {**INTENT, "decision": "d2", "operation": "other", "attempt": 2}),
    ],
    **{f"failed, and then {kind}": [*BEGUN, FAILED, (kind, {"receipt": "r1"})]
       for kind in (E.ACTION_SUCCEEDED, E.ACTION_FAILED, E.ACTION_IN_DOUBT, E.ACTION_HELD)},
    "committed to in no list": [
        (kind, {"committed": committed}) for kind in (E.RUN_CANCELED,) for committed in (5, True, {"a": 1}, None, "x")
    ],
    "intended though nobody let it": [GO, FAILED, AGAIN],
}  # fmt: skip


def test_histories_with_nothing_zero_and_twice_add_up_as_they_did() -> None:
    found: dict[str, Any] = {}
    for name, told in HISTORIES.items():
        one = History()
        for event in history(*told):
            one.observe(event)
        whole = {key: value for key, value in to_builtins(one).items() if value}
        found[name] = {**whole, "late": one.late_answers()}
    as_it_was(EXPECTED, found)


KEY = b"k" * 32


@pytest.mark.parametrize("value", [1, True, 0, False, None, "", "1", [], {}, [1], {"a": 1}, {"a": True}])
def test_a_value_that_is_shown_is_the_very_one_that_is_disclosed(value: Any) -> None:
    path = path_of("approval", "a1", "card")
    line, own = disclosure(KEY, path, value), commit(KEY, path, value)
    assert _opened("f", {"card": value, "card_disclosure": line}, "card", own) is False
    others: list[Any] = [1, True, 0, False, None, "", "1", [], {}, [1], [True], {"a": 1}, {"a": True}, {"a": 1, "b": 2}]
    for other in others:
        if repr(other) != repr(value):
            with pytest.raises(InputError, match="its card is not the one that it discloses"):
                _opened("f", {"card": other, "card_disclosure": line}, "card", own)
    for commitment in (None, "", own[::-1]):
        with pytest.raises(InputError, match="its card is not the one that was committed to"):
            _opened("f", {"card": value, "card_disclosure": line}, "card", commitment)
    assert _opened("f", {"asked": value, "asked_disclosure": line}, "card", own) is True
