"""Held steps, without a database: one failed system stops no other, and people say what becomes of it, once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

import pytest
from msgspec.structs import replace

from connectors.port import Done, InDoubt, NotSent, Parked, Refused
from core.errors import ConsistencyError
from core.identity import Directory, Entry, Standing
from evidence.chain import Actor
from runtime.engine.book.instructions import OtherRun
from runtime.engine.book.recorded import read_line
from runtime.engine.life import holding, waits
from runtime.engine.life.holding import Answer
from runtime.engine.model.events import HoldAnswered, StepFailed, StepHeld
from tests.engine.governing import DENY, HEAD, Governed, loaded, ruled
from tests.support.engine_stage import KEY
from tests.support.runtime_stage import ALLOW_ALL

pytestmark = pytest.mark.req("X-18")

GONE = Refused("503", "It is away.")
ALTERED = Done({}, altered={"value": {"asked": "x", "found": "y"}})
ASK = """
policy: ask
version: 1
rules:
  - {id: acts, match: {connector: probe}, outcome: needs_approval, approvers: [{group: owners}], because: Look.}
"""
OTHERS = ASK.replace("owners", "ops")
HELD = "on_failure: {hold: ops}"
ONE = HEAD + f"  - {{id: a, do: probe.effect.apply, with: {{name: x}}, {HELD}}}\n"
TWO = ONE.replace("id: a,", "id: a, needs: [],") + "  - {id: b, needs: [], do: probe.mail.send, with: {text: x}}\n"
AFTER = ONE + '  - {id: c, do: probe.mail.send, with: {text: "${{ steps.a.status }}"}}\n'
PEOPLE = [
    Entry("someone", "someone"),
    *(Entry(name, name, groups=frozenset({"owners"})) for name in ("ana", "ben")),
    Entry("oli", "oli", groups=frozenset({"ops", "owners"})),
    Entry("bot", "bot", groups=frozenset({"ops"}), owner="oli"),
    Entry("pat", "pat", groups=frozenset({"ops"})),
    Entry("gone", "gone", active=False, groups=frozenset({"ops"})),
]


@dataclass
class Held(Governed):
    """A run of this directory, whose held steps people answer."""

    people: Any = tuple(PEOPLE)

    def view(self) -> Any:
        return replace(super().view(), directory=Directory.of("d2", self.people))

    def say(self, answer: Answer, key: str = "a", who: str = "oli") -> Self:
        return self.over(
            key, lambda t, s, w: holding.answer(t, s, w, answer, Actor("person", who), "It is back.", "cli")
        )

    def go(self, *keys: str) -> Self:
        """Drive what is ready until nothing is; only these steps, if they are given."""
        while not self.finished and (ready := [key for key in self.ready() if not keys or key in keys]):
            self.drive(ready[0])
        return self

    def all_of(self, *kinds: type[Any]) -> list[Any]:
        book = [read_line(line, self.values.get(n, {}), KEY) for n, line in enumerate(self.lines)]
        return [each.event for each in book if isinstance(each.event, kinds)]


def held(text: str = ONE, policy: str = ALLOW_ALL, said: tuple[Any, ...] = (GONE,), people: Any = PEOPLE) -> Held:
    run = Held(loaded(text), {}, said=list(said), people=tuple(people))
    run.open()
    run.rule_by(policy)
    return run.go()


def test_a_failed_system_stops_no_other_and_nobody_is_asked_again() -> None:
    run = held(TWO, ASK)
    run.answer("ana", key="a").go()  # it fails while b still waits for people
    assert (run.status, sorted(run.open_steps), len(run.all_of(StepHeld))) == ("waiting_approval", ["a", "b"], 1)
    run.say(Answer.AGAIN).go()
    assert (run.open_steps, run.sent, len(run.book_of_questions())) == (
        {"b": "waiting_approval"}, ["probe.effect.apply"] * 2, 2,
    )  # fmt: skip
    run.answer("ana", key="b").go()
    assert (run.status, run.verified()) == ("succeeded", True)
    (said,) = run.all_of(HoldAnswered)
    assert (said.choice, said.reason) == ("again", "It is back.")
    assert not any(b"It is back." in line for line in run.lines)


@pytest.mark.parametrize(
    ("answer", "status", "sent"),
    [
        (Answer.AGAIN, "succeeded", ["probe.effect.apply", "probe.effect.apply", "probe.mail.send"]),
        (Answer.WITHOUT, "succeeded", ["probe.effect.apply", "probe.mail.send"]),
        (Answer.CANCEL, "canceled", ["probe.effect.apply"]),
    ],
)
def test_each_answer_does_what_it_says_and_no_second_one_is_taken(answer: Answer, status: str, sent: list[str]) -> None:
    run = held(AFTER).say(answer)
    with pytest.raises(AssertionError):  # there is no open wait any more
        run.say(Answer.WITHOUT)
    assert (run.go().status, run.sent, run.verified()) == (status, sent, True)
    assert len(run.all_of(StepFailed)) == (answer is Answer.WITHOUT)
    assert run.whole().run.refused == 0


def test_one_who_goes_on_without_a_step_decides_on_nothing_that_reads_it() -> None:
    run = held(AFTER, said=(GONE,))
    run.policy = ruled(ASK)
    run.say(Answer.WITHOUT).go()
    question = run.book_of_questions()[-1]
    assert ("retrier", "oli") in [(one["role"], one["person"]) for one in question.contributors]


FAILS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "refused": ("do: probe.effect.apply, with: {name: x}", ALLOW_ALL, (GONE,)),
    "retries used up": ("do: probe.key.put, with: {name: x}", ALLOW_ALL, (NotSent("a"), NotSent("b"))),
    "altered": (
        "do: probe.effect.apply, with: {name: x}",
        ALLOW_ALL,
        (ALTERED,),
    ),
    "denied": ("do: probe.effect.apply, with: {name: x}", DENY, ()),
    "no expression": ("do: probe.effect.apply, with: {name: '${{ trigger.none }}'}", ALLOW_ALL, ()),
    "not started": ("run: other, with: {}", ALLOW_ALL, (OtherRun(problem="There is none."),)),
    "failed within": ("run: other, with: {}", ALLOW_ALL, (OtherRun("failed_terminal"),)),
    "nobody to ask": ("approve: {summary: Go?, approvers: {group: none}}", ALLOW_ALL, ()),
}


@pytest.mark.parametrize("what", FAILS)
def test_whatever_fails_a_step_for_good_holds_it(what: str) -> None:
    text, policy, said = FAILS[what]
    run = held(HEAD + f"  - {{id: a, {text}, {HELD}}}\n", policy, said)
    while run.open_steps.get("a") == "failed_retryable":
        run.due().go()
    assert (run.status, run.open_steps, len(run.all_of(StepHeld))) == ("waiting", {"a": "waiting"}, 1)
    run.policy = ruled(policy)
    assert run.say(Answer.WITHOUT).go().status == "succeeded"


@pytest.mark.parametrize("how", ["reject", "expire"])
def test_what_people_say_no_to_is_held_too(how: str) -> None:
    run = held(ONE, ASK, ())
    getattr(run, how)()
    assert (run.go().status, len(run.all_of(StepHeld))) == ("waiting", 1)


@pytest.mark.parametrize("people", [[], PEOPLE[:3], [PEOPLE[0], PEOPLE[4], PEOPLE[6]]])
def test_a_group_in_which_nobody_can_answer_holds_nothing(people: list[Entry]) -> None:
    assert all(one.standing is not Standing.PERSON or "ops" not in one.groups for one in people)
    run = held(people=people)
    assert (run.status, run.all_of(StepHeld)) == ("failed_terminal", [])


BRANCHES = {
    "on_timeout": ("approve: {summary: Go?, approvers: {group: owners}}", "expire"),
    "on_rejected": ("approve: {summary: Go?, approvers: {group: owners}}", "reject"),
}


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_branch_for_just_this_failure_comes_first(branch: str) -> None:
    leaf, how = BRANCHES[branch]
    more = f"{branch}: [{{id: z, do: probe.mail.send, with: {{text: x}}}}]"
    run = held(HEAD + f"  - {{id: a, {leaf}, {HELD}, {more}}}\n", ALLOW_ALL, ())
    getattr(run, how)()
    assert (run.go().status, run.all_of(StepHeld), run.sent) == ("succeeded", [], ["probe.mail.send"])


AGAIN: dict[str, tuple[dict[str, Any], int]] = {
    "nothing has changed": ({}, 1),
    "the approval is not fresh any more": ({"later": timedelta(days=30)}, 2),
    "its voter has left": ({"people": tuple(one for one in PEOPLE if one.id != "ana")}, 2),
    "policy asks others": ({"policy": ruled(OTHERS)}, 2),
    "policy allows": ({"policy": ruled(ALLOW_ALL)}, 1),
    "policy denies": ({"policy": ruled(DENY)}, 1),
}


@pytest.mark.parametrize("what", AGAIN)
def test_an_approval_is_used_again_only_while_it_binds(what: str) -> None:
    changes, questions = AGAIN[what]
    run = held(ONE, ASK).answer("ana").go()
    for name, value in changes.items():
        setattr(run, name, value)
    run.say(Answer.AGAIN).go()
    assert len(run.book_of_questions()) == questions
    assert len(run.sent) == (2 if questions == 1 and what != "policy denies" else 1)
    assert (len(run.all_of(StepHeld)) == 2) is (what == "policy denies")  # and it is held again


def test_whoever_tries_again_does_not_carry_their_own_vote() -> None:
    run = held(ONE, ASK).answer("oli").go().say(Answer.AGAIN).go()
    assert (run.status, len(run.sent)) == ("waiting_approval", 1)
    first, second = run.book_of_questions()
    assert first.contributors is None
    assert ("retrier", "oli") in [(one["role"], one["person"]) for one in second.contributors]
    assert second.askers[0] == "oli"


def test_a_no_still_binds_whoever_asked_when_it_is_tried_again() -> None:
    run = held(ONE, ASK, ()).reject().go().say(Answer.AGAIN).go()
    assert run.status == "waiting_approval"  # oli asks now, and the card says what was rejected before
    assert "someone" in run.book_of_questions()[-1].askers


def test_what_is_in_doubt_is_not_tried_again() -> None:
    run = held(ONE, ALLOW_ALL, (InDoubt("?"),))
    with pytest.raises(ConsistencyError, match="action of a happened"):
        run.say(Answer.AGAIN)


def test_a_doubt_that_people_gave_up_is_asked_about_before_it_is_done_again() -> None:
    mail = ONE.replace("probe.effect.apply, with: {name: x}", "probe.mail.send, with: {text: x}")
    run = held(mail, ASK, (InDoubt("?"),)).answer("ana").go()
    run.later = timedelta(hours=1)
    run.due().go()
    assert run.status == "waiting_approval"
    run.over("a", lambda t, s, w: _give_up(run, t, s, w)).go()
    assert run.status == "waiting"
    run.say(Answer.AGAIN).go()
    assert (run.status, len(run.sent)) == ("waiting_approval", 1)


def _give_up(run: Held, transition: Any, step: Any, wait: Any) -> None:
    from runtime.engine.life import doubt
    from runtime.engine.model.events import ApprovalDecided, WaitCompleted

    question = run.question(transition, "a")
    transition.tell(ApprovalDecided(question, "fail", "fail", "Nobody knows."), step="a", actor=Actor("person", "ana"))
    (receipt,) = transition.run.receipts.values()
    doubt.given_up(transition, receipt, doubt.Found("a person said so", "people"))
    error = {"class": "consistency", "code": "given_up", "message": "It is given up."}
    waits.end_badly(transition, step, wait, WaitCompleted, error)


def test_a_retry_that_waits_is_tried_now() -> None:
    run = held(ONE.replace("effect.apply", "key.put"), ALLOW_ALL, (NotSent("a"),))
    assert run.status == "failed_retryable"
    with pytest.raises(ConsistencyError, match="not held"):
        run.say(Answer.WITHOUT)
    run.say(Answer.AGAIN).go()
    assert (run.status, len(run.sent), run.whole().run.tried) == ("succeeded", 2, 0)


@pytest.mark.parametrize("outcome", [OtherRun("succeeded", {"x": 1}), Parked("e2")])
def test_another_life_of_the_step_has_names_of_its_own(outcome: Any) -> None:
    child = isinstance(outcome, OtherRun)
    leaf = "run: other, with: {}" if child else "do: probe.case.open, with: {name: x}"
    first = OtherRun("failed_terminal") if child else Parked("e1")
    run = held(HEAD + f"  - {{id: a, {leaf}, {HELD}}}\n", ALLOW_ALL, (first,))
    if not child:  # it was begun outside, and fails there
        failed = {"error": {"class": "transport", "code": "x", "message": "No."}}
        run.over("a", lambda t, s, w: waits.complete(t, s, w, failed, Actor("token", "sys"))).go()
    before = dict(run.waits)
    run.said = [outcome]
    run.say(Answer.AGAIN).go()
    assert (run.status, run.rows["a"].again) == ("succeeded" if child else "waiting", 1)
    if not child:
        keys = {w.correlation_key for w in run.whole().run.waits.values() if w.kind == "external"}
        assert len(keys) == 2, before


LOOP = (
    HEAD
    + f"""  - id: each
    foreach: ${{{{ [1, 2, 3] }}}}
    max_parallel: 3
    steps:
      - {{id: a, do: probe.effect.apply, with: {{name: x}}, {HELD}}}
"""
)


def test_one_iteration_is_held_and_the_others_go_on() -> None:
    run = held(LOOP)
    assert (run.status, run.open_steps, len(run.sent)) == ("waiting", {"each[0].a": "waiting"}, 3)
    assert run.say(Answer.AGAIN, "each[0].a").go().status == "succeeded"
