"""A question as it is put: its card, its terms, its wait and its message; and a gate in each situation (U-5)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from approvals.content import CardContent, InputField, RuleReason
from approvals.model import ApprovalKind, Choice
from core.action import Action, Change, Risk, SideEffects
from core.canonical import derived_id, digest
from core.errors import CountersealError, ExpressionError, InputError
from core.identity import Contributor, Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, Terms, Tier
from evidence.commitments import blind, commit, commit_fields
from policy.evaluate import Decision, FiredRule
from policy.load import PolicyName
from policy.model import Ruling
from runtime.definition.workflow import load_workflow
from runtime.engine import ask
from runtime.engine.ask import DOUBT_EXPIRES_SECONDS, Question, begin_gate, gate_still_asks
from runtime.engine.commit import ApprovalMove, VoteRow, WaitRow, wait_of
from runtime.engine.instructions import Given, Known, Over
from runtime.engine.run import Loop
from runtime.engine.states import WaitKind, WaitState
from runtime.engine.transition import Transition
from tests.engine.conftest import KEY, NOW, RUN_ID
from tests.engine.governing import CATALOG, EFFECT, HEAD, governed
from tests.engine.test_folds import ERROR, A, V, W, approval, run_of, step

pytestmark = pytest.mark.req("U-5")

PEOPLE = Directory.of("d7", [
    Entry("rita", "Rita Roe", groups=frozenset({"owners"})), Entry("ana", "Ana", groups=frozenset({"owners"})),
    Entry("ben", "Ben", groups=frozenset({"owners"})),
])  # fmt: skip
TERMS = Terms(Tier.HIGH, (GroupQuorum("owners"),), expires_seconds=7200)
RUN = governed(EFFECT)
GRAPH, VIEW = RUN.workflow.graph, RUN.view()


def transition(graph: Any = GRAPH, **run: Any) -> Transition:
    made = run_of(step(), **{"requested_by": "rita", "reference": "R1", **run})
    view = replace(VIEW, run=made, directory=PEOPLE, workflow="w", workflow_version=3)
    return Transition(view, graph)


# -- the card of an action ---------------------------------------------------------------------------------------------

ACTION = Action(
    "probe.record.update", {"name": "x", "fields": {"priority": "1", "owner": "o"}, "priority": "9"},
    {"priority": "1", "owner": "o"}, "record/x", "7", {"priority": "3", "owner": "o"}, Risk.HIGH,
    SideEffects.EXTERNAL_CALL, True, "Update x",
    {"operation": "probe.record.update", "input": {}}, "desk.example",
)  # fmt: skip
UPDATE, SECRET = CATALOG.operations["probe.record.update"], CATALOG.operations["probe.secret.send"]
ONE, TWO = PolicyName("first", 4, "d" * 64), PolicyName("second", 5, "e" * 64)


def decision(*asking: PolicyName, outcome: Ruling = Ruling.NEEDS_APPROVAL) -> Decision:
    fired = (FiredRule("a", Ruling.ALLOW, "Fine."), FiredRule("b", Ruling.NEEDS_APPROVAL, "Look."),
             FiredRule("c", Ruling.NEEDS_APPROVAL, None))  # fmt: skip
    return Decision(outcome, (ONE, TWO), fired, (), ("Look.",), TERMS, {}, asking)


def test_a_card_is_complete() -> None:
    made = transition(shaped={"run": ["updater  person:ana"]})
    card = ask.action_card(made, step(), UPDATE, ACTION, TERMS, decision=decision(ONE), evidence="Seen.")
    assert card == CardContent(
        title="Update x", summary="Update x", target="record/x", operation="probe.record.update", connector="probe",
        risk=Risk.HIGH, reversible=True, reverse="probe.record.update with the values read before", requester="rita",
        workflow="w", workflow_version=3, run_id=str(RUN_ID), reference="R1", step="a",
        rules=(RuleReason("b", "Look."), RuleReason("c", "")), changes=(Change("priority", "3", "1"),),
        inputs=(InputField("name", "x"),), expires_at="2026-01-01T04:03:04+00:00", policy_name="first",
        policy_version=4, policy_digest_short="d" * 12, sensitive=(), evidence="Seen.", tier="high",
        system="desk.example",
        shaped_by=card.shaped_by,
    )  # fmt: skip
    assert [(one.name, one.did) for one in card.shaped_by] == [
        ("Rita Roe", "requested this"), ("Ana", "changed the record"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "rules", "policy"),
    [
        (None, [], ("", 0, "")),
        (decision(), ["b", "c"], ("", 0, "")),
        (decision(TWO), ["b", "c"], ("second", 5, "e" * 12)),
        (decision(ONE, TWO), ["b", "c"], (f"{ONE}, {TWO}", 0, "")),
        (decision(ONE, outcome=Ruling.ALLOW), ["a"], ("first", 4, "d" * 12)),
    ],
)
def test_a_card_names_the_rules_that_decided_and_the_one_policy_that_asks(
    judged: Decision | None, rules: list[str], policy: Any
) -> None:
    card = ask.action_card(transition(), step(), UPDATE, ACTION, TERMS, decision=judged)
    assert [rule.id for rule in card.rules] == rules
    assert (card.policy_name, card.policy_version, card.policy_digest_short) == policy


def test_a_card_says_what_is_left_to_undo_which_inputs_are_secret_and_by_which_name_the_run_goes() -> None:
    plain = replace(ACTION, reverse=None)
    card = ask.action_card(transition(), step(), UPDATE, plain, replace(TERMS, expires_seconds=None))
    assert (card.reverse, card.reversible) == ("It leaves nothing to undo.", True)
    assert card.expires_at == "2026-01-01T02:03:04+00:00"
    card = ask.action_card(transition(), step(), UPDATE, replace(ACTION, reversible=False), TERMS)
    assert (card.reverse, card.reversible) == ("", False)
    told = replace(ACTION, input={"name": "x", "password": "p"}, fields={"name": "x", "password": "p"})
    made = transition()
    made.run.state.reference = "R2"
    card = ask.action_card(made, step(), SECRET, told, TERMS)
    assert (card.sensitive, card.reference, card.inputs, card.connector) == (("password",), "R2", (), "probe")
    whole = replace(told, fields={"name": "x"})
    moved = SECRET.model_copy(update={"connector": "desk"})
    card = ask.action_card(made, step(), moved, whole, TERMS)
    assert (card.sensitive, card.connector, card.inputs) == (("password",), "desk", (InputField("password", "p"),))
    assert card.shaped_by == ()


# -- putting and voiding -----------------------------------------------------------------------------------------------

CARD = ask.action_card(transition(), step(), UPDATE, ACTION, TERMS)
MARKS = frozenset({"updater  person:ana", "form_filler f person:x"})


def put(kind: ApprovalKind, terms: Terms, marks: frozenset[str] = frozenset(), error: Any = None) -> Transition:
    made = transition()
    row = replace(step(), lease_epoch=4)
    made.run.steps["a"] = row
    question = Question(kind, "f" * 64, terms, CARD, {"input": 1} if kind is ApprovalKind.ACTION else None, marks)
    found = ask.put(made, row, question, "nonce", error)
    assert found == derived_id(RUN_ID, "approval:a:4")
    return made


@pytest.mark.parametrize("kind", [*ApprovalKind])
@pytest.mark.parametrize("marks", [frozenset(), MARKS])
def test_a_question_is_told_with_all_that_answers_are_judged_by(kind: ApprovalKind, marks: Any) -> None:
    made = put(kind, TERMS, marks)
    asked = made._told[0].event
    at = derived_id(RUN_ID, "approval:a:4")
    people = [
        Contributor(Role.REQUESTER, "rita", "rita"), Contributor(Role.FORM_FILLER, "person:x", None),
        Contributor(Role.UPDATER, "person:ana", "ana"),
    ]  # fmt: skip
    shaped: Any = [one.to_json() for one in people] if marks else None
    told: Any = {"kind": str(kind), "requester": "rita", "terms": TERMS.to_json()}
    told |= {"contributors": shaped} if marks else {}
    assert ask.asked(str(kind), "rita", TERMS.to_json(), shaped) == told
    alone: Any = [people[0].to_json()]
    assert ask.asked("gate", "rita", {}, alone) == {
        "kind": "gate",
        "requester": "rita",
        "terms": {},
        "contributors": alone,
    }
    assert to_builtins(asked) == {
        "approval": str(at), "action": None if kind is ApprovalKind.GATE else blind(KEY, "f" * 64),
        "card": commit(KEY, f"/approval/{at}/card", CARD.to_json()), "kind": str(kind), "tier": "high",
        "committed": [*commit_fields(KEY, f"/approval/{at}", {"asked": told})], "digest": "f" * 64, "nonce": "nonce",
        "terms": TERMS.to_json(), "requester": "rita", "shown": CARD.to_json(),
        "proposed": {"input": 1} if kind is ApprovalKind.ACTION else None, "expires": 7200, "contributors": shaped,
    }  # fmt: skip
    assert (made._told[0].step, made._told[1].step) == ("a", "a")
    (card,) = made.rows.commands
    assert (card.kind, card.payload, card.ordering_key) == ("card", {"approval": str(at)}, f"approval:{at}")
    requested = transition()
    requested.message("card", at, "requested")
    assert card.command_id == requested.rows.commands[0].command_id


@pytest.mark.parametrize(
    ("terms", "expires", "ladder"),
    [
        (TERMS, 7200, [["expire", 7200]]),
        (replace(TERMS, expires_seconds=None), DOUBT_EXPIRES_SECONDS, [["expire", DOUBT_EXPIRES_SECONDS]]),
        (replace(TERMS, remind_seconds=(60, 7200), escalate=Escalation(30, GroupQuorum("leads"))), 7200,
         [["escalate", 30], ["remind", 60], ["expire", 7200]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("error", [None, ERROR])
def test_a_step_waits_for_the_first_rung_of_its_question(terms: Terms, expires: int, ladder: Any, error: Any) -> None:
    made = put(ApprovalKind.ACTION, terms, error=error)
    asked: Any = made._told[0].event
    at, row = derived_id(RUN_ID, "approval:a:4"), replace(step(), lease_epoch=4)
    assert asked.expires == expires
    assert made.run.waits == {
        wait_of(RUN_ID, row): WaitRow(
            wait_of(RUN_ID, row), row.step_id, "a", WaitKind.APPROVAL, WaitState.WAITING, "nonce",
            timedelta(seconds=ladder[0][1]), {"approval": str(at), "ladder": ladder, "next": 0},
        )
    }  # fmt: skip
    assert (made.run.steps["a"].last_error, made.run.steps["a"].status) == (error, "waiting_approval")


@pytest.mark.parametrize(("why", "people"), [(None, None), ("stale", "d7"), ("votes_lost", "d7"), ("", "d7")])
def test_a_void_question_says_why_and_by_which_directory_that_was_found(why: str | None, people: str | None) -> None:
    made = transition()
    ask.supersede(made, step(), A, why)
    (told,) = made._told
    assert (to_builtins(told.event), told.step) == (
        {"approval": str(A), "why": why, "directory": people}, "a",
    )  # fmt: skip
    voided = transition()
    voided.message("card", A, "superseded")
    assert made.rows.commands == voided.rows.commands


# -- what was rejected before ------------------------------------------------------------------------------------------


def vote(person: str, of: UUID = A) -> VoteRow:
    return VoteRow(of, person, "reject", "No.", [], "cli")


REJECTED: list[tuple[dict[UUID, ApprovalMove], list[VoteRow], str]] = [
    ({}, [], ""),
    ({A: ApprovalMove(A, "approved", reason="Yes.")}, [vote("ann")], ""),
    ({A: ApprovalMove(A, "rejected", reason="Not now.")}, [vote("zoe"), vote("ann"), vote("zoe"), vote("eve", V)],
     "It was rejected before, by ann, zoe: Not now."),
    ({A: ApprovalMove(A, "rejected")}, [], "It was rejected before: no reason was given."),
    ({A: ApprovalMove(A, "rejected", reason="")}, [], "It was rejected before: no reason was given."),
    ({A: ApprovalMove(A, "rejected", reason="First."), V: ApprovalMove(V, "rejected", reason="Second...")},
     [vote("ann"), vote("ben", V)], "It was rejected before, by ben: Second."),
    ({A: ApprovalMove(A, "rejected", reason="First."), V: ApprovalMove(V, "expired")}, [],
     "It was rejected before: First."),
    ({W: ApprovalMove(W, "rejected", reason="Other step.")}, [vote("ann", W)], ""),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REJECTED)))
def test_the_last_rejection_of_a_step_is_told_with_its_voters(case: int) -> None:
    answers, votes, words = REJECTED[case]
    made = transition(votes=votes)
    made.run.approvals = {A: approval(), V: approval(number=V), W: approval(key="b", number=W)}
    made.run.answers = answers
    assert ask.rejected_before(made, step()) == words


# -- gates -------------------------------------------------------------------------------------------------------------

ASKING = HEAD.replace("steps:", "channels: {n: {initial: 5}}\nsteps:") + (
    "  - {id: a, approve: {summary: 'Go on with ${{ string(state.n) }}?', approvers: {group: owners}}}\n"
    "  - {id: b, do: probe.effect.apply, with: {name: x}}\n"
)
GATED = load_workflow(ASKING, "test.yaml", CATALOG).graph
LEAF: Any = GATED.leaves["a"]


def gated(**run: Any) -> Transition:
    made = transition(GATED, **run)
    made.run.state.channels = {"n": 5}
    return made


def looped() -> Transition:
    """A run in which two iterations are under way."""
    made = gated()
    made.run.state.loops["each"] = Loop("item", 2, 2, {0: "x", 1: "x"})
    return made


def bound(made: Transition) -> str:
    """The digest of the question that the gate asks now."""
    return ask._gate_question(made, step(), LEAF).digest


def given(digest_: str, kind: ApprovalKind = ApprovalKind.GATE) -> Given:
    return Given(A, kind, digest_, Choice.APPROVE, "Why not.", TERMS, (), (), False, NOW)


def told(made: Transition) -> list[Any]:
    found = [str(one.event.TYPE) for one in made._told]
    return [*found, *(f"{row.kind} {row.payload.get('approval', '')}".strip() for row in made.rows.commands)]


def passes(made: Transition, answer: Given | None, **known: Any) -> Any:
    return begin_gate(made, step(), LEAF, Known(given=answer, **known), lambda: "n1")


PUT = ["approval.requested", "step.parked", "checkpoint.committed"]
FRESH = f"card {derived_id(RUN_ID, 'approval:a:2')}"
OVER_AND_ON = ["approval.consumed", "step.succeeded", "checkpoint.committed"]
FAILS = ["step.failed", "checkpoint.committed", "run.closed"]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (None, [*PUT, FRESH]),
        ("same", OVER_AND_ON),
        ("other", ["approval.superseded", *PUT, f"card {A}", FRESH]),
        ("of an action", [*PUT, FRESH]),
    ],
)
def test_a_gate_goes_on_only_by_an_answer_to_what_it_asks_now(answer: str | None, lines: list[str]) -> None:
    made = gated()
    kind = ApprovalKind.ACTION if answer == "of an action" else ApprovalKind.GATE
    known = None if answer is None else given("0" * 64 if answer == "other" else bound(made), kind)
    if known is not None:
        made.run.approvals[A], made.run.answers[A] = approval(str(kind)), ApprovalMove(A, "approved")
    assert passes(made, known) == Over()
    assert told(made) == lines
    if answer == "same":
        assert to_builtins(made._told[0].event) == {"approval": str(A), "directory": "d7"}
        assert made.run.past["a"].output == {"approved": True, "reason": "Why not."}


@pytest.mark.parametrize("answered", [False, True])
def test_a_gate_that_cannot_say_what_it_asks_fails_and_voids_its_answer(answered: bool) -> None:
    made = gated(approvals={A: approval("gate")}, answers={A: ApprovalMove(A, "approved")})
    made.run.state.channels = {"n": [1]}
    assert passes(made, given("0" * 64) if answered else None) == Over()
    voided = ["approval.superseded"] if answered else []
    card = [f"card {A}"] if answered else []
    assert told(made) == [*voided, *FAILS, *card, "bundle"]
    assert (made.run.error or {})["class"] == "expression"
    assert not gate_still_asks(made, step(), "0" * 64)


def test_a_gate_of_a_run_that_is_being_canceled_asks_nobody_whatever_was_answered() -> None:
    made = gated(canceling={"by": "x", "reason": ""})
    assert passes(made, given(bound(gated()))) == Over()
    assert told(made) == ["step.canceled", "checkpoint.committed", "run.closed", "bundle"]


def test_a_gate_looks_for_the_people_first() -> None:
    made = gated()
    made.view = replace(made.view, directory=Directory.of("d8", []))
    assert passes(made, None) == Over()
    assert told(made) == ["preflight.failed", *FAILS, "bundle"]


def test_a_question_is_bound_to_all_that_people_see_of_it() -> None:
    def shown(**changes: Any) -> str:
        made = gated()
        for name, value in changes.items():
            setattr(made.run.state, name, value)
        return bound(made)

    same = shown()
    assert shown() == same
    terms = Terms.from_json(LEAF.terms).to_json()
    assert same == digest(["gate", str(RUN_ID), "a", "Go on with 5?", "Go on with 5?", "R1", "R1", "rita", terms])
    assert shown(channels={"n": 6}) != same
    assert shown(reference="R2") != same
    assert shown(shaped={"run": ["updater  person:ana"]}) == same, "those who shape it change while it is open"
    each = [ask._gate_question(looped(), replace(step(), key=f"each[{at}].a"), LEAF).digest for at in (0, 1)]
    assert len({same, *each}) == 3, "each iteration asks its own"
    made = gated()
    assert gate_still_asks(made, step(), same)
    assert not gate_still_asks(made, replace(step(), key="b"), same)


@pytest.mark.parametrize("error", [ExpressionError("no"), InputError("no"), CountersealError("no")])
def test_a_gate_that_cannot_be_asked_for_any_reason_asks_no_more(
    monkeypatch: pytest.MonkeyPatch, error: CountersealError
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    made = gated()
    same = bound(made)
    monkeypatch.setattr(ask, "_gate_question", fails)
    assert not gate_still_asks(made, step(), same)


def test_the_card_of_a_gate_says_what_it_is_and_who_shaped_anything() -> None:
    made = gated(shaped={"state.unread": ["updater  person:ana"], "votes.b": ["form_filler b person:ben"]})
    made.run.approvals, made.run.answers = {A: approval("gate")}, {A: ApprovalMove(A, "rejected", reason="Not yet.")}
    assert passes(made, None) == Over()
    (asked,) = [one.event for one in made._told if one.event.TYPE == "approval.requested"]
    shown: Any = to_builtins(asked)["shown"]
    people: Any = to_builtins(asked)["contributors"]
    assert [(one["role"], one["person"]) for one in people] == [("requester", "rita"), ("updater", "ana")]
    shaped = shown.pop("shaped_by")
    assert [one["did"] for one in shaped] == ["requested this", "changed the record"]
    assert shown == {
        "title": "Go on with 5?", "summary": "Go on with 5?", "target": "R1", "operation": "approve",
        "connector": "workflow", "risk": "low", "reversible": True, "reverse": "Nothing is done by the answer itself.",
        "requester": "rita", "workflow": "w", "workflow_version": 3, "run_id": str(RUN_ID), "reference": "R1",
        "step": "a", "rules": [], "changes": [], "inputs": [], "expires_at": shown["expires_at"], "policy_name": "",
        "policy_version": 0, "policy_digest_short": "", "sensitive": [],
        "evidence": "It was rejected before: Not yet.", "tier": "", "system": "",
    }  # fmt: skip
    made = gated()
    made.run.state.reference = "R2"  # a step has named the run in this same transition
    card = ask._gate_question(made, step(), LEAF).card
    assert (card.target, card.reference) == ("R2", "R2")
    terms = Terms.from_json(LEAF.terms)
    assert shown["expires_at"] == (NOW + timedelta(seconds=terms.expires_seconds or 0)).isoformat(timespec="seconds")
