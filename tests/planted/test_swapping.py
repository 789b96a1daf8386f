"""A change is swapped into a process that has imported the module, or the process says that it cannot be."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.swapping import CannotSwap, live_functions, swap

TEXT = """
import functools

LIMIT = 3
PATTERN = object()


def plain(number):
    return number < LIMIT


def closing_over(more):
    def added(number):
        return number + more

    return added


@functools.cache
def remembered(number):
    return [number for _ in range(2) if number]


class Kept:
    size = 4

    def grown(self, by=1):
        return self.size + by
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "swapped_into.py"
    path.write_text(TEXT, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("swapped_into", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["swapped_into"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["swapped_into"]


def _swapped(module: Any, old: str, new: str) -> Any:
    assert TEXT.count(old) == 1
    path = Path(module.__file__)
    swap(path, TEXT, TEXT.replace(old, new), live_functions(path.parent))
    return module


def test_a_function_does_what_the_new_text_says_for_whoever_has_imported_it(module: Any) -> None:
    held = module.plain
    _swapped(module, "number < LIMIT", "number <= LIMIT")
    assert held(3)


def test_what_the_collector_leaves_alone_is_found(module: Any) -> None:
    gc.freeze()  # as after the collection of the tests
    _swapped(module, "number < LIMIT", "number <= LIMIT")
    assert module.plain(3)


def test_what_a_function_makes_is_made_anew(module: Any) -> None:
    _swapped(module, "number + more", "number - more")
    assert module.closing_over(2)(5) == 3


def test_decorated_functions_and_methods_are_swapped_below_what_wraps_them(module: Any) -> None:
    assert _swapped(module, "if number]", "]").remembered(0) == [0, 0]
    assert _swapped(module, "self.size + by", "self.size - by").Kept().grown() == 3


def test_lines_may_move(module: Any) -> None:
    assert _swapped(module, "LIMIT = 3\n", "LIMIT = 3\n\n\n").plain(2)
    assert not _swapped(module, "    return number < LIMIT", "\n\n    return number > LIMIT").plain(2)


def test_a_plain_constant_is_another_one_wherever_it_was_imported(module: Any) -> None:
    importer = sys.modules["importer"] = ModuleType("importer")
    importer.LIMIT = module.LIMIT = [3]  # type: ignore[attr-defined]
    try:
        _swapped(module, "LIMIT = 3", "LIMIT = 4")
        assert (importer.LIMIT, module.plain(3)) == (4, True)
    finally:
        del sys.modules["importer"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size = 4", "size = 5"),
        ("by=1", "by=2"),
        ("PATTERN = object()", "PATTERN = Exception()"),
        ("LIMIT = 3", "LIMIT = 3\nMORE = 4"),
        ("def plain(", "def plane("),
        ("\n\ndef closing_over(more):", "\n\ndef another():\n    return 1\n\n\ndef closing_over(more):"),
        ("@functools.cache\n", ""),
        ("LIMIT = 3", "LIMIT = 3\nraise ValueError"),
    ],
)
def test_what_cannot_be_swapped_is_said(module: Any, old: str, new: str) -> None:
    with pytest.raises(CannotSwap):
        _swapped(module, old, new)


def test_a_module_that_nobody_has_imported_cannot_be_swapped_into(tmp_path: Path) -> None:
    with pytest.raises(CannotSwap, match="is not imported"):
        swap(tmp_path / "another.py", "A = 1", "A = 2", {})
