"""Commands for the whole history: compare log, database and store; the evidence of a period."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import Exit, Json, print_one

if TYPE_CHECKING:
    from app.settings import Settings
    from core.db import Database
    from runtime.requests.reconciling import Row

LogKey = Annotated[str | None, typer.Option(help="The logs' key that you trust, or its file; our own without it.")]
Place = Annotated[
    str | None, typer.Option("--log", metavar="PLACE", help="Where the log is published: https://… or a folder.")
]
Rotated = Annotated[list[Path] | None, typer.Option("--rotation", help="A note that ends a key; may be repeated.")]


async def monitor(
    after: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you have kept: the log must begin so; repeat it.")
    ] = None,
    log_key: LogKey = None,
    rotation: Rotated = None,
    place: Place = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    as_json: Json = False,
) -> None:
    """Compare a tenant's log, database, bundles and the log's copy in the store with each other, and with checkpoints
    that you have kept. With --log the log is compared as it is published, too.

    Exit 1 names each thing that differs. Exit 6: nothing differs, and no signed checkpoint says so: run `log sign`.
    """
    from app import adapters, logbook
    from app.published import source_of
    from evidence.log.published import CHECKPOINT
    from runtime.requests.monitoring import KnownCheckpoint
    from runtime.requests.monitoring import monitor as compare

    checkpoints = [KnownCheckpoint(str(path), logbook.read(path)) for path in after or ()]
    async with AsyncExitStack() as stack, context.overview(tenant) as (settings, database):
        owner = tenant or settings.tenant
        ring, published = logbook.ring_of(settings, log_key, rotation or ()), settings.log_path / owner / CHECKPOINT
        checkpoints += [KnownCheckpoint("the signer's folder", logbook.read(published))] if published.exists() else []
        blobs, actor = adapters.blobs_of(settings), context.actor(settings)
        places = [] if place is None else [await stack.enter_async_context(source_of(place))]
        found = await compare(database, owner, blobs, ring, checkpoints, actor, places)
    words = [f"{one}" for one in found.problems]
    counts = f"{found.size} leaves, {found.runs} runs, {found.lines} lines of the stream, {found.bundles} bundles"
    signed = "nothing is signed yet" if found.checkpoint is None else f"signed up to leaf {found.checkpoint}"
    counts += "" if found.stored is None else f", a copy of {found.stored} leaves in the store"
    words.append(f"{counts}; {signed}; compared with {found.compared} checkpoints under the key {ring.first.id.hex()}")
    words.append("The log, the database and the store differ." if found.problems else "They tell the same.")
    print_one(structs.asdict(found), "\n".join(words), as_json=as_json)
    if found.problems or found.checkpoint is None:
        raise typer.Exit(Exit.FAILED if found.problems else Exit.UNKNOWN_KEY)


async def period(
    since: Annotated[str, typer.Option("--from", help="The beginning of the period (RFC 3339).")],
    until: Annotated[str, typer.Option("--to", help="Its end, which is not in it (RFC 3339).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new or empty folder for the files.")],
    sample: Annotated[int, typer.Option(min=0, max=10_000, help="How many runs the sample has.")] = 25,
    seed: Annotated[str, typer.Option(help="What draws the sample; say one that nobody could choose.")] = "",
    reconcile: Annotated[bool, typer.Option("--reconcile", help="Compare with the records of ServiceNow.")] = False,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    as_json: Json = False,
) -> None:
    """Write the evidence of a period: all leaves, the runs that began in it, the tenant's lines, a sample.

    `evidence check-period` proves from these files and the log's key that none is missing. With --reconcile each record
    that a trigger should have met has its run or is *missed*, and each write of our integration user has its receipt
    or is *not ours*: exit code 1 if there is one of these.
    """
    from app.files import write_all
    from runtime.requests import periods, reconciling

    first, last = context.moment("--from", since), context.moment("--to", until)
    assert first is not None, "it is required"
    assert last is not None, "it is required"
    reconciling.check_period(first, last)
    async with context.overview(tenant) as (settings, database):
        owner = tenant or settings.tenant
        files = await periods.collect(database, owner, first, last, (seed, sample), context.actor(settings))
        rows = await _reconciled(settings, database, owner, (first, last)) if reconcile else []
    if reconcile:
        files |= {"reconciliation.csv": periods.table([structs.asdict(row) for row in rows], _COLUMNS)}
        files |= {"reconciliation.json": json.dumps([structs.asdict(row) for row in rows], indent=1).encode() + b"\n"}
    write_all(output, files)
    document: dict[str, object] = json.loads(files["period.json"])
    amiss = [row for row in rows if row.outcome in ("missed", "not ours")]
    document |= {"folder": str(output), "files": sorted(files), "amiss": [structs.asdict(row) for row in amiss]}
    words = [f"{row.outcome}: {row.what} {row.number or row.sys_id} of {row.table} at {row.at}" for row in amiss]
    words.append(
        f"{document['runs']} runs, {document['lines']} lines of the tenant, {document['leaves']} leaves in {output}"
    )
    print_one(document, "\n".join(words), as_json=as_json)
    if amiss:
        raise typer.Exit(Exit.FAILED)


_COLUMNS = ("what", "table", "sys_id", "number", "at", "outcome", "workflow", "run", "receipt")


async def _reconciled(
    settings: Settings, database: Database, tenant: str, given: tuple[datetime, datetime]
) -> list[Row]:
    from app import records
    from connectors.catalog import load_catalog
    from runtime.definition.catalog import Definitions
    from runtime.requests import reconciling

    async with records.reading(settings) as read:
        definitions, own = Definitions(load_catalog()), settings.servicenow_username or ""
        return await reconciling.reconcile(database, definitions, tenant, given, read, own)


async def check_period(
    folder: Annotated[Path, typer.Argument(help="The folder that `evidence period` has written.")],
    log_key: LogKey = None,
    rotation: Rotated = None,
    after: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you have kept: the log must begin so; repeat it.")
    ] = None,
    published: Place = None,
    as_json: Json = False,
) -> None:
    """Check the evidence of a period, offline: no leaf, run or line of the tenant is missing. Exit 1 if one is.

    With --log the leaves are compared with those that are published, too.
    """
    from app import logbook
    from app import published as places
    from app.settings import load_settings
    from evidence.log import periods, tree

    ring = logbook.ring_of(load_settings(), log_key, rotation or ())
    names = (periods.LEAVES, periods.CHECKPOINT, periods.RUNS, periods.EVENTS, periods.SAMPLE, periods.SUMMARY)
    found = periods.check({name: logbook.read(folder / name, most=None) for name in names}, ring)
    problems = [*found.problems]
    for path in after or ():
        old, _ = ring.opened(logbook.read(path), str(path))
        hashes = [tree.leaf_hash(leaf) for leaf in found.leaves[: old.size]]
        if old.origin != found.origin or len(hashes) < old.size or tree.root_of(hashes) != old.root:
            problems.append(f"{path}: the log does not begin with what this checkpoint signed")
    if published is not None:
        problems += await places.with_period(published, ring, found)
    document = {"log": found.origin, "leaves": found.size, "runs": found.runs, "lines": found.lines}
    words = [*problems, f"{found.runs} runs and {found.lines} lines by {found.size} leaves of {found.origin}"]
    words.append(f"The newest leaf is of {found.newest}. What happened later is not in the log that was signed.")
    words.append("Something is missing or other." if problems else "Nothing of the period is missing.")
    print_one({**document, "newest": found.newest, "problems": problems}, "\n".join(words), as_json=as_json)
    if problems:
        raise typer.Exit(Exit.FAILED)


async def logged(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, with the two files beside it.")],
    log_key: LogKey = None,
    rotation: Rotated = None,
    witness: Annotated[list[str] | None, typer.Option(help="The key of a witness; may be repeated.")] = None,
    quorum: Annotated[int, typer.Option(min=0, max=100, help="How many of them have to have cosigned.")] = 0,
    published: Place = None,
    as_json: Json = False,
) -> None:
    """Check, offline, that the tenant's log has this bundle's leaf. `evidence get --proof` writes the files for it.

    With --log the leaf is found in the log as it is published, which is read whole; no files are needed.
    """
    from app import logbook, sealing
    from app.settings import load_settings
    from evidence.log.notes import NoteKey

    keys = [NoteKey.parse(text, "--witness") for text in witness or ()]
    ring = logbook.ring_of(load_settings(), log_key, rotation or ())
    if published is None:
        found = sealing.logged(path, ring, keys, quorum)
    else:
        found = await sealing.logged_in(published, path, ring, keys, quorum)
    words = f"logged at index {found['index']} of {found['size']} in {found['log']}, {found['kind']} at {found['ts']}"
    print_one(found, f"{words}; cosigned by {found['cosigned']} witnesses", as_json=as_json)


COMMANDS: Mapping[str, Callable[..., Any]] = {
    "monitor": monitor,
    "period": period,
    "check-period": check_period,
    "logged": logged,
}
