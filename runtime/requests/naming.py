"""Computes a new run's business reference, the people whom it is about, and the values by which it is found."""

from __future__ import annotations

from collections.abc import Mapping

from core.errors import ExpressionError, InputError
from core.identity import named_in
from runtime.engine.book import contributors
from runtime.engine.life.transition import checked_reference
from runtime.engine.model.run import RunView
from runtime.engine.model.workflow import Workflow
from runtime.requests.finding import search_text


def subject_of(workflow: Workflow, view: RunView) -> frozenset[str]:
    """The marks of the people whom the run is about. ``InputError`` if the trigger lacks a field that names them."""
    if workflow.subject is None:
        return frozenset()
    try:
        return contributors.about(named_in(workflow.subject.render(view.constants)))
    except ExpressionError as error:
        words = f"the workflow's subject cannot be made from this trigger: {error.message}"
        remedy = "Send the fields that the workflow's `subject` reads."
        raise InputError(words, where="trigger", remedy=remedy) from None


def reference_of(workflow: Workflow, constants: Mapping[str, object]) -> str:
    """The business reference of a run. ``InputError`` if the trigger lacks a field that it is made of."""
    try:
        value = workflow.reference.render(constants)
    except ExpressionError as error:
        words = f"the workflow's reference cannot be made from this trigger: {error.message}"
        remedy = "Send the fields that the workflow's `reference` reads."
        raise InputError(words, where="trigger", remedy=remedy) from None
    try:
        return checked_reference(value)
    except ExpressionError as error:
        raise InputError(f"the workflow's reference {error.message}", where="trigger") from None


def search_of(workflow: Workflow, constants: Mapping[str, object]) -> dict[str, str]:
    """The values by which a run is found, as texts, without nulls. ``InputError`` if one fails, or is no text."""
    if workflow.search is None:
        return {}
    try:
        made = workflow.search.render(constants)
    except ExpressionError as error:
        words = f"the workflow's search cannot be made from this trigger: {error.message}"
        raise InputError(words, where="trigger", remedy="Send the fields that the workflow's `search` reads.") from None
    assert isinstance(made, dict), "it is compiled from names"
    return {name: search_text(name, value) for name, value in made.items() if value is not None}
