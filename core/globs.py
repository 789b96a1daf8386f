"""Globs over names of operations, connectors and workflows, for policies and for the verifier of histories."""

from __future__ import annotations

from msgspec import Struct


class Glob(Struct, frozen=True):
    """A glob: ``*`` stands for any characters, dots included. It is matched in time that is linear in the name."""

    parts: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Glob:
        """The glob of a text."""
        first, *rest = text.split("*")
        return cls((first, *filter(None, rest[:-1]), *rest[-1:]))

    def matches(self, name: str) -> bool:
        """True if the whole name fits."""
        first, *rest = self.parts
        if not rest:
            return name == first
        *middle, last = rest
        end = len(name) - len(last)
        if end < len(first) or not name.startswith(first) or not name.endswith(last):
            return False
        at = len(first)
        for part in middle:  # the earliest place leaves the most room for what follows
            if (found := name.find(part, at, end)) < 0:
                return False
            at = found + len(part)
        return True
