"""The statements of the pure engine that its pure tests run: `make covered`.

It runs tests/engine in this process, without a database, and records each line of runtime/engine that runs. Prints the
percentage of each module. Exit code 1 if the total is less than ``LEAST`` percent, or if a test needs a database.
"""

from __future__ import annotations

import ast
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OF, BY, LEAST = "runtime/engine", "tests/engine", 90
# Tests on random graphs reach no further code, and take most of the time.
_SLOW = ("--ignore", "tests/engine/test_determinism.py")
# The fixtures that give a test a database.
_DATABASES = ("postgres_url", "databases", "template_database", "database_url")


def statements(text: str) -> Iterator[range]:
    """Yield the lines of each statement of a module, without its body. Docstrings do not count."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            first = body[0] if body else None
            # A match_case node has no line number, but its pattern has.
            below = first.pattern.lineno if isinstance(first, ast.match_case) else first.lineno if first else None
            last = (node.end_lineno or node.lineno) if below is None else max(node.lineno, below - 1)
            yield range(node.lineno, last + 1)


class Lines:
    """The lines of the engine that have run, by file."""

    def __init__(self) -> None:
        self.reached: dict[str, set[int]] = defaultdict(set)
        self._place = str(ROOT / OF)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace only the functions of the engine."""
        file = frame.f_code.co_filename
        if not file.startswith(self._place):
            return None
        reached = self.reached[file]
        reached.add(frame.f_lineno)

        def line(inner: FrameType, event: str, argument: Any) -> Any:
            reached.add(inner.f_lineno)
            return line

        return line


class Asked:
    """A pytest plugin that records the tests that need a database."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Record them at collection."""
        self.tests = [item.nodeid for item in items if set(_DATABASES) & set(item.fixturenames)]


def main() -> int:
    """Run the tests and print the percentages."""
    import pytest

    lines, asked, began = Lines(), Asked(), time.monotonic()
    sys.settrace(lines)
    try:
        code = pytest.main([BY, "-q", "--no-header", *_SLOW, "-p", "no:randomly", "-p", "no:xdist"], plugins=[asked])
    finally:
        sys.settrace(None)
    known = run = 0
    for path in sorted((ROOT / OF).rglob("*.py")):
        every = list(statements(path.read_text(encoding="utf-8")))
        reached = lines.reached.get(str(path), set())
        met = sum(not reached.isdisjoint(each) for each in every)
        known, run = known + len(every), run + met
        sys.stdout.write(f"{100 * met // max(1, len(every)):4} %  {path.relative_to(ROOT)}\n")
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{100 * run / known:.1f} % of {known} statements of {OF} in {seconds:.0f} s, without a database.\n"
    )
    for test in asked.tests:
        sys.stdout.write(f"asks for a database: {test}\n")
    return int(code != 0 or bool(asked.tests) or 100 * run < LEAST * known)


if __name__ == "__main__":
    sys.exit(main())
