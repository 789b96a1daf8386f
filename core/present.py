"""Templates that leave out missing values, so that one document fits any subset of the inputs."""

from __future__ import annotations

from collections.abc import Mapping

from core.canonical import Json
from core.templates import Template


class Present(Template):
    """An object whose members are each one place of a variable: a member whose place does not exist is left out."""

    __slots__ = ("_places",)

    def __init__(self, template: Template) -> None:
        super().__init__(*template.parts)
        members = self._node if isinstance(self._node, dict) else {}
        self._places = {name: Template(self._environment, item).one_place for name, item in members.items()}

    def render(self, values: Mapping[str, object]) -> Json:
        """Render the members whose places exist. Errors as for ``Template.render``."""
        assert isinstance(self._node, dict), "it is compiled from an object"
        there = {name: item for name, item in self._node.items() if _is_there(self._places[name], values)}
        return Template(self._environment, there, self._languages).render(values)


def _is_there(place: tuple[str, tuple[str, ...]] | None, values: Mapping[str, object]) -> bool:
    """True if the place exists; also if there is no place, so that rendering reports the fault."""
    if place is None:
        return True
    here = values.get(place[0])
    for member in place[1]:
        if not isinstance(here, Mapping) or member not in here:
            return False
        here = here[member]
    return True
