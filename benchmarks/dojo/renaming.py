"""Renames everything in a suite, to expose policies that are fitted to the suite's data.

Addresses, links, accounts, files, people and places get random names of the same shape, by a seed. AgentDojo itself
keeps the old names: calls to it are translated back.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from benchmarks.dojo.asking import World
from benchmarks.dojo.measuring import Worlds
from benchmarks.dojo.scripts import Call, Suite, Task
from core.canonical import Json, JsonObject

_ADDRESSES = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|www\.[\w-]+(?:\.[\w-]+)*|\b[A-Z]{2}\d{2}[A-Z0-9]{10,}\b|\b[\w-]+(?=\.(?:txt|docx|xlsx|pdf)\b)"
)
_NAMED = frozenset({
    "user", "recipient", "channel", "hotel", "hotel_name", "hotel_names", "restaurant", "restaurant_names", "company",
    "company_name",
})  # fmt: skip
_KEPT = re.compile(r"www\.|\.[a-z]+$|\W")


@dataclass(frozen=True)
class Renaming:
    """A one-to-one mapping of names to new names."""

    there: dict[str, str]

    @classmethod
    def of(cls, suites: Iterable[Suite], seed: int) -> Renaming:
        """Draw a new name for each name in tasks and attacks."""
        drawn, names = random.Random(seed), dict.fromkeys(name for suite in suites for name in _names(suite))
        there: dict[str, str] = {}
        for name in names:
            other = _like(name, drawn)
            while other in names or other in there.values():
                other = _like(name, drawn)
            there[name] = other
        return cls(there)

    def suite(self, suite: Suite) -> Suite:
        """The suite under its new names."""
        return replace(suite, tasks=tuple(map(self._task, suite.tasks)), attacks=tuple(map(self._task, suite.attacks)))

    def worlds(self, worlds: Worlds) -> Worlds:
        """Wrap ``worlds`` so that the environments appear to have the new names."""
        ahead, back = _translator(self.there), _translator({new: old for old, new in self.there.items()})

        @contextmanager
        def opened(suite: str, task: str, planted: str | None) -> Iterator[World]:
            with worlds(suite, task, None if planted is None else back(planted)) as world:
                yield _Renamed(world, ahead, back)

        return opened

    def _task(self, task: Task) -> Task:
        ahead = _translator(self.there)
        return Task(task.id, ahead(task.text), tuple(Call(one.tool, _each(one.arguments, ahead)) for one in task.calls))


@dataclass(frozen=True)
class _Renamed:
    world: World
    ahead: Callable[[str], str]
    back: Callable[[str], str]

    def call(self, call: Call) -> Json:
        return _mapped(self.world.call(Call(call.tool, _each(call.arguments, self.back))), self.ahead)

    def succeeded(self) -> bool:
        return self.world.succeeded()


def _names(suite: Suite) -> Iterator[str]:
    for task in (*suite.tasks, *suite.attacks):
        yield from _ADDRESSES.findall(task.text)
        for call in task.calls:
            for name, value in call.arguments.items():
                for text in value if isinstance(value, list) else [value]:
                    if isinstance(text, str):
                        yield from _ADDRESSES.findall(text)
                        if name in _NAMED and not _ADDRESSES.search(text):
                            yield text


def _like(name: str, drawn: random.Random) -> str:
    """A random name of the same shape: letters for letters, digits for digits; endings and punctuation stay."""
    kept = {at for found in _KEPT.finditer(name) for at in range(found.start(), found.end())}
    return "".join(one if at in kept else _other(one, drawn) for at, one in enumerate(name))


def _other(character: str, drawn: random.Random) -> str:
    for kind in (string.digits, string.ascii_uppercase, string.ascii_lowercase):
        if character in kind:
            return drawn.choice(kind)
    return character


def _translator(names: dict[str, str]) -> Callable[[str], str]:
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w@])(?:{known})(?![\w@])")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def _each(values: JsonObject, translate: Callable[[str], str]) -> JsonObject:
    return {name: _mapped(value, translate) for name, value in values.items()}


def _mapped(value: Json, translate: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return translate(value)
    if isinstance(value, list):
        return [_mapped(one, translate) for one in value]
    if isinstance(value, dict):
        return {translate(name): _mapped(one, translate) for name, one in value.items()}
    return value
