"""Schemas whose names are free: what ``additionalProperties`` says holds for each name without a schema of its own."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.disclosure import leaves
from connectors.languages import InputLanguages
from connectors.marks import Writer, kind_at, writer_at
from core.escaping import Language
from core.origins.kinds import ArgumentKind

TEXT = {"type": "string"}


def alone(mark: Any) -> Any:
    return {"type": "object", "additionalProperties": {**TEXT, **mark}}


def beside(mark: Any) -> Any:
    return {**alone(mark), "properties": {"own": TEXT}}


def inside(mark: Any) -> Any:
    return {"type": "object", "properties": {"page": alone(mark), "own": TEXT}}


def referred(mark: Any) -> Any:
    return {"type": "object", "properties": {"page": {"$ref": "#/$defs/free"}}, "$defs": {"free": alone(mark)}}


SHAPES = [(alone, ("any",)), (beside, ("any",)), (inside, ("page", "any")), (referred, ("page", "any"))]
every_shape = pytest.mark.parametrize(("shape", "path"), SHAPES, ids=lambda one: getattr(one, "__name__", ""))


def at(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


@every_shape
@pytest.mark.req("Q-21")
def test_evidence_treats_a_free_name_as_declared(shape: Any, path: tuple[str, ...]) -> None:
    (leaf,) = leaves(shape({"x-evidence": "value"}), at(path, "x"))
    assert (leaf.path, str(leaf.treatment), leaf.secret) == (f"/{'/'.join(path)}", "value", False)
    (leaf,) = leaves(shape({"x-secret": True}), at(path, "x"))
    assert (str(leaf.treatment), leaf.secret) == ("omit", True)


@every_shape
def test_a_free_name_speaks_the_declared_language(shape: Any, path: tuple[str, ...]) -> None:
    languages = InputLanguages(shape({"x-language": "html"}))
    assert languages.at(path) is Language.HTML
    assert [languages.within(path[:length]) for length in range(len(path) + 1)] == [True] * (len(path) + 1)
    assert (languages.at(("own",)), languages.within(("own",))) == (
        (Language.HTML, True) if shape is alone else (None, False)
    )


@every_shape
def test_a_free_name_is_an_argument_of_the_declared_kind(shape: Any, path: tuple[str, ...]) -> None:
    assert kind_at(shape({"x-argument": "flag"}), path) is ArgumentKind.FLAG


@every_shape
def test_a_free_name_is_as_trustworthy_as_declared(shape: Any, path: tuple[str, ...]) -> None:
    trusted = {**shape({"x-written-by": "anyone"}), "x-written-by": "system"}
    assert writer_at(trusted, f"/{'/'.join(path)}") is Writer.ANYONE
    assert writer_at(trusted, "") is Writer.ANYONE, "whoever reads all of it reads that, too"
    assert writer_at(shape({"x-written-by": "people"}), f"/{'/'.join(path)}") is Writer.PEOPLE
