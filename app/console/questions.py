"""Questions as pages show them: who may decide, who may see the values, which answers would count now.

Nothing is decided here. An answer that is offered is judged again when it is sent, by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from app.access import Role
from app.console.sessions import Viewer
from app.faces import Faces
from approvals import glass, talk
from approvals.content import PARTS, CardContent, CardState
from approvals.electorate import members_of, reason_of
from approvals.model import ApprovalKind, ApprovalStatus, Choice, Statement, VoteChannel, choices_of
from approvals.ports import Membership
from approvals.quorum import Counted, NotCounted, RefusalCode, consider, glass_vote
from approvals.talk import Saying
from approvals.tally import current_votes, excluded, plans, progress
from core.canonical import Json
from core.identity import Directory, Kind, principal
from core.terms import GroupQuorum, GroupSource
from runtime.requests.directory import NO_GROUPS, as_people, voter_of
from runtime.store.approvals import StoredApproval

# A state of a card: the symbol, and its word.
SHOWN: dict[CardState, tuple[str, str]] = {
    CardState.PENDING: ("waiting", "Waiting"),
    CardState.RECORDED: ("approved", "Approved"),
    CardState.EXECUTING: ("executing", "Executing"),
    CardState.APPLIED: ("applied", "Applied"),
    CardState.ALTERED: ("failed", "Altered"),
    CardState.FAILED: ("failed", "Failed"),
    CardState.IN_DOUBT: ("in-doubt", "In doubt"),
    CardState.REJECTED: ("rejected", "Rejected"),
    CardState.EXPIRED: ("expired", "Expired"),
    CardState.SUPERSEDED: ("superseded", "Superseded"),
    CardState.CANCELED: ("canceled", "Canceled"),
}
_ENDS = {
    ApprovalStatus.APPROVED: CardState.RECORDED,
    ApprovalStatus.REJECTED: CardState.REJECTED,
    ApprovalStatus.EXPIRED: CardState.EXPIRED,
    ApprovalStatus.CANCELED: CardState.CANCELED,
    ApprovalStatus.SUPERSEDED: CardState.SUPERSEDED,
    ApprovalStatus.REQUESTED: CardState.PENDING,
}
_COMPARED = ("title", "target", "operation", "system", "tier")
NOT_YOURS = "not your question"
NO_ROLE_CODE = "no_role"
NO_ROLE = "Your login does not have the role approver, so it answers no question."


@dataclass(frozen=True, slots=True)
class May:
    """The rights of one viewer to a question: the ``choices`` that would count, or ``why`` none does.

    ``asked``: a group of theirs is asked, so that they see its values. ``step_up``: they could approve it after a
    fresh login for it. ``glass``: they may use emergency access (break-glass) for it.
    """

    choices: tuple[Choice, ...]
    why: str
    code: str
    asked: bool
    groups: tuple[str, ...]
    step_up: bool = False
    glass: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """A person of an asked group. ``why`` is the reason why they may not decide, ``answer`` theirs."""

    name: str
    group: str
    you: bool
    why: str = ""
    answer: str = ""


async def slack_groups(faces: Faces, viewer: Viewer, people: Directory, wanted: Sequence[GroupQuorum]) -> Membership:
    """The Slack groups, of those that are asked, that the viewer is in now. Slack is called only if some are asked."""
    asked = [group for group in wanted if group.source is GroupSource.SLACK_GROUP]
    entry = people.entry(principal(Kind.PERSON, viewer.who.subject))
    return await faces.directory(viewer.who.tenant).slack_membership(entry, asked) if asked else NO_GROUPS


def name_of(people: Directory, text: str) -> str:
    """The name of somebody, as the directory has it now; the text itself if it does not know them."""
    entry = people.entry(text)
    return text if entry is None else entry.name


def groups_of(stored: StoredApproval) -> list[GroupQuorum]:
    """The groups that may decide now, each once."""
    return [*{group.key: group for plan in plans(stored.approval) for group in plan}.values()]


def rights(
    stored: StoredApproval, viewer: Viewer, people: Directory, slack: Membership, fresh: datetime | None = None
) -> May:
    """The rights of the viewer to the question, by the rules that will judge the answer. ``fresh``: a fresh login."""
    approval = as_people(stored.approval, people)
    named = principal(Kind.PERSON, viewer.who.subject)
    voter = voter_of(named, people.entry(named), slack, approval, people)
    wanted = groups_of(stored)
    keys = (voter.groups - voter.unresolvable).union(
        *(one.groups for one in voter.decides_for if one.delegation.holds(stored.now))
    )
    own = tuple(group.words for group in wanted if group.key in keys)
    approver = viewer.has(Role.APPROVER)
    choices, refused, again = [], None, False
    for choice in choices_of(approval.kind, str(stored.card.get("connector") or "")):
        judged = consider(approval, voter, choice, "a reason", at=stored.now, channel=VoteChannel.CONSOLE, fresh=fresh)
        if isinstance(judged, NotCounted):
            again = again or judged.code is RefusalCode.STEP_UP
            refused = refused or judged
        else:
            choices.append(choice)
    entry = people.entry(named)
    tried: Counted | NotCounted | None = glass.refused(approval, voter, entry, "why", stored.now, (None, None))
    tried = tried or glass_vote(approval, voter, "why", at=stored.now, channel=VoteChannel.CONSOLE, fresh=fresh)
    again = again or (isinstance(tried, NotCounted) and tried.code is RefusalCode.STEP_UP)
    asked = approver and bool(own)
    if not approver:
        return May((), NO_ROLE, NO_ROLE_CODE, asked, own)
    why, code = ("", "") if choices or refused is None else (refused.sentence, str(refused.code))
    return May(tuple(choices), why, code, asked, own, again, glass=isinstance(tried, Counted))


def offers(
    stored: StoredApproval, viewer: Viewer, people: Directory, slack: Membership, remarks: Sequence[Statement]
) -> tuple[Saying, ...]:
    """The things that the viewer may say about the question now, by the rules that will judge them."""
    approval, named = as_people(stored.approval, people), principal(Kind.PERSON, viewer.who.subject)
    voter = voter_of(named, people.entry(named), slack, approval, people)
    return talk.offered(approval, voter, remarks, stored.now)


def seats(stored: StoredApproval, viewer: Viewer, people: Directory) -> list[Seat]:
    """The people of the asked groups: the viewer first, then who may, then who may not and why. At most fifty."""
    approval = as_people(stored.approval, people)
    barred = excluded(approval.terms, approval.contributors)
    answers = {vote.voter: f"{vote.choice}" for vote in current_votes(approval.votes)}
    found = []
    for group in groups_of(stored):
        if group.source is GroupSource.SLACK_GROUP:
            found.append(Seat(f"The members of the Slack group {group.group}", "", you=False))
            continue
        for entry in (people.entries[one] for one in members_of(group, people)):
            why = PARTS[barred[entry.id]] if entry.id in barred else ""
            found.append(
                Seat(
                    entry.name, reason_of(group, people), entry.id == viewer.who.subject, why, answers.get(entry.id, "")
                )
            )
            away = entry.delegate
            deputy = people.entries.get(away.to) if away is not None and away.holds(stored.now) else None
            if deputy is not None:
                out = PARTS[barred[deputy.id]] if deputy.id in barred else ""
                you = deputy.id == viewer.who.subject
                found.append(Seat(deputy.name, f"{reason_of(group, people)}, for {entry.name}", you, out or why))
    return sorted(found, key=lambda seat: (not seat.you, bool(seat.why), seat.name))[:50]


def content_for(stored: StoredApproval, viewer: Viewer, mine: May, *, shaped: bool) -> tuple[CardContent, str]:
    """The card as this viewer may see it, and why values are withheld; "" if all are shown.

    Sensitive values are shown to the people who are asked. Approvers who are not asked see no values at all, and
    neither do auditors: nobody has disclosed the values to them.
    """
    content = CardContent.from_json(stored.card)
    if mine.asked:
        return content, ""
    if viewer.has(Role.OPERATOR, Role.ADMIN) or shaped:
        return content.masked(), "shown to those who may decide" if content.sensitive else ""
    every = {*content.sensitive, *(c.field for c in content.changes), *(i.field for i in content.inputs)}
    every |= {source.field for source in content.sources}
    return hidden(content, every), NOT_YOURS


def hidden(content: CardContent, names: set[str]) -> CardContent:
    """The card without the values of these fields."""
    agent = None if content.agent is None else replace(content.agent, says="")
    masked = replace(content, sensitive=tuple(sorted(names)), agent=agent, edits=()).masked()
    return replace(masked, **dict.fromkeys(("evidence", "reverse", "question", "link", "answer"), ""))


def state_of(stored: StoredApproval) -> tuple[str, str]:
    """The symbol and the word for the state of a question in a list."""
    return SHOWN[CardState(stored.outcome) if stored.outcome else _ENDS[stored.approval.status]]


def outside(content: CardContent) -> list[Any]:
    """The values that nobody of ours chose."""
    return [source for source in content.sources if not source.ours]


def asks(content: CardContent, kind: ApprovalKind, *, open_: bool) -> str:
    """The title of the page: the question."""
    title = (content.question if open_ and content.question else content.title).rstrip()
    if not open_:
        return title
    if kind is ApprovalKind.IN_DOUBT:
        return f"Did this happen: {title.rstrip('?')}?"
    return title if title.endswith("?") else f"{title}?"


def escalates(stored: StoredApproval) -> tuple[datetime, str] | None:
    """The escalation that is still to come: its time, and who may then decide as well."""
    later = stored.approval.terms.escalate
    if later is None or stored.approval.escalated:
        return None
    return stored.created_at + timedelta(seconds=later.after_seconds), later.to.group


def counts(stored: StoredApproval) -> list[str]:
    """The progress of each group: `0 of 1 from leads`."""
    return [f"{len(one.names)} of {one.group.of} from {one.group.words}" for one in progress(stored.approval)]


def differences(seen: CardContent, now: CardContent) -> list[tuple[str, Json, Json]]:
    """The differences of two questions: label, old value, new value. A masked value never counts as different."""
    found: list[tuple[str, Json, Json]] = []
    for word, old, new in (
        *_pairs("before", seen, now),
        *_pairs("after", seen, now),
        *((name, getattr(seen, name), getattr(now, name)) for name in _COMPARED),
        ("rule", ", ".join(rule.id for rule in seen.rules), ", ".join(rule.id for rule in now.rules)),
        ("policy", f"{seen.policy_name} {seen.policy_version}", f"{now.policy_name} {now.policy_version}"),
    ):
        if old != new:
            found.append((word, old, new))
    return found


def _pairs(side: str, seen: CardContent, now: CardContent) -> list[tuple[str, Json, Json]]:
    was = {change.field: getattr(change, side) for change in seen.changes}
    be = {change.field: getattr(change, side) for change in now.changes}
    if side == "after":
        was |= {item.field: item.value for item in seen.inputs}
        be |= {item.field: item.value for item in now.inputs}
    return [(f"{name} {side}", was.get(name), be.get(name)) for name in dict.fromkeys((*was, *be))]
