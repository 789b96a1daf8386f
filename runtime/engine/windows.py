"""Windows on the items of loops: a run holds only the next items, however many there are. Pure."""

from __future__ import annotations

from msgspec import Struct

from core.canonical import Json


class Window(Struct, frozen=True):
    """Some of a loop's items: those from the index ``start`` on."""

    start: int
    items: tuple[Json, ...]

    def get(self, index: int) -> Json:
        """The item with this index; ``NeedsItems`` if it is not among these."""
        if not self.start <= index < self.start + len(self.items):
            raise NeedsItems
        return self.items[index - self.start]


class NeedsItems(Exception):
    """The next item of a loop is not among those that were read."""
