"""Computes the exact origins of expressions' values: every input of an expression is an ingredient of its value.

A path such as ``trigger.number`` is one ingredient. In a longer expression each variable that it reads is one whole
ingredient: the input of a condition, function or loop counts like the value itself. The author's words are
``workflow``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from core.origins.ingredients import Origins, distinct
from core.origins.matching import UNKNOWN, WORKFLOW
from core.templates import Path, Template


def of_template(template: Template, known: Callable[[str], Sequence[Sequence[str]]]) -> list[tuple[Path, Origins]]:
    """The origins of each text and value in a template, by its path. ``known`` gives the origins of a path it reads.

    A path without known origins is ``unknown``: no ingredient is ever dropped.
    """
    made = []
    for path, ingredients in template.ingredients():
        origins: Origins = []
        for one in ingredients:
            origins += [[WORKFLOW]] if one is None else _alternatives(known(one))
        made.append((path, distinct(origins)))
    return made


def under(origins: Iterable[tuple[Path, Origins]], path: Path) -> Origins:
    """The origins of all values at, below or above a path."""
    return distinct(
        inner
        for place, found in origins
        if place[: len(path)] == path or path[: len(place)] == place
        for inner in found
    )


def _alternatives(known: Sequence[Sequence[str]]) -> Origins:
    return [list(inner) or [UNKNOWN] for inner in known] or [[UNKNOWN]]
