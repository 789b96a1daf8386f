"""House rules that no linter of ours knows: small units, nothing unfinished, plain words, the database's clock only."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

LONGEST_FUNCTION = 50
LONGEST_MODULE = 400
UNFINISHED = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b")

# Packages whose decisions must not depend on this machine's clock: time comes from the database.
TIMELESS = ("core", "policy", "approvals", "evidence", "connectors", "runtime")
CLOCKS = {
    ("datetime", "now"),
    ("datetime", "today"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
}
MAY_READ_THE_CLOCK = {
    "core/ids.py": "a UUIDv7 begins with the time; nothing is decided by it",
    "evidence/s3.py": "Object Lock takes a date; S3 itself decides by its own clock",
}

# Code beside the packages of the wheel and their tests.
BESIDES = ("benchmarks", "chaos", "tools")
# A docstring begins with a verb or a noun phrase: these words would make it half a sentence without its subject.
HEADLESS = {
    *("What", "Who", "Whom", "Where", "Whether", "How", "Which", "When", "It", "They", "That", "This"),
    *("As", "Of", "For", "Nobody", "Somebody", "Whoever", "Whatever", "Why"),
}
FIRST_WORD = re.compile(r"[A-Z]\w*")

Modules = Callable[..., Iterator[Any]]


def calls(tree: ast.Module) -> Iterator[tuple[int, tuple[str, str]]]:
    """Line and (owner, name) of every call such as `time.sleep(…)` or `datetime.datetime.now(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            yield node.lineno, (name, node.func.attr)


def bare_imports(tree: ast.Module, module: str, names: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of every `from module import name`, by which a call would lose its owner."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in names)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of modules, classes and functions, and below attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                match statement:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        yield statement.lineno, text.strip()


def headless(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and first line of every docstring that does not begin with a capitalised word, or with a headless one."""
    return [
        (line, text.partition("\n")[0])
        for line, text in docstrings(tree)
        if (first := FIRST_WORD.match(text)) is None or first[0] in HEADLESS
    ]


def clock_readings(tree: ast.Module) -> list[int]:
    found = [line for line, call in calls(tree) if call in CLOCKS]
    return found + [line for line, _ in bare_imports(tree, "time", {"time", "time_ns"})]


def naps(tree: ast.Module) -> list[int]:
    found = [line for line, call in calls(tree) if call == ("time", "sleep")]
    return found + [line for line, _ in bare_imports(tree, "time", {"sleep"})]


def test_functions_and_modules_fit_on_a_screen_or_a_few(read_modules: Modules, our_packages: list[str]) -> None:
    too_long = []
    for module in read_modules(*our_packages, *BESIDES):
        lines = len(module.text.splitlines())
        if lines > LONGEST_MODULE:
            too_long.append(f"{module.path}: {lines} lines")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    too_long.append(f"{module.path}:{node.lineno}: {node.name} has {length} lines")
    assert not too_long, "\n".join(too_long)


def test_nothing_is_left_unfinished(read_modules: Modules, our_packages: list[str]) -> None:
    found = [
        f"{module.path}:{number}: {line.strip()}"
        for module in read_modules(*our_packages, *BESIDES)
        for number, line in enumerate(module.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_verb_or_a_noun(read_modules: Modules, our_packages: list[str]) -> None:
    found = [
        f"{module.path}:{line}: {first_line}"
        for module in read_modules(*our_packages, *BESIDES, "tests")
        for line, first_line in headless(module.tree)
    ]
    assert not found, "begin with a verb or a noun phrase:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is."""',
        'class A:\n    """\n    Whether it is so."""',
        'async def f():\n    """``None`` if there is none."""',
        'X = 1\n"""lower case"""',
        'class A:\n    x = 1\n    """As before."""',
        'def f():\n    """"""',
    ],
)
def test_the_docstring_rule_sees(source: str) -> None:
    assert len(headless(ast.parse(source))) == 1


def test_the_docstring_rule_lets_verbs_and_nouns_be() -> None:
    assert headless(ast.parse('"""A whole."""\ndef f():\n    """True if it is so. What follows is free."""')) == []


def test_nobody_sleeps(read_modules: Modules, our_packages: list[str]) -> None:
    found = [
        f"{module.path}:{line}"
        for module in read_modules(*our_packages, *BESIDES, "tests")
        for line in naps(module.tree)
    ]
    assert not found, "\n".join(found)


def test_time_comes_from_the_database(read_modules: Modules) -> None:
    readers = {module.path: lines for module in read_modules(*TIMELESS) if (lines := clock_readings(module.tree))}
    assert {path: lines for path, lines in readers.items() if path not in MAY_READ_THE_CLOCK} == {}
    assert set(MAY_READ_THE_CLOCK) <= set(readers), "an exception that nobody needs any more"


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import time_ns\ntime_ns()",
        "from datetime import datetime\ndatetime.now(tz)",
        "import datetime\ndatetime.datetime.utcnow()",
        "from datetime import date\ndate.today()",
    ],
)
def test_the_clock_rule_sees(source: str) -> None:
    assert len(clock_readings(ast.parse(source))) == 1


def test_the_clock_rule_lets_durations_be_measured() -> None:
    assert clock_readings(ast.parse("import time\ntime.monotonic()\ntime.perf_counter()")) == []


@pytest.mark.parametrize("source", ["import time\ntime.sleep(1)", "from time import sleep\nsleep(1)"])
def test_the_sleep_rule_sees(source: str) -> None:
    assert len(naps(ast.parse(source))) == 1
