"""The tests that prove each requirement: `make requirements`.

Reads the numbers of docs/requirements.md and lets pytest collect the tests with their `req` markers. Prints a table on
a terminal, plain tab-separated lines elsewhere, JSON with --json. A requirement without a test is no failure. A marker
that names no requirement, or tests that cannot be collected, give exit code 1.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
_ROW = re.compile(r"^\| ([A-Z]-\d+) \| (.+) \|$", re.MULTILINE)


@dataclass(eq=False, slots=True)  # pytest keeps plugins in sets
class _Collector:
    """A pytest plugin that maps requirement numbers to the tests that carry them, deselected ones included."""

    tests: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        for marker in item.iter_markers("req"):
            for number in marker.args:
                self.tests[number].add(item.nodeid.partition("[")[0])


def requirements() -> dict[str, str]:
    """The requirements as number to text, in the order of the page."""
    return dict(_ROW.findall((_ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")))


def collect(paths: list[str]) -> dict[str, list[str]]:
    """Map each number to the sorted tests that prove it. Exits with pytest's output if tests cannot be collected."""
    collector = _Collector()
    output = io.StringIO()
    arguments = ["--collect-only", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"--rootdir={_ROOT}", *paths]
    with redirect_stdout(output), redirect_stderr(output):
        code = pytest.main(["-c", str(_ROOT / "pyproject.toml"), *arguments], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(output.getvalue() + "The tests could not be collected.")
    return {number: sorted(tests) for number, tests in collector.tests.items()}


def _shortened(text: str, width: int = 70) -> str:
    return text if len(text) <= width else text[: width - 1].rsplit(" ", 1)[0] + "…"


def _print_table(known: dict[str, str], proofs: dict[str, list[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("number", "requirement", "proved by")
    for number, text in known.items():
        tests = "\n".join(escape(test.removeprefix("tests/")) for test in proofs.get(number, []))
        table.add_row(number, escape(_shortened(text)), tests or "[yellow]open[/]")
    Console().print(table)


def _print_plain(known: dict[str, str], proofs: dict[str, list[str]]) -> None:
    for number, text in known.items():
        tests = ", ".join(proofs.get(number, [])) or "open"
        sys.stdout.write(f"{number}\t{_shortened(text)}\t{tests}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Which tests prove which requirement of docs/requirements.md.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("paths", nargs="*", default=[str(_ROOT / "tests")], help="tests to collect; default: all")
    options = parser.parse_args()
    known, proofs = requirements(), collect(options.paths)
    if options.json:
        rows = [{"number": number, "text": text, "tests": proofs.get(number, [])} for number, text in known.items()]
        sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
    else:
        (_print_table if sys.stdout.isatty() else _print_plain)(known, proofs)
        proved = sum(number in proofs for number in known)
        sys.stdout.write(f"{proved} of {len(known)} requirements are proved by tests.\n")
    unknown = sorted(set(proofs) - set(known))
    if unknown:
        sys.stderr.write(f"Not in docs/requirements.md: {', '.join(unknown)}.\n")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
