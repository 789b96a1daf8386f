"""The two figures of a report, as inline SVG: who had the say at each step, and when."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from markupsafe import Markup
from msgspec import Struct

from evidence.receipts import ReceiptStatus
from evidence.report.folding import ALLOW, ASK, Effect, Judged, Outcome, Plot, Question
from evidence.report.marks import plain
from evidence.report.words import CHOICES, EFFECTS, OUTCOMES, clock, read_time, span

COLUMNS_MAX = 12
POINTS_MAX = 40
_WIDE, _LEFT, _STEP = 680, 150, 92
_PEOPLE, _RULES, _OUTSIDE = 52, 118, 184
_APART = 20
_SYMBOL = Markup(
    '<svg x="{:.1f}" y="{:.1f}" width="{}" height="{}" viewBox="0 0 16 16" class="c-{}"><use href="#i-{}"/></svg>'
)
_TEXT = Markup('<text x="{:.1f}" y="{}" class="{}" text-anchor="middle">{}</text>')
_GO = Markup('<path class="go" d="{}"/>')


class Column(Struct, frozen=True):
    """One action in figure 1."""

    step: str
    judged: Judged
    asked: Question | None
    effect: Effect | None


class Figure(Struct, frozen=True):
    """A drawing: the inside of its ``svg``, its size, and what it shows in words."""

    drawn: Markup
    width: int
    height: int
    title: str
    words: str


class Point(Struct, frozen=True):
    """One moment of figure 2, by its number in the list below it."""

    number: int
    at: str
    words: str
    sign: str
    colour: str
    seq: int


def columns(plot: Plot) -> tuple[list[Column], int]:
    """The actions to draw, and the number of actions that are left out."""
    found: dict[str, Column] = {}
    asked = {one.step: one for one in plot.asked.values()}
    effects = {one.step: one for one in plot.effects.values()}
    for judged in plot.judged.values():
        if judged.step not in found:
            effect = effects.get(judged.step)
            found[judged.step] = Column(judged.step, judged, asked.get(judged.step), effect)
    listed = [*found.values()]
    if len(listed) <= COLUMNS_MAX:
        return listed, 0
    weighty = [one for one in listed if one.judged.outcome != ALLOW or one.effect is not None]
    shown = weighty[:COLUMNS_MAX]
    return shown, len(listed) - len(shown)


def authority(plot: Plot, listed: Sequence[Column]) -> Figure:
    """Figure 1: people, rules and the outside world, one column for each action."""
    width = max(_WIDE, _LEFT + _STEP * len(listed))
    parts = [_lanes(width)]
    person = plot.opened["actor"]["kind"] == "person"
    parts.append(_symbol(112, _PEOPLE if person else _OUTSIDE, "slate", "needs-you" if person else "read"))
    parts.append(_TEXT.format(112, 38 if person else 210, "mu", "start"))
    last = (112.0, float(_PEOPLE if person else _OUTSIDE))
    sentences = [f"The run was started by {plain(plot.opened['actor']['id'])}."]
    for number, column in enumerate(listed):
        x = _LEFT + 22 + _STEP * number
        last = _column(parts, column, x, last)
        sentences.append(_sentence(column))
    return Figure(Markup("").join(parts), width, 222, "Who had the say at each step", " ".join(sentences))


def _sentence(column: Column) -> str:
    step, outcome = plain(column.step), column.judged.outcome
    if outcome == ALLOW:
        end = "" if column.effect is None else f" Its outcome: {EFFECTS[column.effect.status][2].lower()}."
        return f"The rules allowed {step}.{end}"
    if outcome == ASK:
        answer = OUTCOMES.get(column.asked.outcome, OUTCOMES[""])[2].lower() if column.asked else "not answered"
        return f"For {step} the rules asked people: {answer}."
    return f"The rules denied {step}."


def _lanes(width: int) -> Markup:
    rows = ((_PEOPLE, "People", "round"), (_RULES, "Rules", "square"), (_OUTSIDE, "Outside world", "six-sided"))
    lane = Markup(
        '<path class="lane" d="M96 {y}H{width}"/><text x="0" y="{up}" class="lb">{name}</text>'
        '<text x="0" y="{down}" class="mu">{shape}</text>'
    )
    drawn = [lane.format(y=y, up=y - 1, down=y + 13, width=width - 8, name=name, shape=form) for y, name, form in rows]
    return Markup("").join(drawn)


def _symbol(x: float, y: float, colour: str, name: str, size: int = 18) -> Markup:
    return _SYMBOL.format(x - size / 2, y - size / 2, size, size, colour, name)


def _column(parts: list[Markup], column: Column, x: float, last: tuple[float, float]) -> tuple[float, float]:
    """Draw one action; return the point from which the way goes on."""
    name = plain(
        column.step.rpartition("/")[0].rpartition(".")[2] if "/" in column.step else column.step.rpartition(".")[2]
    )
    lines = textwrap.wrap(name.replace("_", " "), 14)[:2] or [""]
    parts += [_TEXT.format(x, 3 + 14 * number, "st", line[:14]) for number, line in enumerate(lines)]
    first = x - 22 if column.judged.outcome == ASK else x
    middle = (last[0] + first) / 2
    if last[1] == _RULES:
        parts.append(_GO.format(f"M{last[0] + 11:.1f} {_RULES}H{first - 12:.1f}"))
    else:
        way = f"M{last[0] + 11:.1f} {last[1]}C{middle:.1f} {last[1]} {middle:.1f} {_RULES} {first - 12:.1f} {_RULES}"
        parts.append(_GO.format(way))
    if column.judged.outcome == ASK:
        return _draw_question(parts, column, x)
    colour, sign = ("petrol", "allowed") if column.judged.outcome == ALLOW else ("red", "denied")
    parts.append(_symbol(x, _RULES, colour, sign))
    if column.judged.outcome != ALLOW:
        return x, _RULES
    return _outside(parts, column, x)


def _outside(parts: list[Markup], column: Column, x: float) -> tuple[float, float]:
    sign, colour, word = ("read", "slate", "no change") if column.effect is None else EFFECTS[column.effect.status]
    parts += [_GO.format(f"M{x:.1f} 128V172"), _symbol(x, _OUTSIDE, colour, sign)]
    parts.append(_TEXT.format(x, 210, "mu", word.lower()))
    return x, _OUTSIDE


def _draw_question(parts: list[Markup], column: Column, x: float) -> tuple[float, float]:
    asked = column.asked
    sign, colour, word = OUTCOMES.get(asked.outcome if asked else "", OUTCOMES[""])
    parts += [_symbol(x - 22, _RULES, "ochre", "asks"), _TEXT.format(x - 22, 142, "mu", "ask")]
    parts.append(_GO.format(f"M{x - 22:.1f} 108V70C{x - 22:.1f} 52 {x - 22:.1f} 52 {x - 11:.1f} 52"))
    parts.append(_symbol(x, _PEOPLE, colour, sign, 20))
    voters = [vote.who for vote in asked.votes if not vote.refused] if asked else []
    parts.append(_TEXT.format(x, 34, "mu", _clipped(plain(voters[-1]) if voters else word.lower())))
    if asked is None or asked.outcome != Outcome.APPROVED:
        return x, _PEOPLE
    parts.append(_GO.format(f"M{x + 11:.1f} 52C{x + 22:.1f} 52 {x + 22:.1f} 52 {x + 22:.1f} 70V106"))
    parts.append(
        _symbol(x + 22, _RULES, "petrol" if column.effect else "red", "allowed" if column.effect else "denied")
    )
    return _outside(parts, column, x + 22) if column.effect else (x + 22, _RULES)


def _clipped(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"


def points(plot: Plot) -> list[tuple[str, str, str, str, int]]:
    """The moments at which people acted, effects came and the run ended: time, words, symbol, colour, event."""
    opened = plot.opened
    found = [(opened["ts"], f"{plain(opened['actor']['id'])} starts the run", "needs-you", "slate", 0)]
    for asked in plot.asked.values():
        found.append((asked.ts, f"people are asked: {plain(asked.step)}", "asks", "ochre", asked.seq))
        found += [(ts, "people are reminded", "waiting", "slate", seq) for seq, ts in asked.reminded]
        if asked.escalated is not None:
            found.append((asked.escalated[1], "more people are asked", "waiting", "slate", asked.escalated[0]))
        for vote in asked.votes:
            words = "clicks, and it is not counted" if vote.refused else CHOICES.get(vote.choice, vote.choice)
            no = vote.refused or vote.choice in ("reject", "fail")
            sign = ("canceled", "slate") if vote.refused else ("rejected", "red") if no else ("approved", "green")
            found.append((vote.ts, f"{plain(vote.who)}: {words}", *sign, vote.seq))
        if asked.outcome in (Outcome.EXPIRED, Outcome.SUPERSEDED):
            sign_, colour, word = OUTCOMES[asked.outcome]
            found.append((asked.ended, f"the question ends: {word.lower()}", sign_, colour, asked.ended_seq))
    for effect in plot.effects.values():
        if effect.approval or effect.status != ReceiptStatus.SUCCEEDED:
            sign_, colour, word = EFFECTS[effect.status]
            found.append((effect.ts, f"{plain(effect.operation)}: {word.lower()}", sign_, colour, effect.seqs[0]))
    found += [(ts, f"the run is {what}", "paused", "slate", seq) for seq, ts, what in plot.others]
    if plot.ended:
        found.append((plot.ended, "the run ends", "applied", "slate", plot.closed_seq))
    return sorted(found, key=lambda one: (one[0], one[4]))


def timeline(plot: Plot) -> tuple[Figure, list[Point], int]:
    """Figure 2: one axis, on which each moment has a number; with the list of moments, and how many are left out."""
    every = points(plot)
    shown = every if len(every) <= POINTS_MAX else [*every[: POINTS_MAX - 1], every[-1]]
    start, end = read_time(every[0][0]), read_time(every[-1][0])
    whole = max((end - start).total_seconds(), 1e-6)
    width = max(_WIDE, 60 + _APART * len(shown))

    def place(ts: str) -> float:
        return 33 + (width - 66) * (read_time(ts) - start).total_seconds() / whole

    spots = _spread([place(one[0]) for one in shown], width - 20)
    parts = [Markup('<path class="axis" d="M8 42H{}"/>').format(width - 8)]
    for asked in plot.asked.values():
        left, right = place(asked.ts), place(asked.ended or every[-1][0])
        bar = Markup('<rect class="wait" x="{:.1f}" y="36" width="{:.1f}" height="12" rx="2"/>')
        parts.append(bar.format(left, max(1.0, right - left)))
    listed = []
    for number, (spot, (ts, words, sign, colour, seq)) in enumerate(zip(spots, shown, strict=True), 1):
        parts += [_symbol(spot, 42, colour, sign, 17), _TEXT.format(spot, 24, "mu", number)]
        listed.append(Point(number, clock(ts, every[0][0]), words, sign, colour, seq))
    for ts, anchor, x in ((every[0][0], "start", 8), (every[-1][0], "end", width - 8)):
        label = Markup('<text class="mu" x="{}" y="68" text-anchor="{}">{}</text>')
        parts.append(label.format(x, anchor, clock(ts, every[0][0])))
    caption = " ".join(f"{one.number}: {one.at}, {one.words}." for one in listed)
    figure = Figure(Markup("").join(parts), width, 88, f"When it happened: {span(whole)} in all", caption)
    return figure, listed, len(every) - len(shown)


def _spread(places: Sequence[float], most: float) -> list[float]:
    """Move points that would overlap: first to the right, then back from the edge."""
    spots: list[float] = []
    for place in places:
        spots.append(max(place, spots[-1] + _APART) if spots else max(place, 33.0))
    for number in reversed(range(len(spots))):
        spots[number] = min(spots[number], most - _APART * (len(spots) - 1 - number))
    return spots
