"""The leaves of a tenant's log: what has happened to which run or stream, and the head of its chain by then."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from core.canonical import JsonObject, canonical_bytes
from evidence.chain import timestamp

VERSION = 1


class LeafKind(StrEnum):
    """The fact that a leaf records. ``told``: an event of the tenant. ``moved``: an open run has a newer head."""

    OPENED = "opened"
    PARKED = "parked"
    MOVED = "moved"
    CLOSED = "closed"
    LATE = "late"
    REOPENED = "reopened"
    ERASED = "erased"
    TOLD = "told"


class Leaf(Struct, frozen=True):
    """One leaf. ``number`` is the run's number in its tenant, on the leaf that opens it: there are no gaps.

    ``count`` and ``head`` are those of the chain of the run, or of the tenant's stream, as they were then.
    """

    tenant: str
    kind: LeafKind
    count: int
    head: str
    at: datetime
    run: str | None = None
    number: int | None = None

    @property
    def bytes(self) -> bytes:
        """The leaf as it is hashed: canonical JSON."""
        document: JsonObject = {
            "v": VERSION, "tenant": self.tenant, "kind": str(self.kind), "count": self.count, "head": self.head,
            "ts": timestamp(self.at),
        }  # fmt: skip
        document |= {} if self.run is None else {"run": self.run}
        return canonical_bytes(document | ({} if self.number is None else {"number": self.number}))
