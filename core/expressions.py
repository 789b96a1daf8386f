"""CEL expressions over plain JSON: compiled and type-checked at load, fail-closed when evaluated.

The engine itself fails open: an error is a *value* (a truthy string), a result object is always truthy, ``has(x.y)`` on
a declared variable means the variable's value, and deeply nested data crashes the process. Here an error is an
``ExpressionError``, a test gives ``True`` or ``False`` and nothing else, and values are checked before the engine sees
them.

Variables have dotted names (``action.fields.priority``) and one of ``FACT_TYPES``. ``==`` never converts types.
An expression has no clock, no randomness and no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from operator import call
from typing import Any, cast

from cel_expr_python import cel

from core.canonical import DEPTH_MAX, Json
from core.cel_ast import Limits, lint, place_of, places_of, read_syntax, reads_of, root_of
from core.cel_engine import NO_VALUE, check_pattern, check_type, check_zone, extensions, result_type
from core.cel_functions import OPT_MAPS_MAX, written
from core.cel_growth import check_growth
from core.cel_values import IS, PLAIN, Unfit, compile_error, kind_of, moment, one_of, quote, runtime_text, to_json
from core.cel_work import Work, copies_of, exceeds, work_of
from core.errors import ExpressionError
from core.unkept import NOT_KEPT, describe, first_marker, is_marker

_T = cel.Type
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_OPT_MAP = re.compile(r"opt(?:Flat)?Map")
_INTEGERS = range(-(2**63), 2**63)
_SURE = {"string": str, "bool": bool}  # the Python types whose values always fit

_ENGINE_TYPES: dict[str, Any] = {
    "string": _T.STRING,
    "int": _T.INT,
    "bool": _T.BOOL,
    "double": _T.DOUBLE,
    "timestamp": _T.TIMESTAMP,
    "list<string>": _T.List(_T.STRING),
    "list<list<string>>": _T.List(_T.List(_T.STRING)),
    "map<string,string>": _T.Map(_T.STRING, _T.STRING),
    "dyn": _T.DYN,
}
FACT_TYPES = frozenset(_ENGINE_TYPES)
"""The types of declared variables, which ``compile`` can also demand of a result."""


@lru_cache(4096)
def is_variable_name(name: str) -> bool:
    """True if an expression can use every part of a dotted name. ``my-step`` is refused: it is a subtraction."""
    return all(_PART.match(part) and part not in ("in", "true", "false", "null") for part in name.split("."))


POLICY_LIMITS = Limits()
WORKFLOW_LIMITS = Limits(characters=4_000, nodes=500, loops=2)
# The same text is compiled when it is checked, published and executed, mostly in one process, so it is cached.
_ENVIRONMENTS_MAX, _EXPRESSIONS_MAX = 128, 256
_cached = lru_cache(_EXPRESSIONS_MAX)(call)


@dataclass(slots=True)
class Bound:
    """Checked values for any number of expressions of one environment.

    ``activation`` is the engine's own form of the values, made at the first evaluation. ``unkept``: a value holds the
    marker of a value that could not be kept.
    """

    environment: Environment
    values: Mapping[str, object]
    activation: Any = None
    unkept: bool = False


class Environment:
    """The variables that expressions may read, with their types. Immutable; safe to share between threads."""

    def __init__(self, variables: Mapping[str, str], limits: Limits = POLICY_LIMITS) -> None:
        for name, kind in variables.items():
            if not is_variable_name(name):
                raise ExpressionError("is not a name that an expression can use", where=name)
            if kind not in _ENGINE_TYPES:
                raise ExpressionError(f"has the unknown type {kind!r}", where=name, remedy=one_of(FACT_TYPES))
        self.variables: Mapping[str, str] = dict(variables)
        self.limits = limits
        self._heads = frozenset(name.split(".", 1)[0] for name in variables)
        types = {name: _ENGINE_TYPES[kind] for name, kind in variables.items()}
        self._env = cel.NewEnv(variables=types, extensions=extensions())
        self.activation = self._env.Activation
        self._nothing = Bound(self, {})

    def compile(self, source: str, want: str | None = None) -> Expression:
        """Parse, type-check, lint and warm up. ``want`` is a fact type, ``list`` or ``map``.

        ``ExpressionError`` names the fault and its column. An expression whose type is only known at evaluation
        (``dyn``) is accepted for any ``want``; its value is then checked each time. The last expressions are kept.
        """
        expression: Expression = _cached(self._compiled, source, want)
        return expression

    def _compiled(self, source: str, want: str | None) -> Expression:
        if want is not None and want not in IS:
            raise ExpressionError(f"cannot demand the type {want!r}", remedy=one_of(IS))
        if len(source) > self.limits.characters:
            raise ExpressionError(f"is {len(source)} characters long; at most {self.limits.characters} are accepted")
        if len(_OPT_MAP.findall(source)) > OPT_MAPS_MAX:
            raise ExpressionError(f"has more than {OPT_MAPS_MAX} of optMap and optFlatMap", remedy="Split it.")
        try:
            program = self._env.compile(source)
            unchecked = self._env.compile(source, disable_check=True)
        except Exception as error:  # the engine raises RuntimeError today and promises nothing
            raise compile_error(source, str(error), self.variables) from None
        syntax = read_syntax(serialized := program.serialize())
        lint(syntax, read_syntax(unchecked.serialize()), self.limits, self._heads)
        check_growth(root_of(serialized))
        for pattern in syntax.patterns:
            check_pattern(pattern)
        for zone in syntax.zones:
            check_zone(zone)
        check_type(result_type(program), want)
        expression = Expression(self, source, want, frozenset(syntax.names & self.variables.keys()), program)
        expression.calls = written(source, syntax.calls)
        expression.read(reads_of(root_of(serialized)))
        expression.work = work_of(root_of(serialized))
        expression.copies = copies_of(root_of(serialized))
        expression.places = tuple(dict.fromkeys(places_of(root_of(serialized))))
        expression.place = place_of(root_of(serialized))
        try:
            expression.value(self._nothing)  # makes the engine build the program now
        except ExpressionError:
            if not expression.references:  # a constant expression must succeed already
                raise
        return expression

    def bind(self, values: Mapping[str, object], names: Collection[str] | None = None) -> Bound:
        """Check values against the declarations. Takes only ``names``, if given; ignores undeclared values.

        A declared variable may lack a value: then an expression that reads it fails. ``ExpressionError`` names the
        first value that does not fit its type.
        """
        if names is not None and not names:
            return self._nothing
        checked: dict[str, object] = {}
        markers: list[object] = []
        for name in self.variables if names is None else names:
            try:
                value, kind = values[name], self.variables[name]
                checked[name] = value if type(value) is _SURE.get(kind) else _fit(value, kind, markers)
            except KeyError:
                continue
            except Unfit as unfit:
                raise ExpressionError(f"{unfit} where {kind} is declared", where=name) from None
        return Bound(self, checked, unkept=bool(markers))

    def join(self, sources: Sequence[str]) -> Any:
        """One engine program that returns the list of the sources' values; None if it is too deep for the engine."""
        try:
            program = self._env.compile("[" + "\n,".join(sources) + "\n]")  # the newline ends a source's comment
            program.eval(data={})
        except Exception:  # each source compiles alone, so only speed is lost
            return None
        return program


def environment_of(variables: Mapping[str, str], limits: Limits = POLICY_LIMITS) -> Environment:
    """The cached environment of these variables. Errors as for ``Environment``."""
    return _environment_of(tuple(variables.items()), limits)


@lru_cache(_ENVIRONMENTS_MAX)
def _environment_of(variables: tuple[tuple[str, str], ...], limits: Limits) -> Environment:
    return Environment(dict(variables), limits)


class Expression:
    """One compiled expression. ``references`` are the variables that it reads.

    ``places`` are the members of variables that it names; ``place`` is the one that it is, if it is just a place.
    ``reads`` is the path itself if the expression is one plain path, and otherwise the same as ``references``.
    """

    __slots__ = (
        "_members",
        "_paths",
        "_program",
        "_variable",
        "calls",
        "copies",
        "environment",
        "place",
        "places",
        "reads",
        "references",
        "source",
        "want",
        "work",
    )
    calls: frozenset[str]
    copies: bool
    work: Work
    place: tuple[str, tuple[str, ...]] | None
    places: tuple[tuple[str, tuple[str, ...]], ...]

    def __init__(
        self, environment: Environment, source: str, want: str | None, references: frozenset[str], program: Any
    ) -> None:
        self.environment = environment
        self.source, self.want, self.references = source, want, references
        self._program = program
        self._paths: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self._variable = next(iter(references)) if len(references) == 1 and is_variable_name(source) else None
        self.reads = (source,) if self._variable else tuple(sorted(references))
        self._members = source.removeprefix(f"{self._variable}").split(".")[1:] if self._variable else []

    def value(self, bound: Bound) -> Json:
        """The value as plain JSON (timestamps in RFC 3339, durations in ISO 8601); ``ExpressionError`` otherwise."""
        # An activation of another environment would bypass this one's type checks.
        if bound.environment is not self.environment:
            raise ExpressionError(f"{quote(self.source)} was given values of another environment")
        if bound.unkept:
            self._refuse_unkept(bound)
        # A plain path (``steps.create.output.id``) needs no engine, if the engine would give the same value.
        value: Any = None if self._variable is None else bound.values.get(self._variable)
        for member in self._members:
            value = value.get(member) if type(value) is dict else None
        plain = type(value) in (bool, int) or (type(value) is str and value.isascii())
        if plain and (self.want is None or IS[self.want](value)):
            return cast(Json, value)
        if self.work and exceeds(self.work, bound.values):
            words = (
                f"{quote(self.source)} compares or copies large values for each item of a list: it would take too long"
            )
            raise ExpressionError(words, remedy="Read less, or compare outside of the loop.")
        try:
            bound.activation = bound.activation or self.environment.activation(bound.values)
            result = self._program.eval(bound.activation)
        except Exception as error:  # such as "Iteration budget exceeded"
            raise ExpressionError(f"{runtime_text(str(error))} in {quote(self.source)}") from None
        if result.type() in NO_VALUE:  # an error's value is its text
            raise ExpressionError(f"{runtime_text(str(result.value()))} in {quote(self.source)}")
        value = result.plain_value()
        try:
            if type(value) not in PLAIN:
                value = to_json(value, 0)
        except Unfit as unfit:
            raise ExpressionError(f"{quote(self.source)} gives {unfit}") from None
        if self.want is not None and not IS[self.want](value):
            raise ExpressionError(f"{quote(self.source)} gives {kind_of(value)}, not {self.want}")
        return cast(Json, value)

    def read(self, paths: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """Store what it reads: each variable with the members down to the value that is used."""
        self._paths = tuple(dict.fromkeys(path for path in paths if path[0] in self.references))

    def _refuse_unkept(self, bound: Bound) -> None:
        """Raise if it reads a value that was not kept: the marker must not pass for the value."""
        for variable, members in self._paths:
            place: Any = bound.values.get(variable)
            for member in members:
                if is_marker(place) or not isinstance(place, dict):
                    break
                place = place.get(member)
            if (found := first_marker(place)) is not None:
                where = ".".join((variable, *members))
                raise ExpressionError(f"{quote(where)} {describe(found)}")

    def test(self, values: Mapping[str, object]) -> bool:
        """True or False; any other result is an ``ExpressionError``."""
        value = self.value(self.environment.bind(values, self.references))
        if value is True or value is False:
            return value
        raise ExpressionError(f"{quote(self.source)} gives {kind_of(value)}, not bool")


class ConditionSet:
    """Several tests over the same values, run as one program: about four times as fast as one after the other.

    The tests may belong to different environments if these agree on the types of the variables read, and if no
    variable's name is a prefix of another's. One error spoils the result of the common program; then each test runs
    alone.
    """

    __slots__ = ("_environment", "_expressions", "_program", "references")

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._expressions = tuple(expressions)
        types = [(name, one.environment.variables[name]) for one in expressions for name in one.references]
        variables = dict(types)
        self.references = frozenset(variables)
        self._environment = Environment(variables)
        agreed = set(types) == variables.items()
        self._program = self._environment.join([one.source for one in expressions]) if agreed else None

    def run(self, values: Mapping[str, object]) -> list[bool | ExpressionError]:
        """Run the tests. Returns for each, in order, True, False or its error."""
        if self._program is not None:
            try:
                bound = self._environment.bind(values, self.references)
                if any(exceeds(one.work, bound.values) for one in self._expressions if one.work):
                    raise ExpressionError("takes too long")
                held = self._program.eval(self._environment.activation(bound.values)).plain_value()
            except Exception:  # a value or a test failed; the same failure is reported by name below
                held = None
            if type(held) is list and len(held) == len(self._expressions) and {bool}.issuperset(map(type, held)):
                return held
        alone: list[bool | ExpressionError] = []
        for expression in self._expressions:
            try:
                alone.append(expression.test(values))
            except ExpressionError as error:
                alone.append(error)
        return alone


def _fit(value: object, kind: str, markers: list[object], depth: int = 0) -> object:
    """A value as the engine takes it for a variable of this type; ``Unfit`` if it does not fit.

    Markers of values that were not kept are added to ``markers``.

    The engine converts recursively in native code: too much depth would crash the process, so we refuse it here.
    """
    if kind == "timestamp":
        return moment(value)
    if kind == "double" and type(value) is int and abs(value) <= 2**53:
        return float(value)  # JSON writes 250 for 250.0, so whole numbers are doubles too, as long as they are exact
    if (type(value) is float and not isfinite(value)) or not IS[kind](value):
        raise Unfit(f"{'holds' if kind == 'dyn' else 'is'} {kind_of(value)}")
    if type(value) is int and value not in _INTEGERS:
        raise Unfit("is an integer over 64 bit")
    if kind != "dyn":
        return value
    items: Collection[object] = ()
    if isinstance(value, dict):
        items = value.values()
        if NOT_KEPT in value:
            markers.append(value)
        if not all(isinstance(key, str) for key in value):
            raise Unfit("has a key that is not a string")
    elif isinstance(value, list):
        items = value
    elif not (type(value) in PLAIN or isinstance(value, str) or type(value) is float):
        raise Unfit(f"holds {kind_of(value)}")
    if items and depth == DEPTH_MAX:
        raise Unfit(f"is nested deeper than {DEPTH_MAX} levels")
    for item in items:
        if type(item) is not str:
            _fit(item, kind, markers, depth + 1)
    return value
