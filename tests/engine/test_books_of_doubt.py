"""Lines of a book about a doubt, for each way in which it can end (P-10, promises 1 and 2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson
import pytest

from connectors.port import Done, InDoubt, Parked, Probe, ProbeVerdict, Refused
from evidence.chain import Actor
from runtime.engine import waits
from runtime.engine.doubt import PROBES_MAX
from runtime.engine.instructions import known_of
from runtime.engine.replaying import Replay, replay, unopened
from runtime.engine.told import read_line
from runtime.engine.transition import writes_of
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import ASK, CASE, DEDUPES, DENY, EFFECT, MAIL, WRITE, Governed, governed
from tests.runtime.conftest import ALLOW_ALL

pytestmark = pytest.mark.req("P-10")
GONE = ["step.started", "decision.made allow", "action.intended", "lease.expired", "step.started", "action.in_doubt"]
BEGUN_OUTSIDE = [
    *("step.started", "decision.made allow", "wait.opened external", "action.intended", "lease.expired"),
    *("step.started", "wait.canceled external", "action.in_doubt"),
]
OVER = ["checkpoint.committed", "run.closed succeeded"]
FAILED = ["checkpoint.committed", "run.closed failed_terminal"]
ENDED = ["checkpoint.committed", "run.closed canceled"]
AGAIN = ["decision.made allow", "action.doubt_resolved not_applied", "action.intended"]
ASKED = ["approval.requested", "step.parked approval", "checkpoint.committed"]
TWICE = ["approval.voted approve", "approval.voted approve", "approval.decided approved"]
RESUMED = ["step.resumed", "checkpoint.committed", "step.started"]
YES = Probe(ProbeVerdict.APPLIED, "seen", Done({"x": 1}))
NO = Probe(ProbeVerdict.NOT_APPLIED, "none")


def told(run: Governed) -> list[str]:
    """The lines after the run was opened, each by its type and what it says first."""
    found = []
    for line in map(orjson.loads, run.lines[2:]):
        data = line["data"]
        kind = next((data[name] for name in ("outcome", "resolution", "status", "choice") if name in data), "")
        kind = kind or (data.get("kind", "") if not line["type"].startswith("approval") else "")
        found.append(f"{line['type']} {kind}".strip())
    return found


def checked(run: Governed) -> Governed:
    """Its book gives the same checkpoints once more."""
    graph = run.workflow.graph
    book = [read_line(line, run.values.get(seq, {}), KEY, seq) for seq, line in enumerate(run.lines)]
    derived = replay(Replay(unopened(RUN_ID, KEY, graph), book, [graph], run.view().constants, writes_of))
    assert {one.number: one.digest for one in derived} == {n: digest for n, (_, digest) in run.checkpoints.items()}
    assert run.verified()
    return run


def canceled(run: Governed) -> Governed:
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    return run


def lost(text: str, *said: Any, policy: str = ALLOW_ALL, then: str = "", cancels: bool = False) -> Governed:
    """The worker of an action dies after it was sent; ``then`` is the policy from now on. The next one finds out."""
    run = governed(text, policy).drive(dies=True)
    run = (canceled(run) if cancels else run).dead()
    run = run.rule_by(then) if then else run
    run.said = [*said]
    return checked(run.drive())


def receipt(run: Governed) -> tuple[str, int, str]:
    (row,) = run.whole().run.receipts.values()
    return str(row.status), row.attempt, str(row.resolution or "")


def code(run: Governed) -> str:
    return str((run.rows["a"].last_error or {}).get("code", ""))


def test_a_target_that_has_it_is_believed() -> None:
    run = lost(EFFECT, YES)
    assert told(run) == [*GONE, "action.doubt_resolved applied", "step.succeeded", *OVER]
    assert (receipt(run), run.rows["a"].output, len(run.sent)) == (
        ("succeeded", 1, "probe: applied. seen"),
        {"x": 1},
        1,
    )


def test_what_had_begun_outside_is_waited_for() -> None:
    run = lost(CASE, YES)
    assert told(run) == [
        *BEGUN_OUTSIDE,
        "action.doubt_resolved applied",
        "step.parked external",
        "checkpoint.committed",
    ]
    result = {"output": {"ok": 1}}
    run.over("a", lambda t, s, wait: waits.complete(t, s, wait, result, Actor("token", "t"))).drive()
    assert (checked(run).status, run.rows["a"].output, len(run.sent)) == ("succeeded", {"ok": 1}, 1)


def test_what_had_not_begun_outside_begins_now() -> None:
    run = lost(CASE, NO, Parked("case-1"))
    ends = ["wait.opened external", "action.succeeded", "step.parked external", "checkpoint.committed"]
    assert told(run) == [*BEGUN_OUTSIDE, *AGAIN, *ends]
    assert (receipt(run)[:2], run.sent) == (("succeeded", 2), ["probe.case.open"] * 2)


def test_what_is_certainly_absent_is_sent_so_often_as_its_declaration_says() -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    for _ in range(9):
        run.said = [NO, InDoubt("no answer")]
        if run.drive().finished:
            break
        run.due().later += timedelta(hours=1)
    later = ["step.retry_scheduled", "checkpoint.committed", *RESUMED]
    more = [*AGAIN, "action.in_doubt", *later]
    assert told(checked(run)) == [*GONE, *more * 3, "action.doubt_resolved failed", "step.failed", *FAILED]
    assert (code(run), len(run.sent)) == ("not_applied", 4)
    assert receipt(run) == ("failed", 4, "probe: not applied. none (3 attempts were made)")


def test_a_target_that_cannot_tell_is_asked_so_often_before_people_are() -> None:
    run = governed(EFFECT).drive(dies=True).dead()
    looks = 0
    while run.status != "waiting_approval":
        run.said = [Probe(ProbeVerdict.CANNOT_TELL, "busy", retry_after_seconds=9)]
        run.drive()
        if run.rows["a"].status == "failed_retryable":
            looks += 1
            assert (run.rows["a"].last_error or {})["looks"] == looks
            assert run.waits["a"].due_in == timedelta(seconds=9)
            run.due()
    assert (looks, run.rows["a"].attempt, len(run.sent)) == (PROBES_MAX, 0, 1)
    assert receipt(checked(run))[:2] == ("in_doubt", 1)


def test_a_target_that_cannot_tell_ever_is_not_asked_again() -> None:
    run = lost(EFFECT, Probe(ProbeVerdict.CANNOT_TELL, "gone"))
    assert told(run) == [*GONE, *ASKED]
    assert "gone" in str(run.book_of_questions()[-1].shown)


@pytest.mark.parametrize(
    ("text", "said", "ends", "status"),
    [
        (MAIL, [], ["step.canceled", *ENDED], "in_doubt"),
        (DEDUPES, [], ["step.canceled", *ENDED], "in_doubt"),
        (EFFECT, [YES], ["action.doubt_resolved applied", "step.succeeded", *ENDED], "succeeded"),
        (EFFECT, [NO], ["action.doubt_resolved failed", "step.canceled", *ENDED], "failed"),
    ],
)
def test_a_canceled_run_sends_nothing_more_and_its_evidence_says_what_is_known(
    text: str, said: list[Any], ends: list[str], status: str
) -> None:
    run = lost(text, *said, cancels=True)
    canceling = [*GONE[:3], "run.canceled", *GONE[3:]]
    assert (told(run), receipt(run)[0], len(run.sent)) == ([*canceling, *ends], status, 1)


@pytest.mark.parametrize(
    ("text", "said", "line", "status"),
    [(EFFECT, [NO], "action.doubt_resolved failed", "failed"), (DEDUPES, [], "action.held", "in_doubt")],
)
def test_what_policy_denies_by_now_is_not_sent_again(text: str, said: list[Any], line: str, status: str) -> None:
    run = lost(text, *said, then=DENY)
    assert told(run) == [*GONE, "decision.made deny", line, "step.failed", *FAILED]
    assert (code(run), receipt(run)[0], len(run.sent)) == ("policy_denied", status, 1)
    assert receipt(run)[2].endswith("; not sent again, because policy denies it now")


def test_what_policy_asks_about_by_now_is_asked_before_it_is_sent_again() -> None:
    run = lost(EFFECT, NO, then=ASK)
    asked = [*GONE, "decision.made needs_approval", "action.held", *ASKED]
    assert told(run) == asked
    held = "probe: not applied. none; policy asks for an approval before it is sent"
    assert receipt(run) == ("in_doubt", 1, held)
    assert "It was sent before, and is in doubt." in str(run.book_of_questions()[-1].shown)
    run.answer("ana", "ben").said = [NO, Done({"y": 1})]
    run.drive()
    sent = ["decision.made needs_approval", "action.doubt_resolved not_applied", "action.intended", "action.succeeded"]
    assert told(checked(run)) == [*asked, *TWICE, *RESUMED, *sent, "step.succeeded", *OVER]
    assert receipt(run)[:2] == ("succeeded", 2)


def test_what_was_approved_is_sent_again_by_the_same_approval() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben").drive(dies=True).dead()
    run.said = [NO, Done({})]
    run.drive()
    again = ["decision.made needs_approval", "action.doubt_resolved not_applied", "action.intended", "action.succeeded"]
    assert told(checked(run))[-8:] == ["step.started", "action.in_doubt", *again, "step.succeeded", *OVER][-8:]
    assert len(run.book_of_questions()) == 1, "nobody is asked again"


def test_other_terms_than_those_it_was_approved_by_are_asked_about() -> None:
    run = governed(WRITE, ASK).drive().answer("ana", "ben").drive(dies=True).dead()
    run.rule_by(ASK.replace("of: 2", "of: 1").replace("version: 1", "version: 2")).said = [NO]
    run.drive()
    assert (checked(run).status, len(run.sent), len(run.book_of_questions())) == ("waiting_approval", 1, 2)


@pytest.mark.parametrize(
    ("choice", "lines", "sent"),
    [
        ("happened", ["approval.consumed", "action.doubt_resolved applied", "step.succeeded", *OVER], 1),
        (
            "again",
            [
                "approval.consumed",
                "decision.made needs_approval",
                *AGAIN[1:],
                "action.succeeded",
                "step.succeeded",
                *OVER,
            ],
            2,
        ),
    ],
)
def test_people_settle_what_cannot_be_looked_into(choice: str, lines: list[str], sent: int) -> None:
    run = governed(MAIL, ASK).drive().answer("ana", "ben").drive(dies=True).dead().drive()
    before = len(told(run))
    assert told(run)[-5:] == ["step.started", "action.in_doubt", *ASKED]
    run.answer("ana", "ben", choice=choice).drive()
    assert (len(checked(run).sent), receipt(run)[0]) == (sent, "succeeded")
    votes = [f"approval.voted {choice}"] * 2
    assert told(run)[before:] == [*votes, f"approval.decided {choice}", *RESUMED, *lines]
    if choice == "happened":
        assert receipt(run)[2] == "a person said it happened: because"


def test_a_call_without_an_outcome_is_an_attempt_and_a_look_is_none() -> None:
    run = governed(EFFECT, said=(InDoubt("no answer"),)).drive()
    assert (run.rows["a"].attempt, (run.rows["a"].last_error or {}).get("looks")) == (1, 1)
    run.due().said = [Probe(ProbeVerdict.CANNOT_TELL, "busy", retry_after_seconds=1)]
    run.drive()
    assert (run.rows["a"].attempt, (run.rows["a"].last_error or {}).get("looks")) == (1, 2)


@pytest.mark.parametrize(("text", "said"), [(EFFECT, [NO]), (MAIL, [])])
def test_nothing_is_sent_again_while_the_first_may_still_arrive(text: str, said: list[Any]) -> None:
    run = governed(text).drive(dies=True)
    run.attempt("a", lambda transition, step: transition.expire_lease(step))
    run.said = [*said]
    run.drive()
    assert (run.rows["a"].status, len(run.sent)) == ("failed_retryable", 1)
    wait = run.waits["a"]
    assert wait.due_in is not None
    assert timedelta(0) < wait.due_in < timedelta(minutes=5)
    assert (run.rows["a"].last_error or {})["open"] is True


def test_a_step_that_has_no_effect_is_in_no_doubt() -> None:
    text = EFFECT.replace("probe.effect.apply", "probe.value.read")
    run = governed(text, said=(InDoubt("no answer"),)).drive()
    assert (run.rows["a"].status, run.whole().run.receipts, code(run)) == ("failed_retryable", {}, "in_doubt")


def test_an_effect_that_is_done_is_recalled_and_not_sent() -> None:
    """The worker dies between the outcome and the end of its step."""
    run = governed(EFFECT).drive(dies=True)
    known = known_of(run.view().run, "a")
    assert known.receipt is not None
    assert (known.receipt.status, known.given, known.wait) == ("intended", None, None)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (Refused("401", "no"), "authorization"),
        (Refused("forbidden", "no"), "authorization"),
        (Refused("422", "no"), "transport"),
    ],
)
def test_a_refusal_is_of_the_class_that_its_code_says(said: Refused, kind: str) -> None:
    run = governed(EFFECT, said=(said,)).drive()
    error = run.rows["a"].last_error or {}
    assert (error["class"], error["code"], error["message"], run.rows["a"].attempt) == (kind, said.code, "no", 0)
