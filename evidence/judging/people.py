"""Judges questions and answers: quorum, separation of duties, membership at the time, escalation, expiry, freshness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from core.identity import Role
from core.quorum import plan_met, plans_of
from core.terms import GroupSource, may_be_delegated
from evidence.events import EventType as E
from evidence.judging.case import (
    CLOCK_SECONDS,
    EXPIRES_SECONDS,
    Case,
    Judge,
    Question,
    seconds_between,
)
from evidence.judging.voters import barred, broke, decides_for, gave, glass_closed, holds, keys_of, no_glass, no_login

ACTION, GATE, IN_DOUBT = "action", "gate", "in_doubt"
_CHOICES = {ACTION: ("approve", "reject"), GATE: ("approve", "reject"), IN_DOUBT: ("happened", "again", "fail")}
_OUTCOMES = {"approved": "approve", "rejected": "reject"}
_NO = ("reject", "fail")
REQUESTED, CANCELED = "requested", "canceled"
ASKS, ANSWERS = "asks", "answers"
_SAID = (ASKS, ANSWERS, "comments")


class Vote(Struct, frozen=True):
    """A recorded vote and the groups for which it counts. ``behalf`` is the person whom the voter stood in for."""

    voter: str
    choice: str
    groups: frozenset[str]
    behalf: str = ""
    at: str = ""
    glass: bool = False

    @property
    def people(self) -> frozenset[str]:
        """The people for whom the vote speaks: its voter, and whoever the voter stood in for."""
        return frozenset({self.voter, self.behalf} - {""})


class Asked(Struct):
    """One question and its state. ``question`` is None if the bundle withholds it."""

    at: str
    step: str | None
    action: str | None
    kind: str
    question: Question | None
    status: str = REQUESTED
    decided_at: str = ""
    escalated: bool = False
    seq: int = 0
    votes: dict[str, Vote] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    edited: bool = False
    used: list[int] = field(default_factory=list)

    def carried(self, votes: Mapping[str, Vote], choice: str) -> bool:
        """True if these votes meet the terms for this choice. Votes of people who answered may not count."""
        if not self.answers_count:
            votes = {who: one for who, one in votes.items() if one.glass or one.people.isdisjoint(self.answered)}
        if self.question is None:
            return any(vote.choice == choice for vote in votes.values())
        terms = self.question.terms
        if choice == "approve" and any(broke(terms, vote.choice, vote.groups) for vote in votes.values() if vote.glass):
            return True
        groups = [vote.groups for vote in votes.values() if vote.choice == choice]
        return any(plan_met(terms, plan, groups) for plan in plans_of(terms, escalated=self.escalated))

    @property
    def answers_count(self) -> bool:
        """True if the terms allow a vote of somebody who has answered a question of the approvers about this."""
        return self.question is not None and Role.ANSWERER in self.question.terms.allow


class People(Judge):
    """Follows approvals. ``asked`` is read by the judges of actions and steps, too."""

    name = "authority of people"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.asked: dict[str, Asked] = {}
        self.votes = 0
        self.unproven: set[str] = set()
        self._canceled = False
        self._editors: dict[str, set[str]] = {}
        self._movers: set[str] = set()
        self._requester = ""
        self._does = {
            E.APPROVAL_REQUESTED: self._requested,
            E.APPROVAL_SAID: self._statement,
            E.APPROVAL_REASSIGNED: self._handed,
            E.APPROVAL_EDITED: self._edited,
            E.APPROVAL_VOTED: self._voted,
            E.APPROVAL_DECIDED: self._decided,
            E.APPROVAL_ESCALATED: self._escalated,
            E.APPROVAL_EXPIRED: self._expired,
            E.APPROVAL_SUPERSEDED: self._superseded,
            E.APPROVAL_CONSUMED: self._consumed,
            E.ACTION_INTENDED: self._intended,
        }

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        kind, data = event["type"], event["data"]
        if kind in (E.RUN_CANCELED, E.RUN_REOPENED):
            self._canceled = kind == E.RUN_CANCELED
        if kind == E.RUN_MIGRATED and event["actor"]["kind"] == "person":
            self._movers.add(event["actor"]["id"])
        does = self._does.get(kind)
        if does is None or data.get("approval") is None:
            return
        asked = self.asked.get(data["approval"])
        if asked is None and kind != E.APPROVAL_REQUESTED:
            self.fault(event, "nobody was asked this")
        elif asked is not None and event["step"] not in (asked.step, None):
            self.fault(event, f"the question was asked at the step {asked.step}")
        else:
            does(event, asked)

    def _requested(self, event: dict[str, Any], asked: Asked | None) -> None:
        data = event["data"]
        question, kind = self.case.questions(data["approval"]), str(data.get("kind"))
        self.asked[data["approval"]] = Asked(
            event["ts"], event["step"], data["action"], kind, question, seq=event["seq"]
        )
        if kind not in _CHOICES or (data["action"] is None) is not (kind == GATE):
            self.fault(event, "it asks about nothing that can be asked")
        if question is None:
            if self.whole:
                self.fault(event, "its terms are withheld, so nothing shows that its answers meet them")
            return
        self._requester = self._requester or question.requester
        if question.requester != self._requester:
            self.fault(event, f"its requester is {question.requester!r}, and that of another {self._requester!r}")
        if question.kind != kind or str(question.terms.tier) != data.get("tier"):
            self.fault(event, "its kind or its tier is not that of what was put")
        if not question.terms.approvers:
            self.fault(event, "its terms name nobody who may approve")
        shaped = {one.person for one in question.contributors or () if one.role is Role.EDITOR}
        if kind != GATE and (strange := sorted(self._editors.get(str(event["step"]), set()) - shaped)):
            self.fault(event, f"{strange[0]} edited it, and is not among those who shaped it")

    def _statement(self, event: dict[str, Any], asked: Asked | None) -> None:
        """Judge a statement. Only people who may decide ask for more; whoever answers has a part in it from then on."""
        assert asked is not None
        kind, who = event["data"]["said"], event["actor"]["id"]
        if kind not in _SAID:
            self.fault(event, f"{str(kind)[:40]!r} is nothing that is said about a question")
        self._talks(event, asked, decides=kind == ASKS)
        if kind == ANSWERS:
            asked.answered.add(who)

    def _handed(self, event: dict[str, Any], asked: Asked | None) -> None:
        """Judge that a question is handed on to people who may decide it, and to nobody else."""
        assert asked is not None
        self._talks(event, asked, decides=True)
        to, question = str(event["data"]["to"]), asked.question
        if question is None or to in keys_of(question.terms, escalated=asked.escalated):
            return
        if not self._eligible(question, to, event["data"].get("directory"), asked):
            self.fault(event, f"it was handed to {to[:100]}, who may not decide it")

    def _edited(self, event: dict[str, Any], asked: Asked | None) -> None:
        """Judge an edit: its author may decide, or asked for the action. The question takes no more votes."""
        assert asked is not None
        who, question = event["actor"]["id"], asked.question
        self._talks(event, asked, decides=False)
        if asked.kind != ACTION:
            self.fault(event, "an answer to another question than about an action was edited")
        asked.edited = True
        self._editors.setdefault(str(event["step"]), set()).add(who)
        if question is None or self._eligible(question, who, event["data"].get("directory"), asked):
            return
        if not gave(self.case, question, who, event["data"].get("directory")):
            self.fault(event, f"{who} may not decide this and has not asked for it, and edited it")

    def _talks(self, event: dict[str, Any], asked: Asked, *, decides: bool) -> None:
        who, directory = event["actor"]["id"], event["data"].get("directory")
        if asked.status != REQUESTED:
            self.fault(event, f"{who} spoke after the question was {asked.status}")
        if event["actor"]["kind"] != "person":
            self.fault(event, f"{event['actor']['kind']}:{who} is no person, and spoke")
        if decides and asked.question is not None and not self._eligible(asked.question, who, directory, asked):
            self.fault(event, f"{who} may not decide this, and asked for more or handed it on")

    def _eligible(self, question: Question, who: str, directory: object, asked: Asked) -> bool:
        """True if this person may decide the question by the directory of that time, or if the bundle lacks that."""
        extract = self.case.extracts.get(str(directory))
        if extract is None:
            self.unproven.add(str(directory))
            return True
        person = extract.people.get(who)
        if person is None or person.standing != "person" or barred(self.case, question, who, directory) is not None:
            return False
        keys = keys_of(question.terms, escalated=asked.escalated)
        return any(key.startswith(f"{GroupSource.SLACK_GROUP}:") or holds(key, who, person) for key in keys)

    def _voted(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        data, voter = event["data"], event["actor"]["id"]
        self.votes += 1
        if asked.status != REQUESTED:
            self.fault(event, f"the vote of {voter} came after the question was {asked.status}")
        if asked.edited:
            self.fault(event, f"{voter} voted on what was edited since")
        if event["actor"]["kind"] != "person":
            self.fault(event, f"{event['actor']['kind']}:{voter} is no person, and voted")
        if data["choice"] not in _CHOICES.get(asked.kind, ()):
            self.fault(event, f"{data['choice']!r} is no answer to this")
        elif (data["choice"] == "reject" or asked.kind == IN_DOUBT) and data.get("reason_given") is not True:
            self.fault(event, "it gives no reason")
        groups = frozenset(map(str, data.get("groups") or ()))
        if asked.question is not None:
            self._may(event, asked, asked.question, groups)
        behalf = str(data.get("on_behalf") or "")
        counts = groups if data.get("groups") else self._groups_asked(asked)
        vote = Vote(voter, str(data["choice"]), counts, behalf, event["ts"], data.get("glass") is True)
        # A vote for somebody else speaks for both people: it replaces the earlier vote of either.
        asked.votes = {one: earlier for one, earlier in asked.votes.items() if earlier.people.isdisjoint(vote.people)}
        asked.votes[voter] = vote

    def _groups_asked(self, asked: Asked) -> frozenset[str]:
        """All groups that were asked: lines of earlier releases do not name the groups of a vote."""
        if self.whole or asked.question is None:
            return frozenset()
        return keys_of(asked.question.terms, escalated=asked.escalated)

    def _may(self, event: dict[str, Any], asked: Asked, question: Question, groups: frozenset[str]) -> None:
        """Judge if this person may vote, by the terms and the people of that time."""
        data, voter, terms = event["data"], event["actor"]["id"], question.terms
        if seconds_between(asked.at, event["ts"]) >= (terms.expires_seconds or EXPIRES_SECONDS) + CLOCK_SECONDS:
            self.fault(event, f"the vote of {voter} came after the question had expired")
        if self.whole and not groups:
            self.fault(event, f"the vote of {voter} counts for no group")
        glass = data.get("glass") is True
        if glass and (why := no_glass(asked.kind, terms, data, groups)) is not None:
            self.fault(event, f"{voter} broke the glass, and {why}")
        if not glass and (strange := sorted(groups - keys_of(terms, escalated=asked.escalated))):
            self.fault(event, f"the vote of {voter} counts for {strange[0]}, which was not asked")
        behalf = str(data.get("on_behalf") or "")
        for who in filter(None, (voter, behalf)):
            role = barred(self.case, question, who, data.get("directory"))
            if role is not None and not glass:
                self.fault(event, f"{who} shaped this as {role}, and voted on it")
            if who in self._movers and role is None and Role.EDITOR not in terms.allow and not glass:
                self.fault(event, f"{who} moved the run to another version, and voted on what comes")
            if who in asked.answered and not asked.answers_count and not glass:
                self.fault(event, f"{who} answered a question about this, and voted on it")
        if behalf:
            self._delegated(event, asked, behalf, groups)
        self._member(event, data.get("directory"), voter, groups)
        if self.whole and not (isinstance(data.get("identity"), dict) and data["identity"]):
            self.fault(event, f"nothing says how {voter} was known")
        if asked.kind == ACTION and (why := no_login(event, asked.at, terms.step_up_seconds)) is not None:
            self.fault(event, why)

    def _member(self, event: dict[str, Any], directory: object, voter: str, groups: frozenset[str]) -> None:
        extract = self.case.extracts.get(str(directory))
        if extract is None:
            self.unproven.add(str(directory))
            return
        person = extract.people.get(voter)
        if person is None or person.standing != "person":
            self.fault(event, f"{voter} could not vote by the directory of that time")
            return
        behalf = str(event["data"].get("on_behalf") or "")
        whose, holder = (behalf, extract.people.get(behalf)) if behalf else (voter, person)
        ours = {key for key in groups if not key.startswith(f"{GroupSource.SLACK_GROUP}:")}
        if strange := sorted(key for key in ours if holder is None or not holds(key, whose, holder)):
            self.fault(event, f"{whose} was not in {strange[0]} by the directory of that time")

    def _delegated(self, event: dict[str, Any], asked: Asked, behalf: str, groups: frozenset[str]) -> None:
        """Judge if the voter might stand in for another person, by that person's record at that time."""
        voter, own = event["actor"]["id"], asked.votes.get(behalf)
        extract = self.case.extracts.get(str(event["data"].get("directory")))
        if own is not None and not own.behalf:
            self.fault(event, f"{voter} voted for {behalf}, who had voted")
        if strange := sorted(key for key in groups if not may_be_delegated(key)):
            self.fault(event, f"{voter} voted for {behalf} as one of {strange[0]}, which nobody does for another")
        if extract is not None and not decides_for(extract, voter, behalf, event["ts"]):
            self.fault(event, f"{voter} voted for {behalf}, whose record did not say so at that time")

    def _decided(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        outcome = str(event["data"]["outcome"])
        if asked.status != REQUESTED:
            self.fault(event, f"the question was {asked.status} already")
        asked.status, asked.decided_at = outcome, event["ts"]
        choice = _OUTCOMES.get(outcome, outcome)
        if outcome == CANCELED:
            if event["actor"]["kind"] == "person":
                self.fault(event, "people do not cancel questions")
            return
        if choice not in _CHOICES.get(asked.kind, ()):
            self.fault(event, f"{outcome!r} answers no such question")
        elif choice == "reject":
            if not any(vote.choice == choice for vote in asked.votes.values()):
                self.fault(event, "nobody rejected it")
        elif not asked.carried(asked.votes, choice):
            self.fault(event, f"the votes do not meet its terms for {choice!r}: {_counted(asked, choice)}")
        last = [*asked.votes.values()][-1:]
        if not last or last[0].voter != event["actor"]["id"] or last[0].choice != choice:
            self.fault(event, "no vote decided it")

    def _escalated(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        question = asked.question
        escalation = None if question is None else question.terms.escalate
        if asked.status != REQUESTED:
            self.fault(event, f"it is escalated although it was {asked.status}")
        if question is not None and escalation is None:
            self.fault(event, "its terms know no escalation")
        elif (
            escalation is not None and seconds_between(asked.at, event["ts"]) + CLOCK_SECONDS < escalation.after_seconds
        ):
            self.fault(event, "it is escalated before its time")
        asked.escalated = True

    def _expired(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        if asked.status != REQUESTED:
            self.fault(event, f"it expires although it was {asked.status}")
        asked.status = "expired"

    def _superseded(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        if asked.status not in (REQUESTED, "approved", "happened", "again"):
            self.fault(event, f"it is superseded although it was {asked.status}")
        elif asked.used and asked.kind != ACTION:
            self.fault(event, "it is superseded although it was used")
        asked.status = "superseded"

    def _consumed(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        if asked.kind == ACTION or asked.status not in ("approved", "happened", "again"):
            self.fault(event, f"an answer is used that was {asked.status}")
        if asked.used:
            self.fault(event, "the answer was used before")
        self._judge_use(event, asked)

    def _intended(self, event: dict[str, Any], asked: Asked | None) -> None:
        assert asked is not None
        if asked.kind != ACTION:
            self.fault(event, "an action was let out by the answer to another question")
        self._judge_use(event, asked)

    def _judge_use(self, event: dict[str, Any], asked: Asked) -> None:
        """Judge if the answer stands when it is used: it is fresh, and its voters may still vote."""
        question = asked.question
        if asked.edited:
            self.fault(event, "an approval of something else is used: it was edited since")
        first = not asked.used
        asked.used.append(event["seq"])
        if question is None or not asked.decided_at:
            return
        old = seconds_between(asked.decided_at, event["ts"]) - question.terms.fresh_seconds
        if first and old > CLOCK_SECONDS:
            self.fault(event, "the approval was too old when it was used")
        if glass_closed(question.terms, asked.decided_at, event["ts"], [one.glass for one in asked.votes.values()]):
            self.fault(event, "the glass was closed again when it was used")
        choice = _OUTCOMES.get(asked.status, asked.status)
        directory = event["data"].get("directory")
        if (extract := self.case.extracts.get(str(directory))) is None or choice in _NO:
            return
        votes = {}
        for voter, vote in asked.votes.items():
            person = extract.people.get(voter)
            if person is None or person.standing != "person":
                continue
            if not vote.glass and any(barred(self.case, question, one, directory) is not None for one in vote.people):
                continue
            whose, holder = voter, person
            if vote.behalf:
                if not decides_for(extract, voter, vote.behalf, vote.at):
                    continue
                whose, holder = vote.behalf, extract.people[vote.behalf]
            slack = f"{GroupSource.SLACK_GROUP}:"
            own = frozenset(key for key in vote.groups if key.startswith(slack) or holds(key, whose, holder))
            votes[voter] = Vote(voter, vote.choice, own, vote.behalf, glass=vote.glass)
        if not asked.carried(votes, choice):
            self.fault(event, "by the directory of that time, the votes did not meet its terms any more")


def _counted(asked: Asked, choice: str) -> str:
    people = sorted(vote.voter for vote in asked.votes.values() if vote.choice == choice)
    wanted = "" if asked.question is None else ", ".join(
        f"{group.of} of {group.group}" for group in asked.question.terms.approvers
    )  # fmt: skip
    two = " and two people" if asked.question is not None and asked.question.terms.two_person else ""
    return f"{', '.join(people) or 'nobody'} of {wanted}{two}"
