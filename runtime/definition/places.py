"""Where a step stands in its document, what its expressions see there, and how its faults are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from core.canonical import Json
from core.documents import Document
from core.errors import ExpressionError, Problem
from core.expressions import WORKFLOW_LIMITS, Environment
from core.templates import Template, TemplateError, ValueTemplate, compile_template, compile_value

Path: TypeAlias = tuple[str | int, ...]

ERROR_VARIABLES: Mapping[str, str] = {
    "error.class": "string",
    "error.code": "string",
    "error.message": "string",
    "error.step": "string",
}


@dataclass(frozen=True)
class Place:
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

    def template(self, place: Place, key: Path, text: str, want: str | None) -> Template | None:
        """A text with expressions; None if it has a fault, which is noted."""
        try:
            compiled = compile_template(Environment(place.variables, WORKFLOW_LIMITS), text, want)
        except ExpressionError as error:
            self.problem((*place.path, *key), error.message, error.remedy)
            return None
        self._note(compiled.references)
        return compiled

    def value(self, place: Place, key: Path, value: Json) -> ValueTemplate | None:
        """A nested value with expressions at its leaves; None if it has a fault, which is noted."""
        try:
            compiled = compile_value(Environment(place.variables, WORKFLOW_LIMITS), value)
        except TemplateError as error:
            self.problem((*place.path, *key, *error.path), error.message, error.remedy)
            return None
        self._note(compiled.references)
        return compiled

    def _note(self, references: frozenset[str]) -> None:
        self.read.update(
            name.split(".")[1] for name in references if name.startswith("steps.") and name.endswith(".output")
        )


def results_of(names: list[str]) -> dict[str, str]:
    """The variables that steps which are over add."""
    outputs = {f"steps.{name}.output": "dyn" for name in names}
    return {**outputs, **{f"steps.{name}.status": "string" for name in names}}
