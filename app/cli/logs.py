"""Commands for the tenants' logs: sign them, print or rotate their key."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_one
from core.errors import ConfigurationError, ConsistencyError

if TYPE_CHECKING:
    from app.settings import Settings
    from core.db import Database
    from runtime.keep.log_signing import LogSigner

log = Commands(
    name="log", help="The tenants' logs, in which nothing can be changed unseen: sign, key, rotate, witness."
)

# All leaves are read and compared again at this interval, and not only new ones.
_WHOLE_SECONDS = 3600.0


@log.command("sign")
async def sign(
    once: Annotated[bool, typer.Option("--once", help="Sign what is new, and end.")] = False,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two checkpoints of a log.")] = 10.0,
    learn: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you trust, for a signer without its memory; repeat it.")
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="A witness that cosigns, as ADDRESS=KEY; may be repeated.")
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="Write each log into the store of evidence, too.")] = False,
    as_json: Json = False,
) -> None:
    """Sign checkpoints of the tenants' logs, in a process of its own, and write each log for others to read.

    It remembers what it has signed, outside of the database, and refuses a log that is shorter or begins otherwise:
    exit code 1 with `--once`; without it, the refusal is logged, and the other logs are signed.
    """
    from app import file_locks

    async with context.overview() as (settings, database):
        settings.log_memory_path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with file_locks.alone(settings.log_memory_path / ".lock"):
                signer = _signer(settings, database, witness or (), store=store)
                _learn(settings, signer, learn or ())
                if not once:
                    await _go_on(signer, every)
                    return
                done, refused = await signer.turn()
        except BlockingIOError:
            raise ConfigurationError("another signer has this memory.", remedy="One is enough: end it first.") from None
    document = {"signed": [{"log": one.origin, "size": one.size, "root": one.root.hex()} for one in done]}
    words = [f"signed {one.origin}: {one.size} leaves" for one in done] or ["Nothing is new."] * (not refused)
    print_one({**document, "refused": refused}, "\n".join([*words, *refused]), as_json=as_json)
    if refused:
        raise typer.Exit(Exit.FAILED)


async def _go_on(signer: LogSigner, every: float) -> None:
    from core.clock import repeat

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    whole_at = loop.time() + _WHOLE_SECONDS

    async def turn() -> bool:
        nonlocal whole_at
        if loop.time() >= whole_at:
            signer.forget()
            whole_at = loop.time() + _WHOLE_SECONDS
        await signer.turn()
        return False

    typer.echo("The signer signs. Stop it with Ctrl-C.")
    await repeat(stop, turn, every, "the logs could not be signed")


def _signer(settings: Settings, database: Database, witnesses: Sequence[str], *, store: bool) -> LogSigner:
    from app import adapters, logbook
    from evidence.log.notes import NoteKey
    from runtime.keep.log_signing import LogSigner
    from runtime.keep.log_storing import LogStore
    from runtime.keep.witnessing import WitnessAddress, cosigned

    private = logbook.signer_of(settings, settings.log_key_path, make=True)
    key, ring = logbook.note_key(settings, private), logbook.ring_of(settings)
    if ring.newest != key:
        words = f"the key in {settings.log_key_path} has ended: it was rotated."
        raise ConfigurationError(words, remedy="Set COUNTERSEAL_LOG_KEY to the file of the next key.")
    logbook.check_continued(settings, ring)
    pairs = [text.partition("=") for text in witnesses]
    known = [WitnessAddress(address, NoteKey.parse(text, "--witness")) for address, _, text in pairs]
    ask = partial(cosigned, known) if known else None
    copy = LogStore(adapters.blobs_of(settings)) if store else None
    return LogSigner(database, key, private, logbook.memory_of(settings), settings.log_path, ask, copy)


def _learn(settings: Settings, signer: LogSigner, files: Sequence[Path]) -> None:
    from app import logbook
    from evidence.log.signer import Remembered

    for path in files:
        found, _ = logbook.ring_of(settings).opened(logbook.read(path), str(path))
        known = signer.memory.of(found.origin)
        if known is not None:
            words = f"The signer remembers the log {found.origin} already, at {known.size} leaves."
            raise ConsistencyError(words, remedy="Leave out --learn.")
        signer.memory.keep(Remembered(found.origin, found.size, found.root))


@log.command("key")
def key(
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="With the name of this tenant's log, for witnesses.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the public key of the logs. Give it to auditors once, over a channel that they trust."""
    from app import logbook
    from app.settings import load_settings

    ring = logbook.ring_of(load_settings())
    if tenant is not None:
        newest = ring.newest.renamed(f"{ring.newest.name}/{context.name(tenant, '--tenant')}")
        print_one({"key": newest.text}, newest.text, as_json=as_json)
        return
    document = {"key": ring.first.text, "newest": ring.newest.text, "rotations": len(ring.rotations)}
    print_one(document, ring.first.text, as_json=as_json)


@log.command("verify")
async def verify(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Where the log is published: https://… or a folder.")],
    log_key: Annotated[
        str | None, typer.Option(help="The logs' key that you trust, or its file; our own without it.")
    ] = None,
    rotation: Annotated[list[Path] | None, typer.Option(help="A note that ends a key; may be repeated.")] = None,
    after: Annotated[
        list[Path] | None, typer.Option(help="A checkpoint that you have kept: the log must begin so; repeat it.")
    ] = None,
    witness: Annotated[list[str] | None, typer.Option(help="The key of a witness; may be repeated.")] = None,
    quorum: Annotated[int, typer.Option(min=0, max=100, help="How many of them have to have cosigned.")] = 0,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant; COUNTERSEAL_TENANT without it.")] = None,
    as_json: Json = False,
) -> None:
    """Read a tenant's log where it is published, whole, and check every file of it. It needs no database.

    Exit 1 names each file that is missing or another, and each kept checkpoint with which the log does not begin.
    """
    from app import logbook, published
    from app.settings import load_settings
    from evidence.log.notes import NoteKey
    from evidence.log.witness import Policy

    settings = load_settings()
    ring, owner = logbook.ring_of(settings, log_key, rotation or ()), tenant or settings.tenant
    policy = Policy(tuple(NoteKey.parse(text, "--witness") for text in witness or ()), quorum)
    found, amiss = await published.whole(place, ring, context.name(owner, "--tenant"))
    document, problems = published.checked(found, amiss, ring, after or (), policy)
    words = [*problems, f"{document['size']} leaves of {document['log']}, cosigned by {document['cosigned']} witnesses"]
    words.append("The log is not as it was signed." if problems else f"Its newest leaf is of {document['newest']}.")
    print_one({**document, "problems": problems}, "\n".join(words), as_json=as_json)
    if problems:
        raise typer.Exit(Exit.FAILED)


@log.command("rotate")
def rotate(
    new: Annotated[
        Path, typer.Argument(metavar="KEY", help="The file of the next key, made if it is missing; or aws-kms:KEY.")
    ],
    as_json: Json = False,
) -> None:
    """End the key of the logs, and begin the next one. Stop the signer first.

    The old key signs the note that ends it, with the sizes up to which it holds. Readers who trust it follow the note.
    """
    from app import file_locks, logbook
    from app.settings import load_settings

    settings = load_settings()
    settings.log_memory_path.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with file_locks.alone(settings.log_memory_path / ".lock"):
            paths, following = logbook.rotate(settings, new)
    except BlockingIOError:
        raise ConfigurationError("the signer is at work.", remedy="Stop `counterseal log sign` first.") from None
    document = {"note": str(paths[0]), "notes": [*map(str, paths)], "key": following.text}
    words = [*map(str, paths), f"Set COUNTERSEAL_LOG_KEY to {new}, and start the signer again."]
    print_one(document, "\n".join(words), as_json=as_json)


@log.command("witness")
def run_witness(
    name: Annotated[str, typer.Argument(help="Its name, such as witness.example/w1: it stands in every cosignature.")],
    log_key: Annotated[list[str], typer.Option(help="The key of a log that it cosigns, with the log's own name.")],
    folder: Annotated[Path, typer.Option(help="Where it keeps its key and the last checkpoint of each log.")],
    kind: Annotated[str, typer.Option(help="Of its key: ml-dsa-44 or ed25519.")] = "ml-dsa-44",
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="At which port.")] = 8090,
) -> None:
    """Run a witness, on another machine than the database and the signer: it cosigns only logs that have grown."""
    from app import witness as running
    from evidence.log.notes import NoteKey, check_name
    from evidence.log.witness import Witness, key_kinds

    check_name(name, "NAME")
    context.check_word(kind, list(key_kinds()), "kind")
    logs = [NoteKey.parse(text, "--log-key") for text in log_key]
    key, private = running.load_key(folder / "witness.pem", name, key_kinds()[kind])
    typer.echo(key.text)
    made = Witness(folder, logs, [(key, private)])
    running.serve(made, host, port, lambda url: typer.echo(f"The witness is at {url}.", err=True))
