"""The words of a card, line by line: our labels, and everything from the request in monospace."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from approvals.model import ApprovalKind, CardContent, CardState, CardView, Choice, Vote
from approvals.slack.text import code, entry, literal
from approvals.tally import current_votes
from core.action import Change
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
        *_section("*Changes*", (line for change in content.changes for line in change_lines(change))),
        *_section("*Why people are asked*", (line for rule in content.rules for line in _rule(rule.id, rule.because))),
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
        *_section("Also sent", (line for item in content.inputs for line in value_lines(item.field, item.value))),
        *(entry("Reference", content.reference) if content.reference else []),
        *entry("Workflow", content.workflow, note=f"version {content.workflow_version}"),
        *entry("Step", content.step),
        *entry("Run", content.run_id),
        *(_policy(content) if content.policy_name else []),
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


def change_lines(change: Change) -> list[str]:
    """One field, before → after."""
    before, before_note = literal(change.before)
    after, after_note = literal(change.after)
    field = code(change.field)
    values = [code(before) if before else "", before_note, "→", code(after) if after else "", after_note]
    line = " ".join(["•", field, *(value for value in values if value)])
    if len(line) <= 400 and "\n" not in before + after:
        return [line]
    return [
        *entry("• Field", change.field),
        *(entry("before", before, note=before_note) if before else [f"before {before_note}"]),
        *(entry("after", after, note=after_note) if after else [f"after {after_note}"]),
    ]


def value_lines(field: str, value: Json) -> list[str]:
    """One input, as it will be sent."""
    text, note = literal(value)
    line = " ".join(part for part in ["•", code(field), code(text) if text else "", note] if part)
    if len(line) <= 400 and "\n" not in text:
        return [line]
    return [*entry("• Field", field), *(entry("value", text, note=note) if text else [f"value {note}"])]


def outcome_lines(view: CardView) -> list[str]:
    """What became of it, unless a vote's reason, which is shown as well, says just that; and what was told late."""
    late = entry("*Late answer*", view.late) if view.late else []
    if not view.detail or any(view.detail == vote.reason for vote in current_votes(view.votes)):
        return late
    return [*entry("*Outcome*", view.detail), *late]


def vote_lines(view: CardView) -> list[str]:
    """Votes so far, and how many are needed of whom."""
    lines: list[str] = []
    for progress in view.progress:
        count = f"{len(progress.names)} of {progress.group.of}"
        lines += entry(f"• {count} from", progress.group.group)
    if view.two_person and lines:
        lines.append("• at least two people, each counting once")
    for vote in current_votes(view.votes):
        lines += _vote(vote)
    return _section("*Votes*", lines)


def _vote(vote: Vote) -> list[str]:
    lines = entry(f"• {SAID[vote.choice]}:", vote.name, note=f"{moment(vote.at)}, by {vote.channel}")
    return [*lines, *(entry("reason:", vote.reason) if vote.reason else [])]


def _rule(rule: str, because: str) -> list[str]:
    return [*entry("• rule", rule), *(entry("because:", because) if because else [])]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
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
