"""Commands for the tools of agents: draft their declarations from a list, for a person to review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.outcome import Commands, Json, print_json, printable
from core.errors import InputError

tools = Commands(name="tools", help="Tools that agents carry out themselves: draft their declarations.")


@tools.command("import")
def tools_import(
    file: Annotated[Path, typer.Argument(help="The tools as JSON: an answer to tools/list of MCP, or functions.")],
    to: Annotated[Path, typer.Option("--to", help="The folder for the drafts, one file for each tool.")],
    prefix: Annotated[str, typer.Option(help="The first part of the operations' names.")] = "tools",
    as_json: Json = False,
) -> None:
    """Write a declaration for each tool of a list into a folder. A person reviews them; nothing is published by it.

    Descriptions and hints of the list are comments there: they allow nothing. No file is overwritten.
    """
    from connectors.agent.importing import drafts

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
    made = drafts(data, str(file), prefix)
    if there := sorted(one.file for one in made if (to / one.file).exists()):
        raise InputError(f"has {there[0]} already", where=str(to), remedy="Name a new folder, and compare the two.")
    to.mkdir(parents=True, exist_ok=True)
    for one in made:
        (to / one.file).write_text(one.text, encoding="utf-8")
    if as_json:
        print_json([{"file": str(to / one.file), "operation": one.operation, "problem": one.problem} for one in made])
        return
    for one in made:
        typer.echo(printable(f"{to / one.file}: {one.operation}, for the tool {one.tool}"))
        if one.problem:
            typer.echo(printable(f"  It cannot be published as it is: {one.problem}"))
    typer.echo("Look at them before you publish any: counterseal operation publish FILE ...")
