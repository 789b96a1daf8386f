"""The graph of a run, and the time that its steps took, as inline SVG: layers by longest path, bars on a line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from app.console import marks
from core.canonical import JsonObject
from runtime.engine.model.states import StepState

WIDTH, HEIGHT, GAP, REACH = 152, 46, 18, 44
NODES_MAX = 60
ROWS_MAX = 40
_PEOPLE = frozenset({"approve", "gate", "task"})
_LETTERS = 17


class Node(Struct):
    """A node as it is drawn. ``needs`` are the nodes before it."""

    id: str
    word: str
    needs: tuple[str, ...]
    people: bool
    added: bool = False
    layer: int = 0


def nodes_of(outlined: Mapping[str, Any], added: frozenset[str]) -> list[Node]:
    """The leaves of an outline, each after those that it needs; composites alone if there are too many leaves."""
    found = [*_leaves(outlined["steps"], ())[0]]
    if len(found) > NODES_MAX:
        found = [_node(node, tuple(node["needs"])) for node in outlined["steps"]][:NODES_MAX]
    known: dict[str, Node] = {}
    for node in found:
        node.needs = tuple(need for need in node.needs if need in known)
        node.layer = 1 + max((known[need].layer for need in node.needs), default=-1)
        node.added = node.id in added
        known[node.id] = node
    return found


def _leaves(nodes: Sequence[Mapping[str, Any]], before: tuple[str, ...]) -> tuple[list[Node], tuple[str, ...]]:
    """The leaves of a list of nodes, and the last of them, which no other leaf needs."""
    ends: dict[str, tuple[str, ...]] = {}
    found: list[Node] = []
    for node in nodes:
        needs = tuple(dict.fromkeys(end for need in node["needs"] for end in ends.get(need, ()))) or before
        inside = {name: inner for name, inner in node.get("inside", {}).items() if name != "tools"}
        if node["kind"] in ("if", "foreach", "while") and inside:
            last: list[str] = []
            for inner in inside.values():
                more, end = _leaves(inner, needs)
                found += more
                last += end
            ends[node["id"]] = tuple(last) or needs
            continue
        found.append(_node(node, needs))
        ends[node["id"]] = (node["id"],)
        for inner in inside.values():  # the branches of a leaf that fails
            found += _leaves(inner, (node["id"],))[0]
    needed = {need for node in nodes for need in node["needs"]}
    return found, tuple(end for node in nodes if node["id"] not in needed for end in ends[node["id"]])


def _node(node: Mapping[str, Any], needs: tuple[str, ...]) -> Node:
    word = str(node.get("operation", node["kind"]))
    return Node(str(node["id"]), word, needs, node["kind"] in _PEOPLE)


def names_of(key: str) -> str:
    """The author's name of a step, without the numbers of iterations."""
    return key.rpartition(".")[2].partition("/")[0]


_NOT_YET = ("waiting", "Not yet")
# The states of steps, the one that matters most first: the symbol, and its word.
STEPS: dict[str, tuple[str, str]] = {
    StepState.FAILED_TERMINAL: ("failed", "Failed"),
    StepState.FAILED_RETRYABLE: ("paused", "Tries again"),
    StepState.RUNNING: ("executing", "Running"),
    StepState.WAITING_APPROVAL: ("waiting", "Waiting"),
    StepState.WAITING: ("waiting", "Waiting"),
    StepState.READY: ("waiting", "In line"),
    StepState.CANCELED: ("canceled", "Canceled"),
    StepState.SUCCEEDED: ("applied", "Done"),
}


def draw(nodes: Sequence[Node], steps: Sequence[Mapping[str, Any]], title: str) -> Markup:
    """The graph. Each node that has a step links to it in the list below, which has the same content."""
    states: dict[str, Counter[str]] = {}
    for step in steps:
        states.setdefault(names_of(str(step["step_key"])), Counter())[str(step["status"])] += 1
    rows: Counter[int] = Counter()
    places: dict[str, tuple[int, int]] = {}
    for node in nodes:
        places[node.id] = (4 + node.layer * (WIDTH + REACH), 4 + rows[node.layer] * (HEIGHT + GAP))
        rows[node.layer] += 1
    width = max((x for x, _ in places.values()), default=0) + WIDTH + 4
    height = max((y for _, y in places.values()), default=0) + HEIGHT + 4
    edges = Markup("").join(_edge(places[need], places[node.id]) for node in nodes for need in node.needs)
    boxes = Markup("").join(_box(node, places[node.id], states.get(node.id, Counter())) for node in nodes)
    described = "; ".join(f"{node.id} after {', '.join(node.needs)}" if node.needs else node.id for node in nodes)
    return _GRAPH.format(width, height, width, height, title, marks.plain(described), edges, boxes)


_GRAPH = Markup(
    '<svg viewBox="0 0 {} {}" width="{}" height="{}" role="group" aria-labelledby="gt gd"><title id="gt">{}</title>'
    '<desc id="gd">{}</desc><defs><marker id="ar" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>{}{}</svg>'
)
_EDGE = Markup('<path class="edge" d="M{} {}C{} {} {} {} {} {}" marker-end="url(#ar)"/>')
_BOX = Markup(
    '<g><rect class="node{}" x="{}" y="{}" width="{}" height="{}" rx="4"/>'
    '<svg x="{}" y="{}" width="14" height="14" viewBox="0 0 16 16" class="fg-{}"><use href="#i-{}"/></svg>'
    '<text x="{}" y="{}" font-size="12.5" font-weight="600">{}</text>'
    '<text class="dim" x="{}" y="{}" font-size="11">{}</text></g>'
)
_COLOURS = {
    marks.Sign.FAILED: "red",
    marks.Sign.EXECUTING: "blue",
    marks.Sign.APPLIED: "green",
    marks.Sign.WAITING: "slate",
    marks.Sign.PAUSED: "slate",
    marks.Sign.CANCELED: "slate",
}


def _edge(start: tuple[int, int], end: tuple[int, int]) -> Markup:
    x1, y1, x2, y2 = start[0] + WIDTH, start[1] + HEIGHT // 2, end[0] - 2, end[1] + HEIGHT // 2
    half = (x1 + x2) / 2
    return _EDGE.format(x1, y1, half, y1, half, y2, x2, y2)


def _box(node: Node, place: tuple[int, int], states: Counter[str]) -> Markup:
    state = next((name for name in STEPS if states[name]), None)
    symbol, word = _NOT_YET if state is None else STEPS[state]
    count = sum(states.values())
    word = f"{word}, {states[state]} of {count}" if state is not None and count > 1 else word
    more = f"{' ask' if node.people else ''}{' added' if node.added else ''}"
    x, y = place
    box = _BOX.format(
        *(more, x, y, WIDTH, HEIGHT, x + 10, y + 9, _COLOURS[marks.Sign(symbol)], symbol, x + 30, y + 20),
        *(_cut(node.id), x + 30, y + 36, _cut(f"{word} · {node.word}", _LETTERS + 2)),
    )
    if not states:
        return box
    return Markup('<a href="#s-{}">{}</a>').format(node.id, box)


def _cut(text: str, most: int = _LETTERS) -> str:
    text = marks.plain(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def timeline(
    steps: Sequence[Mapping[str, Any]], asked: Sequence[tuple[str, datetime, datetime]], now: datetime
) -> tuple[Markup, int] | None:
    """The bars of steps on a time line, and the number of bars that did not fit; None if there is nothing to show.

    ``asked`` are the spans in which steps waited for people.
    """
    shown = steps[:ROWS_MAX]
    if not shown:
        return None
    start = min(step["created_at"] for step in shown)
    end = max(max(step["finished_at"] or now for step in shown), start + timedelta(seconds=1))
    span = (end - start).total_seconds()

    def place(at: datetime) -> float:
        share: float = (at - start).total_seconds() / span
        return round(150 + 900 * min(1.0, max(0.0, share)), 1)

    height = 26 + 26 * len(shown) + 6
    parts = [*_axis(start, end, place, height)]
    for number, step in enumerate(shown):
        y, key = 32 + 26 * number, str(step["step_key"])
        name = Markup('<text x="0" y="{}" font-size="12">{}</text>').format(y + 11, _cut(key, 20))
        over, kind = step["finished_at"] or now, _kind(step)
        parts += [name, _bar(kind, place(step["created_at"]), place(over), y)]
        parts += [_bar("p", place(since), place(until), y) for each, since, until in asked if each == key]
    drawn = Markup("").join(parts)
    return _TIME.format(height, height, drawn), len(steps) - len(shown)


_TIME = Markup(
    '<svg viewBox="0 0 1080 {}" width="1080" height="{}" role="img" aria-labelledby="tt"><title id="tt">'
    "When each step began and ended; the list of steps says the same</title>{}</svg>"
)


def _kind(step: JsonObject | Mapping[str, Any]) -> str:
    if step["operation"] in _PEOPLE:
        return "p"
    if str(step["operation"]).startswith("wait.") or step["operation"] == "run":
        return "w"
    return "ok" if step["status"] == StepState.SUCCEEDED else "e"


def _bar(kind: str, start: float, end: float, y: int) -> Markup:
    width = round(max(5.0, end - start), 1)
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="14" rx="2"/>').format(kind, start, y, width)


def _axis(start: datetime, end: datetime, place: Callable[[datetime], float], height: int) -> Iterator[Markup]:
    for number in range(5):
        at = start + (end - start) * number / 5
        x = place(at)
        long_ = end - start > timedelta(days=2)
        words = f"{at.astimezone(UTC):{'%d %b' if long_ else '%H:%M:%S'}}"
        yield Markup('<path class="axis" d="M{} 22V{}"/>').format(x, height)
        yield Markup('<text class="dim" x="{}" y="14" font-size="11">{}</text>').format(x + 3, words)
