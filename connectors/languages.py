"""The languages of an operation's inputs: ``x-language`` on a property of its schema, also for everything below."""

from __future__ import annotations

from msgspec import Struct

from connectors.disclosure import resolved
from core.canonical import DEPTH_MAX, Json, JsonObject
from core.escaping import Language
from core.templates import Path

KEYWORD = "x-language"


class InputLanguages(Struct, frozen=True):
    """The languages of texts in values of ``schema`` (implements ``core.templates.Languages``).

    The inputs named in ``credentials`` may refer to secrets, whose values the handler fills in when it sends them.
    """

    schema: JsonObject
    credentials: tuple[str, ...] = ()

    def at(self, path: Path) -> Language | None:
        """The language of the text at this place, by the nearest declaration above it."""
        found = self._declared_at(path)[1]
        return None if found is None else Language(str(found))

    def within(self, path: Path) -> bool:
        """True if a text at this place or below it has a language."""
        below, found = self._declared_at(path)
        return found is not None or self._speaks(below, 0)

    def lends(self, path: Path) -> bool:
        """True if the text at this place may refer to a secret."""
        return path[:1] in [(name,) for name in self.credentials]

    def _declared_at(self, path: Path) -> tuple[Json, Json]:
        here = resolved(self.schema, self.schema)
        found = here.get(KEYWORD)
        for part in path:
            if isinstance(part, int):
                below = here.get("items")
            else:
                named, other = here.get("properties"), here.get("additionalProperties")
                below = named.get(part, other) if isinstance(named, dict) else other
            here = resolved(self.schema, below)
            found = here.get(KEYWORD, found)
        return here, found

    def _speaks(self, schema: Json, depth: int) -> bool:
        here = resolved(self.schema, schema)
        if KEYWORD in here:
            return True
        properties = here.get("properties")
        inner = [*(properties.values() if isinstance(properties, dict) else ())]
        inner += [here.get("items"), here.get("additionalProperties")]
        return depth < DEPTH_MAX and any(isinstance(item, dict) and self._speaks(item, depth + 1) for item in inner)
