"""Every number, word and default of the engine that has a name, written out once more (as ``tests/core`` does)."""

from __future__ import annotations

from pathlib import Path

from tests.core.test_written_out import ROOT, of_module
from tests.support.whole import as_it_was

ENGINE = ROOT / "runtime" / "engine"


def test_what_has_a_name_in_the_engine_is_what_it_was() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted(ENGINE.rglob("*.py"))]
    every = {name: of_module(name.removesuffix(".__init__")) for name in names}
    found = {name: told for name, told in every.items() if told}
    as_it_was(Path(__file__).with_name("names_of_the_engine.json"), found)
