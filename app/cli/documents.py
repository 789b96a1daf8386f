"""Documents that people write: workflows, policies, the directory of people."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, print_json, print_rows
from app.cli.workflows import faulty, report, workflow
from core.errors import ConsistencyError, CountersealError, DefinitionError, InputError, NotFoundError

__all__ = ["directory", "policy", "schema", "workflow"]

policy = Commands(help="Policies: check, explain, publish.")
directory = Commands(help="The people and groups of a tenant.")

Files = Annotated[list[Path], typer.Argument(help="YAML documents.")]
File = Annotated[Path, typer.Argument(help="A YAML document.")]


@policy.command("check")
def policy_check(
    files: Files,
    directory_file: Annotated[
        Path | None, typer.Option("--directory", help="Check that the people of this directory could decide.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check policies without publishing them; needs no database."""
    from app.adapters import catalog_of
    from runtime.definition.catalog import Definitions

    definitions = Definitions(catalog_of(context.settings()))
    groups = None if directory_file is None else _groups(directory_file)
    results = []
    for path in files:
        try:
            found = definitions.compile_policy(context.read_text(path), str(path))
            warnings = [] if groups is None else _decided(found.text, str(path), groups)
            result = {"file": str(path), "ok": True, "name": found.name, "version": found.version}
            results.append({**result, "warnings": warnings})
        except CountersealError as error:
            results.append(faulty(path, error))
    report(results, _warn, as_json=as_json)


def _groups(path: Path) -> dict[str, frozenset[str]]:
    from runtime.definition.people import load_directory

    content = load_directory(context.read_text(path), str(path))
    return {name: frozenset(members) for name, members in content.groups.items()}


def _decided(text: str, file: str, groups: dict[str, frozenset[str]]) -> list[str]:
    """In which cases nobody could decide; ``DefinitionError`` if nobody ever could."""
    from runtime.definition import deciders

    found = deciders.of_policy(text, file, groups)
    if found.problems:
        raise DefinitionError(tuple(found.problems))
    return found.warnings


def _warn(result: dict[str, Any]) -> None:
    for warning in result["warnings"]:
        typer.echo(f"warning: {warning}", err=True)


@workflow.command("publish")
async def workflow_publish(files: Files, as_json: Json = False) -> None:
    """Publish workflow versions. A version never changes: another text needs another number."""
    await _publish("workflow", files, as_json)


@policy.command("publish")
async def policy_publish(file: File, as_json: Json = False) -> None:
    """Publish a policy and make it the active one: it judges every action from then on."""
    await _publish("policy", [file], as_json)


@directory.command("publish")
async def directory_publish(file: File, as_json: Json = False) -> None:
    """Replace the tenant's people and groups. Takes effect with the next vote."""
    await _publish("directory", [file], as_json)


async def _publish(kind: str, files: list[Path], as_json: bool) -> None:
    """All or nothing: one transaction."""
    from runtime.requests import publishing

    texts = [(str(path), context.read_text(path)) for path in files]
    published = []
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, who = faces.settings.tenant, context.actor(faces.settings)
        for file, text in texts:
            if kind == "workflow":
                made = await publishing.publish_workflow(connection, faces.definitions, tenant, text, file, who)
            elif kind == "policy":
                made = await publishing.publish_policy(connection, faces.definitions, tenant, text, file, who)
            else:
                made = await publishing.publish_directory(connection, tenant, text, file, who)
            published.append(made)
    if as_json:
        print_json([asdict(one) for one in published])
        return
    for one in published:
        words = "published" if one.changed else "was published already"
        typer.echo(f"{kind} {one.name} version {one.version} {words} ({one.digest[:12]})")
        for warning in one.warnings:
            typer.echo(f"warning: {warning}", err=True)
        if one.retired:
            words = "stays retired: give the text a new number to use it."
            typer.echo(f"{kind} {one.name} version {one.version} {words}", err=True)


@policy.command("list")
async def policy_list(as_json: Json = False) -> None:
    """List every published policy, and which one is active."""
    from runtime.store import read_models

    async with context.faces() as faces, faces.database.reading(faces.settings.tenant) as connection:
        rows = await read_models.policy_versions(connection, faces.settings.tenant)
    columns = ("name", "version", "active", "digest", "published_by", "published_at")
    print_rows(rows, columns, as_json=as_json, empty="Nothing is published.")


@policy.command("explain")
async def policy_explain(
    action: Annotated[
        Path, typer.Argument(help='JSON: {"operation", "input", "before"?: {field: value}, "run"?: {fact: value}}.')
    ],
    policy_file: Annotated[
        Path | None, typer.Option("--policy", help="A policy document; the active policy without it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how an action would be decided, and how every rule came out. Nothing is done or recorded."""
    from app import explaining

    described = explaining.read_action(context.read_input(action), str(action))
    text = None if policy_file is None else (context.read_text(policy_file), str(policy_file))
    explained = explaining.explain_offline(described, text) if text else await _explain_active(described)
    if as_json:
        print_json(explained.to_json())
        return
    decision = explained.decision
    typer.echo(f"{decision.outcome}: {' '.join(decision.reasons)}")
    rows = [
        {
            "rule": rule.id,
            "outcome": str(rule.outcome),
            "matched": rule.matched,
            "fired": rule.fired,
            "error": rule.error,
            "facts": dict(rule.facts),
        }
        for rule in explained.rules
    ]
    print_rows(rows, ("rule", "outcome", "matched", "fired", "error", "facts"), as_json=False, empty="No rules.")


async def _explain_active(described: Any) -> Any:
    from app import explaining
    from runtime.store import documents

    async with context.faces() as faces:
        async with faces.database.transaction(faces.settings.tenant) as connection:
            active = await documents.active_policy_text(connection, faces.settings.tenant)
        if active is None:
            raise ConsistencyError(
                "No policy is published, so every action is denied.", remedy="Publish one, or give --policy FILE."
            )
        try:
            compiled = faces.definitions.compile_policy(active[1], active[0])
        except InputError as error:
            raise ConsistencyError(f"The active policy cannot be read, so every action is denied: {error}") from None
        return explaining.explain_with(compiled, faces.definitions.catalog, described)


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="workflow, policy, directory or operations.")],
) -> None:
    """Print the JSON Schema of a kind of document, for editors."""
    from runtime.definition.schemas import SchemaName, schema_text

    if name not in set(SchemaName):
        raise NotFoundError(f"There is no schema {name!r}.", remedy=f"One of {', '.join(SchemaName)}.")
    typer.echo(schema_text(SchemaName(name)), nl=False)
