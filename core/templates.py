"""Templates (``${{ … }}``) in the values of a document: compiled at load, rendered to plain JSON.

A text that is one expression keeps the expression's type; inside a longer text only strings, numbers and booleans
are allowed. An expression's result is never rendered again: a value that contains ``${{`` stays as it is.

If an input is a text of another language, the values in it are escaped for that language, even if a value is the whole
text, or a text in a list or map; the author's own words are not escaped. ``${{ raw(…) }}`` disables escaping. Only a
published workflow has an author: in steps that are added to a run, the words themselves are escaped like values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from msgspec import Struct

from core.canonical import DEPTH_MAX, Json, JsonObject
from core.errors import ExpressionError, path_text
from core.escaping import Language, check_meaning, check_structure, escaped
from core.expressions import Bound, Environment, Expression
from core.pieces import split
from core.secret_values import LIKE_REFERENCE, REFERENCE

TEXT_CHARACTERS_MAX = 256 * 1024

# Matches a whole expression ``raw(…)``. The inside must compile as an expression, so its parentheses are balanced.
_RAW = re.compile(r"raw\s*\((.*)\)\Z", re.DOTALL)

Path: TypeAlias = tuple[str | int, ...]


class Languages(Protocol):
    """The languages of the texts in a value."""

    def at(self, path: Path) -> Language | None:
        """The language of the text at this place; None for plain text."""

    def within(self, path: Path) -> bool:
        """True if a text at this place or below it has a language."""

    def lends(self, path: Path) -> bool:
        """True if the text at this place may refer to a secret."""


class Added(Struct, frozen=True):
    """The languages of a step that was added to a run: no word of it is an author's, and even ``raw(…)`` escapes."""

    languages: Languages

    def at(self, path: Path) -> Language | None:
        """The language of the text at this place; None for plain text."""
        return self.languages.at(path)

    def within(self, path: Path) -> bool:
        """True if a text at this place or below it has a language."""
        return self.languages.within(path)

    def lends(self, path: Path) -> bool:
        """True if the text at this place may refer to a secret: the secret's declaration limits where it is sent."""
        return self.languages.lends(path)


class TemplateError(ExpressionError):
    """An expression inside a value is wrong; ``path`` leads to it from the value that was compiled or rendered."""

    def __init__(self, error: ExpressionError, path: Path, prefix: str) -> None:
        detail = f"{error.where}: {error.message}" if error.where else error.message
        super().__init__(detail, where=path_text(path, prefix), remedy=error.remedy)
        self.path = path


class Template:
    """A text, or a nested value of a document with texts at its leaves.

    ``references`` are all variables that it reads, ``functions`` all functions that it uses, with ``raw``.
    ``copies`` says that an expression of it builds a list in a loop.
    """

    __slots__ = ("_environment", "_languages", "_node", "copies", "functions", "references")

    def __init__(self, environment: Environment, node: _Node, languages: Languages | None = None) -> None:
        self._environment = environment
        self._node = node
        self._languages = languages
        self.references = frozenset(_references(node))
        self.functions = frozenset(_functions(node))
        self.copies = _copies(node)

    def ingredients(self) -> Iterator[tuple[Path, tuple[str | None, ...]]]:
        """Yield the ingredients of each text and value in it: the paths that it reads, None for the author's words."""
        return _ingredients(self._node, ())

    def places(self) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
        """Yield the members of variables that it names: where in it, the variable, the members below that."""
        return _places(self._node, ())

    @property
    def one_place(self) -> tuple[str, tuple[str, ...]] | None:
        """The variable and the members below it, if the template is one expression that is just a path; else None."""
        part = self._node.parts[0] if isinstance(self._node, _Text) and len(self._node.parts) == 1 else None
        return part.place if isinstance(part, Expression) else None

    def authored(self) -> Iterator[str]:
        """Yield the author's own words in it."""
        return _authored(self._node)

    def render(self, values: Mapping[str, object]) -> Json:
        """Plain JSON that shares nothing with the document. Raises ``ExpressionError`` or ``TemplateError``."""
        made = _render(self._node, self._environment.bind(values, self.references))
        if isinstance(self._languages, Added):
            _check_structures(made, self._languages, ())
        return made

    @property
    def parts(self) -> tuple[Environment, _Node, Languages | None]:
        """The parts of the template, for a subclass that renders it in another way."""
        return self._environment, self._node, self._languages

    def word(self, path: Path) -> str | None:
        """The text at this place if the document fixes it; None if it is computed, or if there is nothing."""
        here: _Node = self._node
        for step in path:
            if isinstance(here, dict) and isinstance(step, str):
                here = here.get(step)
            elif isinstance(here, list) and isinstance(step, int) and 0 <= step < len(here):
                here = here[step]
            else:
                return None
        if isinstance(here, _Text) and len(here.parts) == 1 and isinstance(here.parts[0], str):
            return here.parts[0]
        return here if isinstance(here, str) else None

    def literals(self) -> JsonObject:
        """The members of an object that read no variable, except unrenderable ones: their step will fail."""
        found: JsonObject = {}
        for name, member in self._node.items() if isinstance(self._node, dict) else ():
            with suppress(ExpressionError):
                if not any(True for _ in _references(member)):
                    found[name] = _render(member, self._environment.bind({}, frozenset()))
        return found


def compile_template(environment: Environment, text: str, want: str | None = None) -> Template:
    """Compile a text. With ``want``, it must be one expression of that type, which is checked again when rendered."""
    return Template(environment, _compile_text(environment, text, want))


def compile_value(
    environment: Environment, value: Json, where: str = "", languages: Languages | None = None
) -> Template:
    """Compile every text in a nested value; other scalars stay as they are. ``languages`` says which texts are escaped,
    and which may refer to secrets: such a text stays as it is, and the call is given the value.

    ``TemplateError`` names the place, under the prefix ``where`` (such as ``with``): ``with.fields.priority``.
    """
    return Template(environment, _compile(environment, value, (), where, languages), languages)


@dataclass(frozen=True, slots=True)
class _Text:
    """A text with expressions; one expression alone keeps its type. ``place``: its path in a value, and a prefix.

    The parts at the indexes ``raw`` are not escaped.
    """

    parts: tuple[str | Expression, ...]
    place: tuple[Path, str] | None = None
    languages: Languages | None = None
    raw: frozenset[int] = frozenset()


_Node: TypeAlias = "_Text | dict[str, _Node] | list[_Node] | str | bool | int | float | None"


def _compile_text(
    environment: Environment, text: str, want: str | None = None, languages: Languages | None = None
) -> _Text | str:
    pieces, raw = list(split(text)), set()
    if languages is not None:
        for at, (is_expression, piece) in enumerate(pieces):
            if is_expression and (match := _RAW.match(piece)):
                pieces[at] = (True, match[1])
                raw |= set() if isinstance(languages, Added) else {at}
    sources = [source for is_expression, source in pieces if is_expression]
    if len(sources) == 1 and all(is_expression or not piece.strip() for is_expression, piece in pieces):
        return _Text((environment.compile(sources[0], want),), None, languages, frozenset({0} if raw else ()))
    if want is not None and (want != "string" or not sources):
        raise ExpressionError(f"{text!r} is not one ${{{{ … }}}} expression", remedy=f"It must give a {want}.")
    if not sources:
        return _Text((text,), None, languages) if isinstance(languages, Added) else text
    parts = tuple(environment.compile(piece) if is_expression else piece for is_expression, piece in pieces)
    return _Text(parts, None, languages, frozenset(raw))


def _compile(environment: Environment, value: Json, path: Path, prefix: str, languages: Languages | None) -> _Node:
    try:
        if len(path) > DEPTH_MAX:
            raise ExpressionError(f"is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, dict) and any("${{" in key for key in value):
            raise ExpressionError("has an expression in a key", remedy="Keys are fixed; only values can be computed.")
        if isinstance(value, str) and LIKE_REFERENCE.search(value):
            _check_reference(value, languages, path)
            return value
        text = (
            _compile_text(environment, value, languages=_languages_in(languages, path))
            if isinstance(value, str)
            else ""
        )
    except ExpressionError as error:
        raise TemplateError(error, path, prefix) from None
    if isinstance(text, _Text):
        return replace(text, place=(path, prefix))
    if isinstance(value, dict):
        return {key: _compile(environment, item, (*path, key), prefix, languages) for key, item in value.items()}
    if isinstance(value, list):
        return [_compile(environment, item, (*path, at), prefix, languages) for at, item in enumerate(value)]
    return value


def _check_reference(text: str, languages: Languages | None, path: Path) -> None:
    """Refuse a reference to a secret in a place that is not declared for secrets, or in a text with an expression."""
    if languages is None or not languages.lends(path):
        remedy = "It may stand in `headers` of an operation that sends an HTTP request."
        raise ExpressionError("refers to a secret, and this place is not declared for one", remedy=remedy)
    if "${{" in REFERENCE.sub("", text):
        raise ExpressionError("has a secret and an expression in one text", remedy="Write the rest as it is.")


def _languages_in(languages: Languages | None, path: Path) -> Languages | None:
    """The languages, if a text at or below this place has one."""
    return languages if languages is not None and languages.within(path) else None


def _references(node: _Node) -> Iterator[str]:
    if isinstance(node, _Text):
        for part in node.parts:
            if isinstance(part, Expression):
                yield from part.references
    elif isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _references(item)


def _places(node: _Node, path: Path) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    if isinstance(node, dict | list):
        for step, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _places(item, (*path, step))
    for part in node.parts if isinstance(node, _Text) else ():
        for variable, members in part.places if isinstance(part, Expression) else ():
            yield path, variable, members


def _functions(node: _Node) -> Iterator[str]:
    if isinstance(node, _Text):
        yield from ["raw"] * bool(node.raw)
        for part in node.parts:
            yield from part.calls if isinstance(part, Expression) else ()
    elif isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _functions(item)


def _copies(node: _Node) -> bool:
    if isinstance(node, _Text):
        return any(part.copies for part in node.parts if isinstance(part, Expression))
    if isinstance(node, dict | list):
        return any(map(_copies, node.values() if isinstance(node, dict) else node))
    return False


def _ingredients(node: _Node, path: Path) -> Iterator[tuple[Path, tuple[str | None, ...]]]:
    if isinstance(node, dict | list) and node:
        for step, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _ingredients(item, (*path, step))
        return
    found: list[str | None] = []
    for part in node.parts if isinstance(node, _Text) else (None,):
        if isinstance(part, Expression):
            found += part.reads or (None,)
        elif part is None or part.strip():
            found.append(None)
    yield path, tuple(dict.fromkeys(found))


def _authored(node: _Node) -> Iterator[str]:
    if isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _authored(item)
    elif isinstance(node, _Text):
        yield from (part for part in node.parts if isinstance(part, str) and part.strip())
    elif isinstance(node, str):
        yield node


def _render(node: _Node, bound: Bound) -> Json:
    if isinstance(node, dict):
        return {key: item if type(item) is str else _render(item, bound) for key, item in node.items()}
    if isinstance(node, list):
        return [_render(item, bound) for item in node]
    if not isinstance(node, _Text):
        return node
    try:
        if node.languages is not None and node.place is not None:
            return _translated(node, node.languages, node.place[0], bound)
        if len(node.parts) == 1 and isinstance(node.parts[0], Expression):
            return node.parts[0].value(bound)
        text = "".join(part if isinstance(part, str) else _scalar(part, bound) for part in node.parts)
        _check_length(text)
    except ExpressionError as error:
        raise error if node.place is None else TemplateError(error, *node.place) from None
    return text


def _check_length(text: str) -> None:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ExpressionError(f"gives {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are accepted")


def translated(value: Json, languages: Languages, path: Path) -> Json:
    """Escape a value that no author wrote, wherever it is a text of another language.

    A whole address has no author's words around it: it is not escaped, but may not lead to another path.
    """
    return _escaped(value, languages, path, whole=True)


def _translated(node: _Text, languages: Languages, path: Path, bound: Bound) -> Json:
    """The value of a text of another language, escaped."""
    language = languages.at(path)
    if isinstance(languages, Added) and len(node.parts) == 1 and isinstance(node.parts[0], str):
        return translated(node.parts[0], languages, path)
    if len(node.parts) == 1 and isinstance(node.parts[0], Expression):
        value = node.parts[0].value(bound)
        return value if node.raw else _escaped(value, languages, path)
    made, authored = "", ""
    for at, part in enumerate(node.parts):
        if isinstance(part, str) and language is not None and isinstance(languages, Added):
            text, author_text = part if language is Language.URL_PART else escaped(language, part), "\0"
        elif isinstance(part, str) or language is None or at in node.raw:
            text = author_text = part if isinstance(part, str) else _scalar(part, bound)
        else:
            text, author_text = escaped(language, _scalar(part, bound)), "\0"
        made, authored = made + text, authored + author_text
    _check_length(made)
    if language is not None:
        check_meaning(language, made, authored)
    return made


def _escaped(value: Json, languages: Languages, path: Path, *, whole: bool = False) -> Json:
    language = languages.at(path)
    if isinstance(value, dict):
        check_structure(language, value)
        return {key: _escaped(item, languages, (*path, key), whole=whole) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item, languages, (*path, at), whole=whole) for at, item in enumerate(value)]
    if language is None or not isinstance(value, str):
        return value
    text = value if whole and language is Language.URL_PART else escaped(language, value)
    _check_length(text)
    check_meaning(language, text, "")
    return text


def _check_structures(value: Json, languages: Languages, path: Path) -> None:
    check_structure(languages.at(path), value)
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_structures(item, languages, (*path, step))


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
