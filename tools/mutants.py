"""Mutants of the pure packages: `make mutants` (ONLY=policy,core SAMPLE=80 SEED=1).

A mutant is a module with one change: a comparison inverted, a condition negated or no longer negated, `and` replaced by
`or`, `any` by `all`, a number changed, a return value or a call removed; strings stay as they are. It survives if the
package's tests pass. Prints each package's score, and the survivors that `tests/planted/living.toml` does not excuse.
Only tests that call the changed function run, the quickest first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from random import Random
from uuid import uuid4

from tests.support.outcomes import PASSED
from tools.copies import Copy, copies_of_tree
from tools.faults import ROOT, Edit

# Each package: its pure modules, the tests that must detect mutants, and the percentage that they must detect.
PACKAGES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "policy": ("policy/*.py", ("tests/policy", "tests/definition/test_siblings.py"), 90),
    "approvals": ("approvals/*.py", ("tests/approvals",), 90),
    "evidence": ("evidence/*.py", ("tests/evidence",), 85),
    "core": (
        "core/**/*.py",
        (
            *("tests/core", "tests/policy", "tests/definition", "tests/connectors/test_operations.py"),
            *("tests/connectors/test_marks.py", "tests/store/test_grouped_calls.py", "tests/store/test_connections.py"),
        ),
        80,
    ),
    "engine": ("runtime/engine/**/*.py", ("tests/engine",), 80),
}
# Connections are not pure: tests/store and tests/runtime test them with a real server.
_IMPURE = frozenset({"core/db.py"})
SEED = 20261122
LIVING = ROOT / "tests/planted/living.toml"
# Tests on random graphs reach no further code, and take most of the time.
_SLOW = frozenset({"tests/engine/test_determinism.py"})
# The key of all tests. For a function that no test calls, the quickest ones run.
ANYWHERE, _QUICKEST = "", 20
_PLUGINS = ("reaching",)
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_SWAPPED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """One change of a module: its number among the module's changes, and the enclosing function, by its first line."""

    file: str
    number: int
    line: str
    function: str


def _mutate(node: ast.AST) -> bool:
    """Change a node in place; False if nodes of its kind are not changed."""
    match node:
        case ast.Compare(ops=[op, *rest]):
            node.ops = [_TURNED[type(op)](), *rest]
        case ast.BoolOp(op=op):
            node.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=[test, *others]):
            node.ifs = [ast.UnaryOp(ast.Not(), test), *others]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.operand = ast.UnaryOp(ast.Not(), operand)
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            node.func = ast.Name(_SWAPPED[name], ast.Load())
        case ast.Expr(value=ast.Call() | ast.Await()):
            node.value = ast.Constant(None)
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            node.value = ast.Constant(None)
        case _:
            return False
    return True


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each node in a function's body with its innermost function; no annotations or decorators."""
    found: dict[ast.AST, ast.AST] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                found.update(dict.fromkeys(ast.walk(statement), function))
    yield from found.items()


def _first_line(function: ast.AST) -> int:
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    return min(each.lineno for each in (function, *function.decorator_list))


def mutants(file: str, root: Path = ROOT) -> Iterator[Mutant]:
    """Every mutant of a module."""
    text = (root / file).read_text(encoding="utf-8")
    lines = text.splitlines()
    for number, (node, function) in enumerate(_nodes(ast.parse(text))):
        line = node.target.lineno if isinstance(node, ast.comprehension) else getattr(node, "lineno", 0)
        if _mutate(node):
            name = f"{file}:{line}:{type(node).__name__}: {lines[line - 1].strip()}"
            yield Mutant(file, number, name, f"{file}:{_first_line(function)}")


def text_of(mutant: Mutant, root: Path = ROOT) -> str:
    """The text of the module with this mutant's change."""
    tree = ast.parse((root / mutant.file).read_text(encoding="utf-8"))
    _mutate(next(node for number, (node, _) in enumerate(_nodes(tree)) if number == mutant.number))
    return ast.unparse(ast.fix_missing_locations(tree))


def _sample(name: str, count: int, seed: int) -> list[Mutant]:
    files = sorted({str(path.relative_to(ROOT)) for path in ROOT.glob(PACKAGES[name][0])} - _IMPURE)
    every = [mutant for file in files for mutant in mutants(file)]
    return Random(f"{seed}:{name}").sample(every, min(count, len(every)))


def _unnumbered(line: str) -> str:
    """A mutant without its line number, as `living.toml` names it: line numbers change."""
    return re.sub(r":\d+:", ":", line, count=1)


def _files(tests: Sequence[str]) -> list[str]:
    """The files of these tests and folders of tests, without slow ones."""
    return [
        str(path.relative_to(ROOT))
        for test in tests
        for path in ([ROOT / test] if test.endswith(".py") else sorted((ROOT / test).rglob("test_*.py")))
        if str(path.relative_to(ROOT)) not in _SLOW
    ]


def _reached(name: str, copies: Queue[Copy]) -> dict[str, list[str]]:
    """The tests that call each function of the package, the quickest first.

    Each file runs by itself: a run has a time limit, and tests that it cuts off would count as calling nothing.
    """
    modules, tests, _ = PACKAGES[name]

    def ran(file: str) -> list[tuple[str, float, list[str]]]:
        copy = copies.get()
        try:
            told = copy.place / f".reached-{uuid4().hex}"
            told.touch()
            options = {"reached_to": str(told), "reached_in": modules.partition("*")[0]}
            outcomes = copy.look((), (file,), options=options) or {}
            lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
            told.unlink()
        finally:
            copies.put(copy)
        if wrong := sorted(f"{test} ({how})" for test, how in outcomes.items() if how != PASSED):
            sys.stdout.write(f"does not pass without a mutant: {' '.join(wrong)}\n")
        return [(test, float(took), functions) for test, took, functions in lines if outcomes.get(test) == PASSED]

    found: dict[str, list[str]] = {ANYWHERE: []}
    with ThreadPoolExecutor(copies.qsize()) as pool:
        every = [one for of_file in pool.map(ran, _files(tests)) for one in of_file]
    for test, _, functions in sorted(every, key=lambda each: each[1]):
        for function in (ANYWHERE, *functions):
            found.setdefault(function, []).append(test)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the score of each package. Exit code 1 if one is below its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PACKAGES))
    parser.add_argument("--sample", type=int, default=80)
    parser.add_argument("--seed", type=int, default=SEED, help="another one takes other mutants")
    parser.add_argument(
        "--at", default="", help="only mutants whose line in the list holds this text, and all of those"
    )
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args(arguments)
    excused = {each["line"] for each in tomllib.loads(LIVING.read_text(encoding="utf-8")).get("living", ())}
    below = False
    packages = chosen.only.split(",")
    with copies_of_tree(chosen.jobs, _PLUGINS) as copies:
        for copy in list(copies.queue):
            copy.keep(file for name in packages for file in _files(PACKAGES[name][1]))
        for name in packages:
            sample = _sample(name, sys.maxsize if chosen.at else chosen.sample, chosen.seed)
            below |= _score(name, [mutant for mutant in sample if chosen.at in mutant.line], copies, excused)
    return int(below)


def _lives(mutant: Mutant, copy: Copy, tests: list[str]) -> bool:
    if not tests:
        return True
    before = (copy.place / mutant.file).read_text(encoding="utf-8")
    edit = Edit(mutant.file, before, text_of(mutant))
    outcomes = copy.look([edit], tests, first=True)
    if outcomes is None or _passed(outcomes):
        # A process of a test reads the file, and what a module makes when it is imported is made anew.
        place = copy.place / f".chosen-{uuid4().hex}"
        place.write_text(json.dumps(tests), encoding="utf-8")
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        with copy.planted([edit]):
            outcomes = copy.run(files, "-x", "--chosen", str(place))
        place.unlink()
    return _passed(outcomes)


def _passed(outcomes: dict[str, str]) -> bool:
    return "" not in outcomes and all(how == PASSED for how in outcomes.values())


def _score(name: str, sample: list[Mutant], copies: Queue[Copy], excused: set[str]) -> bool:
    began = time.monotonic()
    reached = _reached(name, copies)

    def alive(mutant: Mutant) -> bool:
        copy = copies.get()
        try:
            # A function that runs at import is called in no test, but its mutants break every test.
            lives = _lives(mutant, copy, reached.get(mutant.function, reached[ANYWHERE][:_QUICKEST]))
        finally:
            copies.put(copy)
        if lives:
            none = "" if mutant.function in reached else " (no test calls its function)"
            may = _unnumbered(mutant.line) in excused
            sys.stdout.write(f"{'may live' if may else 'ALIVE'} {mutant.line}{none}\n")
            sys.stdout.flush()
        return lives and _unnumbered(mutant.line) not in excused

    with ThreadPoolExecutor(copies.qsize()) as pool:
        left = sum(pool.map(alive, sample))
    score = 100 * (len(sample) - left) // max(1, len(sample))
    wanted, minutes = PACKAGES[name][2], (time.monotonic() - began) / 60
    sys.stdout.write(
        f"{name}: {score} % of {len(sample)} mutants were seen, in {minutes:.1f} minutes; {wanted} % have to be.\n"
    )
    sys.stdout.flush()
    return score < wanted


if __name__ == "__main__":
    sys.exit(main())
