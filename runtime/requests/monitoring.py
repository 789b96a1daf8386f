"""Compares a tenant's log with the database and the store of bundles, in all directions.

Everything is read in one snapshot. Each difference is described in a sentence. No differences mean that all sides
agree, and that the log continues every kept checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct, field

from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import CountersealError, InputError
from evidence import layout
from evidence.blobs import BlobStore, StoredBlob
from evidence.chain import Actor, ChainHead
from evidence.container import read_predicate
from evidence.events import EventType
from evidence.log import tree
from evidence.log.leaves import Leaf, LeafKind
from evidence.log.published import Source
from evidence.log.rings import Ring
from evidence.log.signer import Grown
from runtime.requests.copies import Copy, Known, StoredLog, inconsistent, look, problems_of
from runtime.store import audit, logs, streams
from runtime.store.streams import Stream

# After this time a leaf without a place counts as not ordered, and an unsigned tree as having no signer.
PATIENCE = timedelta(minutes=5)
_ENDED = frozenset({LeafKind.CLOSED, LeafKind.LATE})


class KnownCheckpoint(Struct, frozen=True):
    """A signed checkpoint that somebody has kept, and its source in words."""

    where: str
    data: bytes


class Findings(Struct):
    """The findings of a comparison. ``size`` and ``root`` are the log's, ``checkpoint`` is the newest signed size.

    ``stored`` is the size of the log's copy in the store, ``published`` are the sizes of the other compared copies.
    """

    tenant: str
    problems: list[str] = field(default_factory=list)
    size: int = 0
    root: str = ""
    runs: int = 0
    lines: int = 0
    bundles: int = 0
    checkpoint: int | None = None
    compared: int = 0
    stored: int | None = None
    published: list[int] = field(default_factory=list)


class _Log(Struct):
    """The leaves of a tenant, grouped by what they are about."""

    grown: Grown = field(default_factory=Grown)
    of_runs: dict[str, list[Leaf]] = field(default_factory=lambda: defaultdict(list))
    of_tenant: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    times: list[datetime] = field(default_factory=list)
    now: datetime | None = None


async def monitor(
    database: Database,
    tenant: str,
    blobs: BlobStore,
    ring: Ring,
    checkpoints: Sequence[KnownCheckpoint],
    actor: Actor,
    published: Sequence[Source] = (),
) -> Findings:
    """Compare all sides. ``checkpoints`` are old ones, ``published`` are the places where others read the log.

    The result is an event of the tenant, which `doctor` shows. A crash before the end leaves no event and changes
    nothing.
    """
    found, origin, own = Findings(tenant), f"{ring.first.name}/{tenant}", StoredLog(blobs, tenant)
    copies = [await look(own, ring, origin, await own.listed()), *[await look(one, ring, origin) for one in published]]
    async with database.connection() as connection:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            log = await _read_log(connection, tenant, found)
            await _signed(connection, tenant, log, ring, checkpoints, found)
            await _runs(connection, tenant, log, found)
            await _stream(connection, tenant, log, found)
            await _bundles(connection, tenant, log, blobs, found)
            most = await _copies(connection, origin, log, copies, found)
        facts: JsonObject = {"problems": len(found.problems), "root": found.root, "size": found.size}
        facts |= {} if most is None else {"stored": most}
        async with connection.transaction():
            await audit.record(connection, tenant, EventType.EVIDENCE_MONITORED, actor, facts)
    return found


async def _read_log(connection: Connection, tenant: str, found: Findings) -> _Log:
    log, hashes = _Log(), list[bytes]()
    async for place, leaf in logs.leaves(connection, tenant):
        if place != len(hashes):
            found.problems.append(f"the log lacks leaf {len(hashes)}: leaf {place} follows")
            break
        hashes.append(tree.leaf_hash(leaf.bytes))
        log.times.append(leaf.at)
        _note(log, leaf)
    log.grown.grow(hashes)
    found.size, found.root = log.grown.size, log.grown.root_at(log.grown.size).hex()
    for leaf in await logs.without_place(connection, tenant):
        _note(log, leaf)
    waiting = await logs.unordered(connection, tenant)
    log.now = waiting.now
    if waiting.since is not None and waiting.now - waiting.since > PATIENCE:
        words = f"{waiting.waiting} leaves have had no place since {waiting.since:%Y-%m-%d %H:%M:%SZ}"
        found.problems.append(f"{words}: no keeper orders them")
    return log


def _note(log: _Log, leaf: Leaf) -> None:
    if leaf.run is None:
        log.of_tenant[leaf.count].append(leaf.head)
    else:
        log.of_runs[leaf.run].append(leaf)


async def _signed(
    connection: Connection, tenant: str, log: _Log, ring: Ring, checkpoints: Sequence[KnownCheckpoint], found: Findings
) -> None:
    """Compare every signed checkpoint with the log: those that were kept elsewhere, and the database's own."""
    origin, own = f"{ring.first.name}/{tenant}", await logs.checkpoint(connection, tenant)
    given = [*checkpoints, *([] if own is None else [KnownCheckpoint("the database's copy", own)])]
    for one in given:
        try:
            checkpoint, _ = ring.opened(one.data, one.where)
        except InputError as error:
            found.problems.append(f"{one.where}: {error.message}")
            continue
        found.compared += 1
        if problem := inconsistent(checkpoint, origin, log.grown):
            found.problems.append(f"{one.where}: {problem}")
        elif found.checkpoint is None or checkpoint.size > found.checkpoint:
            found.checkpoint = checkpoint.size


async def _copies(
    connection: Connection, origin: str, log: _Log, copies: Sequence[Copy], found: Findings
) -> int | None:
    """Compare each copy with the log. Return the largest number of leaves that the copy in the store ever had.

    The previous comparison recorded that number. So a copy that was removed, or replaced by an older one, is noticed.
    """
    assert log.now is not None, "the log was read"
    for copy in copies:
        found.problems += await problems_of(copy, origin, Known(log.grown, log.times, log.now), PATIENCE)
    stored, *others = [None if copy.checkpoint is None else copy.checkpoint.size for copy in copies]
    found.stored, found.published = stored, [size for size in others if size is not None]
    last = await logs.monitored(connection, found.tenant)
    before = None if last is None else last["data"].get("stored")
    if before is not None and (stored or 0) < before:
        words = f"it had {before} leaves when it was last compared, and has {stored or 'none'}"
        found.problems.append(f"{copies[0].source.where}: {words}: it was removed, or an old one was put back")
    return max((size for size in (stored, before) if size is not None), default=None)


async def _runs(connection: Connection, tenant: str, log: _Log, found: Findings) -> None:
    """Compare each run with its leaves, and the numbers of runs with each other."""
    seen = set[str]()
    async for row in logs.runs(connection, tenant):
        run = str(row["run_id"])
        seen.add(run)
        leaves = sorted(log.of_runs.get(run, ()), key=lambda leaf: leaf.count)
        book = await logs.book(connection, row["run_id"])
        found.problems += [f"run {run}: {words}" for words in _of_run(dict(row), tenant, leaves, book)]
    found.runs = len(seen)
    numbers: dict[int, str] = {}
    for run, leaves in log.of_runs.items():
        opened = [leaf for leaf in leaves if leaf.kind is LeafKind.OPENED]
        for leaf in opened:
            if leaf.number is None or numbers.setdefault(leaf.number, run) != run:
                found.problems.append(f"run {run}: its number {leaf.number} is another run's as well")
        if run not in seen:
            there = await logs.tenant_of(connection, UUID(run))
            where = f"it was moved to the tenant {there}" if there else "it was deleted"
            number = f" (number {opened[0].number})" if opened else ""
            found.problems.append(f"run {run}{number}: the log has it, and the database has not: {where}")
    last = max([await logs.opened(connection, tenant), *numbers])
    for number in sorted({*range(1, last + 1)} - numbers.keys()):
        found.problems.append(f"run number {number} is missing: the run and the leaf that opened it were deleted")


def _of_run(
    row: Mapping[str, Any], tenant: str, leaves: Sequence[Leaf], book: Sequence[Sequence[bytes]]
) -> Iterator[str]:
    run, kinds = str(row["run_id"]), [leaf.kind for leaf in leaves]
    if kinds.count(LeafKind.OPENED) != 1:
        yield "the log does not have the leaf that opened it: the leaf was deleted, or the run came from elsewhere"
    head = ChainHead.of(f"run:{run}")
    heads = {0: head.hash}
    for lines in book:
        head = head.after(lines)
        heads[head.count] = head.hash
    if (row["audit_count"], row["audit_head"]) != (head.count, head.hash):
        yield "its lines do not come to the head in its row"
    for leaf in leaves:
        if heads.get(leaf.count) != leaf.head:
            yield f"its first {leaf.count} lines are not those that the log knows ({leaf.kind}): it was rewritten"
            break
    named = _tenant_in(book[0][0]) if book else tenant
    if named not in (None, tenant):
        yield f"its first line names the tenant {named}"
    last = next((leaf for leaf in reversed(leaves) if leaf.kind in (*_ENDED, LeafKind.REOPENED)), None)
    if row["finished_at"] is not None and (last is None or last.kind not in _ENDED or last.count != row["audit_count"]):
        yield "it has ended, and the log does not have the leaf that closed it"
    if row["finished_at"] is None and last is not None and last.kind in _ENDED:
        yield "the log says that it has ended, and its row does not"
    if (row["purged_at"] is not None) is not (LeafKind.ERASED in kinds):
        yield "the log and its row do not say the same of its erasure"


def _tenant_in(line: bytes) -> str | None:
    """The tenant that a run's first line names; None for a book of an older release, or an unreadable line."""
    try:
        named = orjson.loads(line)["data"]["tenant"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(named)


async def _stream(connection: Connection, tenant: str, log: _Log, found: Findings) -> None:
    """Compare the tenant's stream with its leaves, and the policies, directory and pauses in force with the stream."""
    try:
        stream = await streams.read(connection, tenant)
    except CountersealError as error:
        found.problems.append(f"the tenant's stream: {error.message}")
        return
    found.lines = len(stream.events)
    for number, head in enumerate(stream.heads, 1):
        leaves = log.of_tenant.pop(number, [])
        if leaves != [head]:
            words = "the log has no leaf of it" if not leaves else "the log has a leaf of another line"
            found.problems.append(f"line {number} of the tenant's stream: {words}")
    for number in sorted(log.of_tenant):
        found.problems.append(f"line {number} of the tenant's stream: the log has it, and the stream has not")
    row = await logs.in_force(connection, tenant)
    if row is not None:
        found.problems += _in_force(dict(row), stream)


def _in_force(row: Mapping[str, Any], stream: Stream) -> Iterator[str]:
    policies, pauses, directory = dict[str, str](), dict[str, bool](), None
    for event in stream.events:
        kind, data = event["type"], event["data"]
        if kind == EventType.POLICY_ACTIVATED:
            policies[data["name"]] = data["digest"]
        elif kind == EventType.POLICY_RETIRED:
            policies.pop(data["name"], None)
        elif kind in (EventType.PAUSE_SET, EventType.PAUSE_LIFTED):
            pauses[data["paused"]] = kind == EventType.PAUSE_SET
        elif kind == EventType.DIRECTORY_PUBLISHED:
            directory = data["digest"]
    for digest in sorted({*row["policy_digests"]} - {*policies.values()}):
        yield f"the policy {digest} is in force, and no event has put it in force"
    for name, digest in sorted(policies.items()):
        if digest not in row["policy_digests"]:
            yield f"the policy {name} is not in force, and no event has taken it out of force"
    if row["directory_digest"] != directory:
        yield f"the directory {row['directory_digest']} is in use, and the last that was published is {directory}"
    paused = row["paused"] or {}
    for key in sorted(key for key in {*pauses, *paused} if pauses.get(key, False) is not (key in paused)):
        # Pauses of runs that are over are removed without an event of their own.
        if key in paused or not key.startswith("run:"):
            yield f"the pause {key!r} is {'in force' if key in paused else 'not in force'}, and no event says so"


async def _bundles(connection: Connection, tenant: str, log: _Log, blobs: BlobStore, found: Findings) -> None:
    """Read each bundle that the database names, and compare what it states with the leaf of the run's end."""
    keys = {*await blobs.keys(f"{tenant}/")}
    for row in await logs.bundles(connection, tenant):
        run = str(row["run_id"])
        found.bundles += 1
        heads = {leaf.count: leaf.head for leaf in log.of_runs.get(run, ()) if leaf.kind in _ENDED}
        try:
            predicate = read_predicate(await blobs.get(StoredBlob(row["uri"], row["version_id"], row["sha256"])))
        except CountersealError as error:
            found.problems.append(f"run {run}: its bundle {row['name']}: {error.message}")
            continue
        if (predicate["run"], predicate["tenant"]) != (run, tenant):
            words = f"it is of run {predicate['run']} of the tenant {predicate['tenant']}"
            found.problems.append(f"run {run}: its bundle {row['name']} is another's: {words}")
        elif heads.get(row["lines"]) != predicate["head"]:
            found.problems.append(f"run {run}: its bundle {row['name']} ends with a head of which the log has no leaf")
        erased = any(leaf.kind is LeafKind.ERASED for leaf in log.of_runs.get(run, ()))
        has_sidecar = f"{tenant}/{run}/{row['uri'].rpartition('/')[2]}{layout.VALUES}" in keys
        if predicate[layout.SIDECAR] is not None and erased is has_sidecar:
            words = "in the store, and the log says that they are erased" if erased else "gone, and nothing erased them"
            found.problems.append(f"run {run}: the values of its bundle {row['name']} are {words}")
        elif predicate[layout.SIDECAR] is not None and has_sidecar:
            try:
                await blobs.get(StoredBlob(row["uri"] + layout.VALUES, None, str(predicate[layout.SIDECAR])))
            except CountersealError as error:
                found.problems.append(f"run {run}: the values of its bundle {row['name']} are others: {error.message}")
    known = {*log.of_runs}
    for key in sorted(keys):
        run = key.split("/")[1] if key.count("/") > 1 else ""
        if run not in known:
            found.problems.append(f"the store holds {key}, and the log knows no such run")
