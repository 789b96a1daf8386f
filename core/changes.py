"""The differences of two JSON values, as JSON Patch operations (RFC 6902) that also hold the value before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from core.canonical import Json


class ChangeKind(StrEnum):
    """RFC 6902's names of operations."""

    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``path`` is a JSON Pointer (RFC 6901), ``""`` for the whole; ``before`` is None for an addition,
    ``after`` for a removal.
    """

    op: ChangeKind
    path: str
    before: Json = None
    after: Json = None


def changes(before: Json, after: Json, path: str = "") -> Iterator[Change]:
    """The changes that turn ``before`` into ``after``, in order of path. Lists are compared item by item, by position.

    Applied in this order the operations give ``after``: a list that became shorter loses its last item first.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            inner = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in after:
                yield Change(ChangeKind.REMOVE, inner, before=before[name])
            elif name not in before:
                yield Change(ChangeKind.ADD, inner, after=after[name])
            else:
                yield from changes(before[name], after[name], inner)
    elif isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        for index in range(shared):
            yield from changes(before[index], after[index], f"{path}/{index}")
        for index in range(shared, len(after)):
            yield Change(ChangeKind.ADD, f"{path}/{index}", after=after[index])
        for index in reversed(range(shared, len(before))):
            yield Change(ChangeKind.REMOVE, f"{path}/{index}", before=before[index])
    elif not _same(before, after):
        yield Change(ChangeKind.REPLACE, path, before, after)


def _same(before: Json, after: Json) -> bool:
    """True if two values are equal as JSON: 1 equals 1.0, but true does not equal 1."""
    return isinstance(before, bool) == isinstance(after, bool) and before == after
