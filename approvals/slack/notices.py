"""Notices as Block Kit: direct messages about the outcome of a run. Pure. Text from outside is in monospace."""

from __future__ import annotations

import json

from approvals.notices import Hold, Line, Notice
from approvals.slack.blocks import Block, code, escaped, link_line, plain, section, words
from approvals.slack.cards import Rendered
from approvals.slack.details import moment

RETRY = "counterseal.run.retry"
ANSWER = "counterseal.talk.answers"
# The buttons of a held step, by what they answer (``runtime.engine.life.holding.Answer``).
HOLD = {name: f"counterseal.hold.{name}" for name in ("again", "without", "cancel")}
HOLD_CALLBACK = "counterseal.hold"
HOLD_WORDS = {"again": "Try again", "without": "Go on without it", "cancel": "Cancel the run"}
# Longer texts are left out, never cut; the message says where to find them.
_LONG = 600
_ELSEWHERE = "_too long for a message_"


def render(notice: Notice) -> Rendered:
    """Draw the notice: the outcome, why, by which rule, when; and the button to go on, if there is one."""
    lines = [_headline(notice), *_reason(notice.whole)]
    blocks = [section("\n".join(part)) for part in (lines[:1], lines[1:]) if part]
    if notice.lines:
        listed = [_part(line) for line in notice.lines]
        more = [f"_and {notice.more} more_"] if notice.more else []
        blocks.append(section("\n".join([*listed, *more])))
    blocks.append({"type": "context", "elements": [_small(" · ".join(_small_print(notice)))]})
    if notice.hold is not None:
        blocks.append({"type": "context", "elements": [_small(_recipients(notice.hold))]})
    buttons = _buttons(notice)
    return Rendered(notification(notice), [*blocks, *buttons, *link_line(notice.link)], complete=True)


def notification(notice: Notice) -> str:
    """The line in a notification: a short sentence in which Slack interprets nothing."""
    subject = escaped(notice.whole.subject, edges=False)
    subject = subject if len(subject) <= _LONG else escaped(notice.workflow)
    return f"{_counted(notice)}{notice.whole.word}: {subject}"


def _headline(notice: Notice) -> str:
    whole = notice.whole
    asked = ", which you asked for" if notice.asked else ""
    return f"*{_counted(notice)}{whole.word}:* {_quoted(whole.subject)}{asked}."


def _counted(notice: Notice) -> str:
    return f"{notice.count} times " if notice.count > 1 else ""


def _reason(line: Line) -> list[str]:
    lines = [words(line.because) if len(line.because) <= _LONG else _ELSEWHERE] if line.because else []
    if line.quote:
        by = f"{words(line.by)}: " if line.by else ""
        lines.append(f"{by}{_quoted(line.quote)}")
    return lines


def _part(line: Line) -> str:
    reason = " ".join(_reason(line))
    return f"• *{line.word}:* {_quoted(line.subject)}{f'. {reason}' if reason else ''}"


def _quoted(text: str) -> str:
    """Text that may hold words from outside: always a quotation, so that it is never read as ours."""
    return code(text) if len(text) <= _LONG else _ELSEWHERE


def _small_print(notice: Notice) -> list[str]:
    rule, since = notice.rule, []
    if notice.count > 1 and notice.since:
        since = [f"since {moment(notice.since)}, the last one {moment(notice.at)}"]
    by = []
    if rule is not None:
        version = f" {rule.version}" if rule.version else ""
        by = [f"Rule {words(rule.rule)} of {words(rule.policy)}{version}"] if rule.policy else [f"{words(rule.rule)}"]
    run = f"{words(notice.workflow)}{f' for {words(notice.reference)}' if notice.reference else ''}"
    return [*by, run, *(since or [moment(notice.at)]), f"run `{notice.run_id}`"]


def _small(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _recipients(hold: Hold) -> str:
    """The people who are asked; a mention rings their phones."""
    who = ", ".join(f"<@{account}>" for account in hold.accounts) or f"members of {words(hold.group)}"
    return f"For {who}: what becomes of it? All else goes on"


def _of_hold(hold: Hold) -> Block:
    value = json.dumps({"w": str(hold.wait_id)}, separators=(",", ":"))
    offered = [name for name in HOLD if name != "again" or not hold.doubtful]
    drawn = [
        {"type": "button", "text": plain(f"{HOLD_WORDS[name]}…"), "action_id": HOLD[name], "value": value}
        for name in offered
    ]
    return {"type": "actions", "elements": drawn}


def _button(label: str, action: str) -> Block:
    return {"type": "button", "text": plain(label), "action_id": action}


def _buttons(notice: Notice) -> list[Block]:
    if notice.hold is not None:
        return [_of_hold(notice.hold)]
    if notice.answer is not None:
        asked, nonce = notice.answer
        metadata = json.dumps({"a": str(asked), "n": nonce}, separators=(",", ":"))
        return [{"type": "actions", "elements": [{**_button("Answer…", ANSWER), "value": metadata}]}]
    if not notice.retry:
        return []
    value = json.dumps({"r": str(notice.run_id)}, separators=(",", ":"))
    return [{"type": "actions", "elements": [{**_button("Try again…", RETRY), "value": value}]}]
