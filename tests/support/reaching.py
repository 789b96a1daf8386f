"""A plugin of pytest for ``tools/mutants.py``: which functions each test calls, and only chosen tests, in their order.

``--reached-to FILE`` writes a line of JSON for each test: its name, its seconds and the functions of ``--reached-in``
that it called, as file and line. ``--chosen FILE`` keeps the tests that the file names, in its order.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import Phase, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reached-to", default="")
    parser.addoption("--reached-in", default="")
    parser.addoption("--chosen", default="")


def pytest_sessionstart(session: pytest.Session) -> None:
    # A mutant is seen by the first example that fails; the same examples each time make the same score each time.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), phases=phases, derandomize=True, database=None)
    settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if place := config.getoption("--chosen"):
        order = {name: number for number, name in enumerate(json.loads(Path(place).read_text(encoding="utf-8")))}
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def _untold(frame: FrameType, event: str, argument: object) -> None:
    """Note nothing."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    place = item.config.getoption("--reached-to")
    if not place:
        return (yield)
    folder = str(Path.cwd() / item.config.getoption("--reached-in"))
    reached: set[str] = set()

    def called(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(folder):
            reached.add(f"{Path(code.co_filename).relative_to(Path.cwd())}:{code.co_firstlineno}")

    began = time.monotonic()
    threading.settrace(called)
    sys.settrace(called)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(_untold)
        with Path(place).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([item.nodeid, time.monotonic() - began, sorted(reached)]) + "\n")
