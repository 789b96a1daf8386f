"""A card whose question is decided: two lines, or a short notice if there is more to say. Pure.

The first line is the word, who and when; the second is why, or what follows. If something went wrong, it is told in
full, and the card is a notice of at most ten lines, with *Details*.
"""

from __future__ import annotations

from collections.abc import Iterator

from approvals.content import CardState
from approvals.model import ApprovalKind, CardView, Choice, Granted
from approvals.slack import facts
from approvals.slack.blocks import Block, code, context, escaped, link, section, value_words, words
from approvals.slack.details import moment
from approvals.slack.lines import FOLDED_LINES_MAX, OPEN_LINES_MAX, lines_of
from approvals.tally import current_votes

_WORDS = {
    CardState.RECORDED: "Approved",
    CardState.EXECUTING: "Being done",
    CardState.APPLIED: "Done",
    CardState.ALTERED: "Done, but altered",
    CardState.FAILED: "Failed",
    CardState.IN_DOUBT: "In doubt",
    CardState.REJECTED: "Rejected",
    CardState.EXPIRED: "Expired",
    CardState.SUPERSEDED: "Void",
    CardState.CANCELED: "Canceled",
}
_ANSWERED = {
    Choice.HAPPENED: "It happened",
    Choice.AGAIN: "Do it again",
    Choice.FAIL: "It failed",
}
# States whose news must be on the card itself, not behind a click.
_TOLD = (CardState.FAILED, CardState.ALTERED, CardState.IN_DOUBT, CardState.EXPIRED)


def ended(view: CardView) -> tuple[str, list[Block]]:
    """The text for notifications and the blocks: one of two lines, or a notice that wants a button below it."""
    word = word_of(view)
    content = view.content
    subject = escaped(content.question.removesuffix("?"), edges=False) or facts.reference_words(content.reference)
    text = f"{word}: {subject}" if subject else word
    if view.state not in _TOLD and not view.late and not view.paused:
        for first, second in _folded(view):
            block = {"type": "context", "elements": [_line(first), _line(second)]}
            if lines_of([block]) <= FOLDED_LINES_MAX:
                return text, [block]
    return text, _notice(view)


def word_of(view: CardView) -> str:
    """The word for the state; for a doubt that people have resolved, their answer."""
    if view.kind is ApprovalKind.IN_DOUBT and view.state is CardState.RECORDED:
        choices = [vote.choice for vote in current_votes(view.votes)]
        return _ANSWERED.get(choices[-1], "Answered") if choices else "Answered"
    return _WORDS[view.state]


def _line(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _folded(view: CardView) -> Iterator[tuple[str, str]]:
    """Yield pairs of lines, the fullest first. *Details* holds what the later pairs leave out."""
    content, detail, more = view.content, view.detail, link(view.link, "Details")
    word, who, at = f"*{word_of(view)}*", facts.people_of(view), facts.clock(view.decided_at)
    by = " ".join(filter(None, ("by", who, at))) if who else at
    reference = facts.reference_words(content.reference) if content.reference else ""
    change = facts.short_change(content)
    what = ", ".join(filter(None, (reference, change)))
    reason = code(detail) if detail else ""
    if view.granted is not None:
        for granted in (granted_words(view.granted), granted_words(view.granted, full=False)):
            for each in (what, reference or change, ""):
                yield _row(word, each), _row(granted, more)
        return  # what does not fit in two lines is told in a notice
    match view.state:
        case CardState.RECORDED:
            then = "the workflow goes on" if view.kind is not ApprovalKind.ACTION else "is being done"
            for why in (detail and f"{then}: {code(detail)}", f"{change}, {then}" if change else "", then):
                if why:
                    yield _row(f"{word} {by}", reference), _row(why, more)
            yield f"{word} {at}", _row(then, more)
        case CardState.EXECUTING:
            for each in (what, reference or change):
                yield _row(word, each), _row(reason or f"Approved {by}", more)
                yield _row(word, each), _row(f"Approved {by}", more)
        case CardState.APPLIED:
            for each in (what, reference or change):
                for why in (reason, f"As approved {by}" if who else "As approved"):
                    if why:
                        yield _row(word, each), _row(why, more)
        case CardState.REJECTED:
            yield _row(f"{word} {by}", reference), _row(reason or _reasons(view), more)
            yield f"{word} {by}", _row(reason or _reasons(view), more)
        case CardState.SUPERSEDED:
            moved = [_moved(view)] if view.moved else []
            for why in (*moved, reason, reference):
                if why:
                    yield _row(word, why), _row("Nothing was done", _anew(view) or more)
            yield word, _row("Nothing was done", _anew(view) or more)
        case _:
            canceled = f"{word} by {words(view.ended_by)} {at}" if view.ended_by else f"{word} {at}"
            why = code(view.ended_why) if view.ended_why else reason or "Nothing was done"
            for each in (reference, ""):
                yield _row(canceled, each), _row(why, more)


def granted_words(one: Granted, *, full: bool = True) -> str:
    """The words about a grant: how much is allowed in advance, and until when, or who has taken it back."""
    if one.open:
        return f"{one.uses} more {'allowed ' if full else ''}until {moment(one.until)}"
    return f"{one.uses} more: taken back by {words(one.by)} {facts.clock(one.at) if full else ''}".strip()


def _row(*parts: str) -> str:
    return " · ".join(part.strip() for part in parts if part.strip()) or "\u2013"


def _reasons(view: CardView) -> str:
    return ", ".join(code(vote.reason) for vote in current_votes(view.votes) if vote.reason) or "No reason was given"


def _anew(view: CardView) -> str:
    """The words that the question was asked again, with a link to the new one if that is known."""
    if view.anew is None:
        return ""
    return link(view.anew_link, "Asked anew") or "asked anew below"


def _moved(view: CardView) -> str:
    """The difference of the new question: the first field that changed meanwhile, from which value to which."""
    one = view.moved[0]
    more = f", and {len(view.moved) - 1} more" if len(view.moved) > 1 else ""
    name = facts.field_words(one.field, one.label)
    before, after = (value_words(one.before, one.before_label), value_words(one.after, one.after_label))
    return f"{name} changed meanwhile: {before} → {after}{more}"


def _notice(view: CardView) -> list[Block]:
    """A section with what happened and the reason in full, and the small print."""
    content, word = view.content, f"*{word_of(view)}*"
    subject = escaped(content.question.removesuffix("?"), edges=False) or code(content.title)
    texts = [f"{word}: {subject}"]
    if view.state is CardState.EXPIRED:
        texts = [f"*Expired:* {subject}. It was not decided, and nothing was done."]
    reasons = [code(view.detail)] if view.detail else []
    if view.state is CardState.REJECTED and not reasons:
        reasons = [_reasons(view)]
    if view.state is CardState.SUPERSEDED:
        moved = [_moved(view)] if view.moved else []
        reasons = [*moved, *reasons, _row("Nothing was done", _anew(view))]
    extra = [f"*A late answer:* {code(view.late)}"] if view.late else []
    extra += [f"*Paused:* {code(view.paused)}"] if view.paused else []
    extra += [f"*In advance:* {granted_words(view.granted)}"] if view.granted is not None else []
    small = context(_small(view))
    for lines in ([*texts, *reasons, *extra], [*texts, *reasons], [*texts, *extra], texts):
        short = [] if lines == [*texts, *reasons, *extra] else ["The reason is in *Details*"]
        blocks = [section("\n".join([*lines, *short])), small]
        if lines_of(blocks) + 1 <= OPEN_LINES_MAX:
            return blocks
    return [section(f"{word}. What was asked, and why, is in *Details*"), context(_row(facts.clock(view.decided_at)))]


def _small(view: CardView) -> str:
    content, who, at = view.content, facts.people_of(view), facts.clock(view.decided_at)
    reference = facts.reference_words(content.reference) if content.reference else ""
    if view.state is CardState.EXPIRED:
        groups = ", ".join(dict.fromkeys(one.group.words for one in view.progress))
        asked = f"{words(groups)} were asked" if groups else "Nobody decided"
        until = f" until {moment(content.expires_at)}" if content.expires_at else ""
        return _row(f"{asked}{until}", reference)
    unused = (CardState.REJECTED, CardState.CANCELED, CardState.SUPERSEDED)
    outcome = "Answered" if view.state in unused else "Approved"
    return _row(f"{outcome} by {who} {at}" if who else at, reference, facts.short_change(content))
