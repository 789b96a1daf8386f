"""Every way out of a doubt, one by one: what is told, ordered and sent for each answer, rule and moment (P-10).

`every_doubt_*.json` beside this file have them in full; `COUNTERSEAL_WRITE_WHOLE=1` writes them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from approvals.model import ApprovalKind, Choice, Vote, VoteChannel
from connectors.port import Done, Probe, ProbeVerdict
from core.terms import GroupQuorum, Terms, Tier
from evidence.receipts import ReceiptStatus
from policy.sets import PolicySet
from runtime.engine import ask, doubt
from runtime.engine.commit import ApprovalMove, ReceiptRow
from runtime.engine.doubt import (
    GRACE,
    PROBES_MAX,
    SEND_WITHIN,
    inquired,
    is_for_people,
    look_later,
    put_off,
    resolve,
    rest,
)
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.instructions import Given, Inquire, Known, Perform, given_of
from runtime.engine.intend import Proposal
from runtime.engine.pausing import Pause
from runtime.engine.transition import Transition
from tests.engine.conftest import NOW
from tests.engine.governing import ASK, CASE, DEDUPES, DENY, EFFECT, MAIL, Governed, governed
from tests.engine.test_folds import ERROR, approval, step
from tests.runtime.conftest import ALLOW_ALL
from tests.support.whole import Named, as_it_was

pytestmark = pytest.mark.req("P-10")

TEXTS = {"probes": EFFECT, "dedupes": DEDUPES, "asks": MAIL, "goes on outside": CASE}
POLICIES = {"allow": ALLOW_ALL, "deny": DENY, "ask": ASK}
OTHER_TERMS = Terms(Tier.LOW, (GroupQuorum("others"),))
GIVEN = UUID(int=70)


@cache
def lost(text: str, policy: str = "allow") -> Governed:
    """A run whose worker died after it had sent its action."""
    run = governed(TEXTS[text], POLICIES[policy]).drive()
    if policy == "ask":
        run.answer("ana", "ben").drive(dies=True)
    else:
        run = governed(TEXTS[text], POLICIES[policy]).drive(dies=True)
    return run.dead()


@cache
def ruled_by(policy: str) -> PolicySet:
    return governed(EFFECT, POLICIES[policy]).policy


@cache
def terms() -> Terms:
    """The terms on which the policy that asks asks."""
    (question,) = governed(EFFECT, ASK).drive().book_of_questions()
    return Terms.from_json(question.terms or {})


def given(kind: str, digest: str) -> Given | None:
    """The answer that people have given about this action."""
    choices = {"happened": Choice.HAPPENED, "again": Choice.AGAIN, "of another": Choice.HAPPENED}
    if kind == "none":
        return None
    bound = "0" * 64 if kind.endswith("another") else digest
    if kind in choices:
        return Given(GIVEN, ApprovalKind.IN_DOUBT, bound, choices[kind], "because", OTHER_TERMS, (), (), False, NOW)
    asked = OTHER_TERMS if kind == "approved otherwise" else terms()
    return Given(GIVEN, ApprovalKind.ACTION, bound, Choice.APPROVE, "because", asked, (), (), False, NOW)


def proposal(text: str, moment: str, policy: str, answer: str) -> Proposal:
    """The next worker comes to the action, at a moment at which this is so."""
    run = lost(text, "ask" if moment == "approved before" else "allow")
    view = run.view()
    row = view.run.steps["a"]
    (receipt,) = view.run.receipts.values()
    changed = view.run.copy()
    if "canceling" in moment:
        changed.canceling = {"by": "ann", "reason": "enough"}
    if moment == "used up":
        row = replace(row, attempt=3)
    if moment == "open":
        row = replace(row, last_error={**ERROR, "open": True, "looks": 4, "setbacks": 1, "leases": 2, "other": 3})
    if "elsewhere" in moment:
        receipt = replace(receipt, action={**receipt.action, "system": "one"})
        changed.receipts[receipt.receipt_id] = receipt
    paused = {"tenant": Pause.of("tenant", {"by": "ana", "reason": "calm", "at": NOW.isoformat()})}
    changed.steps["a"] = row
    if (asked := given(answer, receipt.action_digest)) is not None:
        changed.approvals[GIVEN] = approval(str(asked.kind), "a", GIVEN)
        changed.answers[GIVEN] = ApprovalMove(GIVEN, "approved", asked.choice, "because", at=NOW)
    view = replace(view, run=changed, paused=paused if moment == "paused" else {},
                   now=receipt.intended_at + timedelta(seconds=9) if moment == "early" else view.now)  # fmt: skip
    transition = Transition(view, run.workflow.graph)
    transition.systems = {"probe": "two"}
    row = transition.started(replace(row, lease_owner="w", lease_epoch=row.lease_epoch + 1))
    ruled = ruled_by(policy)
    known = Known(receipt, asked)
    operation = run.workflow.operations[row.operation]
    leaf: Any = run.workflow.graph.leaf("a")
    numbers = iter(range(1, 9))
    return Proposal(
        transition, row, leaf, operation, run.workflow, ruled, known, lambda: f"n{next(numbers)}"
    )  # fmt: skip


def receipt_of(p: Proposal) -> ReceiptRow:
    assert p.known.receipt is not None
    return p.known.receipt


SHOWN = ("outcome", "resolution", "why", "how", "kind", "code", "detail", "output", "attempt", "seconds", "approval",
         "authority", "directory", "due", "context", "wait", "result", "terms")  # fmt: skip


def shown(event: Any) -> list[Any]:
    told = to_builtins(event)
    said = {name: told[name] for name in SHOWN if told.get(name) not in (None, "", {}, [])}
    if event.TYPE == "approval.requested":
        said["terms"] = [group["group"] for group in told["terms"]["approvers"]] + [told["terms"]["expires_seconds"]]
        said["evidence"], said["proposed"] = told["shown"]["evidence"], sorted(told["proposed"] or {})
    return [str(event.TYPE), said]


def outcome(p: Proposal, work: Any) -> list[Any]:
    """Everything that has come of it: what is told and ordered, and what is done next."""
    found: list[Any] = [shown(told.event) for told in p.transition._told[1:]]
    found += [["order", row.kind, row.payload] for row in p.transition.rows.commands]
    after: list[Any] = [type(work).__name__]
    if isinstance(work, Inquire):
        after += [work.seconds_since_intent, to_builtins(work.call)["idempotency_key"], work.receipt.status]
    if isinstance(work, Perform) and work.receipt is not None:
        after += [work.receipt.attempt, work.receipt.status, to_builtins(work.call)["input"]]
    return [*found, after]


PEOPLE_SAID = ("none", "happened", "again", "of another", "approved", "approved of another", "approved otherwise")
MOMENTS = (
    "plain",
    "canceling",
    "elsewhere",
    "canceling elsewhere",
    "paused",
    "early",
    "open",
    "used up",
    "approved before",
)
VERDICTS = {
    "there": Probe(ProbeVerdict.APPLIED, "Seen.", Done({"x": 1}, "e1")),
    "there without a result": Probe(ProbeVerdict.APPLIED, "Seen."),
    "absent": Probe(ProbeVerdict.NOT_APPLIED, "None."),
    "unknown": Probe(ProbeVerdict.CANNOT_TELL, "Who knows."),
    "unknown at once": Probe(ProbeVerdict.CANNOT_TELL, "Busy.", retry_after_seconds=0),
    "unknown yet": Probe(ProbeVerdict.CANNOT_TELL, "Busy.", retry_after_seconds=9.5),
}


def resolved() -> Iterator[tuple[str, Any]]:
    """Every answer at every moment; by other policies where something may be sent again."""
    for text, moment, said in product(("probes", "dedupes", "asks"), (*MOMENTS, "approved before"), PEOPLE_SAID):
        for policy in POLICIES if moment in ("plain", "open", "approved before") else ("allow",):
            p = proposal(text, moment, policy, said)
            yield f"{text}, {moment}, {said}, {policy}", outcome(p, resolve(p, receipt_of(p)))


def looked() -> Iterator[tuple[str, Any]]:
    """Every verdict of a target at every moment."""
    moments = ("plain", "canceling", "paused", "early", "used up", "open", "approved before")
    for text, moment, verdict in product(("probes", "goes on outside"), moments, VERDICTS):
        for said, policy in (("none", "allow"), ("approved", "allow"), ("none", "deny"), ("approved", "ask")):
            if policy != "allow" and verdict != "absent":
                continue
            if moment == "approved before" and text != "probes":
                continue
            p = proposal(text, moment, policy, said)
            receipt = doubt.mark(p.transition, receipt_of(p), "gone")
            yield f"{text}, {moment}, {verdict}, {said}, {policy}", outcome(p, inquired(p, receipt, VERDICTS[verdict]))


@pytest.mark.parametrize("scenes", [resolved, looked])
def test_each_way_out_of_a_doubt_is_what_it_was(scenes: Any) -> None:
    found: dict[str, Any] = {}
    for name, came in scenes():
        key = Named()(to_builtins(came))
        found.setdefault(name.split(", ")[0], {})[name.partition(", ")[2]] = key
    as_it_was(Path(__file__).with_name(f"every_doubt_{scenes.__name__}.json"), _grouped(found))


def test_a_question_about_a_doubt_says_too_that_people_have_rejected_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "rejected_before", lambda *_: "It was rejected before.")
    p = proposal("asks", "plain", "ask", "again")
    resolve(p, receipt_of(p))
    (asked,) = [shown(told.event)[1] for told in p.transition._told if told.event.TYPE == "approval.requested"]
    sent = "It was sent before, and is in doubt. a person said to do it again: because"
    assert asked["evidence"] == f"{sent} It was rejected before."


def _grouped(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Scenes that come to the same under one head, so that a person can read them."""
    told: dict[str, Any] = {}
    for rule, scenes in found.items():
        alike: dict[str, list[str]] = {}
        came: dict[str, Any] = {}
        for scene, what in scenes.items():
            alike.setdefault(repr(what), []).append(scene)
            came[repr(what)] = what
        told[rule] = [{"scenes": alike[one], "told": came[one]} for one in alike]
    return told


# -- its limits --------------------------------------------------------------------------------------------------------

TICK = timedelta(microseconds=1)


class Later:
    """A transition that notes what is tried again later, at a moment so long after the intent."""

    def __init__(self, elapsed: timedelta) -> None:
        self.view = SimpleNamespace(now=NOW + elapsed)
        self.noted: list[Any] = []

    def retry_later(self, row: Any, delay: timedelta, error: Any, *, attempted: bool) -> None:
        self.noted.append((row.key, delay, error, attempted))


def operation(text: str = "probes") -> Any:
    return lost(text).workflow.operations[lost(text).view().run.steps["a"].operation]


@pytest.mark.parametrize("left", [timedelta(hours=1), TICK, timedelta(0), -TICK])
def test_an_action_is_put_off_exactly_as_long_as_its_call_may_still_arrive(left: timedelta) -> None:
    of, known = operation(), SimpleNamespace(intended_at=NOW)
    later: Any = Later(SEND_WITHIN + of.timeouts.perform + GRACE - left)
    row = step(last_error={**ERROR, "looks": 4, "setbacks": 1, "leases": 2, "other": 3})
    receipt: Any = known
    assert rest(later, of, receipt) == left
    assert put_off(later, row, of, receipt, "Why.") is (left > timedelta(0))
    counts = {"looks": 4, "setbacks": 1, "leases": 2}
    error = {**counts, "class": "timeout", "code": "in_doubt", "message": "Why.", "open": True}
    assert later.noted == ([("a", left, error, False)] if left > timedelta(0) else [])
    assert (timedelta(seconds=5),) * 3 == (SEND_WITHIN, GRACE, doubt.PROBE_AFTER)


@pytest.mark.parametrize(
    ("looks", "again"), [(None, 1), ("x", 1), (0, 1), (PROBES_MAX - 1, PROBES_MAX), (PROBES_MAX, 0)]
)
@pytest.mark.parametrize("attempted", [True, False])
def test_a_doubt_is_looked_into_so_often(looks: Any, again: int, attempted: bool) -> None:
    later: Any = Later(timedelta(0))
    row = step(last_error=None if looks is None else {**ERROR, "looks": looks, "setbacks": 2, "open": True})
    error = StepError(ErrorClass.TIMEOUT, "in_doubt", "Busy.")
    assert look_later(later, row, error, timedelta(seconds=9), attempted=attempted) is bool(again)
    counts = {} if looks is None else {"setbacks": 2}
    told = {**counts, "class": "timeout", "code": "in_doubt", "message": "Busy.", "looks": again}
    assert later.noted == ([("a", timedelta(seconds=9), told, attempted)] if again else [])


def test_only_what_was_put_off_is_for_people() -> None:
    errors: list[Any] = [None, {}, {"open": False}, {"open": "yes"}, {"looks": 3}, {"open": True}]
    assert [is_for_people(step(last_error=error)) for error in errors] == [False] * 5 + [True]


def test_a_receipt_is_marked_in_doubt_once() -> None:
    p = proposal("probes", "plain", "allow", "none")
    first = doubt.mark(p.transition, receipt_of(p), "gone")
    assert (first.status, first.resolution) == (ReceiptStatus.IN_DOUBT, "gone")
    assert doubt.mark(p.transition, first, "again") is first
    assert [told.event.TYPE for told in p.transition._told] == ["step.started", "action.in_doubt"]


@pytest.mark.parametrize(
    ("approved", "stored", "asked", "covers"),
    [
        (True, "same", "same", True),
        (True, "same", "other", False),
        (True, "same", None, False),
        (True, None, "same", False),
        (True, None, None, False),
        (False, "same", "same", False),
    ],
)
def test_an_approval_covers_a_repeat_on_its_own_terms_while_its_votes_stand(
    approved: bool, stored: str | None, asked: str | None, covers: bool
) -> None:
    run = lost("probes", "ask")
    transition = Transition(run.view(), run.workflow.graph)
    (receipt,) = transition.run.receipts.values()
    known = given_of(transition.run, UUID(str(receipt.action["approval"])))
    assert known is not None
    assert [(vote.voter, vote.channel) for vote in known.votes] == [("ana", VoteChannel.CLI), ("ben", VoteChannel.CLI)]
    assert isinstance(known.votes[0], Vote)
    if not approved:
        transition.run.votes = transition.run.votes[:1]
    receipt = replace(receipt, action={**receipt.action, "terms": None if stored is None else known.terms.to_json()})
    now = {"same": known.terms, "other": OTHER_TERMS, None: None}[asked]
    assert doubt._covers(transition, receipt, now) is covers
