"""The one error tree. Each class has a stable ``code``; faces map classes, never messages, to answers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import ClassVar

# The most names and characters of a list that is shown whole; of a longer list only the most similar names are shown.
NAMED_MAX, CHARACTERS_MAX, SOME = 20, 240, 5


def sentences(message: str, remedy: str) -> str:
    """A message and its remedy, with a full stop between them; either may be empty."""
    if not (message and remedy):
        return message or remedy
    return f"{message}{'' if message.endswith(('.', '!', '?', ':')) else '.'} {remedy}"


class CountersealError(Exception):
    """Base of every error that we raise on purpose. ``remedy`` tells the reader what to do next."""

    code: ClassVar[str] = "counterseal"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return sentences(self.message, self.remedy)


class InputError(CountersealError):
    """Input from outside is not acceptable. ``where`` names the place, such as a JSON path or a header."""

    code = "input"

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {super().__str__()}" if self.where else super().__str__()


def path_text(path: Iterable[str | int], prefix: str = "") -> str:
    """Write a path as text: ``("fields", "tags", 0)`` under ``with`` is ``with.fields.tags[0]``."""
    text = prefix
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# The most names that are compared: those with the longest common beginning. A document may have thousands of names.
COMPARED_MAX = 100


def nearest(name: str, known: Iterable[str], what: str = "Known here") -> str:
    """The remedy for an unknown name: the nearest known name, or the list of known names."""
    names = sorted(known)
    alike = nlargest(COMPARED_MAX, names, key=lambda one: _begins_alike(one, name))
    near = difflib.get_close_matches(name, alike, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    if len(names) > NAMED_MAX or sum(map(len, names)) > CHARACTERS_MAX:
        some = sorted(nlargest(SOME, alike, key=lambda one: difflib.SequenceMatcher(None, one, name).ratio()))
        return f"{what} are {len(names)}, such as {', '.join(some)}."
    return f"{what}: {', '.join(names)}." if names else ""


def _begins_alike(one: str, other: str) -> int:
    """The length of the common beginning of two names."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def briefly(error: CountersealError, seen: set[str]) -> str:
    """An error as text, without lists of names that are in ``seen`` already; adds its lists to ``seen``."""
    if isinstance(error, DefinitionError):
        return "\n".join(_briefly(problem, seen) for problem in error.problems)
    if _is_new(error.remedy, seen):
        return str(error)
    return f"{error.where}: {error.message}" if isinstance(error, InputError) and error.where else error.message


def _briefly(problem: Problem, seen: set[str]) -> str:
    return str(problem if _is_new(problem.remedy, seen) else replace(problem, remedy=""))


def _is_new(remedy: str, seen: set[str]) -> bool:
    """True unless the remedy is a list of names in ``seen``; adds it there. A cut list counts as the same list."""
    if remedy.count(", ") < 2:
        return True
    whole = remedy.partition(", such as ")[0]
    new = whole not in seen
    seen.add(whole)
    return new


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a document: its place (1-based line and column), a message and a remedy."""

    file: str
    line: int
    column: int
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {sentences(self.message, self.remedy)}"


class DefinitionError(InputError):
    """A document is invalid. Holds every problem found, not only the first."""

    code = "definition"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        seen = set[str]()
        super().__init__("\n".join(_briefly(problem, seen) for problem in problems))
        self.problems = problems


class MisfitError(InputError):
    """A value does not fit the schema that a published document declares for it. Names the field."""

    code = "misfit"


class ExpressionError(InputError):
    """An expression does not compile, or its evaluation failed. It never counts as false."""

    code = "expression"


class AuthenticationError(CountersealError):
    """The caller could not be identified: no token, a wrong signature, a stale timestamp."""

    code = "authentication"


class AuthorizationError(CountersealError):
    """The caller is known and may not do this."""

    code = "authorization"


class NotFoundError(CountersealError):
    """There is no such thing, or it is another tenant's: both get the same answer (promise 8)."""

    code = "not_found"


class ConsistencyError(CountersealError):
    """The state has moved on: an illegal transition, a stale version, a lost lease."""

    code = "consistency"


class TransportError(CountersealError):
    """An outside system could not be reached, or its answer was unusable."""

    code = "transport"


class DeadlineError(CountersealError):
    """Something exceeded its deadline."""

    code = "timeout"


class ConfigurationError(CountersealError):
    """A setting is missing or wrong; the remedy names the environment variable."""

    code = "configuration"
