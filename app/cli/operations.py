"""Commands for declarations of operations: publish them, list them, show one, and see what a change changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import Commands, Json, print_fields, print_json, print_rows, printable
from core.errors import InputError

if TYPE_CHECKING:
    from connectors.catalog import Source
    from runtime.requests.declaring import Change

operation = Commands(name="operation", help="Declarations of operations: publish, list, show, compare, import.")

_NAMED = re.compile(r"(?P<name>[a-z][a-z0-9_.]{0,199})(?:@(?P<version>[1-9][0-9]{0,6}))?\Z")

Kind = Annotated[str, typer.Argument(metavar="mcp", help="The kind of server.")]
Server = Annotated[str, typer.Argument(metavar="SERVER", help="Its name in the settings.")]
Files = Annotated[list[Path], typer.Argument(help="YAML documents with `operations`.")]


@operation.command("publish")
async def operation_publish(files: Files, as_json: Json = False) -> None:
    """Publish declarations, all or none. Each one that differs from the one in use is the next version of its name.

    Workflows and policies are compiled against it from then on. Runs that have begun keep theirs, and so does each
    published version of a workflow: publish a new one to use it.
    """
    from runtime.requests import declaring

    sources = _sources(files)
    async with context.faces() as faces:
        who = context.actor(faces.settings)
        published = await faces.ask(
            faces.settings.tenant,
            lambda connection, tenant: declaring.publish_operations(
                connection, faces.definitions, tenant, sources, who
            ),
        )
    if as_json:
        print_json([structs.asdict(one) for one in published])
        return
    for one in published:
        words = "published" if one.changed else "was published already"
        typer.echo(f"operation {one.name} version {one.version} {words} ({one.digest[:12]})")


@operation.command("list")
async def operation_list(as_json: Json = False) -> None:
    """List the operations that workflows may name: published ones in use, and those that are part of Counterseal."""
    from app.operations import in_use

    async with context.faces() as faces:
        rows = await in_use(faces, faces.settings.tenant)
    columns = ("name", "version", "connector", "risk", "published_by", "published_at", "problem")
    print_rows(rows, (*columns, "digest") if as_json else columns, as_json=as_json, empty="There are no operations.")


@operation.command("show")
async def operation_show(
    wanted: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The version in use without a number.")],
    as_json: Json = False,
) -> None:
    """Show one declaration as it was published, and its versions."""
    from app.operations import shown
    from runtime.requests import declaring

    name, version = _named(wanted)
    async with context.faces() as faces:
        found = await shown(faces, faces.settings.tenant, name, version)
    if as_json:
        print_json(found)
        return
    declared = found.pop("declaration")
    print_fields({**found, "versions": ", ".join(map(str, found["versions"]))})
    typer.echo(declaring.document([declared]), nl=False)


@operation.command("diff")
async def operation_diff(
    wanted: Annotated[
        list[str], typer.Argument(metavar="FILE ... | NAME@VERSION NAME@VERSION", help="What is compared.")
    ],
    as_json: Json = False,
) -> None:
    """Show what publishing these files would change, or what has changed from one published version to another."""
    from runtime.requests import declaring
    from runtime.store.operations import StoredOperation

    named = [_named(one) for one in wanted] if all("@" in one and _NAMED.match(one) for one in wanted) else []
    sources = [] if named else _sources([Path(one) for one in wanted])
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        place = (connection, faces.definitions, faces.settings.tenant)
        if sources:
            changes = await declaring.changes(*place, sources)
        else:
            found = [await declaring.find(*place, name, version) for name, version in named]
            stored = [one for one in found if isinstance(one, StoredOperation)]
            if len(stored) != 2:
                raise InputError("compares two published versions.", where="diff", remedy="Such as a.b@1 a.b@2.")
            changes = [declaring.compared(*stored)]
    if as_json:
        print_json([structs.asdict(one) for one in changes])
        return
    for one in changes:
        for line in _lines(one):
            typer.echo(printable(line))


@operation.command("import")
async def operation_import(
    kind: Kind,
    server: Server,
    into: Annotated[Path, typer.Option(help="A folder for the files; nothing in it is published by itself.")],
    tool: Annotated[list[str] | None, typer.Option(help="Only this tool; may be repeated.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite files that are there.")] = False,
    as_json: Json = False,
) -> None:
    """Write a declaration for each tool of a server of the tenant's settings, for a person to review and publish.

    Each is frozen with the words of the server. Hints of a server stand in comments, and allow nothing.
    """
    from app import upstream

    _check(kind)
    async with context.faces() as faces:
        folder = faces.settings.definitions_dir
        if folder is not None and into.resolve().is_relative_to((folder / "operations").resolve()):
            words = f"{into} is published at start, and nobody would have read what is imported."
            raise InputError(words, where="--into", remedy="Choose another folder.")
        found = await upstream.imported(faces, faces.settings.tenant, server, tool or ())
    paths = {into / f"{name}.yaml": text for name, text in found.documents.items()}
    if there := sorted(str(path) for path in paths if path.exists() and not replace):
        raise InputError(f"{there[0]} is there already.", where="--into", remedy="Add --replace to overwrite it.")
    into.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"written": sorted(map(str, paths)), "left_out": found.left_out})
        return
    for path in sorted(paths):
        typer.echo(f"written {path}")
    for name, why in sorted(found.left_out.items()):
        typer.echo(printable(f"left out {name}: {why}"))
    typer.echo("Read each file, then publish it: counterseal operation publish FILE")


@operation.command("compare")
async def operation_compare(kind: Kind, server: Server, as_json: Json = False) -> None:
    """Show in which words a server describes its tools otherwise than they are frozen, before one is imported anew."""
    from app import upstream

    _check(kind)
    async with context.faces() as faces:
        found = await upstream.compared(faces, faces.settings.tenant, server)
    if as_json:
        print_json([structs.asdict(one) for one in found])
        return
    for line in upstream.words_of(found):
        typer.echo(printable(line))


def _check(kind: str) -> None:
    if kind != "mcp":
        raise InputError(f"{kind!r} is no kind of server.", where="KIND", remedy="Write mcp.")


def _lines(change: Change) -> list[str]:
    was = "not published yet" if change.before is None else f"version {change.before}"
    became = "these files" if change.after is None else f"version {change.after}"
    same = [] if change.lines else ["  the same"]
    return [f"operation {change.name}: {was} → {became}", *same, *(f"  {line}" for line in change.lines)]


def _sources(files: list[Path]) -> list[Source]:
    from connectors.catalog import Source

    return [Source(str(path), context.read_text(path)) for path in files]


def _named(text: str) -> tuple[str, int | None]:
    match = _NAMED.match(text)
    if match is None:
        raise InputError(f"{text!r} names no operation.", where="OPERATION", remedy="Write its name, or a.b@2.")
    return match["name"], None if match["version"] is None else int(match["version"])
