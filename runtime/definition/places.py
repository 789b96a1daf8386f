"""Where a step stands in its document, what its expressions see there, and how its faults are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from core.canonical import Json
from core.documents import Document
from core.errors import ExpressionError, Problem
from core.expressions import WORKFLOW_LIMITS, Environment
from core.templates import Template, TemplateError, compile_template, compile_value

Path: TypeAlias = tuple[str | int, ...]

ERROR_VARIABLES: Mapping[str, str] = {
    "error.class": "string",
    "error.code": "string",
    "error.message": "string",
    "error.step": "string",
}


# In the place of what has a fault. A document with problems is refused, so it is never rendered.
_NOTHING = compile_value(Environment({}, WORKFLOW_LIMITS), None)


class Place(Struct, frozen=True):
    """A step's path in the document and the variables that are visible there.

    ``failed`` is the leaf whose failure the step is done for, if it stands in a branch.
    """

    path: Path
    variables: Mapping[str, str]
    failed: str | None = None


class Compiling:
    """Compiles the parts of one document; collects problems instead of stopping at the first.

    ``read`` collects the ids whose output some expression reads, ``failed`` the leaf that each step in a branch is for.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self.read: set[str] = set()
        self.failed: dict[str, str] = {}

    def problem(self, path: Path, message: str, remedy: str = "") -> None:
        """Note a fault at this place."""
        self.problems.append(self._document.problem(path, message, remedy))

    def template(self, place: Place, key: Path, text: str, want: str | None = None) -> Template:
        """A text with expressions. If it has a fault, that is noted, and nothing stands for it."""
        try:
            return self._noted(compile_template(Environment(place.variables, WORKFLOW_LIMITS), text, want))
        except ExpressionError as error:
            self.problem((*place.path, *key), error.message, error.remedy)
            return _NOTHING

    def value(self, place: Place, key: Path, value: Json) -> Template:
        """A nested value with expressions at its leaves; of faults as ``template``."""
        try:
            return self._noted(compile_value(Environment(place.variables, WORKFLOW_LIMITS), value))
        except TemplateError as error:
            self.problem((*place.path, *key, *error.path), error.message, error.remedy)
            return _NOTHING

    def _noted(self, compiled: Template) -> Template:
        read = [name for name in compiled.references if name.startswith("steps.") and name.endswith(".output")]
        self.read.update(name.split(".")[1] for name in read)
        return compiled


def results_of(names: list[str]) -> dict[str, str]:
    """The variables that steps which are over add."""
    outputs = {f"steps.{name}.output": "dyn" for name in names}
    return {**outputs, **{f"steps.{name}.status": "string" for name in names}}
