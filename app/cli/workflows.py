"""Commands for workflows: check them before publishing, list them, show one, activate one, retire one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from app.cli import context
from app.cli.bulk import Bulk, in_bulk
from app.cli.outcome import Commands, Exit, Json, print_fields, print_json, print_part, print_rows, printable
from core.errors import CountersealError, DefinitionError, InputError, briefly

if TYPE_CHECKING:
    from connectors.catalog import Catalog
    from policy.sets import PolicySet
    from runtime.engine.model.workflow import Workflow

workflow = Commands(name="workflow", help="Workflows: check, publish, list, show, activate, retire, migrate.")

_REFERENCE = re.compile(r"(?P<name>[^@\s]{1,100})(?:@(?P<version>[1-9][0-9]{0,6}))?\Z")


@workflow.command("check")
async def workflow_check(
    files: Annotated[list[Path], typer.Argument(help="YAML documents.")],
    policy_files: Annotated[
        list[Path] | None,
        typer.Option("--policy", help="Show the decision on each step under this policy; repeat it for several."),
    ] = None,
    directory_file: Annotated[
        Path | None, typer.Option("--directory", help="Check that the people of this directory could answer.")
    ] = None,
    in_force: Annotated[
        bool, typer.Option("--in-force", help="Show it under the tenant's policies in force; asks the database.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check workflows without publishing them, and show what each would do. Needs no database by itself.
    What it reads of one that it runs is looked up among these files, and with --in-force in what is published.

    Lists every problem with its line and column. A connector that is not configured here is only a warning, because the
    installation that runs the workflow may have it. So is a literal address that COUNTERSEAL_HTTP_HOSTS does not name.
    If COUNTERSEAL_SQL_URL is set, tables, columns and keys of the declarations are looked up in that database.
    """
    from app.adapters import catalog_of
    from app.checking import check_connectors
    from app.outlining import outline
    from runtime.definition.people import load_directory
    from runtime.definition.reserved import refuse_reserved
    from runtime.definition.schemas import refuse_unsendable
    from runtime.definition.workflow import load_workflow

    settings = context.settings()
    catalog = catalog_of(settings)
    policies = await _policies(catalog, policy_files or [], in_force=in_force)
    people = None
    if directory_file is not None:
        people = load_directory(context.read_text(directory_file), str(directory_file)).deciders

    children = _result_schemas(files, catalog)

    async def check(path: Path) -> dict[str, Any]:
        text = context.read_text(path)
        found = load_workflow(text, str(path), catalog, typed=True)
        known = (await _children(found) if in_force else {}) | children
        found = load_workflow(text, str(path), catalog, typed=True, children=known) if known else found
        refuse_reserved(found.name, text, str(path))
        refuse_unsendable(text, str(path), found.operations)
        here = await check_connectors(settings, found, str(path), people)
        answer = {"name": found.name, "version": found.version, **structs.asdict(here)}
        return {**answer, "outline": outline(found, policies)}

    await report(files, check, _print_details, as_json=as_json)


def _result_schemas(files: list[Path], catalog: Catalog) -> dict[str, Any]:
    """The schemas of the results of the workflows in these files, by name and version. Invalid files are skipped."""
    from runtime.definition.workflow import load_workflow

    found = dict[str, Any]()
    for path in files if len(files) > 1 else ():
        with suppress(CountersealError):
            one = load_workflow(context.read_text(path), str(path), catalog, typed=True)
            found |= {f"{one.name}@{one.version}": one.gives, one.name: one.gives}
    return found


async def _children(found: Workflow) -> dict[str, Any]:
    """The schemas of what the published workflows give that this one runs; asks the database."""
    from runtime.requests.child_runs import result_schemas

    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        return {**await result_schemas(connection, faces.definitions, faces.settings.tenant, found)}


async def _policies(catalog: Catalog, files: list[Path], *, in_force: bool) -> PolicySet | None:
    """The policies under which decisions are shown: those of the files, or else the tenant's; None for none."""
    from policy.sets import PolicySet
    from runtime.definition.catalog import Definitions

    if files:
        compiled = Definitions(catalog).compile_policy
        return PolicySet([compiled(context.read_text(path), str(path)) for path in files])
    return (await context.policies_in_force())[0] if in_force else None


async def report(
    files: list[Path],
    check: Callable[[Path], Awaitable[dict[str, Any]]],
    tell: Callable[[dict[str, Any]], None],
    *,
    as_json: bool,
) -> None:
    """Check documents and print the results; ``tell`` prints more about a valid one. Exit 2 if any is invalid.

    The result of an invalid document has file, line, column, message and remedy of each fault.
    """
    results, shown = list[dict[str, Any]](), set[str]()
    for path in files:
        try:
            results.append({"file": str(path), "ok": True, **await check(path)})
        except CountersealError as error:
            problems = [asdict(problem) for problem in error.problems] if isinstance(error, DefinitionError) else []
            results.append({"file": str(path), "ok": False, "problem": briefly(error, shown), "problems": problems})
    if as_json:
        print_json(results)
    else:
        for result in results:
            if result["ok"]:
                typer.echo(f"{result['file']}: ok ({result['name']} version {result['version']})")
                tell(result)
            else:
                typer.echo(result["problem"], err=True)
    if not all(result["ok"] for result in results):
        raise typer.Exit(Exit.INPUT)


def _print_details(result: dict[str, Any]) -> None:
    _print_outline(result["outline"], result["connectors"])
    for words in result["warnings"]:
        typer.echo(f"{result['file']}: warning: {words}", err=True)


def _print_outline(shown: Any, connectors: dict[str, str]) -> None:
    from app.outlining import lines

    for line in lines(shown, {name: words.partition(".")[0] for name, words in connectors.items()}):
        typer.echo(printable(line))


@workflow.command("list")
async def workflow_list(as_json: Json = False) -> None:
    """List every published version, also retired ones, and the documents that were unusable at the last start."""
    from runtime.store import documents, replication

    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        found = await documents.workflow_versions(connection, faces.settings.tenant)
        unusable = await replication.listed(connection, faces.settings.tenant, "workflow")
    rows = [
        {**asdict(one), "connectors": list(one.connectors) if as_json else ", ".join(one.connectors)} for one in found
    ]
    if as_json:
        rows += [{"name": one.name, "unavailable": {"place": one.place, "reason": one.reason}} for one in unusable]
    columns = ("name", "version", "digest", "connectors", "published_by", "published_at", "retired_at", "waits_for")
    print_rows(rows, columns, as_json=as_json, empty="Nothing is published.")
    for one in () if as_json else unusable:
        typer.echo(f"unavailable: {printable(one.name)} ({printable(one.place)}): {printable(one.reason)}", err=True)


@workflow.command("show")
async def workflow_show(
    wanted: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The newest version without a number.")],
    source: Annotated[bool, typer.Option("--source", help="Print the exact text that was published, only.")] = False,
    operations: Annotated[
        bool, typer.Option("--operations", help="Print the declarations that were frozen with it, only.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one published version: what it does, and the declarations that were frozen with it."""
    from app.definitions import connector_states, describe, frozen
    from runtime.requests.declaring import document

    name, version = _named(wanted)
    async with context.faces() as faces:
        if operations:
            declared = await faces.ask(faces.settings.tenant, frozen, name, version)
            print_json(declared) if as_json else typer.echo(document([*declared.values()]), nl=False)
            return
        async with faces.database.transaction(faces.settings.tenant) as connection:
            found = await describe(connection, faces.definitions, faces.settings.tenant, name, version)
        connectors = await connector_states(faces.settings, found["connectors"])
    if source:
        typer.echo(found["source"], nl=False)
        return
    if as_json:
        print_json({**found, "connectors": connectors})
        return
    heads = (
        "name",
        "version",
        "digest",
        "definition_digest",
        "published_by",
        "published_at",
        "retired_at",
        "waits_for",
    )
    print_fields({head: found[head] for head in heads})
    if found["outline"] is None:
        typer.echo(f"It cannot be carried out by this release: {printable(found['problem'])}", err=True)
    else:
        _print_outline(found["outline"], connectors)
    rows = [{"operation": operation, "digest": digest} for operation, digest in found["operations"].items()]
    print_part("operations, as frozen", rows, "operation", "digest", empty="no operations")


@workflow.command("activate")
async def workflow_activate(
    wanted: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version to activate.")],
    as_json: Json = False,
) -> None:
    """Let runs start with a version that an author has published and that waits for an admin.

    It waits because it has a trigger, because a policy names it, or because a workflow of others runs it. Look at it
    first: `counterseal workflow show NAME@VERSION`.
    """
    from runtime.requests import confirming

    name, version = _numbered(wanted)
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, who = faces.settings.tenant, context.actor(faces.settings)
        place = (connection, faces.definitions, tenant, name, version, who)
        activated = await confirming.activate_workflow(*place)
    if as_json:
        print_json(asdict(activated))
        return
    words = "is active: runs start with it" if activated.changed else "did not wait"
    typer.echo(f"workflow {name} version {version} {words}")


@workflow.command("retire")
async def workflow_retire(
    wanted: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="The version to retire.")], as_json: Json = False
) -> None:
    """Retire a version for good: no new run starts with it. Runs that have started go on with it.

    New runs start with the newest version that is not retired; publish a new one to replace it.
    """
    from runtime.requests import publishing

    name, version = _numbered(wanted)
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, who = faces.settings.tenant, context.actor(faces.settings)
        retired = await publishing.retire_workflow(connection, tenant, name, version, who)
    if as_json:
        print_json(asdict(retired))
        return
    words = "is retired" if retired.changed else "was retired already"
    left = "no version is left" if retired.starts_with is None else f"runs start with version {retired.starts_with}"
    typer.echo(f"workflow {name} version {version} {words}; {left}")


@workflow.command("migrate")
async def workflow_migrate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The workflow.")],
    since: Annotated[
        int, typer.Option("--from", min=1, max=context.INT4_MAX, help="The version that the runs are of now.")
    ],
    to: Annotated[int, typer.Option("--to", min=1, max=context.INT4_MAX, help="The version that they go on with.")],
    reason: Annotated[str, typer.Option(help="Why; each run's book keeps it.")],
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only those that fit; repeat it. Keys as for `run retry --where`."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would become of each run.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the plan is carried out.")] = False,
    as_json: Json = False,
) -> None:
    """Move runs that wait to another version of their workflow. Without this, a run keeps its version to its end.

    First the plan: each run moves, or is refused with its reason. A question whose action changes is void and asked
    anew. Then a result for each. Exit 4 if some could not.
    """
    from runtime.requests.migrating import Move, prepared

    move = Move(name, since, to, where or ())
    async with context.faces() as faces:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        act = await prepared(faces.database, faces.definitions, tenant, move, actor, owned=False)
        bulk = Bulk(where or [], reason, dry_run, yes, as_json)
        await in_bulk(faces, "migrate", act, move.filter(), bulk)


def _numbered(text: str) -> tuple[str, int]:
    name, version = _named(text)
    if version is None:
        remedy = "Give its number, such as triage@2."
        raise InputError(f"{text!r} names no version.", where="NAME@VERSION", remedy=remedy)
    return name, version


def _named(text: str) -> tuple[str, int | None]:
    match = _REFERENCE.match(text)
    if match is None:
        raise InputError(f"{text!r} names no workflow.", where="WORKFLOW", remedy="Write its name, or triage@2.")
    return match["name"], None if match["version"] is None else int(match["version"])
