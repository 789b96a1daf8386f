"""Evaluates rules again over the facts that a bundle discloses: they must give each recorded decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from core.canonical import Json, JsonObject
from core.errors import InputError
from evidence.container import Files
from evidence.events import EventType as E
from evidence.judged import Compiler
from evidence.layout import DEFINITION, text_file
from evidence.opened import digest_of

# Prefixes of rules that are in no policy's text: caps, people whom the directory does not know, disabled accounts.
_BEYOND = ("cap:", "contributors:", "policy:")
_FEW = 5
_LENIENT = {"deny": 0, "needs_approval": 1, "allow": 2}


class Facts(Struct, frozen=True):
    """One decision: the files of its policies' texts, its outcome and rules, and the facts, if all are disclosed."""

    seq: int
    files: tuple[str, ...]
    operation: str
    outcome: str
    rules: tuple[str, ...]
    facts: JsonObject | None


class Ruled:
    """Follows decisions. ``row`` evaluates them; ``left`` counts those whose facts are withheld."""

    def __init__(self, files: Files, compiler: Compiler | None) -> None:
        self._files = files
        self._compiler = compiler
        self._decisions: list[Facts] = []
        self._workflow = ""
        self.left = 0
        self.again = 0

    def observe(
        self, event: Mapping[str, Any], opened: Mapping[str, Json], listed: Sequence[tuple[str, str]] | None
    ) -> None:
        """Follow one verified event."""
        data = event["data"]
        if event["type"] == E.RUN_OPENED and isinstance(data["workflow"], dict):
            self._workflow = str(data["workflow"].get("name"))
        if event["type"] != E.DECISION_MADE or self._compiler is None:
            return
        rules = tuple(map(str, data.get("rules") or ()))
        named = [one for one in data["policies"] if isinstance(one, dict)] if isinstance(data["policies"], list) else []
        if not named or any(rule.startswith(_BEYOND) for rule in rules):
            return
        files = tuple(text_file("policy", str(one.get("name")), str(one.get("version"))) for one in named)
        facts = None if listed is None else _facts(f"/{digest_of(event)}/facts", opened, listed)
        self.left += facts is None
        if facts is not None:
            made = Facts(event["seq"], files, str(data["operation"]), str(data["outcome"]), rules, facts)
            self._decisions.append(made)

    def row(self, definition: Callable[[], JsonObject]) -> str:
        """Evaluate the rules, and count in words. ``InputError`` names the decisions that the rules do not give."""
        faults = list[str]()
        for one in self._decisions:
            assert self._compiler is not None, "nothing is followed without it"
            texts = [self._files.read(file).decode(errors="replace") for file in one.files]
            found = self._compiler.decide(texts, definition(), one.operation, self._workflow, one.facts or {})
            if found is None or not _comparable(one, *found):
                self.left += 1
                continue
            self.again += 1
            if found[:2] != (one.outcome, [*one.rules]):
                given = f"{found[0]} by {', '.join(found[1]) or 'no rule'}"
                faults.append(f"event {one.seq}: it is {one.outcome}, and the rules give {given}")
        if faults:
            raise InputError("; ".join(faults[:_FEW]), where=DEFINITION)
        return f"{self.again} decisions evaluated again by their rules over the facts that are disclosed"


def _comparable(one: Facts, outcome: str, rules: Sequence[str], whole: bool) -> bool:
    """True unless rules that are left out may have made the decision stricter than the others do."""
    if whole or _LENIENT.get(one.outcome, 0) > _LENIENT.get(outcome, 0):
        return True
    return (one.outcome, one.rules) == (outcome, tuple(rules))


def _facts(place: str, opened: Mapping[str, Json], listed: Sequence[tuple[str, str]]) -> JsonObject | None:
    """The facts of a decision by their names; None if one is withheld, or none is bound."""
    paths = [path for path, _ in listed if path.startswith(f"{place}/")]
    if not paths or any(path not in opened for path in paths):
        return None
    return {path[len(place) + 1 :].replace("~1", "/").replace("~0", "~"): opened[path] for path in paths}
