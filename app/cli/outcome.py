"""Output of commands (tables for people, columns for pipes, JSON for programs), one-line errors, exit codes."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import IntEnum
from functools import wraps
from inspect import iscoroutinefunction
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar
from uuid import UUID

import typer

from core.errors import CountersealError, DefinitionError, InputError
from core.legible import code_of, confusing, isolated

Function = TypeVar("Function", bound=Callable[..., Any])
Row = TypeVar("Row")
Rows: TypeAlias = Sequence[Mapping[str, Any]]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Exit(IntEnum):
    """The exit codes, as the help documents them."""

    OK = 0
    FAILED = 1
    INPUT = 2
    CONFIGURATION = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    KEPT = 6
    # Evidence is intact, and nobody has said that its key is to be trusted.
    UNKNOWN_KEY = 6
    # The run that was watched waits for people.
    PEOPLE = 7


DOCUMENTED = """
Exit codes: 0 done · 1 failed, or a verification failed · 2 wrong usage or input · 3 a setting is missing or wrong ·
4 not found, not allowed, or moved on meanwhile · 5 something outside cannot be reached ·
6 recorded, and nobody waits for it now; or evidence is intact, and its key is not trusted ·
7 a run that was watched waits for people.
"""

CODES: Mapping[str, Exit] = {
    **dict.fromkeys(("input", "definition", "expression", "misfit", "too_costly"), Exit.INPUT),
    "configuration": Exit.CONFIGURATION,
    **dict.fromkeys(("authentication", "authorization", "not_found", "consistency"), Exit.CONFLICT),
    **dict.fromkeys(("transport", "timeout", "limit"), Exit.UNAVAILABLE),
}


class Commands(typer.Typer):
    """A group of commands. Coroutine functions among them run in an event loop of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(no_args_is_help=True, **options)

    def command(self, *arguments: Any, **options: Any) -> Callable[[Function], Function]:
        """Add a function as a command, under its own name or another."""
        add = super().command(*arguments, **options)

        def added(function: Function) -> Function:
            @wraps(function)
            def run(*given: Any, **named: Any) -> None:
                asyncio.run(function(*given, **named))

            add(run if iscoroutinefunction(function) else function)
            return function

        return added


@contextmanager
def explained() -> Iterator[None]:
    """Turn our errors and the database's into a message on standard error and an exit code; raise all others."""
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
        if not type(error).__module__.startswith("asyncpg"):
            raise
        # Show only the first line: the others may hold the statement's values.
        words = next(iter(str(error).splitlines()), type(error).__name__)
        if type(error).__name__ == "LockNotAvailableError":
            words = "others hold what this needs, and did not let go in time. Nothing was changed: try again"
        typer.echo(f"counterseal: the database failed: {words}", err=True)
        raise SystemExit(Exit.UNAVAILABLE) from None


def _end(*errors: CountersealError) -> NoReturn:
    """Print the errors, as JSON if the command has --json, and exit with the code of the first one."""
    for error in errors:
        typer.echo(json.dumps(_error_json(error)) if "--json" in sys.argv else f"counterseal: {error}", err=True)
    raise SystemExit(CODES.get(errors[0].code, Exit.FAILED))


def _error_json(error: CountersealError) -> dict[str, Any]:
    """An error as JSON; the problems of a document are listed with their places."""
    fields = {"code": error.code, "message": error.message, "remedy": error.remedy}
    if isinstance(error, InputError):
        fields["where"] = error.where
    problems = [asdict(one) for one in error.problems] if isinstance(error, DefinitionError) else None
    return {"error": fields if problems is None else {**fields, "problems": problems}}


def _leaves(error: CountersealError | ExceptionGroup[CountersealError]) -> list[CountersealError]:
    if isinstance(error, CountersealError):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def print_json(value: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def print_one(value: object, words: str, *, as_json: bool) -> None:
    """Print one answer: ``value`` as JSON for programs, ``words`` for people."""
    if as_json:
        print_json(value)
    else:
        typer.echo(words)


def first_of(found: Sequence[Row], limit: int) -> list[Row]:
    """The first ``limit`` of these rows. If one more was found, standard error says that the list is truncated."""
    if len(found) > limit:
        typer.echo(f"counterseal: truncated: true; {limit} are shown, and there are more. Give --limit.", err=True)
    return [*found[:limit]]


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, empty: str, as_json: bool = False) -> None:
    """Print a list: all members as JSON, or the named ``columns`` as a table, or ``empty`` if there are no rows."""
    if as_json:
        print_json([dict(row) for row in rows])
        return
    if not rows:
        typer.echo(empty, err=True)
        return
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    if sys.stdout.isatty():
        _table(columns, cells)
    else:
        for line in cells:
            typer.echo("\t".join(line))


def print_part(title: str, rows: Rows, *columns: str, empty: str = "") -> None:
    """Print one table of an answer for people, below its title. ``empty`` is "no" and the title by default."""
    typer.echo(f"\n{title}")
    print_rows(rows, columns, empty=empty or f"no {title}")


def print_fields(fields: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print the members of one object, one per line."""
    if as_json:
        print_json(dict(fields))
        return
    wide = max(len(name) for name in fields)
    for name, value in fields.items():
        typer.echo(f"{name:<{wide}}  {_cell(value)}")


# Columns that are cut if the terminal is too narrow, each with the least width that is left. The columns of the first
# group are cut first. Another command, and --json, show the whole text.
_CUT: tuple[Mapping[str, int], ...] = (
    dict.fromkeys(("why", "title", "summary", "attempted", "last_error", "data", "reason"), 16),
    dict.fromkeys(
        ("operation", "target", "actor", "step_key", "resolution", "published_by", "connectors", "groups", "reference"),
        10,
    ),
)
# The most characters that a table shows of a cell. Ids are shortened, because every command takes the beginning of one.
_SHORT = {"run_id": 18, "approval_id": 18, "digest": 12, "at": 19}
# The columns that are left out if there is no room for all: those of the first group first.
_LEAST_READ = (frozenset({"digest", "policy_digests"}), frozenset({"published_by", "published_at"}))
# The characters between two columns.
_GAP = 2


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print a table whose lines do not wrap; if the terminal is too narrow, print the members of each row below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    found = {name: [_short(name, line[at]) for line in cells] for at, name in enumerate(columns)}
    shown = {name: texts for name, texts in found.items() if {*texts} - {"-", ""}} or found
    widths = _fitted({name: max(map(len, (name, *texts))) for name, texts in shown.items()}, console.width)
    for group in _LEAST_READ:
        if widths is not None:
            break
        shown = {name: texts for name, texts in shown.items() if name not in group}
        widths = _fitted({name: max(map(len, (name, *texts))) for name, texts in shown.items()}, console.width)
    if widths is None:
        wide = max(map(len, columns))
        for line in cells:
            fields = (
                _lines(f"{name.replace('_', ' '):<{wide}}  ", cell, console.width)
                for name, cell in zip(columns, line, strict=True)
            )
            typer.echo("\n".join(fields) + "\n")
        return
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in shown:
        table.add_column(name.replace("_", " "), overflow="ellipsis", no_wrap=True, width=widths[name])
    for row in zip(*shown.values(), strict=True):
        # Text, not str: rich would interpret markup in text from outside.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _lines(title: str, cell: str, width: int) -> str:
    """A member of a row below its title, broken between words only: ids stay whole."""
    space = max(1, width - len(title))
    lines = textwrap.wrap(cell, space, break_long_words=False, break_on_hyphens=False)
    return title + f"\n{' ' * len(title)}".join(lines)


def _short(name: str, cell: str) -> str:
    """Shorten a cell for a table: a time to the minute, an id to as much as commands take."""
    is_time = name.endswith("_at") and cell.endswith("Z")
    return f"{cell[:16]}Z" if is_time else cell[: _SHORT.get(name)]


def _fitted(widths: dict[str, int], space: int) -> dict[str, int] | None:
    """The widths of columns that fit into this number of characters; None if that is not possible."""
    over = sum(widths.values()) + _GAP * (len(widths) - 1) - space
    for least in _CUT:
        for name in sorted(least.keys() & widths.keys(), key=lambda name: -widths[name]):
            less = min(max(over, 0), max(widths[name] - least[name], 0))
            widths[name], over = widths[name] - less, over - less
    return None if over > 0 else widths


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return printable(json.dumps(value, default=_plain, ensure_ascii=False))
    return printable(str(value))


def printable(text: str) -> str:
    """Text from outside, with escapes for characters that could control a terminal or reverse the writing direction.

    Letters that are disguised as others are codes, as on cards, and a value written from right to left is isolated.
    """
    disguised = confusing(text)
    shown = (
        code_of(char) if at in disguised else char if char.isprintable() else ascii(char)[1:-1]
        for at, char in enumerate(text)
    )
    return isolated("".join(shown))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not printed")
