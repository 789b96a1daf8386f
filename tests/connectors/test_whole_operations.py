"""Each packaged declaration, whole: what it takes, shows, hides, traces, undoes and how its doubt is resolved (V-2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.catalog import Catalog
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_operations.json")


@pytest.mark.req("V-2")
@pytest.mark.req("Q-21")
def test_what_is_packaged_is_declared_as_it_was(catalog: Catalog) -> None:
    """A mark, a limit, a pattern or a default that changes is a change of what is governed, and stands in the diff."""
    told = {name: catalog.get(name).model_dump(mode="json") for name in sorted(catalog.packaged)}
    as_it_was(EXPECTED, told)
