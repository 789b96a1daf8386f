"""One scene for each state of a card, and for each thing that a card may have to say: for tests and pictures."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from approvals.content import Agent, CardContent, CardState, InputField, RuleReason, ShapedBy, Source
from approvals.model import ApprovalKind, CardView, Choice, Granted, GroupProgress, Vote, VoteChannel
from approvals.slack import modals
from approvals.slack.blocks import Block
from core.action import Change, Risk
from core.terms import GroupQuorum

_ID = UUID("01890000-0000-7000-8000-000000000001")
_NEW = UUID("01890000-0000-7000-8000-000000000009")
_RECORD = "5f1d2c3b4a5968778695a4b3c2d1e0f1"
_OWNERS = GroupProgress(GroupQuorum("service-owners"), (), ("Ana Lee",))
PRIORITY = Change("priority", "5", "1", False, "Priority", "Planning", "Critical")


def _vote(name: str, choice: Choice = Choice.APPROVE, reason: str = "") -> Vote:
    groups = frozenset({"group:service-owners"})
    return Vote(name.lower(), name, choice, reason, groups, VoteChannel.SLACK, "2026-11-03T13:02:00+00:00", "d1")


CONTENT = CardContent(
    title="Update incident INC0010001 (Payroll is down for everyone in Berlin): priority",
    summary="Update incident INC0010001 (Payroll is down for everyone in Berlin): priority",
    target=f"incident/{_RECORD}",
    operation="servicenow.incident.update",
    connector="servicenow",
    risk=Risk.MEDIUM,
    reversible=True,
    reverse="servicenow.incident.update with the values read before",
    requester="person:raj.quist",
    workflow="incident-triage",
    workflow_version=4,
    run_id="01890000-0000-7000-8000-000000000002",
    reference="INC0010001",
    step="escalate",
    rules=(RuleReason("priority", "priority changes wake people up"),),
    changes=(PRIORITY,),
    inputs=(InputField("sys_id", _RECORD),),
    expires_at="2026-11-03T15:00:00+00:00",
    policy_name="it-operations",
    policy_version=7,
    policy_digest_short="9f86d0818111",
    tier="medium",
    system="https://prod.service-now.example as counterseal",
    question="Raise priority of INC0010001?",
    asker="Raj Quist",
    link=f"https://prod.service-now.example/incident.do?sys_id={_RECORD}",
)
_BASE = CardView(_ID, "4f1c", ApprovalKind.ACTION, CONTENT, CardState.PENDING, progress=(_OWNERS,))
_COMMENT = replace(
    CONTENT,
    question="Write a comment to the caller?",
    reference="INC0010009",
    asker="Ben Ortiz",
    reversible=False,
    reverse="",
    rules=(RuleReason("comments", "comments are read by the caller"),),
    changes=(
        Change(
            "comments",
            None,
            "The order system is back since 11:20. Please try again and tell us if anything is missing.",
        ),
    ),
)
_MAIL = replace(
    CONTENT,
    question="Send payslips to an outsider?",
    reference="INC0010007",
    operation="mail.message.send",
    target="mail",
    reversible=False,
    reverse="",
    rules=(RuleReason("mail", "we cannot see what a mail does"),),
    changes=(Change("to", None, "hr-desk@payroll-berg.example"), Change("file", None, "payslips-2026-10.zip")),
    inputs=(),
    sources=(
        Source(
            "to",
            "is the whole of a field that anyone may write:",
            "servicenow.incident.get#/description",
            False,
            "hr-desk@payroll-berg.example",
        ),
    ),
    agent=Agent("triage", "gpt-x", 3, "Raj Quist", ("servicenow.incident.get",), "The ticket asks for it."),
)
_GATE = replace(
    CONTENT,
    title="The papers did not come (timeout: nobody answered in 14 days). Go on without them?",
    summary="The papers did not come (timeout: nobody answered in 14 days). Go on without them?",
    question="Go on without the papers?",
    target="C-1009",
    reference="C-1009",
    operation="approve",
    connector="workflow",
    changes=(),
    inputs=(),
    rules=(),
    link="",
    policy_name="",
    reverse="Nothing is done by the answer itself.",
)
_DOUBT = replace(
    CONTENT,
    question="Raise priority of INC0010001?",
    rules=(),
    sent_at="2026-11-03T12:41:00+00:00",
    evidence="the record went from version 4 to 5, last changed by raj.quist",
)
_DECIDED = replace(_BASE, votes=(_vote("Ana Lee"),), progress=(), decided_at="2026-11-03T13:02:00+00:00")
_GRANTED = Granted(2, 1, "2026-11-03T17:02:00+00:00", True)
_MANY = tuple(Change(f"field_{number}", f"before {number}", f"after {number}") for number in range(6))


def scenes() -> dict[str, CardView]:
    """The views by name; those of the design have the names of its files."""
    two = (
        GroupProgress(GroupQuorum("service-owners"), ("Ana Lee",), ("Ben Ortiz",)),
        GroupProgress(GroupQuorum("security"), (), ("Ben Ortiz", "Cara Diaz")),
    )
    refused = "It was rejected before, by Ana Lee: not during the freeze."
    shaped = (ShapedBy("Raj Quist", "requested this"), ShapedBy("Somebody unknown", "edited outside what this reads"))
    doubt = replace(_BASE, kind=ApprovalKind.IN_DOUBT, content=_DOUBT)
    doubt = replace(doubt, progress=(GroupProgress(GroupQuorum("operators"), (), ("Cara Diaz",)),))
    long = (
        "Known outage, see INC0009990. It is being worked on, and nobody needs to be woken up for it once more today."
    )
    return {
        "pending": replace(_BASE, content=_COMMENT),
        "pending-change": _BASE,
        "pending-agent": replace(_BASE, content=_MAIL),
        "pending-two": replace(_BASE, progress=two, two_person=True),
        "pending-again": replace(_BASE, content=replace(CONTENT, evidence=refused, shaped_by=shaped)),
        "pending-high": replace(_BASE, content=replace(CONTENT, risk=Risk.HIGH, reversible=False, reverse="")),
        "pending-secret": replace(_BASE, content=replace(CONTENT, sensitive=("priority",))),
        "pending-unreadable": replace(
            _BASE, content=replace(CONTENT, changes=(PRIORITY, Change("close_notes", None, "Solved", True)))
        ),
        "pending-many": replace(_BASE, content=replace(CONTENT, changes=_MANY)),
        "pending-text": replace(_BASE, content=replace(_COMMENT, changes=(Change("comments", None, "word " * 200),))),
        "pending-paused": replace(_BASE, paused="The connector servicenow is paused by cara.diaz: maintenance."),
        "pending-gate": replace(_BASE, kind=ApprovalKind.GATE, content=_GATE),
        "pending-step-up": replace(_BASE, step_up=300, link="https://counterseal.example.com/console/approvals/1"),
        "pending-old": replace(_BASE, content=replace(CONTENT, question="", asker="", link="")),
        "in-doubt": doubt,
        "decided": replace(_DECIDED, state=CardState.RECORDED),
        "executing": replace(_DECIDED, state=CardState.EXECUTING),
        "applied": replace(_DECIDED, state=CardState.APPLIED),
        "granted": replace(_DECIDED, state=CardState.APPLIED, granted=_GRANTED),
        "taken-back": replace(
            _DECIDED,
            state=CardState.APPLIED,
            granted=replace(_GRANTED, open=False, by="Cara Diaz", at="2026-11-03T13:40:00+00:00"),
        ),
        "altered": replace(
            _DECIDED, state=CardState.ALTERED, detail="The target holds something else than was asked for: priority."
        ),
        "failed": replace(
            _DECIDED, state=CardState.FAILED, detail="ServiceNow answered 403: ACL Exception Update Failed"
        ),
        "doubtful": replace(_DECIDED, state=CardState.IN_DOUBT, detail="no answer within 75 s"),
        "late": replace(_DECIDED, state=CardState.FAILED, detail="given up", late="A late answer: attempt 1 happened."),
        "rejected": replace(
            _DECIDED, state=CardState.REJECTED, votes=(_vote("Ana Lee", Choice.REJECT, "Known outage, see INC0009990"),)
        ),
        "rejected-long": replace(_DECIDED, state=CardState.REJECTED, votes=(_vote("Ana Lee", Choice.REJECT, long),)),
        "expired": replace(_BASE, state=CardState.EXPIRED, again=True),
        "superseded": replace(
            _DECIDED,
            state=CardState.SUPERSEDED,
            moved=(Change("priority", "5", "3", False, "Priority", "Planning", "Moderate"),),
            anew=_NEW,
            anew_link="https://acme.slack.com/archives/C1/p1700000000000100",
        ),
        "denied": replace(_DECIDED, state=CardState.SUPERSEDED, detail="A new policy decides otherwise."),
        "canceled": replace(
            _DECIDED, state=CardState.CANCELED, ended_by="Cara Diaz", ended_why="The wrong host was named"
        ),
    }


def windows() -> dict[str, Block]:
    """The windows by name."""
    shown = scenes()
    return {
        "window-look": modals.review(shown["pending-agent"]),
        "window-doubt": modals.review(shown["in-doubt"]),
        "window-details": modals.review(shown["failed"]),
        "window-reject": modals.reason(shown["pending"], Choice.REJECT),
        **{f"window-{choice}": modals.reason(shown["in-doubt"], choice) for choice in [*Choice][2:]},
        "window-answer": modals.answer("Ana Lee, your answer was counted, and it decides this."),
    }
