"""Every number, word and pattern that has a name, and every default: written out once more, beside the code.

A test that imports a limit goes with it wherever it moves. Here a person has read each of them.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.whole import as_it_was
from tests.support.written_out import names_below, of_modules

EXPECTED = Path(__file__).with_name("written_out.json")
PACKAGES = (
    *("approvals", "connectors", "core", "evidence", "policy"),
    *("runtime/definition", "runtime/keep", "runtime/requests"),
)


def test_what_has_a_name_is_what_it_was() -> None:
    as_it_was(EXPECTED, of_modules(names_below(*PACKAGES)))
