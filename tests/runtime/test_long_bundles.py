"""A long book is bundled beside the keeper's loop: timers and commands of others go on meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runtime.keep import bundling, judged_by
from runtime.requests import views
from runtime.store import books, claims, rows
from tests.support.verified import sound

STEPS = """
workflow: steps
version: 1
channels: {log: {reduce: append}}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}, set: {log: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}, set: {log: two}}
"""
# Everything that takes the longer, the longer the book is.
PARTS = {
    "the chain": (books, "verify_lines"), "the fold": (views, "past_of"), "the rows": (rows, "compare"),
    "what it is judged by": (judged_by, "gathered"), "the files, the judge and the seal": (bundling, "build_bundle"),
}  # fmt: skip


async def test_no_part_of_a_long_bundle_is_made_on_the_keepers_loop(
    runtime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await runtime.go(STEPS)
    monkeypatch.setattr(claims, "LONG", -1)
    on_the_loop, beside = Counter[str](), Counter[str]()

    def watched(name: str, work: Any) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            (on_the_loop if threading.current_thread() is threading.main_thread() else beside)[name] += 1
            return work(*given, **named)

        return watching

    for name, (module, attribute) in PARTS.items():
        monkeypatch.setattr(module, attribute, watched(name, getattr(module, attribute)))
    await sound(runtime, run, tmp_path)
    assert (beside.keys(), on_the_loop) == (PARTS.keys(), {})
