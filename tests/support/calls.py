"""Calls as the runtime makes them: with a declaration, the packaged one unless a test gives another."""

from __future__ import annotations

from functools import cache

from msgspec.structs import force_setattr

from connectors import port
from connectors.catalog import Catalog, load_catalog


@cache
def packaged() -> Catalog:
    """The operations of this release."""
    return load_catalog()


class Call(port.Call, frozen=True):
    """A call of one operation, declared as it is packaged."""

    def __post_init__(self) -> None:
        if self.declared is None and self.operation in packaged().operations:
            force_setattr(self, "declared", packaged().get(self.operation))
