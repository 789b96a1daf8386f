"""``${{ … }}`` in the values of a document: compiled at load, rendered to plain JSON.

A text that is one expression keeps the expression's type; inside a longer text only strings, numbers and booleans
have a place. What an expression gives is never looked at again: a value that contains ``${{`` stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from core.canonical import DEPTH_MAX, Json
from core.errors import ExpressionError, path_text
from core.expressions import Bound, Environment, Expression

TEXT_CHARACTERS_MAX = 256 * 1024

Path: TypeAlias = tuple[str | int, ...]


class TemplateError(ExpressionError):
    """An expression inside a value is wrong; ``path`` leads to it from the value that was compiled or rendered."""

    def __init__(self, error: ExpressionError, path: Path, prefix: str) -> None:
        detail = f"{error.where}: {error.message}" if error.where else error.message
        super().__init__(detail, where=path_text(path, prefix), remedy=error.remedy)
        self.path = path


class Template:
    """One text with expressions in it."""

    __slots__ = ("_environment", "_parts", "references")

    def __init__(self, environment: Environment, parts: tuple[str | Expression, ...]) -> None:
        self._environment = environment
        self._parts = parts
        self.references = frozenset(name for part in parts if isinstance(part, Expression) for name in part.references)

    @property
    def is_literal(self) -> bool:
        """Whether the text holds no expression."""
        return all(isinstance(part, str) for part in self._parts)

    def render(self, values: Mapping[str, object]) -> Json:
        """The value of a whole-text expression, or the text with every expression replaced by its value."""
        return self.render_bound(self._environment.bind(values, self.references))

    def render_bound(self, bound: Bound) -> Json:
        """As ``render``, over values bound before."""
        if len(self._parts) == 1 and isinstance(self._parts[0], Expression):
            return self._parts[0].value(bound)
        text = "".join(part if isinstance(part, str) else _scalar(part, bound) for part in self._parts)
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ExpressionError(f"gives {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are accepted")
        return text


def compile_template(environment: Environment, text: str, want: str | None = None) -> Template:
    """Compile a text. With ``want``, it must be one expression of that type, and is checked to be when rendered."""
    pieces = list(_split(text))
    sources = [source for is_expression, source in pieces if is_expression]
    if len(sources) == 1 and all(is_expression or not piece.strip() for is_expression, piece in pieces):
        return Template(environment, (environment.compile(sources[0], want),))
    if want is not None and (want != "string" or not sources):
        raise ExpressionError(f"{text!r} is not one ${{{{ … }}}} expression", remedy=f"It must give a {want}.")
    return Template(
        environment,
        tuple(environment.compile(piece) if is_expression else piece for is_expression, piece in pieces),
    )


class ValueTemplate:
    """A nested value of a document with templates at its leaves. ``references`` are what all of them read."""

    __slots__ = ("_environment", "_node", "_prefix", "references")

    def __init__(self, environment: Environment, node: _Node, prefix: str) -> None:
        self._environment = environment
        self._node = node
        self._prefix = prefix
        self.references = frozenset(name for leaf in _leaves(node) for name in leaf.references)

    def render(self, values: Mapping[str, object]) -> Json:
        """Plain JSON, sharing nothing with the document. ``TemplateError`` names the path of what failed."""
        return self._render(self._node, self._environment.bind(values, self.references), ())

    def _render(self, node: _Node, bound: Bound, path: Path) -> Json:
        if isinstance(node, Template):
            try:
                return node.render_bound(bound)
            except ExpressionError as error:
                raise TemplateError(error, path, self._prefix) from None
        if isinstance(node, _Map):
            return {key: self._render(item, bound, (*path, key)) for key, item in node.items.items()}
        if isinstance(node, _List):
            return [self._render(item, bound, (*path, index)) for index, item in enumerate(node.items)]
        return node


def compile_value(environment: Environment, value: Json, where: str = "") -> ValueTemplate:
    """Compile every text in a nested value; other scalars pass through.

    ``TemplateError`` names the place, under the prefix ``where`` (such as ``with``): ``with.fields.priority``.
    """
    return ValueTemplate(environment, _compile(environment, value, (), where), where)


@dataclass(frozen=True, slots=True)
class _Map:
    items: dict[str, _Node]


@dataclass(frozen=True, slots=True)
class _List:
    items: tuple[_Node, ...]


_Node: TypeAlias = "Template | _Map | _List | str | bool | int | float | None"


def _compile(environment: Environment, value: Json, path: Path, prefix: str) -> _Node:
    try:
        if len(path) > DEPTH_MAX:
            raise ExpressionError(f"is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, str):
            template = compile_template(environment, value)
            return value if template.is_literal else template
        if isinstance(value, dict) and any("${{" in key for key in value):
            raise ExpressionError("has an expression in a key", remedy="Keys are fixed; only values can be computed.")
    except TemplateError:
        raise
    except ExpressionError as error:
        raise TemplateError(error, path, prefix) from None
    if isinstance(value, dict):
        return _Map({key: _compile(environment, item, (*path, key), prefix) for key, item in value.items()})
    if isinstance(value, list):
        return _List(tuple(_compile(environment, item, (*path, at), prefix) for at, item in enumerate(value)))
    return value


def _leaves(node: _Node) -> Iterator[Template]:
    if isinstance(node, Template):
        yield node
    elif isinstance(node, _Map):
        for item in node.items.values():
            yield from _leaves(item)
    elif isinstance(node, _List):
        for item in node.items:
            yield from _leaves(item)


def _scalar(expression: Expression, bound: Bound) -> str:
    value = expression.value(bound)
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    what = "null" if value is None else "a list" if isinstance(value, list) else "a map"
    raise ExpressionError(
        f"`{expression.source}` gives {what}, which has no place inside a text",
        remedy="Use the expression as the whole value, or string(…) of a part of it.",
    )


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """(is it an expression, its text), in order. Braces and quotes inside an expression do not end it."""
    at = 0
    while (start := text.find("${{", at)) >= 0:
        if start > at:
            yield False, text[at:start]
        end = _end_of_expression(text, start)
        yield True, text[start + 3 : end].strip()
        at = end + 2
    if at < len(text) or not text:
        yield False, text[at:]


def _end_of_expression(text: str, start: int) -> int:
    """Where the ``}}`` is that closes the expression opened at ``start``."""
    at, depth, quote = start + 3, 0, ""
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}" and depth:
            depth -= 1
        elif character == "}" and text.startswith("}}", at):
            return at
        at += 1
    raise ExpressionError(f"the expression at column {start + 1} is not closed", remedy="End it with }}.")
