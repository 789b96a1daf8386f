"""The stage of every measurement, and what it leaves: a server, a size, and the curves that it found."""

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
    """A PostgreSQL server at ``url``, a temporary ``folder``, and whether the sizes are small (``quick``)."""

    url: str
    folder: Path
    quick: bool = False
    curves: list[Curve] = field(default_factory=list)
    about: dict[str, str | float] = field(default_factory=dict)

    def world(self, *, connections: int = 16) -> AbstractAsyncContextManager[World]:
        """A runtime on a fresh database."""
        return new_world(self.url, self.folder, connections=connections)

    def size(self, full: Size, small: Size) -> Size:
        """The size of a measurement: the real one, or the one that only shows that it works."""
        return small if self.quick else full


def tell(what: str) -> None:
    """Say on stderr what is going on."""
    print(f"{what} ...", file=sys.stderr, flush=True)
