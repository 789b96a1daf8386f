"""The variables that an expression sees of its own step. They give way to names that an author has chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from core.errors import ExpressionError
from core.expressions import WORKFLOW_LIMITS, Environment, environment_of
from core.templates import Template
from runtime.engine.graph import HANDED_OUT

STEP_ID = "step.id"


def seen_besides(variables: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The variables and ``more``, without those of ``more`` that are hidden by a loop's item with their first part."""
    return {**variables, **{name: kind for name, kind in more.items() if name.split(".")[0] not in variables}}


def compiled(compiled_in: Callable[[Environment], Template], variables: Mapping[str, str]) -> Template:
    """Compile a template over these variables. If a macro's variable has the name of one of ours, ours gives way."""
    try:
        return compiled_in(environment_of(variables, WORKFLOW_LIMITS))
    except ExpressionError:
        given = {name: kind for name, kind in variables.items() if name not in (STEP_ID, HANDED_OUT)}
        with suppress(ExpressionError):
            return compiled_in(environment_of(given, WORKFLOW_LIMITS))
        raise
