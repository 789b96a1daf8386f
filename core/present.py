"""Templates that leave out what is not there: one document fits all inputs, whichever of them are given."""

from __future__ import annotations

from collections.abc import Mapping

from core.canonical import Json
from core.templates import Template


class Present(Template):
    """An object of which each member is one place of a variable: a member whose place does not exist is left out."""

    __slots__ = ("_places",)

    def __init__(self, template: Template) -> None:
        super().__init__(*template.made_of)
        members = self._node if isinstance(self._node, dict) else {}
        self._places = {name: Template(self._environment, item).one_place for name, item in members.items()}

    def render(self, values: Mapping[str, object]) -> Json:
        """The members that there are. Errors as in ``Template.render``."""
        assert isinstance(self._node, dict), "it is compiled from an object"
        there = {name: item for name, item in self._node.items() if _is_there(self._places[name], values)}
        return Template(self._environment, there, self._languages).render(values)


def _is_there(place: tuple[str, tuple[str, ...]] | None, values: Mapping[str, object]) -> bool:
    """True if the place exists, or if it is none, so that rendering it says what is wrong."""
    if place is None:
        return True
    here = values.get(place[0])
    for member in place[1]:
        if not isinstance(here, Mapping) or member not in here:
            return False
        here = here[member]
    return True
