"""The card of one approval, as Block Kit. Pure. Text from the request is in monospace; everything else is ours.

A card with decision buttons is complete. A card that would exceed Slack's limits, or that has sensitive fields, offers
only *Review*: a modal that shows everything and takes the decision. Nothing is ever truncated silently.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain

from msgspec import Struct

from approvals.content import CardContent, CardState
from approvals.model import ApprovalKind, CardView, Choice, TaskView, Vote, choices_of
from approvals.slack.blocks import (
    Block,
    code,
    entry,
    fits_message,
    header,
    literal,
    plain,
    section,
    sections,
    shown,
    small_print,
)
from approvals.slack.sources import agent_lines, source_lines
from approvals.tally import current_votes
from core.action import Change, Risk
from core.canonical import Json

REVIEW = "counterseal.review"
ACTION_IDS = {choice: f"counterseal.{choice}" for choice in Choice}
BUTTON_WORDS = {
    Choice.APPROVE: "Approve",
    Choice.REJECT: "Reject",
    Choice.HAPPENED: "It happened",
    Choice.AGAIN: "Do it again",
    Choice.FAIL: "Count it as failed",
}
_SHORT = 300
HEADINGS = {
    CardState.PENDING: "Approval needed",
    CardState.RECORDED: "Decision recorded",
    CardState.EXECUTING: "Approved, being carried out",
    CardState.APPLIED: "Done",
    CardState.ALTERED: "Done, but altered",
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


class Rendered(Struct, frozen=True):
    """A message: ``text`` for notifications, ``blocks`` for the screen. ``complete``: the blocks show everything."""

    text: str
    blocks: list[Block]
    complete: bool


def render_short(view: CardView) -> Rendered:
    """Draw a card of our own words alone, for a request of which Slack takes no card: *Review* shows all of it."""
    words = "*Slack did not take the whole card.* Nothing of the request is shown here; *Review* shows all of it."
    body = [section(f"{words} Risk *{view.content.risk}*.")]
    return Rendered(heading(view), [header(heading(view)), *body, *_buttons(view, complete=False)], complete=False)


def render(view: CardView) -> Rendered:
    """Draw the card in its current state."""
    masked = bool(view.content.sensitive)
    content = view.content.masked()
    footer = [*outcome_lines(view), *vote_lines(view)]
    body = [*sections(decision_lines(content)), *sections(footer), *small_print(detail_lines(content))]
    complete = not masked and fits_message(body)
    if masked and fits_message(body):
        body.append(section("Hidden values stay out of this channel. *Review* shows them to those who may decide."))
    elif not fits_message(body):
        body = _short_body(view)
    blocks = [header(heading(view)), *body, *_buttons(view, complete), *link_line(view.link)]
    return Rendered(notification(heading(view), content.title), blocks, complete)


def button_value(view: CardView) -> str:
    """The value of a button: the approval's id and the card's nonce. Opaque; grants nothing."""
    return json.dumps({"a": str(view.approval_id), "n": view.nonce}, separators=(",", ":"))


def _buttons(view: CardView, complete: bool) -> list[Block]:
    review = button("Review", REVIEW, button_value(view))
    if view.state is not CardState.PENDING:
        buttons = [] if complete else [review]
    elif complete:
        buttons = [_choice_button(view, choice) for choice in choices_of(view.kind)]
    else:
        buttons = [review | {"style": "primary"}]
    return [{"type": "actions", "elements": buttons}] if buttons else []


def _choice_button(view: CardView, choice: Choice) -> Block:
    style = {Choice.APPROVE: {"style": "primary"}, Choice.REJECT: {"style": "danger"}}.get(choice, {})
    drawn = button(BUTTON_WORDS[choice], ACTION_IDS[choice], button_value(view), **style)
    if choice is Choice.APPROVE and view.content.risk is Risk.HIGH:
        undo = "It can be undone." if view.content.reversible else "It cannot be undone."
        asked = {"title": plain("Approve this?"), "text": plain(f"This action is of high risk. {undo}")}
        drawn["confirm"] = {**asked, "confirm": plain("Approve"), "deny": plain("Back")}
    return drawn


def button(words: str, action_id: str, value: str, **more: str) -> Block:
    """A button; ``more`` holds further members for Slack, such as ``style``."""
    return {"type": "button", "text": plain(words), "action_id": action_id, "value": value, **more}


def _short_body(view: CardView) -> list[Block]:
    """The body of a card that cannot show everything: its size and the short facts."""
    content = view.content
    size = sum(len(line) for line in content_lines(content))
    lines = [
        "*This request is too long for a card.* Nothing of it is shown in part.",
        f"{len(content.changes)} changed and {len(content.inputs)} other fields, {size} characters in all.",
        f"Risk *{content.risk}*.",
        *("*Cannot be undone*" for _ in range(not content.reversible)),
        *_if_short("*Request*", content.title),
        *_more_lines(content.summary),
        *_if_short("*Target*", content.target),
        *_if_short("*System*", content.system),
        *_if_short("*Operation*", content.operation),
        *_if_short("*Requested by*", content.requester),
        *(f"{code(one.name)} {one.did}" for one in content.shaped_by if len(shown(one.name)) <= _SHORT),
        *(["*Nobody of yours chose some of its values.*"] if any(not one.ours for one in content.sources) else []),
        *(_if_short("*Proposed by the agent of step*", content.agent.step) if content.agent else []),
        *_if_short("*Outcome*", view.detail),
        *_if_short("*Late answer*", view.late),
        *_if_short("*Paused*", view.paused),
        f"{len(view.votes)} votes so far.",
        "*Review* shows all of it.",
    ]
    return sections(lines)


def _if_short(label: str, text: str) -> list[str]:
    if not text:
        return []
    return [f"{label} {code(text)}"] if len(shown(text)) <= _SHORT else [f"{label} is in *Review*"]


def _more_lines(summary: str) -> list[str]:
    """Say how many lines there are, and where, if they are not here."""
    count = summary.count("\n") + 1
    return [f"*{count} lines more* that say what changes are in *Review*, all of them."] if count > 1 else []


def link_line(link: str) -> list[Block]:
    """A link to Counterseal. A setting gives its beginning, so we draw it only if it is a plain web address."""
    if not link.startswith(("https://", "http://")) or set(link) & set("<>| `") or len(link) > 2000:
        return []
    if not (link.isascii() and link.isprintable()):
        return []
    address = link.replace("&", "&amp;")
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": f"<{address}|Open in Counterseal>"}]}]


def notification(words: str, title: str) -> str:
    """The line in a notification: a title is shown in full or, if it is long, not at all."""
    return f"{words}: {code(title)}" if len(shown(title)) <= _SHORT else words


def heading(view: CardView) -> str:
    """The first line of a card: the question, or its outcome."""
    if view.state is CardState.PENDING and view.kind is ApprovalKind.IN_DOUBT:
        return "In doubt: what became of this?"
    return HEADINGS[view.state]


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
        *_section("*Where it comes from*", source_lines(content)),
        *_section("*Why people are asked*", (_rule(rule.id, rule.because) for rule in content.rules)),
        *(entry("*What the target system says*", content.evidence) if content.evidence else []),
        *(entry(f"{risk} · approval tier", content.tier) if content.tier else [risk]),
        *reversal_lines(content),
        *people_lines(content),
        f"*Expires* {moment(content.expires_at)}" if content.expires_at else "*Expires* never by itself",
    ]


def people_lines(content: CardContent) -> list[str]:
    """Everybody who shaped the action, each with what they did."""
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
    return _told(change.field, [before, ("after", *literal(change.after))])


def _values(field: str, **values: Json) -> list[str]:
    """A field with its labeled values, in order."""
    return _told(field, [(label, *literal(value)) for label, value in values.items()])


def _told(field: str, read: list[tuple[str, str, str]]) -> list[str]:
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
    """A time that Slack shows in the reader's time zone, or in UTC if it cannot."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return "at an unreadable time"
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    words = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{words}>"
