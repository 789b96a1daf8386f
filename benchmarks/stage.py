"""The environment of every measurement: a server, the sizes, and a place for its curves."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.curves import Curve
from benchmarks.world import World, new_world

Size = TypeVar("Size")


@dataclass
class Stage:
    """A PostgreSQL server at ``url``, a temporary ``folder``, and ``quick`` for small sizes."""

    url: str
    folder: Path
    quick: bool = False
    curves: list[Curve] = field(default_factory=list)
    about: dict[str, str | float] = field(default_factory=dict)

    def world(self, *, connections: int = 16) -> AbstractAsyncContextManager[World]:
        """A runtime on a fresh database."""
        return new_world(self.url, self.folder, connections=connections)

    def size(self, full: Size, small: Size) -> Size:
        """The size of a measurement: ``full``, or ``small`` if it only has to show that it works."""
        return small if self.quick else full


def tell(what: str) -> None:
    """Print progress on stderr."""
    print(f"{what} ...", file=sys.stderr, flush=True)
