"""How commands end: exit codes, and errors as one clear line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import wraps
from types import MappingProxyType
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

from core.errors import CountersealError

Value = TypeVar("Value")
Given = ParamSpec("Given")


class Exit(IntEnum):
    """The exit codes, as the help documents them."""

    OK = 0
    FAILED = 1
    INPUT = 2
    CONFIGURATION = 3
    CONFLICT = 4
    UNAVAILABLE = 5


DOCUMENTED = """
Exit codes: 0 done · 1 failed, or a verification failed · 2 wrong usage or input · 3 a setting is missing or wrong ·
4 not found, not allowed, or moved on meanwhile · 5 something outside cannot be reached.
"""

CODES: Mapping[str, Exit] = MappingProxyType(
    {
        "input": Exit.INPUT,
        "definition": Exit.INPUT,
        "expression": Exit.INPUT,
        "configuration": Exit.CONFIGURATION,
        "authentication": Exit.CONFLICT,
        "authorization": Exit.CONFLICT,
        "not_found": Exit.CONFLICT,
        "consistency": Exit.CONFLICT,
        "transport": Exit.UNAVAILABLE,
        "timeout": Exit.UNAVAILABLE,
    }
)


def awaited(command: Callable[Given, Coroutine[Any, Any, Value]]) -> Callable[Given, Value]:
    """A command that is a coroutine function, as one that runs it to its end."""

    @wraps(command)
    def to_its_end(*arguments: Given.args, **options: Given.kwargs) -> Value:
        return asyncio.run(command(*arguments, **options))

    return to_its_end


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors into a message on standard error and an exit code. What is neither ours nor the database's raises."""
    try:
        yield
    except CountersealError as error:
        _end(error)
    except ExceptionGroup as group:
        ours, others = group.split(CountersealError)
        if ours is None or others is not None:
            raise
        _end(*_leaves(ours))
    except Exception as error:
        if not type(error).__module__.startswith(("asyncpg", "sqlalchemy")):
            raise
        # The first line says what; those after it may hold the statement's values.
        words = next(iter(str(error).splitlines()), type(error).__name__)
        typer.echo(f"counterseal: the database failed: {words}", err=True)
        raise SystemExit(Exit.UNAVAILABLE) from None


def _end(*errors: CountersealError) -> NoReturn:
    for error in errors:
        typer.echo(f"counterseal: {error}", err=True)
    raise SystemExit(CODES.get(errors[0].code, Exit.FAILED))


def _leaves(group: ExceptionGroup[CountersealError]) -> Iterator[CountersealError]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
