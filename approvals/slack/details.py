"""The whole text of a request, line by line, as windows show it: ids, digests and technical inputs with the rest. Pure.

Text from the request is in monospace; everything else is ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from approvals.content import CardContent
from approvals.model import CardView, Choice, Statement, TaskView, Vote
from approvals.slack.blocks import code, entry, literal, words
from approvals.slack.sources import agent_lines, source_lines
from approvals.tally import current_votes
from core.action import Change
from core.canonical import Json

SAID = {
    Choice.APPROVE: "approved",
    Choice.REJECT: "rejected",
    Choice.HAPPENED: "says that it happened",
    Choice.AGAIN: "says to do it again",
    Choice.FAIL: "says to count it as failed",
}


SAYS = {"asks": "asks for more", "answers": "answers", "comments": "comments", "hands_on": "hands it to"}


def content_lines(content: CardContent) -> list[str]:
    """All lines about the request: first the facts for the decision, then the details."""
    return [*decision_lines(content), *detail_lines(content)]


def decision_lines(content: CardContent) -> list[str]:
    """The facts that a person needs to decide: the request, the changes, the reasons for asking."""
    risk = f"*Risk* {content.risk}"
    return [
        *entry("*Request*", content.title),
        *(entry("*Summary*", content.summary) if content.summary != content.title else []),
        *agent_lines(content),
        *_section("*Changes*", map(_change, content.changes)),
        *_section("*Edited by people*", (_values(one.field, was=one.was, now=one.now) for one in content.edits)),
        *_section("*Where it comes from*", source_lines(content)),
        *_section("*Why people are asked*", (_rule(rule.id, rule.because) for rule in content.rules)),
        *(entry("*What the target system says*", content.evidence) if content.evidence else []),
        *(entry(f"{risk} · approval tier", content.tier) if content.tier else [risk]),
        *reversal_lines(content),
        *people_lines(content),
        f"*Expires* {moment(content.expires_at)}" if content.expires_at else "*Expires* never by itself",
    ]


def people_lines(content: CardContent) -> list[str]:
    """Everybody who shaped the action, each with their part in it."""
    shaped = [entry("•", one.name, note=", ".join(filter(None, (one.did, one.note)))) for one in content.shaped_by]
    return _section("*Shaped by*", shaped) or entry("*Requested by*", content.requester)


def detail_lines(content: CardContent) -> list[str]:
    """The exact target, operation and inputs, and the run and policy behind them."""
    policy, version = content.policy_name, f"version {content.policy_version}" if content.policy_version else ""
    return [
        *entry("Target", content.target),
        *(entry("System", content.system) if content.system else []),
        *entry("Operation", content.operation),
        *_section("Also sent", (_values(item.field, value=item.value) for item in content.inputs)),
        *origin_lines(content),
        *(entry("Policy", policy, note=version) if policy else []),
        *(entry("Policy digest", content.policy_digest_short) if policy else []),
    ]


def origin_lines(asked: CardContent | TaskView) -> list[str]:
    """The run that asks, and its step."""
    return [
        *(entry("Reference", asked.reference) if asked.reference else []),
        *entry("Workflow", asked.workflow, note=f"version {asked.workflow_version}"),
        *entry("Step", asked.step),
        *entry("Run", asked.run_id),
    ]


def reversal_lines(content: CardContent) -> list[str]:
    """Lines that say if the action can be undone, and how."""
    if not content.reversible:
        return ["*Cannot be undone*"]
    return entry("*Can be undone:*", content.reverse) if content.reverse else ["*Can be undone*"]


def _change(change: Change) -> list[str]:
    """A field before and after. A value that the target did not show is said to be unreadable: it is not empty."""
    before = ("before", "", "_not readable_") if change.unreadable else ("before", *literal(change.before))
    return _field_lines(change.field, [before, ("after", *literal(change.after))])


def _values(field: str, **values: Json) -> list[str]:
    """A field with its labeled values, in order."""
    return _field_lines(field, [(label, *literal(value)) for label, value in values.items()])


def _field_lines(field: str, read: list[tuple[str, str, str]]) -> list[str]:
    shown = [" ".join([*([code(text)] if text else []), *([note] if note else [])]) for _, text, note in read]
    line = f"• {code(field)} {' → '.join(shown)}"
    if len(line) <= 400 and not any("\n" in text for _, text, _ in read):
        return [line]
    lines = entry("• Field", field)
    for label, text, note in read:
        lines += entry(label, text, note=note) if text else [f"{label} {note}"]
    return lines


def outcome_lines(view: CardView) -> list[str]:
    """The outcome, unless it repeats a vote's reason, which the card shows too; the late answer and pauses, if any."""
    late = entry("*Late answer*", view.late) if view.late else []
    if view.paused:
        late += entry("*Paused*", f"{view.paused} Answers count, and nothing goes out until it is resumed.")
    if not view.detail or any(view.detail == vote.reason for vote in current_votes(view.votes)):
        return late
    return [*entry("*Outcome*", view.detail), *late]


def vote_lines(view: CardView) -> list[str]:
    """The votes so far, and the number that each group needs."""
    counts = [entry(f"• {len(one.names)} of {one.group.of} from", one.group.words) for one in view.progress]
    if view.two_person and counts:
        counts.append(["• at least two people, each counting once"])
    return _section("*Votes*", [*counts, *map(_vote, current_votes(view.votes))])


def statement_lines(view: CardView) -> list[str]:
    """The words that people have said about the question, in order, each with its time."""
    return _section("*What was said*", map(_statement, view.remarks))


def _statement(one: Statement) -> list[str]:
    verb = f"{SAYS[one.said]} {words(one.to_name)}" if one.to else SAYS[one.said]
    note = f"{verb}, {moment(one.at)}"
    return [*entry("•", one.name, note=note), *(entry("says:", one.text) if one.text else [])]


def _vote(vote: Vote) -> list[str]:
    lines = entry(f"• {SAID[vote.choice]}:", vote.name, note=f"{moment(vote.at)}, by {vote.channel}")
    return [*lines, *(entry("reason:", vote.reason) if vote.reason else [])]


def _rule(rule: str, because: str) -> list[str]:
    return [*entry("• rule", rule), *(entry("because:", because) if because else [])]


def _section(title: str, entries: Iterable[list[str]]) -> list[str]:
    body = list(chain.from_iterable(entries))
    return [title, *body] if body else []


def moment(iso: str) -> str:
    """A time that Slack shows in the reader's time zone, or in UTC if it cannot."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return "at an unreadable time"
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    words = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{words}>"
