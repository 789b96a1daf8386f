"""A plugin of pytest that writes how each test ended, as lines of JSON, into the file that COUNTERSEAL_OUTCOMES names.

``tools/plant.py`` reads it: a planted fault has to make a test fail by what it asserts. One that breaks shows nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

ASSERTED = "assertion"
PASSED = "passed"
# Tests may clear the environment.
_PLACE = Path(os.environ.get("COUNTERSEAL_OUTCOMES", os.devnull))


def kind_of(error: BaseException) -> str:
    """Name the error that ended a test: ``assertion``, or its type."""
    found = {_kind_of(leaf) for leaf in _leaves(error)}
    return ", ".join(sorted(found))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _kind_of(error: BaseException) -> str:
    if isinstance(error, pytest.fail.Exception):
        return "timeout" if str(error).startswith("Timeout") else ASSERTED
    return ASSERTED if isinstance(error, AssertionError) else type(error).__name__


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and report.outcome != "skipped":
        # What every test is held to is asserted at its end: a run is folded once more, and the outside is looked over.
        how = kind_of(call.excinfo.value)
        if call.when == "setup" or (call.when == "teardown" and how != ASSERTED):
            how = f"{call.when}: {how}"
    elif call.when == "call":
        how = PASSED
    else:
        return report
    with _PLACE.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([item.nodeid, how]) + "\n")
    return report
