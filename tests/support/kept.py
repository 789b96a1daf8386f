"""A plugin of pytest that keeps a session in which the tests are collected, and runs some of them in a fork when asked.

A question (``tools/forking.py``) is ``{"edits": {path: [text, new text]}, "tests": […], "first": false, "seconds": 300,
"options": {…}}``. The fork swaps in the edits (``tools/swapping.py``) and runs the tests of these names, to the first
that fails if so asked. The answer is 0, or `CANNOT` if the edits cannot be swapped in.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

import pytest

from tools.forking import answer
from tools.swapping import CannotSwap, Functions, live_functions, swap

CANNOT = 3
# The database that others are copied from is made once, by a test of these; so they are always collected.
FIRST = "tests/platform/test_database_fixture.py"


class Asked(TypedDict):
    """A question."""

    edits: dict[str, list[str]]
    tests: list[str]
    first: bool
    seconds: float
    options: dict[str, str]


def pytest_runtestloop(session: pytest.Session) -> bool:
    first = next(item for item in session.items if item.nodeid.startswith(f"{FIRST}::"))
    # On the way to a test of another folder pytest closes everything but what the whole session holds.
    _ask(first, next((item for item in session.items if item.path.parent != first.path.parent), first))
    live = live_functions(Path.cwd())
    # A fork copies what it touches, and the collector touches everything.
    gc.freeze()
    answer(lambda asked: _run(session, asked, live, away=first))
    return True


def _ask(item: pytest.Item, then: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=then)


def _run(session: pytest.Session, asked: Asked, live: Functions, away: pytest.Item) -> int:
    for name, value in asked["options"].items():
        setattr(session.config.option, name, value)
    try:
        for path, (old, new) in asked["edits"].items():
            swap(Path.cwd() / path, old, new, live)
    except CannotSwap:
        return CANNOT
    session.testsfailed = 0
    chosen = list(_named(session.items, asked["tests"]))
    # Whatever the last test's module holds is closed on the way to a test of another module.
    for item, then in zip(chosen, [*chosen[1:], away], strict=True):
        _ask(item, then)
        if asked["first"] and session.testsfailed:
            break
    return 0


def _named(items: Sequence[pytest.Item], names: Sequence[str]) -> Iterator[pytest.Item]:
    """Yield the tests of these names, in the order of the names; a name stands for all its parameters."""
    exact = {item.nodeid: item for item in items}
    for name in names:
        if name in exact:
            yield exact[name]
        else:
            yield from (item for item in items if item.nodeid.startswith((f"{name}[", f"{name}::")))
