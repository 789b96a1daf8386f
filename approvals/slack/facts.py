"""The lines of a card: what would change, who asks, why, who decides. Pure.

Each line has a short form, which says where the whole line is. Text from the request is in monospace or one plain
word; everything else is ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from approvals.content import MASK, CardContent, Source
from approvals.model import AGENT, ApprovalKind, CardView, GroupProgress
from approvals.slack.blocks import code, escaped, literal, value_words, words
from approvals.slack.details import moment
from approvals.tally import current_votes
from core.action import Change, Risk
from core.canonical import Json

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Fields that hold a text: the card shows the text without the field's name.
_TEXTS = frozenset({"comments", "comment", "work_notes", "text", "message", "body", "note"})
_NAMED_MAX = 3
_SOURCE_MAX = 40


class Fact(NamedTuple):
    """A line of a card, whole and short. ``vital``: a card that shortens this line has no *Approve*."""

    whole: str
    short: str
    vital: bool = True


class Line(NamedTuple):
    """The words of a card about one value; ``outside`` if nobody of ours chose it."""

    text: str
    outside: bool


def field_words(field: str, label: str = "") -> str:
    """The name of a field as people read it."""
    if label:
        return words(label)
    return field.replace("_", " ").capitalize() if _NAME.fullmatch(field) else code(field)


def value_lines(content: CardContent) -> list[Line]:
    """A line for each field that would change, and for each input that people need to see, those from outside first."""
    seen = [item for item in content.inputs if not technical(content, item.value)]
    alone = len(content.changes) == 1 and not seen
    notes = {one.field: _change(one, alone=alone) for one in content.changes}
    notes |= {item.field: f"With {field_words(item.field).lower()} {value_words(item.value)}" for item in seen}
    outside: dict[str, list[str]] = {}
    for source in content.sources:
        if not source.ours:
            outside.setdefault(source.field, []).append(_outside(source))
    for source in content.sources:
        if not source.ours and source.field not in notes:
            notes[source.field] = f"{field_words(source.field)} {value_words(source.value)}"
    order = sorted(notes, key=lambda name: name not in outside)
    return [Line("\n".join(dict.fromkeys([notes[name], *outside.get(name, [])])), name in outside) for name in order]


def technical(content: CardContent, value: Json) -> bool:
    """True if an input only repeats the record that the card names, or is an id that means nothing to people."""
    text = literal(value)[0]
    return bool(_ID.fullmatch(text)) or (bool(text) and text in re.split(r"[/ ,:]", content.target))


def _change(change: Change, *, alone: bool) -> str:
    if MASK in (change.before, change.after):
        return f"{field_words(change.field, change.label)} _hidden_"
    after = value_words(change.after, change.after_label)
    after = "_emptied_" if change.after in (None, "") else after
    plain = "`" not in after and not after.startswith("_")
    if change.unreadable:
        return f"{field_words(change.field, change.label)} _not readable_ → {f'*{after}*' if plain else after}"
    if change.before is None and alone and change.field in _TEXTS and isinstance(change.after, str) and change.after:
        return code(change.after)
    name = field_words(change.field, change.label)
    if change.before in (None, ""):
        return f"{name} {f'*{after}*' if plain else after}"
    before = value_words(change.before, change.before_label)
    before = f"~{before}~" if "`" not in before and not before.startswith("_") else before
    return f"{name} {before} → {f'*{after}*' if plain else after}"


def short_change(content: CardContent) -> str:
    """The change in a few words, for a card that is decided: one field with its plain values, or how many there are."""
    if len(content.changes) != 1:
        return f"{len(content.changes)} fields" if content.changes else ""
    [one] = content.changes
    name = field_words(one.field, one.label)
    if len(name) > _SOURCE_MAX:
        return "1 field"
    name = name if name.startswith("`") else f"{name[:1].lower()}{name[1:]}"
    values = [value_words(each) for each in (one.before, one.after)]
    plain = not any(mark in value for value in values for mark in "`_") and MASK not in (one.before, one.after)
    return f"{name} {values[0]} → {values[1]}" if plain and not one.unreadable else name


def _outside(source: Source) -> str:
    """The source of a value that nobody of ours chose. A long name is shortened to its last part."""
    last = source.of.rpartition("/")[2] if "#" in source.of else source.of
    of = f" {code(last)}" if last and len(escaped(last)) <= _SOURCE_MAX else ""
    notes = source.words.replace("is the whole of a field", "is from a field")
    return f"*{field_words(source.field)} {notes if of else notes.rstrip(':')}*{of}"


def request_facts(view: CardView) -> Iterator[Fact]:
    """The lines below the change: who asks, who else shaped it, why people are asked, what was said before."""
    content = view.content
    yield _requester(content)
    if why := "; ".join(words(rule.because) if rule.because else f"rule {words(rule.id)}" for rule in content.rules):
        many = f"{len(content.rules)} rules say why" if len(content.rules) > 1 else "a rule says why"
        yield Fact(f"*Why:* {why}", f"*Why:* {many}, in *Look and decide*")
    if content.evidence and view.kind is not ApprovalKind.IN_DOUBT:
        yield Fact(f"*Before:* {code(content.evidence)}", "*It was refused, or failed, before:* see *Look and decide*")
    for edit in content.edits:
        change = f"{value_words(edit.was)} → {value_words(edit.now)}"
        whole = f"*Edited:* {field_words(edit.field)} {change if MASK not in (edit.was, edit.now) else '_hidden_'}"
        yield Fact(whole, "*It was edited:* see *Look and decide*")
    yield from statement_facts(view)
    if view.paused:
        whole = f"*Paused:* {code(view.paused)} Answers count; nothing goes out until it is resumed."
        yield Fact(whole, "*Paused:* nothing goes out until it is resumed", vital=False)
    if view.late:
        yield Fact(f"*A late answer:* {code(view.late)}", "*A late answer* is in *Details*")
    if content.sensitive:
        yield Fact("*Hidden values* are shown to those who may decide", "*Hidden values* are in *Look and decide*")


def statement_facts(view: CardView) -> Iterator[Fact]:
    """The last words about the question: what was asked, with its answer, and whom it was handed to."""
    last = {one.said: one for one in view.remarks}
    asks, answer, handed = last.get("asks"), last.get("answers"), last.get("hands_on")
    if answer is not None:
        yield Fact(f"*{words(answer.name)} answers:* {code(answer.text)}", "*An answer* is in *Look and decide*")
    if asks is not None and (answer is None or answer.at < asks.at):
        yield Fact(f"*{words(asks.name)} asks for more:* {code(asks.text)}", "*Somebody asks for more:* see *Details*")
    if handed is not None:
        handover = f"*Handed to {words(handed.to_name)}* by {words(handed.name)}"
        yield Fact(f"{handover}: {code(handed.text)}" if handed.text else handover, handover, vital=False)
    if comments := [one for one in view.remarks if one.said == "comments"]:
        short = f"*{len(comments)} comment{'s' if len(comments) > 1 else ''}* in *Details*"
        newest = comments[-1]
        whole = f"*{words(newest.name)} says:* {code(newest.text)}" if len(comments) == 1 else short
        yield Fact(whole, short, vital=False)


def _requester(content: CardContent) -> Fact:
    who = words(content.asker) if content.asker else code(content.requester)
    made = f"An agent asks, for {who}" if content.agent is not None else f"Asked by {who}"
    if content.reference and content.reference not in content.question:
        made = f"{made}, {reference_words(content.reference)}"
    shapers = [one for one in content.shaped_by if one.did != "requested this" or one.note]
    others = "; ".join(f"{words(one.name)} {one.did}{f' ({one.note})' if one.note else ''}" for one in shapers)
    counted = f"{len(shapers)} people shaped it: *Look and decide*" if shapers else "Who asks: *Look and decide*"
    return Fact(f"{made}; {others}" if others else made, counted)


def reference_words(reference: str) -> str:
    """A reference, plain if it is one word."""
    return value_words(reference)


def small_facts(view: CardView) -> list[str]:
    """The small print: the risk if it is high, the way back, who decides, and until when."""
    content = view.content
    gate = view.kind is not ApprovalKind.ACTION
    undone = "can be undone" if content.reversible else "cannot be undone"
    notes = [] if gate else ["high risk"] * (content.risk is Risk.HIGH) + [undone]
    notes += ["carried out by the agent, outcome as it reports"] if content.connector == AGENT else []
    notes += [decides(view)]
    notes += ["approve it in the console, after a login anew"] if view.step_up is not None and not view.link else []
    notes += [f"until {moment(content.expires_at)}"] if content.expires_at else ["waits until it is decided"]
    parts = [one for one in notes if one]
    return [f"{parts[0][:1].upper()}{parts[0][1:]}", *parts[1:]]


def decides(view: CardView) -> str:
    """The people who have decided, who may decide, and who are still needed; by name where they are known."""
    parts = [f"{words(name)} approved" for name in dict.fromkeys(n for one in view.progress for n in one.names)]
    parts += [
        _needed(one, view.content.chosen, begun=bool(parts)) for one in view.progress if len(one.names) < one.group.of
    ]
    if view.two_person:
        parts.append("two different people")
    return " · ".join(parts)


def _needed(one: GroupProgress, chosen: tuple[str, ...], *, begun: bool) -> str:
    if one.group.person is not None and one.may:  # one person, whom the record or the directory has chosen
        who = next((each for each in chosen if each.startswith(f"{one.may[0]}, ")), one.may[0])
        return f"{words(who)}, decides" if "," in who else f"{words(who)} decides"
    left, group = one.group.of - len(one.names), words(one.group.words)
    if left == 1 and not begun and len(one.may) == 1:
        return f"{words(one.may[0])} decides"
    more = len(one.may) - _NAMED_MAX
    listed = ", ".join(map(words, one.may[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
    verb = "decides" if left == 1 else "decide"
    needed = f"{left} more of {group} needed" if begun else f"{left} of {group} {verb}"
    return f"{needed} ({listed})" if listed else needed


def people_of(view: CardView) -> str:
    """The people whose answers count, by name; "" for nobody."""
    return " and ".join(words(name) for name in dict.fromkeys(vote.name for vote in current_votes(view.votes)))


def clock(iso: str) -> str:
    """The time of day that Slack shows in the reader's zone; "" for none."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return ""
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return f"<!date^{int(at.timestamp())}^{{time}}|{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC>"
