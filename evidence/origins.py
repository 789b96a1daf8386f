"""Recomputes the origins of an agent's calls from the values that a bundle discloses.

A bundle lists the commitments to the values of events from which origins are computed. If all the values that a call
depends on are disclosed, the matcher must find the recorded origins. If one is withheld, the call is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, ValidationError, convert

from core.canonical import Json, JsonObject, digest
from core.errors import InputError
from core.origins.conversation import TOOL, Listener, Passage, calls_of, digest_of, listener_of
from core.origins.ingredients import Origins, distinct
from core.origins.kinds import ArgumentKind
from core.origins.matching import MODEL, PERSON, VERSION
from core.origins.repeats import Path
from evidence import layout
from evidence.events import EventType

BEGAN, ANSWERED = str(EventType.AGENT_BEGAN), str(EventType.AGENT_ANSWERED)
SUCCEEDED, FAILED, DECIDED = str(EventType.STEP_SUCCEEDED), str(EventType.STEP_FAILED), str(EventType.DECISION_MADE)
_TOLD = frozenset({BEGAN, ANSWERED})


def counts(kind: object, step: object) -> bool:
    """True if a bundle must list this event among the origins: it is part of what an agent was shown."""
    return kind in _TOLD or (kind in (SUCCEEDED, FAILED) and isinstance(step, str) and "/" in step)


# Maps a path and a commitment to (is it disclosed, value).
Opened: TypeAlias = Callable[[str, str], tuple[bool, Json]]


class _Withheld(Exception):
    pass


class Event(Struct, frozen=True):
    """One event, with the ``[path, commitment]`` of its values; ``hidden`` if it has values that are not listed."""

    seq: int
    type: str
    step: str | None
    values: Sequence[tuple[str, str]] | None = None
    hidden: bool = False

    def opened(self, name: str, opened: Opened) -> Any:
        """The private value with this name. ``_Withheld`` if any part of it is withheld."""
        if self.hidden:
            raise _Withheld
        found: dict[str, Any] = {}
        for path, commitment in self.values or ():
            parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[2:]]
            if parts[:1] != [name]:
                continue
            known, value = opened(path, commitment)
            if not known:
                raise _Withheld
            if len(parts) == 1:
                return value
            found["/".join(parts[1:])] = value
        return found or None


class OriginEvents:
    """Collects the events of a chain from which origins are computed, with what is opened of them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._opened: dict[tuple[str, str], Json] = {}

    def observe(
        self, event: Mapping[str, Any], opened: Mapping[str, Json], listed: Sequence[tuple[str, str]] | None
    ) -> None:
        """Follow one event. A decision counts only if its values are listed: nothing else says that it has origins."""
        kind, step = event["type"], event["step"]
        if listed is None and not counts(kind, step):
            return
        hidden = listed is None and event["data"].get("values") is not None
        self._events.append(Event(event["seq"], kind, step, listed, hidden))
        self._opened.update({pair: opened[pair[0]] for pair in listed or () if pair[0] in opened})

    def row(self) -> str:
        """Recompute the origins, and give the counts in words."""
        return recompute(self._events, lambda *one: (one in self._opened, self._opened.get(one))).words()


class Recount(Struct):
    """Counts of origins: recomputed (``again``), ``withheld``, or from a workflow's expressions (``followed``)."""

    again: int = 0
    withheld: int = 0
    followed: int = 0

    def words(self) -> str:
        """The counts in words."""
        return (
            f"{self.again} computed again; {self.withheld} not recomputed, because values are withheld; "
            f"{self.followed} of workflow steps, which follow from expressions that no bundle evaluates"
        )


def listed(stated: Json, chained: Mapping[int, tuple[Json, Json, Json]]) -> list[Event]:
    """The listed events of the second format. ``InputError`` if one is missing, or has other values than are bound.

    ``chained`` are the chain's events that may be listed: type, step, and the digest of their values.
    """
    try:
        events = convert(stated or [], list[Event])
    except ValidationError as error:
        raise InputError(f"its origins cannot be read: {error}", where=layout.RUN_FILE) from None
    for one in events:
        bound = digest([[*pair] for pair in one.values]) if one.values is not None else None
        if chained.get(one.seq) != (one.type, one.step, bound):
            raise InputError(f"event {one.seq} is listed with other values", where=layout.RUN_FILE)
    missing = {seq for seq, (kind, *_) in chained.items() if kind != DECIDED} - {one.seq for one in events}
    if events and missing:
        raise InputError(f"event {min(missing)} is not listed among the origins", where=layout.RUN_FILE)
    return events


def recompute(events: Sequence[Event], opened: Opened) -> Recount:
    """Recompute the origins of each decision. ``InputError`` names the first that differs from the recorded ones."""
    count = Recount()
    for event in (one for one in events if one.type == DECIDED):
        try:
            stated = event.opened("origins", opened) or {}
            if "turn" not in stated:
                count.followed += 1
            elif stated["matcher"] != VERSION or not _is_call(event):
                count.withheld += 1
            else:
                _check(event, stated, events, opened)
                count.again += 1
        except _Withheld:
            count.withheld += 1
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"event {event.seq}: its origins cannot be read: {error!r}") from None
    return count


def _is_call(event: Event) -> bool:
    return (event.step or "").count("/") > 1


def _check(event: Event, stated: Mapping[str, Any], events: Sequence[Event], opened: Opened) -> None:
    turn, _, number = (event.step or "").rpartition("/")
    agent, _, at = turn.rpartition("/")
    began = [one for one in events if one.type == BEGAN and one.step == agent and one.seq < event.seq][-1]
    inner = [one for one in events if (one.step or "").startswith(f"{agent}/") and one.seq > began.seq]
    own = {(one.type, one.step or ""): one for one in inner}
    matching = began.opened("matching", opened)
    if began.opened("remembered", opened):
        raise _Withheld  # the conversation of an earlier agent may be in another run's book
    conversation = [*_beginning(began, opened)]
    for before in range(1, int(at)):
        conversation += _turn(f"{agent}/{before}", own, matching, opened)
    if stated["turn"] != turn or stated["shown"] != digest_of(conversation):
        raise InputError(f"event {event.seq}: its origins were not found in what the model had been shown")
    call = own[ANSWERED, turn].opened("said", opened)[int(number) - 1]
    tool, siblings = matching[call["tool"]], list[JsonObject]()
    if tool["effect"] and int(number) > 1:
        calls = calls_of(turn, own[SUCCEEDED, turn].opened("output", opened))[: int(number)]
        siblings = [
            one.arguments for one in calls[:-1] if one.tool == calls[-1].tool and isinstance(one.arguments, dict)
        ]
    matched = _matched(stated["arguments"], call["input"], tool, listener_of(conversation), siblings)
    for name, argument in stated["arguments"].items():
        found = [*argument.get("fixed", ())]
        for path in argument["matched"]:
            found += matched[tuple(path)]
        if distinct(found) != argument["origins"]:
            raise InputError(f"event {event.seq}: {name} does not come from where the event says")
    facts = [(path, commitment) for path, commitment in event.values or () if "/facts/origin." in path]
    for path, commitment in facts:
        known, value = opened(path, commitment)
        name = path.rpartition("/facts/origin.")[2]
        if known and value != stated["arguments"].get(name, {"origins": []})["origins"]:
            raise InputError(f"event {event.seq}: it was judged by other origins of {name} than the event says")


def _matched(
    arguments: Mapping[str, Any],
    given: Json,
    tool: Mapping[str, Any],
    listener: Listener,
    siblings: Sequence[JsonObject],
) -> Mapping[Path, Origins]:
    """The origins of the values that the model gave to a call, without origins that earlier calls have used up."""
    values: dict[Path, Json] = {}
    for argument in arguments.values():
        for path in map(tuple, argument["matched"]):
            value: Any = given
            for part in path:
                value = value[part]
            values[path] = value
    found = {
        path: listener.matcher.origins(
            value,
            ArgumentKind(tool["kinds"].get("/".join(path), ArgumentKind.VALUE)),
            known=tool["names"],
            name=path[-1],
        )
        for path, value in values.items()
    }
    return listener.performed.spend(tool["operation"], values, found, siblings)


def _beginning(began: Event, opened: Opened) -> list[Passage | None]:
    messages, sources = began.opened("messages", opened), began.opened("sources", opened)
    passages: list[Passage | None] = []
    for source in sources or ():
        at = source.get("message")
        passages.append(Passage(source["origin"], source.get("value") if at is None else messages[at]["content"]))
    return passages


def _turn(
    turn: str, own: Mapping[tuple[str, str], Event], matching: Mapping[str, Any], opened: Opened
) -> list[Passage | None]:
    """The model's answer of a turn, and the results of its successful calls."""
    answer = own.get((SUCCEEDED, turn))
    if answer is None:
        return []
    passages: list[Passage | None] = [Passage(MODEL, answer.opened("output", opened), turn, answer=True)]
    answered = own.get((ANSWERED, turn))
    for number, call in enumerate((answered and answered.opened("said", opened)) or (), start=1):
        done = own.get((SUCCEEDED, f"{turn}/{number}"))
        if done is None:
            continue
        value, tool = done.opened("output", opened), matching[call["tool"]]
        if tool.get("people"):
            passages.append(Passage(PERSON, value))
        elif "operation" not in tool or tool["secret"]:
            raise _Withheld
        else:
            origin, step, protected = f"{TOOL}{tool['operation']}", f"{turn}/{number}", tuple(tool["kept"])
            passages.append(Passage(origin, value, step, tool["records"], effect=tool["effect"], protected=protected))
    return passages
