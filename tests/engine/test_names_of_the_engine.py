"""Every number, word and default of the engine that has a name, written out once more (as ``tests/core`` does)."""

from __future__ import annotations

from pathlib import Path

from tests.support.whole import as_it_was
from tests.support.written_out import names_below, of_modules


def test_what_has_a_name_in_the_engine_is_what_it_was() -> None:
    as_it_was(Path(__file__).with_name("names_of_the_engine.json"), of_modules(names_below("runtime/engine")))
