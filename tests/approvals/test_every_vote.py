"""Every way in which a vote is judged, with whole answers: codes, sentences, what is recorded, and what is lacking."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from approvals.content import PARTS
from approvals.electorate import unanswerable
from approvals.model import Approval, ApprovalKind, ApprovalStatus, Choice, Vote, VoteChannel, Voter, choices_of
from approvals.quorum import consider
from approvals.tally import (
    carried,
    eligible_keys,
    plans,
    progress,
    resolved,
    separated,
    shaped,
    shortfalls,
    stuck_requesters,
    valid_votes,
)
from core.identity import Contributor, Directory, Entry, Role, Standing
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-3")

EXPECTED = Path(__file__).with_name("every_vote.json")
NOW = datetime(2026, 8, 1, 12, 3, 4, 567_890, tzinfo=UTC)
LEADS, OWNERS, DUTY = GroupQuorum("leads", 2), GroupQuorum("owners", 1), GroupQuorum("duty", 1)
SLACK = GroupQuorum("S0IT", 1, GroupSource.SLACK_GROUP)
RITA = Contributor(Role.REQUESTER, "person:rita", "rita")
ED = Contributor(Role.EDITOR, "person:ed", "ed")


def voter(person: str, *groups: str, unknown: tuple[str, ...] = (), standing: Standing = Standing.PERSON) -> Voter:
    return Voter(person, person.title(), frozenset(groups), frozenset(unknown), standing)


def vote(person: str, *groups: str, choice: Choice = Choice.APPROVE, digest: str = "d1") -> Vote:
    at = "2026-08-01T11:00:00+00:00"
    return Vote(person, person.title(), choice, "", frozenset(groups), VoteChannel.SLACK, at, digest)


def told(value: Any) -> Any:
    """The value as JSON, with the groups of a vote in order."""
    if isinstance(value, Struct):
        return told(to_builtins(value))
    if isinstance(value, dict):
        return {name: sorted(item) if name == "groups" else told(item) for name, item in value.items()}
    return [told(item) for item in value] if isinstance(value, list | tuple) else value


ANN = voter("ann", "group:leads")
BOTH = voter("ann", "group:leads", "group:owners", "group:strangers")


def judged(one: Approval) -> dict[str, Any]:
    """Judge many votes: the first of several reasons, and both sides of each."""

    def said(
        who: Voter, choice: Choice = Choice.APPROVE, reason: str = " because ", on: Approval = one, **more: Any
    ) -> Any:
        how = {"at": NOW, "channel": VoteChannel.CONSOLE, "nonce": "nonce-1", "digest": "d1", **more}
        return told(consider(on, who, choice, reason, **how))

    wide = replace(one, terms=Terms(Tier.HIGH, (LEADS, OWNERS)))
    late = replace(one, terms=replace(wide.terms, escalate=Escalation(60, DUTY, frozenset({LEADS.key}))))
    doubt = replace(wide, kind=ApprovalKind.IN_DOUBT)
    three = ("group:leads", "group:owners", "slack_group:S0IT")
    slack = replace(one, terms=Terms(Tier.LOW, (LEADS, OWNERS, SLACK)))
    pair = replace(one, terms=Terms(Tier.LOW, (LEADS,), two_person=True))
    done = {
        status: replace(wide, status=status, votes=votes)
        for status, votes in (
            (ApprovalStatus.APPROVED, (vote("bob"), vote("cat", choice=Choice.AGAIN), vote("dan", choice=Choice.FAIL))),
            (ApprovalStatus.REJECTED, (vote("bob"), vote("cat", choice=Choice.REJECT))),
            (ApprovalStatus.EXPIRED, (vote("bob"),)),
            (ApprovalStatus.CANCELED, ()),
            (ApprovalStatus.SUPERSEDED, ()),
        )
    }
    return {
        "one of two": said(ANN, on=wide),
        "no nonce and no digest": said(ANN, on=wide, nonce=None, digest=None),
        "empty nonce": said(ANN, nonce=""),
        "empty digest": said(ANN, digest=""),
        "another nonce before another digest": said(ANN, nonce="n", digest="d"),
        "expired before another nonce": said(ANN, on=replace(one, expires_at=NOW), nonce="n"),
        "just before the end": said(ANN, on=replace(one, expires_at=NOW + timedelta(microseconds=1))),
        "over before expired": said(ANN, on=replace(done[ApprovalStatus.APPROVED], expires_at=NOW), nonce="n"),
        "decided by nobody known": said(ANN, on=replace(one, status=ApprovalStatus.REJECTED, votes=(vote("bob"),))),
        **{f"over: {status}": said(ANN, on=each) for status, each in done.items()},
        "groups that count": said(BOTH, on=wide),
        "the second decides": said(BOTH, on=replace(wide, votes=(vote("bob", "group:leads"),))),
        "of three groups none": said(voter("zed", "group:x"), on=slack),
        "of three groups two unknown": said(voter("zed", unknown=(*three[1:], "group:x")), on=slack),
        "of three groups all unknown": said(voter("zed", unknown=three), on=slack),
        "one unknown and one known": said(voter("zed", three[0], unknown=three[1:]), on=slack),
        "in an unknown group": said(voter("zed", three[2], unknown=three[2:]), on=slack),
        "nobody named": said(ANN, on=replace(one, terms=Terms(Tier.LOW, ()))),
        **{f"standing: {each}": said(voter("x", "group:leads", standing=each)) for each in Standing},
        "who shaped it before who left": said(voter("rita", "group:x", standing=Standing.DEACTIVATED)),
        "who left before a wrong group": said(voter("x", "group:x", standing=Standing.DEACTIVATED)),
        "a wrong group before a wrong choice": said(voter("x", "group:x"), Choice.AGAIN),
        **{
            f"shaped: {role}": said(ANN, on=replace(one, contributors=(Contributor(role, "p", "ann"),)))
            for role in Role
        },
        "shaped, and allowed": said(
            ANN,
            on=replace(
                wide, terms=replace(wide.terms, allow=(Role.EDITOR,)), contributors=(replace(ED, person="ann"),)
            ),
        ),
        **{f"asked of an action: {each}": said(ANN, each) for each in Choice},
        **{f"asked of a gate: {each}": said(ANN, each, on=replace(one, kind=ApprovalKind.GATE)) for each in Choice},
        **{f"asked in doubt: {each}": said(ANN, each, on=doubt) for each in Choice},
        "without a reason": said(ANN, reason=" \n "),
        "no reason to reject": said(ANN, Choice.REJECT, " \n "),
        "no reason in doubt": said(ANN, Choice.FAIL, "", on=doubt),
        "too long a reason": said(ANN, reason="x" * 2001),
        "the longest reason, with spaces around it": len(said(ANN, reason=f" {'x' * 2000} ")["vote"]["reason"]),
        "said before": said(ANN, on=replace(wide, votes=(vote("ann", "group:leads"),))),
        "said before, now of more groups": said(BOTH, on=replace(wide, votes=(vote("ann", "group:leads"),))),
        "said before, then of more groups": said(ANN, on=replace(wide, votes=(vote("ann", *three),))),
        "said before of another action": said(ANN, on=replace(wide, votes=(vote("ann", *three, digest="d0"),))),
        "said before by another": said(ANN, on=replace(wide, votes=(vote("bob", "group:leads"),))),
        "said otherwise before": said(
            ANN, Choice.HAPPENED, on=replace(doubt, votes=(vote("ann", "group:leads", choice=Choice.FAIL),))
        ),
        "the escalation's, too early": said(voter("dot", "group:duty"), on=late),
        "the escalation's": said(voter("dot", "group:duty"), on=replace(late, escalated=True)),
        "the escalation's, and decides": said(
            voter("dot", "group:duty"), on=replace(late, escalated=True, votes=(vote("bob", "group:owners"),))
        ),
        "two of three in doubt": said(
            BOTH, Choice.AGAIN, on=replace(doubt, votes=(vote("bob", "group:leads", choice=Choice.HAPPENED),))
        ),
        "two in doubt and decided": said(
            BOTH, Choice.AGAIN, on=replace(doubt, votes=(vote("bob", "group:leads", choice=Choice.AGAIN),))
        ),
        "of two persons the first": said(ANN, on=replace(wide, terms=replace(wide.terms, two_person=True))),
        "of two persons of one group the first": said(ANN, on=pair),
    }


def counted(one: Approval) -> dict[str, Any]:
    """Plans, and how far each is, with votes that count and votes that do not."""
    votes = (
        vote("ann", "group:leads", "group:owners"),
        vote("bob", "group:leads", choice=Choice.REJECT),
        vote("rita", "group:leads"),
        vote("old", "group:leads", digest="d0"),
        vote("dot", "group:duty"),
        vote("bob", "group:owners"),
    )
    of = Terms(Tier.HIGH, (LEADS, OWNERS, SLACK), escalate=Escalation(60, DUTY, frozenset({LEADS.key, SLACK.key})))
    asked = replace(one, terms=of, votes=votes, contributors=(RITA, ED))
    escalated = replace(asked, escalated=True)
    found: dict[str, Any] = {}
    for name, each in (("asked", asked), ("escalated", escalated)):
        found[f"{name}: plans"] = told(plans(each))
        found[f"{name}: keys"] = sorted(eligible_keys(each))
        for choice in Choice:
            found[f"{name}: {choice}"] = told(progress(each, choice))
    found["as a rule"] = told(progress(asked))
    found["valid"] = [[each.voter, each.choice] for each in valid_votes(asked)]
    found["separated"] = {name: separated(asked, name) for name in ("rita", "ed", "ann")}
    waived = replace(asked, terms=replace(of, allow=(Role.EDITOR,)))
    found["waived"] = {name: [separated(waived, name), shaped(waived, name)] for name in ("rita", "ed", "ann")}
    return found


GROUPS = {"leads": frozenset({"ann", "bob"}), "owners": frozenset({"ann"}), "none": frozenset[str]()}
PEOPLE = Directory.of(
    "d1",
    [
        Entry("ann", "Ann Lee", groups=frozenset({"leads", "owners"}), principals=("slack:T1/U1", "email:a@b.example")),
        Entry("bob", "Bob", groups=frozenset({"leads"}), principals=("slack:U2",)),
        Entry("cat", "Cat", groups=frozenset({"leads", "owners"}), active=False, principals=("slack:U3",)),
        Entry("bot", "Bot", groups=frozenset({"leads", "owners"}), owner="ann", principals=("slack:U4",)),
        *(Entry(f"p{number}", f"P {number}", groups=frozenset({"many"})) for number in range(7)),
    ],
)


def lacking() -> dict[str, Any]:
    """Say with its remedy where people are too few: before and after a directory is asked."""
    two = GroupQuorum("leads", 3), GroupQuorum("ownerz", 1)
    cases = {
        "enough": Terms(Tier.LOW, (LEADS, OWNERS)),
        "too few and none": Terms(Tier.LOW, two),
        "nobody known by any such name": Terms(Tier.LOW, (GroupQuorum("xyzzy"), GroupQuorum("none"))),
        "of Slack": Terms(Tier.LOW, (SLACK, replace(SLACK, group="S0X", of=2), GroupQuorum("S0IT"))),
        "escalated to too few": Terms(Tier.LOW, (LEADS,), escalate=Escalation(60, GroupQuorum("owners", 2))),
        "escalated beside too few": Terms(
            Tier.LOW, (GroupQuorum("owners", 2), SLACK), escalate=Escalation(60, OWNERS, frozenset({SLACK.key}))
        ),
        "two persons of one": Terms(Tier.LOW, (OWNERS,), two_person=True),
        "two persons, three seats": Terms(Tier.LOW, (OWNERS, LEADS), two_person=True),
        "two persons of Slack and one": Terms(Tier.LOW, (OWNERS, SLACK), two_person=True),
        "two persons of Slack": Terms(Tier.LOW, (SLACK,), two_person=True),
        "two persons of each of two Slack groups": Terms(
            Tier.LOW, tuple(replace(SLACK, group=name, of=2) for name in ("S0IT", "S0X")), two_person=True
        ),
        "many": Terms(Tier.LOW, (GroupQuorum("many", 7),)),
        "one too many": Terms(Tier.LOW, (GroupQuorum("many", 8),)),
        "nobody": Terms(Tier.LOW, ()),
    }
    slack = {SLACK.key: frozenset({"T1/U1", "U2", "U3", "U4", "U9"}), "slack_group:S0X": frozenset({"U2"})}
    five, six = ([Contributor(Role.EDITOR, "p", f"p{n}") for n in range(many)] for many in (5, 6))
    found: dict[str, Any] = {}
    for name, of in cases.items():
        shaping = (RITA, Contributor(Role.AGENT_OWNER, "p", "ann"), Contributor(Role.EDITOR, "nobody", None))
        found[name] = {
            "shortfalls": told(shortfalls(of, GROUPS)),
            "stuck": stuck_requesters(of, GROUPS),
            "now": told(unanswerable(of, (), PEOPLE, slack)),
            "shaped": told(unanswerable(of, shaping, PEOPLE, slack)),
            "slack away": told(unanswerable(of, (), PEOPLE, {})),
            "slack empty": told(unanswerable(of, (), PEOPLE, {SLACK.key: frozenset()})),
            "none published": told(unanswerable(of, (), Directory.of("", []), slack)),
        }
    found["five shaped it"] = told(unanswerable(cases["many"], five, PEOPLE, {}))
    found["six shaped it"] = told(unanswerable(cases["many"], six, PEOPLE, {}))
    return found


def borne() -> dict[str, Any]:
    """Say for each choice if recorded votes carry it: by the terms as they are, and by those that it escalates to."""
    of = Terms(Tier.HIGH, (LEADS, OWNERS), escalate=Escalation(60, DUTY, frozenset({LEADS.key})))
    every = replace(of, escalate=Escalation(60, DUTY))
    leads = (vote("ann", LEADS.key), vote("bob", LEADS.key, OWNERS.key))
    later = vote("bob", LEADS.key, OWNERS.key, choice=Choice.REJECT)
    duty, owner = vote("dot", DUTY.key), vote("oli", OWNERS.key)
    ours, waived = replace(RITA, person="ann"), replace(of, allow=(Role.REQUESTER,))
    cases: dict[str, tuple[Terms, tuple[Contributor, ...], tuple[Vote, ...]]] = {
        "enough": (of, (), leads),
        "one too few": (of, (), leads[:1]),
        "one of the two changed their mind": (of, (), (*leads, later)),
        "one changed their mind back": (of, (), (leads[0], later, leads[1])),
        "who shaped it": (of, (ours,), leads),
        "who shaped it and may": (waived, (ours,), leads),
        "nobody known shaped it": (of, (replace(RITA, person=None),), leads),
        "one person for two groups twice": (of, (), (leads[1], leads[1])),
        "two persons for three seats": (replace(of, two_person=True), (), leads),
        "three persons": (replace(of, two_person=True), (), (*leads, owner)),
        "the escalation's": (of, (), (duty, owner)),
        "the escalation's without whom it leaves": (of, (), (duty,)),
        "the escalation's for all": (every, (), (duty,)),
        "about another action": (of, (), (vote("ann", LEADS.key, digest="d0"), leads[1])),
        "none": (of, (), ()),
        "no terms": (Terms(Tier.LOW, ()), (), leads),
    }
    return {
        f"carried: {name}": {
            str(choice): [carried(*each, choice, escalated=escalated) for escalated in (False, True)]
            for choice in (Choice.APPROVE, Choice.REJECT)
        }
        for name, each in cases.items()
    }


def test_votes_are_judged_as_they_were(approval: Approval) -> None:
    as_it_was(EXPECTED, {**judged(approval), **counted(approval), **lacking(), **borne()})


def test_every_part_of_a_person_has_words() -> None:
    assert set(PARTS) == set(Role)
    assert {kind: choices_of(kind) for kind in ApprovalKind} == {
        ApprovalKind.ACTION: (Choice.APPROVE, Choice.REJECT),
        ApprovalKind.GATE: (Choice.APPROVE, Choice.REJECT),
        ApprovalKind.IN_DOUBT: (Choice.HAPPENED, Choice.AGAIN, Choice.FAIL),
    }


def test_who_contributed_is_told_once_and_in_order() -> None:
    unknown = Contributor(Role.BEARER, "token:nobody", None)
    asked = [unknown, replace(RITA, principal="slack:U2", person=None), Contributor(Role.EDITOR, "slack:U4", "zoe")]
    assert resolved(asked, PEOPLE) == (
        unknown,
        Contributor(Role.REQUESTER, "slack:U2", "bob"),
        Contributor(Role.EDITOR, "slack:U4", "ann"),
        Contributor(Role.EDITOR, "slack:U4", "zoe"),
    )
