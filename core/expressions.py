"""CEL expressions over plain JSON: compiled and type-checked at load, fail-closed when evaluated.

The only module that knows the CEL engine. Left to itself the engine fails open in ways that read as success: an error
is a *value* (a non-empty, hence true string), a result object is always true, ``has(x.y)`` on a declared variable
means the variable's value, and deeply nested data ends the process. Here an error is an ``ExpressionError``, a test is
``True`` or ``False`` and nothing else, and values are checked before the engine sees them.

Variables are declared under dotted names (``action.fields.priority``) with one of ``FACT_TYPES``; values are given
under exactly these names. ``==`` never converts types. There is no clock, no randomness, no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel

from core.canonical import Json
from core.cel_ast import Syntax, read_syntax
from core.cel_messages import compile_error, one_of, quote, runtime_text
from core.cel_values import CHECKS, WANTED, Unfit, is_string_map, is_strings, kind_of, to_json
from core.errors import ExpressionError

_T = cel.Type
_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NO_VALUE = (_T.ERROR, _T.UNKNOWN)
_UNUSABLE = frozenset({"in", "true", "false", "null"})

_ENGINE_TYPES: dict[str, Any] = {
    "string": _T.STRING,
    "int": _T.INT,
    "bool": _T.BOOL,
    "double": _T.DOUBLE,
    "timestamp": _T.TIMESTAMP,
    "list<string>": _T.List(_T.STRING),
    "map<string,string>": _T.Map(_T.STRING, _T.STRING),
    "dyn": _T.DYN,
}
FACT_TYPES = frozenset(_ENGINE_TYPES)
"""The types that a variable can be declared with, and that ``compile`` can demand."""


def is_variable_name(name: str) -> bool:
    """Whether every part of a dotted name can be written in an expression: ``my-step`` would be a subtraction."""
    return all(_PART.match(part) and part not in _UNUSABLE for part in name.split("."))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an expression may contain: characters, syntax nodes, comprehensions in or over one another."""

    characters: int = 2_000
    nodes: int = 300
    loops: int = 1


POLICY_LIMITS = Limits()
WORKFLOW_LIMITS = Limits(characters=4_000, nodes=500, loops=2)


@dataclass(frozen=True, slots=True)
class Bound:
    """Checked values, converted once, for any number of expressions of the environment that bound them."""

    environment: Environment
    activation: Any


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
        self._env = cel.NewEnv(variables={name: _ENGINE_TYPES[kind] for name, kind in variables.items()})
        self._nothing = Bound(self, self._env.Activation({}))

    def compile(self, source: str, want: str | None = None) -> Expression:
        """Parse, type-check, lint and warm up. ``want`` is a fact type, ``list`` or ``map``.

        ``ExpressionError`` tells what is wrong and at which column. An expression whose type is only known when it is
        evaluated (``dyn``) passes for any ``want``; its value is then checked each time.
        """
        if want is not None and want not in WANTED:
            raise ExpressionError(f"cannot demand the type {want!r}", remedy=one_of(WANTED))
        if len(source) > self.limits.characters:
            raise ExpressionError(f"is {len(source)} characters long; at most {self.limits.characters} are accepted")
        try:
            program = self._env.compile(source)
            unchecked = self._env.compile(source, disable_check=True)
        except Exception as error:  # the engine raises RuntimeError today and promises nothing
            raise compile_error(source, str(error), self.variables) from None
        syntax = read_syntax(program.serialize())
        self._lint(syntax, read_syntax(unchecked.serialize()))
        self._check_type(program.return_type().name(), want)
        references = frozenset(syntax.names & self.variables.keys())
        expression = Expression(self, source, want, references, program)
        expression.warm_up()
        return expression

    def bind(self, values: Mapping[str, object], names: Collection[str] | None = None) -> Bound:
        """Check values against the declarations. Only ``names`` are taken, if given; undeclared values are ignored.

        A declared variable may lack a value: reading it is then an error of the expression that does.
        ``ExpressionError`` names the first value that does not fit its type.
        """
        if names is not None and not names:
            return self._nothing
        checked: dict[str, object] = {}
        variables = self.variables
        for name in variables if names is None else names:
            if name in values and name in variables:
                value = values[name]
                try:
                    checked[name] = CHECKS[variables[name]](value)
                except Unfit as unfit:
                    raise ExpressionError(f"{unfit} where {variables[name]} is declared", where=name) from None
        try:
            return Bound(self, self._env.Activation(checked))
        except Exception as error:
            raise ExpressionError(runtime_text(str(error))) from None

    def join(self, sources: Sequence[str]) -> Any:
        """One engine program that gives the list of the sources' values; None where the engine cannot (too deep)."""
        try:
            program = self._env.compile("[" + "\n,".join(sources) + "\n]")  # the line ends a comment, if there is one
            program.eval(data={})
        except Exception:  # each source compiled alone, so all that is lost is speed
            return None
        return program

    def _lint(self, syntax: Syntax, unchecked: Syntax) -> None:
        if syntax.nodes > self.limits.nodes:
            raise ExpressionError(
                f"has {syntax.nodes} parts; at most {self.limits.nodes} are accepted", remedy="Split it."
            )
        if syntax.loops > self.limits.loops:
            raise ExpressionError(
                f"has {syntax.loops} comprehensions (all, exists, map, filter) in or over one another",
                remedy=f"At most {self.limits.loops} are accepted.",
            )
        if syntax.adds_in_loop:
            raise ExpressionError(
                "uses '+' inside a comprehension, which can grow without bound", remedy="Add outside of it."
            )
        if syntax.presence_tests != unchecked.presence_tests:
            raise ExpressionError(
                "has() on a declared variable would mean the variable's value",
                remedy="For an action's field write 'name' in action.present.",
            )
        shadowed = sorted(syntax.loop_variables & self._heads)
        if shadowed:
            raise ExpressionError(f"the loop variable {shadowed[0]!r} hides a declared one", remedy="Rename it.")
        for pattern in syntax.patterns:
            self._check_pattern(pattern)

    def _check_pattern(self, pattern: str) -> None:
        """The engine compiles regular expressions when it evaluates; a broken literal is the author's to see now."""
        probe = cel.NewEnv(variables={"pattern": _T.STRING}).compile("''.matches(pattern)")
        try:
            found = probe.eval(data={"pattern": pattern})
            if found.type() in _NO_VALUE:
                raise ExpressionError(str(found.value()))
        except Exception as error:
            raise ExpressionError(f"matches({pattern!r}): {runtime_text(str(error))}") from None

    def _check_type(self, name: str, want: str | None) -> None:
        found = name.replace(", ", ",").lower()
        if want in (None, "dyn", found) or found == "dyn":
            return
        # Element types are checked by value: [1, dyn] and [] have none that the compiler could name.
        if want is not None and found.split("<")[0] == want.split("<")[0] and ("dyn" in found or "<" not in want):
            return
        raise ExpressionError(f"is of type {found}, not {want}")


class Expression:
    """One compiled expression. ``references`` are the declared variables that it reads."""

    __slots__ = ("_program", "environment", "references", "source", "want")

    def __init__(
        self, environment: Environment, source: str, want: str | None, references: frozenset[str], program: Any
    ) -> None:
        self.environment = environment
        self.source = source
        self.want = want
        self.references = references
        self._program = program

    def evaluate(self, values: Mapping[str, object]) -> Json:
        """The value as plain JSON (timestamps in RFC 3339, durations in ISO 8601); ``ExpressionError`` otherwise."""
        return self.value(self.environment.bind(values, self.references))

    def value(self, bound: Bound) -> Json:
        """As ``evaluate``, over values bound before."""
        try:
            result = to_json(self._checked(self._eval(bound)), 0)
        except Unfit as unfit:
            raise ExpressionError(f"{quote(self.source)} gives {unfit}") from None
        if self.want is not None and not self._is_wanted(result):
            raise ExpressionError(f"{quote(self.source)} gives {kind_of(result)}, not {self.want}")
        return result

    def test(self, bound: Bound) -> bool:
        """True or False; everything else, a value of another type included, is an ``ExpressionError``."""
        result = self._eval(bound)
        value = result.value()
        if value is True or value is False:  # an error's value is its text
            return bool(value)
        raise ExpressionError(f"{quote(self.source)} gives {kind_of(self._checked(result))}, not bool")

    def warm_up(self) -> None:
        """Have the engine build the program now. An expression without variables must succeed already."""
        try:
            result = self._program.eval(data={})
            if not self.references:
                to_json(self._checked(result), 0)
        except ExpressionError:
            raise
        except Unfit as unfit:
            raise ExpressionError(f"{quote(self.source)} gives {unfit}") from None
        except Exception as error:
            if not self.references:
                raise ExpressionError(f"{runtime_text(str(error))} in {quote(self.source)}") from None

    def _eval(self, bound: Bound) -> Any:
        # An activation of another environment would pass by this one's type checks.
        if bound.environment is not self.environment:
            raise ExpressionError(f"{quote(self.source)} was given values of another environment")
        try:
            return self._program.eval(bound.activation)
        except Exception as error:  # "Iteration budget exceeded" and others are raised
            raise ExpressionError(f"{runtime_text(str(error))} in {quote(self.source)}") from None

    def _checked(self, result: Any) -> object:
        """The plain value of a result that is not an error."""
        if result.type() in _NO_VALUE:
            raise ExpressionError(f"{runtime_text(str(result.value()))} in {quote(self.source)}")
        return result.plain_value()

    def _is_wanted(self, value: Json) -> bool:
        assert self.want is not None
        if not isinstance(value, WANTED[self.want]) or (self.want == "int" and isinstance(value, bool)):
            return False
        if self.want == "list<string>":
            return is_strings(value)
        if self.want == "map<string,string>":
            return is_string_map(value)
        return True


class ConditionSet:
    """Several tests over the same values, run as one program: about four times as fast as one after the other.

    One error spoils the common program's result; then each test runs alone, and that is what counts.
    """

    __slots__ = ("_environment", "_expressions", "_program", "references")

    def __init__(self, environment: Environment, expressions: Sequence[Expression]) -> None:
        self._environment = environment
        self._expressions = tuple(expressions)
        self.references = frozenset(name for expression in expressions for name in expression.references)
        self._program = environment.join([expression.source for expression in expressions])

    def run(self, bound: Bound) -> list[bool | ExpressionError]:
        """For each test, in order: True, False, or why it is neither."""
        if self._program is not None and bound.environment is self._environment:
            try:
                result = self._program.eval(bound.activation)
                values = result.plain_value()
            except Exception:  # one of them failed; the same failure is reported by name below
                values = None
            if type(values) is list and len(values) == len(self._expressions) and all(type(v) is bool for v in values):
                return values
        return [self._alone(expression, bound) for expression in self._expressions]

    @staticmethod
    def _alone(expression: Expression, bound: Bound) -> bool | ExpressionError:
        try:
            return expression.test(bound)
        except ExpressionError as error:
            return error
