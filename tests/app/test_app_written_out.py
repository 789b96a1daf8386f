"""Every number, word and pattern of the application that has a name, and every default, written out once more."""

from __future__ import annotations

from pathlib import Path

from tests.core.test_written_out import ROOT, of_module
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_written_out.json")


def test_what_has_a_name_in_the_application_is_what_it_was() -> None:
    paths = (path for path in sorted((ROOT / "app").rglob("*.py")) if path.stem not in ("__init__", "__main__"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    every = {name: of_module(name) for name in names}
    as_it_was(EXPECTED, {name: found for name, found in every.items() if found})
