"""An approver, a delegate, an editor, a reassigner and a worker race for one question: one decision each, replayed.

Each actor reads the run and appends later, in a thousand seeded interleavings. As at the database, an append is refused
if anything was told of the step since the actor read; then they read and judge again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from approvals import editing, talk
from approvals.model import Approval, ApprovalKind, ApprovalStatus, Choice, Vote, VoteChannel
from approvals.quorum import Counted, consider
from approvals.talk import Saying
from core.identity import Delegation, Directory, Entry
from core.terms import Terms
from evidence.chain import Actor
from runtime.engine.book.contributors import barred_from
from runtime.engine.book.recorded import read_line
from runtime.engine.life import editing as moves
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import (
    ActionIntended,
    ApprovalDecided,
    ApprovalEdited,
    ApprovalReassigned,
    ApprovalRequested,
    ApprovalSaid,
    ApprovalVoted,
)
from runtime.requests.conversing import comments_of
from runtime.requests.directory import NO_GROUPS, as_people, voter_of
from runtime.requests.voting import count
from runtime.store.approvals import StoredApproval
from tests.engine.governing import HEAD, Governed, loaded
from tests.support.engine_stage import KEY, NOW

pytestmark = pytest.mark.req("promise 12")
ALWAYS = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
TEXT = HEAD + "  - {id: a, do: probe.effect.apply, with: {name: x, value: y}}\n"
ASK = """
policy: ask
version: 1
rules:
  - id: acts
    match: {connector: probe}
    outcome: needs_approval
    two_person: true
    approvers: [{group: owners, of: 2}]
"""
OWNERS = frozenset({"owners"})
PEOPLE = Directory.of(
    "d3",
    [
        Entry("someone", "Someone"),
        *(Entry(name, name.title(), groups=OWNERS) for name in ("ana", "ben", "dan", "fay", "gus")),
        Entry("cid", "Cid", groups=OWNERS, delegate=Delegation("bob", *ALWAYS)),
        Entry("bob", "Bob"),
    ],
)


@dataclass
class Race(Governed):
    """A run of these people."""

    def view(self) -> Any:
        return replace(super().view(), directory=PEOPLE)

    def asks(self, view: Any) -> Approval | None:
        """The open question, as a face reads it to decide."""
        open_ = (row for row in view.run.approvals.values() if view.run.answers[row.approval_id].status == "requested")
        row = next(open_, None)
        if row is None:
            return None
        votes = tuple(
            Vote(
                one.person_id, one.person_id, Choice(one.choice), one.reason, frozenset(one.groups), VoteChannel.CLI,
                NOW.isoformat(), row.action_digest, on_behalf=one.on_behalf or "",
            )
            for one in view.run.votes if one.approval_id == row.approval_id
        )  # fmt: skip
        about = (row.step_key, ApprovalKind(row.kind), ApprovalStatus.REQUESTED, row.action_digest, row.nonce)
        terms = (Terms.from_json(row.terms), row.requester, barred_from(view.run, row), votes)
        return as_people(Approval(row.approval_id, "acme", view.run_id, *about, *terms), PEOPLE)

    def take(self, who: str, does: str, view: Any) -> Transition | str:
        """Judge what somebody does on the run as they have read it: the moves to append, or why there are none."""
        asked = self.asks(view)
        if asked is None:
            return "nothing is asked"
        transition, voter = (
            Transition(view, self.workflow.graph),
            voter_of(who, PEOPLE.entry(who), NO_GROUPS, asked, PEOPLE),
        )
        actor, said = Actor("person", who), comments_of(view.run, asked.id, PEOPLE)
        if does in ("approve", "reject"):
            judged = consider(asked, voter, Choice(does), "why", at=NOW, channel=VoteChannel.CLI)
            if not isinstance(judged, Counted):
                return str(judged.code)
            stored = StoredApproval(asked, {}, None, None, "main", False, NOW, NOW, "d3", None, {})
            count(transition, stored, judged)
            return transition
        if does == "edit":
            if (no := editing.refused(asked, voter, NOW)) is not None:
                return str(no.code)
            both: Any = {"value": {"was": "y", "now": f"by-{who}"}}
            moves.edit(transition, asked.step_key, ApprovalEdited(asked.id, ["value"], "cli", "d3", None, both), actor)
            return transition
        if (no := talk.refused(asked, voter, Saying(does), said, at=NOW)) is not None:
            return str(no.code)
        told: Any = ApprovalSaid(asked.id, does, "cli", "d3", None, "words")
        if does == Saying.HANDS_ON:
            told = ApprovalReassigned(asked.id, talk.handed(asked, "gus", PEOPLE) or "group:owners", "cli", "d3")
        transition.tell(told, step=asked.step_key, actor=actor)
        return transition


ACTORS = (
    ("ana", "approve"), ("bob", "approve"), ("cid", "approve"), ("dan", "edit"), ("dan", "approve"),
    ("fay", "hands_on"), ("fay", "asks"), ("someone", "answers"), ("ben", "approve"), ("gus", "reject"),
    ("someone", "edit"),
)  # fmt: skip


def race(seed: int) -> Race:
    """One interleaving of the actors and a worker."""
    chance = random.Random(seed)
    run = Race(loaded(TEXT), {})
    run.open()
    run.rule_by(ASK)
    run.drive()
    left = chance.sample(ACTORS, chance.randint(4, len(ACTORS)))
    seen: dict[tuple[str, str], tuple[Any, int]] = {}
    while left:
        if run.ready() and chance.random() < 0.3:
            run.drive(run.ready()[0])
        actor = chance.choice(left)
        if actor not in seen:
            seen[actor] = (run.view(), len(run.lines))
            continue
        view, lines = seen[actor]
        if lines != len(run.lines):
            view = run.view()  # refused, because of what was told meanwhile: read again, and judged again
        made = run.take(*actor, view)
        if isinstance(made, Transition):
            run.apply(made)
        left.remove(actor)
    while run.ready() and not run.finished:
        run.drive(run.ready()[0])
    return run


@pytest.mark.parametrize("part", range(4))
def test_in_a_thousand_interleavings_each_question_has_one_decision(part: int) -> None:
    ends: Counter[str] = Counter()
    for seed in range(part * 250, part * 250 + 250):
        run = race(seed)
        told = [read_line(line, run.values.get(n, {}), KEY) for n, line in enumerate(run.lines)]
        questions = {one.event.approval: one.event for one in told if isinstance(one.event, ApprovalRequested)}
        decided = [one.event.approval for one in told if isinstance(one.event, ApprovalDecided)]
        assert len(decided) == len({*decided}), f"{seed}: one decision each"
        edited = {one.event.approval for one in told if isinstance(one.event, ApprovalEdited)}
        assert not edited & {*decided}, f"{seed}: what was edited is not decided"
        assert len(run.sent) <= 1, f"{seed}: one effect at most"
        for sent in (one.event for one in told if isinstance(one.event, ActionIntended)):
            assert sent.approval in decided
            votes: dict[str, set[str]] = {}
            for one in told:
                if isinstance(one.event, ApprovalVoted) and one.event.approval == sent.approval:
                    people = {one.actor.id, one.event.on_behalf or one.actor.id}
                    votes = {who: theirs for who, theirs in votes.items() if not theirs & people} | {
                        one.actor.id: people
                    }
            shaped = {str(one["person"]) for one in questions[sent.approval].contributors or [{"person": "someone"}]}
            assert len(votes) >= 2, f"{seed}: two people, a seat each"
            assert not shaped & {who for people in votes.values() for who in people}, f"{seed}: nobody judges their own"
            editors = {one.actor.id for one in told if isinstance(one.event, ApprovalEdited)}
            assert editors <= shaped, f"{seed}: whoever edited it shaped it"
        assert run.verified(), f"{seed}: the book replays"
        ends[str(run.status)] += 1
    assert {"succeeded", "failed_terminal", "waiting_approval"} <= ends.keys(), "the race has every end"
