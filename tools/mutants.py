"""Mutants of the pure packages: `make mutants` (ONLY=policy,core SAMPLE=80).

A mutant is a module with one comparison turned, one condition negated, one `and` made an `or`, one number moved or one
return emptied; strings are left out. It lives if the package's tests pass on it. Prints each package's score, and the
survivors that `tests/planted/living.toml` does not excuse.
"""

from __future__ import annotations

import argparse
import ast
import copy
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from random import Random

from app.embedded_postgres import EmbeddedPostgres
from tests.support.outcomes import PASSED
from tools.faults import ROOT, Edit, Fault
from tools.plant import Copy

# Each package: its modules, the tests that have to see, and the part of mutants that has to die.
PACKAGES: dict[str, tuple[str, tuple[str, ...], int]] = {
    "policy": ("policy/*.py", ("tests/policy", "tests/definition/test_siblings.py"), 90),
    "approvals": ("approvals/*.py", ("tests/approvals",), 90),
    "evidence": ("evidence/*.py", ("tests/evidence",), 85),
    "core": (
        "core/*.py",
        ("tests/core", "tests/policy/test_load_policy.py", "tests/connectors/test_operations.py"),
        80,
    ),
    "engine": ("runtime/engine/**/*.py", ("tests/engine",), 80),
}
SEED = 20261122
LIVING = ROOT / "tests/planted/living.toml"
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def _mutate(node: ast.AST) -> bool:
    """Change a node in place; False if it is of a kind that is left as it is."""
    match node:
        case ast.Compare(ops=[op, *rest]):
            node.ops = [_TURNED[type(op)](), *rest]
        case ast.BoolOp(op=ast.And()):
            node.op = ast.Or()
        case ast.BoolOp(op=ast.Or()):
            node.op = ast.And()
        case ast.If(test=test) | ast.IfExp(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case ast.Return(value=ast.expr()):
            node.value = ast.Constant(None)
        case _:
            return False
    return True


def _functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of the bodies of functions, without annotations and decorators."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from ast.walk(statement)


def mutants(file: str, root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Name and text of every mutant of a module."""
    text = (root / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    seen: set[int] = set()
    for number, node in enumerate(_functions(tree)):
        if id(node) in seen:
            continue
        seen.add(id(node))
        other = copy.deepcopy(tree)
        twin = next(each for place, each in enumerate(_functions(other)) if place == number)
        if _mutate(twin):
            line = getattr(node, "lineno", 0)
            yield f"{file}:{line}:{type(node).__name__}: {text.splitlines()[line - 1].strip()}", ast.unparse(other)


def _sample(name: str, count: int) -> list[tuple[str, str, str]]:
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(PACKAGES[name][0]) if path.name != "__init__.py")
    every = [(file, line, text) for file in files for line, text in mutants(file)]
    return Random(f"{SEED}:{name}").sample(every, min(count, len(every)))


def _unnumbered(line: str) -> str:
    """A mutant by its file, its kind and its text, as `living.toml` names it: its place in the file moves."""
    return re.sub(r":\d+:", ":", line, count=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the score of each package. Exit code 1 if one is below its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PACKAGES))
    parser.add_argument("--sample", type=int, default=80)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args(arguments)
    excused = {each["line"] for each in tomllib.loads(LIVING.read_text(encoding="utf-8")).get("living", ())}
    below = False
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="counterseal-mutants-", ignore_cleanup_errors=True))
        )
        copies: Queue[Copy] = Queue()
        for number in range(chosen.jobs):
            server = EmbeddedPostgres(folder / f"postgres-{number}", durable=False)
            tree = Copy(folder / f"tree-{number}", server.start())
            stack.callback(server.stop)
            stack.callback(tree.close)
            copies.put(tree)
        for name in chosen.only.split(","):
            below |= _score(name, _sample(name, chosen.sample), copies, excused)
    return int(below)


def _score(name: str, sample: list[tuple[str, str, str]], copies: Queue[Copy], excused: set[str]) -> bool:
    _, tests, wanted = PACKAGES[name]

    def lives(mutant: tuple[str, str, str]) -> bool:
        file, line, text = mutant
        tree = copies.get()
        try:
            before = (tree.place / file).read_text(encoding="utf-8")
            with tree.planted(Fault(line, name, (), (Edit(file, before, text),), tests)):
                outcomes = tree.run(tests, "-x")
        finally:
            copies.put(tree)
        alive = "" not in outcomes and all(how == PASSED for how in outcomes.values())
        if alive:
            sys.stdout.write(f"{'may live' if _unnumbered(line) in excused else 'ALIVE'} {line}\n")
            sys.stdout.flush()
        return alive and _unnumbered(line) not in excused

    with ThreadPoolExecutor(copies.qsize()) as pool:
        left = sum(pool.map(lives, sample))
    score = 100 * (len(sample) - left) // max(1, len(sample))
    sys.stdout.write(f"{name}: {score} % of {len(sample)} mutants were seen; at least {wanted} % have to be.\n")
    sys.stdout.flush()
    return score < wanted


if __name__ == "__main__":
    sys.exit(main())
