"""What commands print: tables for people, plain columns for pipes, JSON for programs. Always on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import typer

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: object) -> None:
    """One JSON document."""
    typer.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """A list: all members as JSON, the named ``columns`` as a table. ``empty`` is said where there is nothing."""
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


def print_fields(fields: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing: its members, a line each."""
    if as_json:
        print_json(dict(fields))
        return
    wide = max(len(name) for name in fields)
    for name, value in fields.items():
        typer.echo(f"{name:<{wide}}  {_cell(value)}")


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        # An id that is folded cannot be copied.
        table.add_column(name.replace("_", " "), overflow="fold", no_wrap=name.endswith("_id"))
    for line in cells:
        # As Text: what comes from outside is never markup.
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)


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
    """What comes from outside, with everything escaped that could steer a terminal or turn the order of letters."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"{type(value).__name__} is not printed")
