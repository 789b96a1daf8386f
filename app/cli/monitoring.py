"""The command that compares a tenant's log with the database and the store of bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import Exit, Json, print_one

LogKey = Annotated[str | None, typer.Option(help="The logs' key that you trust, or its file; our own without it.")]
Rotated = Annotated[list[Path] | None, typer.Option("--rotation", help="A note that ends a key; may be repeated.")]


async def monitor(
    after: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you have kept: the log must begin so; repeat it.")
    ] = None,
    log_key: LogKey = None,
    rotation: Rotated = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    as_json: Json = False,
) -> None:
    """Compare a tenant's log, database and bundles with each other and with checkpoints that you have kept.

    Exit 1 names each thing that differs. Exit 6: nothing differs, and no signed checkpoint says so: run `log sign`.
    """
    from app import adapters, logbook
    from runtime.keep.log_signing import CHECKPOINT
    from runtime.requests.monitoring import Kept
    from runtime.requests.monitoring import monitor as compare

    kept = [Kept(str(path), logbook.read(path)) for path in after or ()]
    async with context.overview(tenant) as (settings, database):
        owner = tenant or settings.tenant
        ring, published = logbook.ring_of(settings, log_key, rotation or ()), settings.log_path / owner / CHECKPOINT
        kept += [Kept("the signer's folder", logbook.read(published))] if published.exists() else []
        blobs, actor = adapters.blobs_of(settings), context.actor(settings)
        found = await compare(database, owner, blobs, ring, kept, actor)
    words = [f"{one}" for one in found.problems]
    counts = f"{found.size} leaves, {found.runs} runs, {found.lines} lines of the stream, {found.bundles} bundles"
    signed = "nothing is signed yet" if found.checkpoint is None else f"signed up to leaf {found.checkpoint}"
    words.append(f"{counts}; {signed}; compared with {found.compared} checkpoints under the key {ring.first.id.hex()}")
    words.append("The log, the database and the store differ." if found.problems else "They tell the same.")
    print_one(structs.asdict(found), "\n".join(words), as_json=as_json)
    if found.problems or found.checkpoint is None:
        raise typer.Exit(Exit.FAILED if found.problems else Exit.UNKNOWN_KEY)


COMMANDS = (monitor,)
