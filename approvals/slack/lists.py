"""The card of a list of questions, and its windows. Pure.

An open card has at most ten lines: the question, what most of them have in common, the odd ones by name, who asks and
why, and three buttons. It has *Approve* with the number only if it shows each kind of change, none of the values is
hidden, and somebody of ours chose all of them; else people look at them in the window first. The window lists every
question with a box. When all are decided, the card folds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from approvals.content import CardState
from approvals.lists import Kind, ListView, bare, kinds, question_of, warned
from approvals.model import CardView, Choice
from approvals.quorum import REASON_CHARACTERS_MAX
from approvals.slack import facts
from approvals.slack.blocks import (
    Block,
    code,
    context,
    entry,
    fits_message,
    header,
    link,
    literal,
    pages,
    plain,
    section,
    sections,
    value_words,
    words,
)
from approvals.slack.cards import AGAIN, ASK_AGAIN, Rendered, actions, button, button_value
from approvals.slack.details import content_lines, moment, outcome_lines, statement_lines, vote_lines
from approvals.slack.folded import word_of
from approvals.slack.lines import OPEN_LINES_MAX, lines_of
from approvals.slack.mentions import mentions
from approvals.slack.modals import CHOICE_FIELD, REASON_FIELD, modal
from approvals.talk import WORDS, Saying
from core.action import Risk
from core.canonical import Json
from core.legible import embedded, visible

APPROVE, REJECT, CHOOSE = "counterseal.list_approve", "counterseal.list_reject", "counterseal.list_choose"
LIST_CALLBACK, LIST_REASON_CALLBACK, LIST_TALK = "counterseal.list", "counterseal.list_reason", "counterseal.list_talk"
ITEMS_FIELD = "items"
_BOXES, _OPTION_MAX, _NAMED_MAX = 10, 75, 5


def render(view: ListView, *, short: bool = False) -> Rendered:
    """Draw the card in its current state; with ``short``, in our words alone, because Slack refused the full card."""
    hidden = replace(view, items=tuple(replace(one, content=one.content.masked()) for one in view.items))
    if not view.open:
        return _ended(hidden)
    many = len(view.open)
    for complete, body in [*_bodies(hidden)][-1:] if short else _bodies(hidden):
        row = _buttons(view, many) if complete else [_choose(view, "Look and decide"), _reject(view)]
        drawn = [header(heading(view)), *body, actions(row)]
        if lines_of(drawn) <= OPEN_LINES_MAX and fits_message(drawn):
            break
    called = mentions(view.call) if view.call is not None else []
    return Rendered(_notification(view), [*drawn, *called], complete)


def _buttons(view: ListView, many: int) -> list[Block]:
    approve = button(f"Approve {many}", APPROVE, _value(view), style="primary")
    if any(one.content.risk is Risk.HIGH for one in view.open):
        asked = {"title": plain(f"Approve all {many}?"), "text": plain("These actions are of high risk.")}
        approve["confirm"] = {**asked, "confirm": plain(f"Approve {many}"), "deny": plain("Back")}
    return [approve, _reject(view), _choose(view, "Choose…")]


def _reject(view: ListView) -> Block:
    return button("Reject…", REJECT, _value(view), style="danger")


def _choose(view: ListView, label: str) -> Block:
    return button(label, CHOOSE, _value(view))


def _value(view: ListView) -> str:
    """The value of a button: a question of the list and the mark of this drawing. Opaque; grants nothing."""
    return json.dumps({"a": str(view.first.approval_id), "n": view.mark[:32]}, separators=(",", ":"))


def heading(view: ListView) -> str:
    """The question, as a heading."""
    return question_of(view.items, len(view.open) or len(view.items))


def _notification(view: ListView) -> str:
    first, title = view.first.content, heading(view).rstrip("?")
    asker = words(view.call.asker) if view.call is not None else words(first.asker or first.requester)
    until = _until(view)
    return f"{asker} asks: {words(title)}." + (f" Until {moment(until)}" if until else "")


def _until(view: ListView) -> str:
    return min((one.content.expires_at or "" for one in view.open if one.content.expires_at), default="")


def _name(view: ListView, one: CardView) -> str:
    """The record that a question of a list is about."""
    return value_words(view.names[one.approval_id])


def _names(view: ListView, items: Sequence[CardView], most: int = _NAMED_MAX) -> str:
    more = len(items) - most
    return ", ".join(_name(view, one) for one in items[:most]) + (f" and {more} more" if more > 0 else "")


def _bodies(view: ListView) -> Iterator[tuple[bool, list[Block]]]:
    """Yield the bodies, the fullest first, and true if one shows all that people decide on. It counts the rest."""
    common, odd = kinds(view.open)
    small, free = context(_small(view)), not any(_unshown(one) for one in view.open)
    for about, whole in _abouts(view):
        for named in (True, False):
            for count in range(len(odd), -1, -1):
                lines = [
                    *_common(view, common, named=named),
                    *(_odd(view, one) for one in odd[:count]),
                    *_remainder(odd[count:], count),
                ]
                body = [section("\n".join([*lines, *_so_far(view)])), *([section(about)] if about else []), small]
                yield whole and free and count == len(odd), body
    yield False, [section(f"*{len(view.open)} questions*, too long for a card"), small]
    yield False, [section(f"*{len(view.open)} questions*, too long for a card")]


def _unshown(view: CardView) -> bool:
    content = view.content
    return bool(content.sensitive or content.agent) or any(not source.ours for source in content.sources)


def _common(view: ListView, kind: Kind | None, *, named: bool) -> list[str]:
    if kind is None:
        return []
    lines, many = _lines(kind.items[0]), len(kind.items)
    names = f" {_names(view, kind.items, many)}" if named or not lines else ""
    if not names and len(lines) == 1:
        return [f"*{many} alike:* {lines[0]}"]
    return [f"*{many} alike:*{names}", *lines]


def _odd(view: ListView, kind: Kind) -> str:
    first, names = kind.items[0], _names(view, kind.items)
    differs = "differs" if len(kind.items) == 1 else "differ"
    before = [f"*Before:* {code(first.content.evidence)}"] if first.content.evidence else []
    lines = _lines(first)
    return "\n".join([" ".join([f"*{len(kind.items)} {differs}:* {names}", *lines[:1]]), *lines[1:], *before])


def _remainder(odd: Sequence[Kind], count: int) -> list[str]:
    left = sum(len(kind.items) for kind in odd)
    verb = "differs" if left == 1 else "differ"
    return [f"*{left}{' more' if count else ''} {verb}*"] if left else []


def _lines(view: CardView) -> list[str]:
    """The lines about the change, without values that only identify the record."""
    return [line.text for line in facts.value_lines(bare(view.content))]


def _so_far(view: ListView) -> list[str]:
    """The number of questions of the list that have ended, by outcome."""
    over = [word_of(one) for one in view.items if one.state is not CardState.PENDING]
    return (
        [f"*So far:* {', '.join(f'{over.count(word)} {word.lower()}' for word in dict.fromkeys(over))}"] if over else []
    )


def _abouts(view: ListView) -> Iterator[tuple[str, bool]]:
    """Yield lines about who asks and why, and what was said about which question; and true if they are complete."""
    about_requests: dict[str, None] = {}
    for one in view.open:
        plain_one = replace(one, content=replace(one.content, evidence=""), remarks=())
        about_requests |= dict.fromkeys(fact.whole for fact in facts.request_facts(plain_one))
    remarks = [f"{_name(view, one)}: {fact.whole}" for one in view.open for fact in facts.statement_facts(one)]
    if len(about_requests) > OPEN_LINES_MAX // 2:
        yield "", False
        return
    yield "\n".join([*about_requests, *remarks]), True
    if remarks:
        about = sum(bool(one.remarks) for one in view.open)
        yield "\n".join([*about_requests, f"*People talk about {about} of these:* see *Look and decide*"]), False


def _small(view: ListView) -> str:
    deciders = list(dict.fromkeys(facts.decides(one) for one in view.open))
    undone = all(one.content.reversible for one in view.open)
    high = any(one.content.risk is Risk.HIGH for one in view.open)
    until = _until(view)
    parts = ["High risk"] * high + [
        "can be undone"
        if undone
        else "cannot be undone"
        if not any(one.content.reversible for one in view.open)
        else "some cannot be undone"
    ]
    parts += [deciders[0] if len(deciders) == 1 else "who is still needed differs"]
    parts += [f"until {moment(until)}" if until else "waits until it is decided"]
    text = " · ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}"


def _ended(view: ListView) -> Rendered:
    """The card when all questions are decided: the number of each outcome, and the names of those not done as asked."""
    groups: dict[str, list[CardView]] = {}
    for one in sorted(view.items, key=lambda one: one.state is not CardState.APPLIED):
        groups.setdefault(word_of(one), []).append(one)
    all_of = len(view.items)
    first, rows = next(iter(groups)), []
    for word, group in groups.items():
        fine = group[0].state in (CardState.APPLIED, CardState.RECORDED, CardState.EXECUTING)
        names = "" if fine and word == first else f": {_names(view, group)}"
        rows.append(f"*{word}* {len(group)} of {all_of}{names}")
        rows += [_why(view, one) for one in group[:_NAMED_MAX] if not fine and _why(view, one)]
    who = " and ".join(dict.fromkeys(name for one in view.items if (name := facts.people_of(one))))
    decided = max((one.decided_at for one in view.items), default="")
    small = " · ".join(
        filter(None, [f"Decided by {who} {facts.clock(decided)}".strip() if who else "", _details(view)])
    )
    counted = ", ".join(f"{len(group)} {word.lower()}" for word, group in groups.items())
    text = f"{counted}: {words(heading(view).rstrip('?'))}"
    for lines in (rows, [line for line in rows if line.startswith("*")], [rows[0]]):
        body = [section("\n".join(lines)), context(small or "\u2013")]
        again = next((one for one in view.items if one.again), None)
        row = [button(AGAIN, ASK_AGAIN, button_value(again))] if again is not None else []
        row += [_choose(view, "Details")] if len(groups) > 1 else []
        body += [actions(row)] if row else []
        if lines_of(body) <= OPEN_LINES_MAX and fits_message(body):
            break
    return Rendered(text, body, complete=True)


def _details(view: ListView) -> str:
    return link(view.link, "Details") if view.link else ""


def _why(view: ListView, one: CardView) -> str:
    """The reason why a question did not end as it was asked: what changed meanwhile, or what was said."""
    if one.moved:
        moved = one.moved[0]
        before, after = value_words(moved.before, moved.before_label), value_words(moved.after, moved.after_label)
        page = f"{view.link.rpartition('/approvals/')[0]}/approvals/{one.anew}" if view.link and one.anew else ""
        anew = link(page, "asked anew") or "asked anew"
        return f"{_name(view, one)}: {facts.field_words(moved.field, moved.label)} {before} → {after}, {anew}"
    return f"{_name(view, one)}: {code(one.detail)}" if one.detail else ""


# -- windows ----------------------------------------------------------------------------------------------------------


def window(view: ListView, page: int = 0) -> Block:
    """Page ``page`` of the window. The last one asks for the decision, with a box for each question, odd ones first.

    A question without room beside its box, or with a warning, is described on the pages before.
    """
    order = in_order(view)
    over = [one for one in view.items if one.state is not CardState.PENDING]
    texts = [line for at, one in enumerate(order, 1) if _change(view, one) is None for line in _entry(view, one, at)]
    texts += [line for at, one in enumerate(over, len(order) + 1) for line in _entry(view, one, at)]
    every = pages(sections(texts)) if texts else []
    count = len(every) + bool(order)
    page = max(0, min(page, count - 1))
    last = page == count - 1
    shown = _decision(view, order) if last and order else [*_offered(view), *every[page]]
    place = [section(f"Page {page + 1} of {count}")] if count > 1 else []
    drawn = modal("Look and decide" if order else "Details", [header(heading(view)), *place, *shown], close="Close")
    if not order and last:
        return drawn
    metadata = {"a": str(view.first.approval_id), "n": view.mark[:32], "d": view.mark, "p": page, "l": last}
    sent = {"callback_id": LIST_CALLBACK, "private_metadata": json.dumps(metadata)}
    return {**drawn, **sent, "submit": plain("Send" if last else "Next page")}


def in_order(view: ListView) -> list[CardView]:
    """The open questions as the window numbers them: the odd ones first."""
    common, odd = kinds(view.open)
    return [*(one for kind in odd for one in kind.items), *(common.items if common else ())]


def reason(view: ListView) -> Block:
    """A window that asks why all of them are rejected."""
    repeated = sections(entry("", heading(view)))
    many = len(view.open)
    effect = f"None of the {many} is done then. Whoever asked reads your reason, and so does whoever may see the run."
    drawn = modal("Reject", [*repeated, _reason(optional=False), context(effect)], close="Back")
    metadata = {"a": str(view.first.approval_id), "n": view.mark[:32], "d": view.mark, "c": str(Choice.REJECT)}
    sent = {"callback_id": LIST_REASON_CALLBACK, "private_metadata": json.dumps(metadata)}
    return {**drawn, **sent, "submit": plain(f"Reject {many}")}


def _entry(view: ListView, one: CardView, number: int) -> list[str]:
    """All about one question, under its number in the list."""
    over = "" if one.state is CardState.PENDING else f" · {word_of(one)}"
    lines = [*content_lines(one.content), *statement_lines(one), *outcome_lines(one), *vote_lines(one)]
    return [f"*{number}.* {_name(view, one)}{over}", *lines]


def _decision(view: ListView, order: Sequence[CardView]) -> list[Block]:
    """The answer, the reason, and the boxes, ten in each block, all of them chosen."""
    answers = [
        {"text": plain("Approve the chosen, reject the others"), "value": str(Choice.APPROVE)},
        {"text": plain(f"Reject all {len(order)}"), "value": str(Choice.REJECT)},
    ]
    radio = {"type": "radio_buttons", "action_id": CHOICE_FIELD, "options": answers}
    asked: Block = {"type": "input", "block_id": CHOICE_FIELD, "label": plain("Your answer"), "element": radio}
    about, _ = next(_abouts(replace(view, items=tuple(replace(one, remarks=()) for one in view.items))))
    blocks = [asked, _reason(optional=True), *([section(about)] if about else []), context(_small(view))]
    blocks += _offered(view)
    for at, begin in enumerate(range(0, len(order), _BOXES)):
        some = [*enumerate(order[begin : begin + _BOXES], begin + 1)]
        options = [_option(view, number, one) for number, one in some]
        name = f"{ITEMS_FIELD}_{at}"
        boxes = {"type": "checkboxes", "action_id": name, "options": options, "initial_options": options}
        label = plain(f"{some[0][0]} to {some[-1][0]}" if len(some) > 1 else f"{some[0][0]}")
        blocks.append({"type": "input", "block_id": name, "optional": True, "label": label, "element": boxes})
    return blocks


def _option(view: ListView, number: int, one: CardView) -> Block:
    """A box: the question and, if there is room, its changes."""
    return {**option_of(view, number, one), "description": plain(_change(view, one) or "See the pages before")}


def option_of(view: ListView, number: int, one: CardView) -> Block:
    """An option of a window: the number of the question, and its record."""
    name = embedded(visible(view.names[one.approval_id], edges=False))
    numbered = f"{number}. {name}" if len(name) < _OPTION_MAX - 6 else f"{number}. a record with a long name"
    return {"text": plain(numbered), "value": str(one.approval_id)}


def _change(view: ListView, one: CardView) -> str | None:
    """The words about the change beside a box; None if there is no room, or if the question comes with a warning."""
    content = bare(one.content)
    changes = [
        f"{each.label or each.field}: {_value_of(each.before)} → {_value_of(each.after)}" for each in content.changes
    ]
    changes += [f"{each.field}: {_value_of(each.value)}" for each in content.inputs]
    text = embedded(visible("; ".join(changes) or content.title, edges=False))
    fits = len(text) <= _OPTION_MAX and len(view.names[one.approval_id]) < _OPTION_MAX - 6
    return text if fits and not warned(content) and not _unshown(one) and not one.remarks else None


def _offered(view: ListView) -> list[Block]:
    """The row of buttons for what the viewer may say about a question of the list now; none if they may say nothing."""
    some = {kind for one in view.open for kind in view.offers.get(one.approval_id, ())}
    drawn = [button(f"{WORDS[one]}…", f"{LIST_TALK}.{one}", _value(view)) for one in Saying if one in some]
    return [actions(drawn)] if drawn else []


def _value_of(value: Json) -> str:
    text, note = literal(value)
    return text or note.strip("_")


def _reason(*, optional: bool) -> Block:
    label = "Reason (needed for what is rejected)" if optional else "Reason"
    element = {"type": "plain_text_input", "action_id": REASON_FIELD, "multiline": True}
    element["max_length"] = REASON_CHARACTERS_MAX
    return {"type": "input", "block_id": REASON_FIELD, "optional": optional, "label": plain(label), "element": element}
