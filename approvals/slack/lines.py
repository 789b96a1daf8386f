"""The words of a card, line by line: our labels, and everything from the request in monospace."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from approvals.content import CardContent, CardState
from approvals.model import ApprovalKind, CardView, Choice, TaskView, Vote
from approvals.slack.text import code, entry, literal
from approvals.tally import current_votes
from core.canonical import Json

HEADINGS = {
    CardState.PENDING: "Approval needed",
    CardState.RECORDED: "Decision recorded",
    CardState.EXECUTING: "Approved, being carried out",
    CardState.APPLIED: "Done",
    CardState.FAILED: "Failed",
    CardState.IN_DOUBT: "In doubt",
    CardState.REJECTED: "Rejected",
    CardState.EXPIRED: "Expired: nothing was done",
    CardState.SUPERSEDED: "Void: what was asked has changed",
    CardState.CANCELED: "Canceled",
}
SAID = {
    Choice.APPROVE: "approved",
    Choice.REJECT: "rejected",
    Choice.HAPPENED: "says that it happened",
    Choice.AGAIN: "says to do it again",
    Choice.FAIL: "says to count it as failed",
}


def heading(view: CardView) -> str:
    """The first line of a card: what is asked, or what became of it."""
    if view.state is CardState.PENDING and view.kind is ApprovalKind.IN_DOUBT:
        return "In doubt: what became of this?"
    return HEADINGS[view.state]


def content_lines(content: CardContent) -> list[str]:
    """Everything about the request, complete: first what decides, then where it comes from."""
    return [*decision_lines(content), *detail_lines(content)]


def decision_lines(content: CardContent) -> list[str]:
    """What a person needs in order to decide: what is asked, what would change, why people are asked."""
    return [
        *entry("*Request*", content.title),
        *(entry("*Summary*", content.summary) if content.summary != content.title else []),
        *_section(
            "*Changes*",
            (_values(c.field, before=c.before, after=c.after) for c in content.changes),
        ),
        *_section("*Why people are asked*", (_rule(rule.id, rule.because) for rule in content.rules)),
        *(entry("*What the target system says*", content.evidence) if content.evidence else []),
        *_weight(content),
        *reversal_lines(content),
        *entry("*Requested by*", content.requester),
        f"*Expires* {moment(content.expires_at)}" if content.expires_at else "*Expires* never by itself",
    ]


def _weight(content: CardContent) -> list[str]:
    line = f"*Risk* {content.risk}"
    return entry(f"{line} · approval tier", content.tier) if content.tier else [line]


def detail_lines(content: CardContent) -> list[str]:
    """Exactly what would be sent where, and what it belongs to."""
    return [
        *entry("Target", content.target),
        *entry("Operation", content.operation),
        *_section("Also sent", (_values(item.field, value=item.value) for item in content.inputs)),
        *origin_lines(content),
        *(_policy(content) if content.policy_name else []),
    ]


def origin_lines(asked: CardContent | TaskView) -> list[str]:
    """Which run asks, and where in it."""
    return [
        *(entry("Reference", asked.reference) if asked.reference else []),
        *entry("Workflow", asked.workflow, note=f"version {asked.workflow_version}"),
        *entry("Step", asked.step),
        *entry("Run", asked.run_id),
    ]


def _policy(content: CardContent) -> list[str]:
    return [
        *entry("Policy", content.policy_name, note=f"version {content.policy_version}"),
        *entry("Policy digest", content.policy_digest_short),
    ]


def reversal_lines(content: CardContent) -> list[str]:
    """Whether it can be undone, and how."""
    if not content.reversible:
        return ["*Cannot be undone*"]
    return entry("*Can be undone:*", content.reverse) if content.reverse else ["*Can be undone*"]


def _values(field: str, **values: Json) -> list[str]:
    """A field and its values by their labels, in the order in which one becomes the other."""
    read = [(label, *literal(value)) for label, value in values.items()]
    shown = [" ".join([*([code(text)] if text else []), *([note] if note else [])]) for _, text, note in read]
    line = f"• {code(field)} {' → '.join(shown)}"
    if len(line) <= 400 and not any("\n" in text for _, text, _ in read):
        return [line]
    lines = entry("• Field", field)
    for label, text, note in read:
        lines += entry(label, text, note=note) if text else [f"{label} {note}"]
    return lines


def outcome_lines(view: CardView) -> list[str]:
    """What became of it, unless a vote's reason, which is shown as well, says just that; and what was told late."""
    late = entry("*Late answer*", view.late) if view.late else []
    if not view.detail or any(view.detail == vote.reason for vote in current_votes(view.votes)):
        return late
    return [*entry("*Outcome*", view.detail), *late]


def vote_lines(view: CardView) -> list[str]:
    """Votes so far, and how many are needed of whom."""
    counts = [entry(f"• {len(one.names)} of {one.group.of} from", one.group.group) for one in view.progress]
    if view.two_person and counts:
        counts.append(["• at least two people, each counting once"])
    return _section("*Votes*", [*counts, *map(_vote, current_votes(view.votes))])


def _vote(vote: Vote) -> list[str]:
    lines = entry(f"• {SAID[vote.choice]}:", vote.name, note=f"{moment(vote.at)}, by {vote.channel}")
    return [*lines, *(entry("reason:", vote.reason) if vote.reason else [])]


def _rule(rule: str, because: str) -> list[str]:
    return [*entry("• rule", rule), *(entry("because:", because) if because else [])]


def _section(title: str, entries: Iterable[list[str]]) -> list[str]:
    body = list(chain.from_iterable(entries))
    return [title, *body] if body else []


def moment(iso: str) -> str:
    """A time in the reader's own time zone, and in UTC where Slack cannot tell."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return "at an unreadable time"
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    words = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{words}>"
