"""A run with two of everything: what the verifier counts, and which second thing may not differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.canonical import digest
from evidence import layout
from evidence.bundle import ApprovalRecord, BundleContent, VoteRecord, assemble
from evidence.chain import Actor, EventType, timestamp
from evidence.commitments import blind, commit, disclosure, path_of, reason_path
from evidence.history import ATTEMPTED
from evidence.receipts import ReceiptStatus
from evidence.verify import verify_unsigned
from tests.evidence.test_every_member import verified
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-21", "U-7")

EXPECTED = Path(__file__).with_name("every_row_again.json")
VALUES: list[Any] = [["/attempt/note", None], ["/attempt/priority", "1"]]


def listed(workshop: Any, values: dict[str, Any]) -> list[Any]:
    return [[path, commit(workshop.run_key, path, value)] for path, value in values.items()]


def doubled(workshop: Any) -> BundleContent:
    """A run with two votes, of which one has a reason; a gate; an action in doubt and one under way; a null value."""
    story, key = workshop.tell(), workshop.run_key
    closed = story.events.pop()
    asked = path_of("approval", "a2", "asked")
    card = commit(key, path_of("approval", "a2", "card"), "Go on?")
    pairs = [[asked, commit(key, asked, {"kind": "gate"})]]
    story.add(EventType.APPROVAL_REQUESTED, {"approval": "a2", "action": None, "card": card, "committed": pairs})
    votes = []
    for voter, choice, reason in (("otto", "reject", "no"), ("maria", "approve", None), ("olga", "approve", "yes")):
        story.add(EventType.APPROVAL_VOTED, {"approval": "a2", "choice": choice}, Actor("person", voter))
        at, line = timestamp(story.events[-1].at), None
        if reason is not None:
            path = reason_path("a2", voter, at)
            data = {**story.events[-1].data, "committed": [[path, commit(key, path, reason)]]}
            story.events[-1] = replace(story.events[-1], data=data)
            line = disclosure(key, path, reason) if reason == "yes" else None  # the other reason is withheld
        votes.append(VoteRecord(voter, choice, "http", at, line))
    story.add(EventType.APPROVAL_DECIDED, {"approval": "a2", "outcome": "approved"})
    story.approvals.append(ApprovalRecord("a2", None, "approved", card, None, tuple(votes)))
    for number, kind in ((3, EventType.ACTION_IN_DOUBT), (4, None)):
        status = ReceiptStatus.IN_DOUBT if kind else ReceiptStatus.INTENDED
        receipt = replace(workshop.receipt(f"receipt-{number}"), status=status)
        story.decide(f"d{number + 1}", blind(key, receipt.action_digest), "allow")
        story.intend(receipt, f"d{number + 1}")
        if kind:
            story.settle(kind, receipt)
        story.receipts.append(receipt)
    story.add(EventType.RUN_CLOSED, closed.data, step=None)
    intent = next(
        n for n, one in enumerate(story.events) if one.data.get("receipt") == "receipt-1" and "attempt" in one.data
    )
    values = listed(workshop, dict(VALUES))
    began = story.events[intent]
    story.events[intent] = replace(began, data={**began.data, "values": digest(values)})
    attempts: list[Any] = [
        {**{name: one.data.get(name) for name in ATTEMPTED}, "seq": seq, "step": one.step, "ts": timestamp(one.at)}
        for seq, one in enumerate(story.events)
        if one.type is EventType.ACTION_INTENDED
    ]
    attempts[0]["values"] = values
    shown = {"/run/output/a": 1, "/state/b": None, "/receipt/receipt-1/reverse/priority": "3", **dict(VALUES)}
    story.disclosures += [disclosure(key, path, value) for path, value in shown.items()]
    content: BundleContent = story.content()
    run = replace(
        content.run, attempts=attempts, outputs=listed(workshop, {"/run/output/a": 1}),
        state=listed(workshop, {"/state/a": 0, "/state/b": None}),
    )  # fmt: skip
    return replace(content, run=run)


def changed(value: Any, *path: Any, to: Any) -> Any:
    """A copy of the value in which the part at this path is another."""
    if not path:
        return to(value) if callable(to) else to
    other = value.copy()
    other[path[0]] = changed(value[path[0]], *path[1:], to=to)
    return other


APPROVAL, RUN = "approvals/a2.json", layout.RUN_FILE
CHANGES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "votes in another order": (APPROVAL, ("votes",), lambda votes: votes[::-1]),
    "the last votes in another order": (APPROVAL, ("votes",), lambda votes: [votes[0], votes[2], votes[1]]),
    "a vote twice": (APPROVAL, ("votes",), lambda votes: [*votes, votes[-1]]),
    "a vote more": (APPROVAL, ("votes",), lambda votes: [*votes, {"voter": "eve", "choice": "approve"}]),
    "the first vote gone": (APPROVAL, ("votes",), lambda votes: votes[1:]),
    "a vote that is none": (APPROVAL, ("votes",), lambda votes: [*votes[:2], "olga"]),
    "another reason of the last": (APPROVAL, ("votes", 2, "reason"), "no"),
    "no disclosure of the last reason": (APPROVAL, ("votes", 2, "reason_disclosure"), None),
    "the reason of another": (APPROVAL, ("votes", 1), lambda vote: {**vote, "reason": "yes"}),
    "what is more of a vote": (APPROVAL, ("votes", 1), lambda vote: {**vote, "note": "x"}),
    "no action of the gate": (APPROVAL, (), lambda one: {name: each for name, each in one.items() if name != "action"}),
    "an empty action of the gate": (APPROVAL, ("action",), ""),
    "a fact more of an attempt": (RUN, ("attempts", 1), lambda one: {**one, "note": None}),
    "a fact less of an attempt": (
        RUN,
        ("attempts", 0),
        lambda one: {n: each for n, each in one.items() if n != "approval"},
    ),
    "an attempt twice": (RUN, ("attempts",), lambda each: [*each, each[-1]]),
    "attempts in another order": (RUN, ("attempts",), lambda each: [each[0], each[2], each[1], *each[3:]]),
    "no values of an attempt": (RUN, ("attempts", 0, "values"), None),
    "empty values of an attempt": (RUN, ("attempts", 0, "values"), []),
    "values in another order": (RUN, ("attempts", 0, "values"), lambda values: values[::-1]),
    "values of an attempt that has none": (RUN, ("attempts", 1), lambda one: {**one, "values": []}),
    "no outputs": (RUN, ("outputs",), []),
    "no state": (RUN, ("state",), []),
    "the first of the state": (RUN, ("state",), lambda pairs: pairs[:1]),
    "no reversal": ("receipts/receipt-1.json", ("reverse",), None),
    "another reversal": ("receipts/receipt-4.json", ("reverse", "fields"), []),
    "a reversal of another type": ("receipts/receipt-4.json", ("reverse",), ["x"]),
    "appends that are none": (layout.RUN_HEAD, ("appends",), 5),
    "appends in a text": (layout.RUN_HEAD, ("appends",), "132"),
    "another status of what is under way": ("receipts/receipt-4.json", ("status",), "in_doubt"),
    "another text of what is in doubt": ("receipts/receipt-3.json", ("settled_at",), None),
    "another text of what is under way": ("receipts/receipt-4.json", ("intended_at",), None),
}


def test_two_of_everything_are_counted_and_bound_as_they_were(workshop: Any) -> None:
    one = assemble(doubled(workshop), workshop.signer.public_key)
    files, statement = dict(one.files), json.loads(one.statement)
    whole = verify_unsigned(files, one.statement)
    found: dict[str, Any] = {"whole": {row.check: f"{row.status}: {row.detail}" for row in whole.rows}}
    for name, (file, path, to) in CHANGES.items():
        other = changed(json.loads(files[file]), *path, to=to)
        found[name] = verified({**files, file: json.dumps(other).encode()}, statement)
    lines = files[layout.DISCLOSURES]
    for name, data in {
        "lines of another system": lines.replace(b"\n", b"\r\n"),
        "a form feed": lines.replace(b"\n", b"\x0c", 1),
        "a null that nobody committed to": lines + disclosure(workshop.run_key, "/stray", None).encode() + b"\n",
        "in another order": b"".join(sorted(lines.splitlines(keepends=True), reverse=True)),
        "none": b"",
    }.items():
        found[f"disclosures: {name}"] = verified({**files, layout.DISCLOSURES: data}, statement)
    more = {f"receipts/more-{number}.json": b"{}" for number in (2, 1)}
    found["two files too many"] = verified({**files, **more}, statement)
    left = {name: data for name, data in files.items() if name not in (APPROVAL, "approvals/a1.json")}
    found["two files too few"] = verified(left, statement)
    as_it_was(EXPECTED, found)


@pytest.mark.parametrize("closed_at", [None, "2026-11-21T10:31:00.000000Z"])
def test_a_run_that_has_not_closed_has_no_time_at_which_it_did(workshop: Any, closed_at: str | None) -> None:
    story = workshop.tell()
    story.events.pop()
    story.status = "running"
    content = story.content()
    one = assemble(replace(content, run=replace(content.run, closed_at=closed_at)), workshop.signer.public_key)
    failed = {row.check: row.detail for row in verify_unsigned(one.files, one.statement).failed}
    assert failed.pop("completeness").startswith("the run had not closed")
    assert failed == ({} if closed_at is None else {"run": "run.json: its closed_at is not the one of the events"})
