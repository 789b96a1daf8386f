"""Several conditions over the same values, evaluated together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import ExpressionError
from core.expressions import Environment, Expression


class ConditionSet:
    """Several tests over the same values, run as one program: about four times as fast as one after the other.

    The tests may be of different environments that agree on the types of the variables read, and in which no variable's
    name is a prefix of another's. One error spoils the common program's result; then each test runs alone.
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
