"""Documents that people write: workflows, policies, the directory of people."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import context
from app.cli.outcome import Commands, Json, print_json, print_one, print_rows, printable
from app.cli.telling import consequence_lines
from app.cli.workflows import report, workflow
from core.errors import ConsistencyError, DefinitionError, InputError, NotFoundError

if TYPE_CHECKING:
    from app.faces import Faces
    from core.db import Connection
    from runtime.definition.catalog import Definitions
    from runtime.requests.policies import Published

__all__ = ["directory", "policy", "schema", "workflow"]

policy = Commands(name="policy", help="Policies: check, explain, publish, activate, retire.")
directory = Commands(name="directory", help="The people and groups of a tenant.")

Files = Annotated[list[Path], typer.Argument(help="YAML documents.")]
File = Annotated[Path, typer.Argument(help="A YAML document.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the consequences.")]


@policy.command("check")
async def policy_check(
    files: Files,
    directory_file: Annotated[
        Path | None, typer.Option("--directory", help="Check that the people of this directory could decide.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check policies without publishing them; needs no database."""
    from runtime.definition import agents, people
    from runtime.definition.people import load_directory

    definitions = _definitions()
    groups = None
    if directory_file is not None:
        content = load_directory(context.read_text(directory_file), str(directory_file))
        groups = content.deciders

    async def check(path: Path) -> dict[str, Any]:
        """Check a policy. ``warnings``: cases that nobody could decide, and rules that trust text anyone may write.

        ``DefinitionError`` if nobody could ever decide.
        """
        found = definitions.check_policy(context.read_text(path), str(path), definitions.catalog)
        trusted = agents.of_policy(found.text, str(path), definitions.catalog)
        answer = {"name": found.name, "version": found.version, "warnings": trusted}
        if groups is None:
            return answer
        decided = people.of_policy(found.text, str(path), groups)
        if decided.problems:
            raise DefinitionError(tuple(decided.problems))
        return {**answer, "warnings": [*trusted, *decided.warnings]}

    await report(files, check, lambda result: _warn(result["warnings"]), as_json=as_json)


def _definitions() -> Definitions:
    """The operations of this installation, without a database."""
    from app.adapters import catalog_of
    from runtime.definition.catalog import Definitions

    return Definitions(catalog_of(context.settings()))


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


@workflow.command("publish")
async def workflow_publish(files: Files, as_json: Json = False) -> None:
    """Publish workflow versions. A version never changes: a changed text needs a new number."""
    await _publish("workflow", files, as_json)


@policy.command("publish")
async def policy_publish(
    file: File,
    stage: Annotated[bool, typer.Option("--stage", help="Only store it; `policy activate` puts it in force.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Publish a policy and put it in force beside the others, in place of the version of its name.

    First prints what changes: rules, steps of workflows, open questions.
    """
    from runtime.requests import policies

    text, notes = context.read_text(file), list[str]()
    with suppress(_Undone):
        async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
            notes = await _declare(connection, faces)
            publish = partial(policies.publish_policy, connection, faces.definitions, faces.settings.tenant)
            done = await publish(text, str(file), context.actor(faces.settings), stage=stage, dry_run=dry_run)
            if dry_run:
                raise _Undone
    _print_notes([] if dry_run else notes)
    _print_policy(done, "published", "was published already", as_json=as_json, several=True)


@policy.command("retire")
async def policy_retire(
    name: Annotated[str, typer.Argument(help="The name of a policy that is in force.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Take a policy out of force: none of its rules judges from then on. Its versions stay published.

    First prints what changes: rules, steps of workflows, open questions.
    """
    from runtime.requests import policies

    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        retire = partial(policies.retire_policy, connection, faces.definitions, faces.settings.tenant)
        done = await retire(name, context.actor(faces.settings), dry_run=dry_run)
    _print_policy(done, "is out of force", "was not in force", as_json=as_json)


@policy.command("activate")
async def policy_activate(
    version: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="A published version, such as ops@7.")],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Put a published version in force: also an older one, or one that needs a second person's confirmation.

    First prints what changes: rules, steps of workflows, open questions.
    """
    from runtime.requests import policies

    name, _, number = version.rpartition("@")
    if not name or not number.isdecimal() or len(number) > 9:
        raise InputError(
            f"{version!r} is no version.", where="NAME@VERSION", remedy="Such as ops@7; see `policy list`."
        )
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        activate = partial(policies.activate_policy, connection, faces.definitions, faces.settings.tenant)
        done = await activate(name, int(number), context.actor(faces.settings), dry_run=dry_run)
    _print_policy(done, "is active", "was active already", as_json=as_json)


@directory.command("publish")
async def directory_publish(file: File, as_json: Json = False) -> None:
    """Replace the tenant's people and groups. Takes effect with the next vote."""
    await _publish("directory", [file], as_json)


@directory.command("show")
async def directory_show(
    at: Annotated[str | None, typer.Option(help="In use at this moment (RFC 3339); now without it.")] = None,
    digest: Annotated[str | None, typer.Option(help="With this digest, or one that begins so.")] = None,
    as_json: Json = False,
) -> None:
    """Show who was in which group, since when, and by whose publication. Exit 4 if the tenant's audit is broken."""
    from msgspec import structs

    from runtime.requests import past

    moment = context.moment("--at", at)
    async with context.faces() as faces:
        found = await faces.ask(faces.settings.tenant, past.directory_at, moment, digest)
        await context.record_read(faces, "directory")
    if as_json:
        members = None if found.members is None else [structs.asdict(one) for one in found.members]
        print_json({**structs.asdict(found), "members": members})
        return
    until = f" until {found.until.isoformat()}" if found.until else ""
    typer.echo(printable(f"directory {found.name} version {found.version}, by {found.by}"))
    typer.echo(f"since {found.since.isoformat()}{until}\n{found.digest}")
    if found.members is None:
        typer.echo("An older release published it, and kept only its digest.", err=True)
        return
    rows = [structs.asdict(one) for one in found.members]
    print_rows(rows, ("group", "person", "since", "by"), empty="No group has members.")


@directory.command("delegate")
async def directory_delegate(
    to: Annotated[str, typer.Option(help="Who decides for them: a person's id; nobody without it.")] = "",
    first: Annotated[str, typer.Option("--from", help="The first day, as 2026-12-21.")] = "",
    last: Annotated[str, typer.Option("--until", help="The last day, which is included.")] = "",
    as_person: Annotated[
        str | None, typer.Option("--as", help="For whom: a person's id; COUNTERSEAL_PERSON without it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let somebody else decide for a person on these days. Without --to nobody does any more."""
    from runtime.requests.delegating import delegate

    if bool(to) is not bool(first and last):
        raise InputError("is incomplete.", where="--to", remedy="Give --to, --from and --until, or none of them.")
    async with context.faces() as faces:
        person, days = as_person or faces.settings.person_id, (to, first, last) if to else None
        found = await faces.ask(faces.settings.tenant, delegate, person, days, context.actor(faces.settings))
    words = f"{to} decides for {person} from {first} until {last}." if to else f"Nobody else decides for {person}."
    print_one(asdict(found), words if found.changed else "This takes a second person.", as_json=as_json)
    _warn(found.warnings)


async def _publish(kind: str, files: list[Path], as_json: bool) -> None:
    """Publish all files or none, in one transaction."""
    from runtime.requests import publishing

    texts, notes = [(context.read_text(path), str(path)) for path in files], list[str]()
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, who = faces.settings.tenant, context.actor(faces.settings)
        if kind == "workflow":
            notes = await _declare(connection, faces)
        publish = {
            "workflow": partial(publishing.publish_workflow, connection, faces.definitions),
            "directory": partial(publishing.publish_directory, connection),
        }[kind]
        published = [await publish(tenant, text, file, who) for text, file in texts]
    _print_notes(notes)
    if as_json:
        print_json([asdict(one) for one in published])
        return
    for one in published:
        words = _result_words(one, "published", "was published already")
        typer.echo(f"{kind} {one.name} version {one.version} {words} ({one.digest[:12]})")
        for step in one.steps:
            typer.echo(printable(f"  {step['step']} ({step['operation']}): {step['words']}"))
        _warn(one.warnings)
        if one.retired:
            words = "stays retired: give the text a new number to use it."
            typer.echo(f"{kind} {one.name} version {one.version} {words}", err=True)


class _Undone(Exception):
    """Rolls back a transaction that was only a trial."""


async def _declare(connection: Connection, faces: Faces) -> list[str]:
    """Publish the new declarations of the folder, so that the documents that follow may name them.

    Returns the words to print after the commit: a crash, or an error of the document, publishes nothing.
    """
    from app.definitions import declare

    lines = []
    for file, one in await declare(connection, faces, context.actor(faces.settings)):
        left = getattr(one, "why", "")
        if left:
            lines.append(f"warning: operation {one.name} of {file} is not published: {left}")
        elif getattr(one, "changed", False):
            lines.append(f"operation {one.name} version {one.version} published")
    return lines


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        typer.echo(printable(note), err=True)


def _print_policy(done: Published, changed: str, same: str, *, as_json: bool, several: bool = False) -> None:
    if as_json:
        print_json([asdict(done)] if several else asdict(done))
        return
    for line in consequence_lines(done.consequences or {}):
        typer.echo(printable(line))
    words = "is stored, and not put in force" if done.staged else _result_words(done, changed, same)
    if done.dry_run:
        words = "would change as told; nothing was done"
    typer.echo(f"policy {done.name} version {done.version} {words} ({done.digest[:12]})")
    _warn(done.warnings)


def _result_words(done: Published, changed: str, same: str) -> str:
    if done.waits:
        return "is proposed: another of the group policy_approvers is asked to approve it"
    looked = f"; {done.questions} open questions are judged by it now" if done.questions else ""
    return changed + looked if done.changed else same


@policy.command("list")
async def policy_list(
    at: Annotated[str | None, typer.Option(help="Only those in force at this moment (RFC 3339).")] = None,
    as_json: Json = False,
) -> None:
    """List every published policy, and which one is active; with --at who proposed and who agreed, and since when."""
    from msgspec import structs

    from runtime.requests import past
    from runtime.store import read_models

    if (moment := context.moment("--at", at)) is not None:
        async with context.faces() as faces:
            found = await faces.ask(faces.settings.tenant, past.policies_at, moment)
        names = ("name", "version", "digest", "since", "until", "author", "approver")
        print_rows([structs.asdict(one) for one in found], names, as_json=as_json, empty="No policy was in force.")
        return
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        rows = await read_models.policy_versions(connection, faces.settings.tenant)
    columns = ("name", "version", "active", "digest", "published_by", "published_at")
    print_rows(rows, columns, as_json=as_json, empty="Nothing is published.")


@policy.command("explain")
async def policy_explain(
    action: Annotated[
        Path, typer.Argument(help='JSON: {"operation", "input", "before"?: {field: value}, "run"?: {fact: value}}.')
    ],
    policy_files: Annotated[
        list[Path] | None, typer.Option("--policy", help="Policy documents; the policies in force without it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how an action would be decided, and the result of every rule. Nothing is done or recorded."""
    from app.outlining import explain_action
    from policy.sets import PolicySet

    data = context.read_input(action)
    if policy_files:
        definitions = _definitions()
        compiled = PolicySet([definitions.compile_policy(context.read_text(path), str(path)) for path in policy_files])
        catalog = definitions.catalog
    else:
        compiled, catalog = await context.policies_in_force()
        if not compiled.members:
            remedy = "Publish one, or give --policy FILE."
            raise ConsistencyError("No policy is in force, so every action is denied.", remedy=remedy)
    explained = explain_action(data, str(action), compiled, catalog)
    if as_json:
        print_json(explained.to_json())
        return
    decision = explained.decision
    typer.echo(f"{decision.outcome}: {' '.join(decision.reasons)}")
    columns = ("outcome", "matched", "fired", "error", "facts")
    rows = [{"rule": rule.id, **{name: getattr(rule, name) for name in columns}} for rule in explained.rules]
    print_rows(rows, ("rule", *columns), empty="No rules.")


def schema(
    name: Annotated[str, typer.Argument(metavar="NAME", help="workflow, policy, directory or operations.")],
) -> None:
    """Print the JSON Schema of a kind of document, for editors."""
    from runtime.definition.schemas import SchemaName, schema_text

    if name not in set(SchemaName):
        raise NotFoundError(f"There is no schema {name!r}.", remedy=f"One of {', '.join(SchemaName)}.")
    typer.echo(schema_text(SchemaName(name)), nl=False)
