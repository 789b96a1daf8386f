"""Finds spent particulars: a request orders something once, not again with other words around it.

A call of an operation with an effect uses up the requester's values in it. If all the requester's values in a later
call of the same operation occurred at the same places in earlier calls, the requester did not ask for the later call:
its values are ``spent``. So a payment with another subject, amount or date is no second order by the requester, and the
amounts and payees of two payments cannot be combined into a third.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from core.canonical import Json, JsonObject, canonical_bytes
from core.origins.ingredients import Origins
from core.origins.leaves import Leaf, Scalar
from core.origins.matching import MODEL, REQUESTER, SPENT, UNKNOWN

_LOOKUP = "lookup:"

Path: TypeAlias = tuple[str, ...]


@dataclass
class Performed:
    """The calls with effects that were made, in order: operation and arguments."""

    calls: list[tuple[str, JsonObject]] = field(default_factory=list)

    def add(self, operation: str, arguments: JsonObject) -> None:
        """Add a call that was performed."""
        self.calls.append((operation, arguments))

    def spend(
        self, operation: str, given: Mapping[Path, Json], found: Mapping[Path, Origins], siblings: Iterable[JsonObject]
    ) -> dict[Path, Origins]:
        """The origins of a call's arguments, with ``spent`` where earlier calls used up the requester's values.

        ``siblings`` are the arguments of earlier calls of this operation in the same answer, performed or not.
        """
        own = {path: given[path] for path, origins in found.items() if any(map(_own, origins))}
        earlier = [*(arguments for name, arguments in self.calls if name == operation), *siblings]
        again = bool(own) and all({*_forms(own[path])} <= _used(earlier, path) for path in own)
        return {path: [_spent(inner) for inner in found[path]] if again else found[path] for path in found}


def _own(inner: Sequence[str]) -> bool:
    """True if the requester designates the value, or the only record that has it."""
    return REQUESTER in inner or any(one.startswith(_LOOKUP) for one in inner)


def _spent(inner: Sequence[str]) -> list[str]:
    if not _own(inner):
        return [*inner]
    rest = {one for one in inner if one != REQUESTER and not one.startswith(_LOOKUP)}
    return sorted(rest | {SPENT} | ({MODEL} if rest <= {UNKNOWN} else set()))


def _used(earlier: Iterable[JsonObject], path: Path) -> set[tuple[Path, object]]:
    """The values at this place in earlier calls."""
    return {form for arguments in earlier for form in _forms(_at(arguments, path))}


def _at(arguments: JsonObject, path: Path) -> Json:
    there: Json = arguments
    for part in path:
        there = there.get(part) if isinstance(there, dict) else None
    return there


def _forms(value: Json, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield each scalar in a value with its place, without its position in a list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _forms(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _forms(inner, path)
    else:
        yield path, _form(value)


def _form(value: Json) -> object:
    if isinstance(value, Scalar) and not isinstance(value, bool):
        leaf = Leaf(value, "", "")
        return leaf.words.squeezed if leaf.number is None else leaf.number
    return canonical_bytes(value)
