"""Named questions to the real database.

``Books`` is what tests ask: ``await books.receipt(step="a")``. A name in the singular wants exactly one answer; one in
the plural gives all, oldest first. Words after a name narrow the answer: ``waits(kind="task", open=True)``; a set
stands for any of its members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import orjson

from connectors.catalog import load_catalog
from core.db import ENGINE_ROLE, Connection, Database
from core.errors import CountersealError
from evidence.chain import ChainHead, ChainReport, verify_lines
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import unpack_values
from runtime.engine.model.rows import ReceiptRow, StepRow
from runtime.engine.model.run import Run as Folded
from runtime.requests.views import folded
from runtime.store import books, retention
from runtime.store.views import load, load_to_end
from tests.support.asking import Source, asking
from tests.support.book import (
    Approval,
    Book,
    Bundle,
    Checkpoint,
    Command,
    Decision,
    Effect,
    Entry,
    Event,
    Extension,
    Held,
    Notice,
    Place,
    Question,
    Receipt,
    Run,
    Slots,
    Step,
    Vote,
    Wait,
)

Kind = TypeVar("Kind")
# What a receipt of the engine calls as a fact about it does.
_SAME = (
    "operation", "target", "action_digest", "action", "status", "attempt", "external_id", "output", "resolution",
    "error", "intended_at", "settled_at",
)  # fmt: skip
_WITH_COLUMN = """
SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attname = $1
  AND has_table_privilege(c.oid, 'SELECT') ORDER BY c.relname"""

_RUNS = """
SELECT run_id AS id, tenant_id AS tenant, workspace_id AS workspace, workflow, workflow_version, trigger_type,
  trigger_ref, reference, requested_by, status, version, superstep, executing, audit_count, error, result,
  parent_run_id AS parent, depth, created_at, started_at, finished_at, purge_at, purged_at
FROM runs ORDER BY created_at, run_id"""
_LEASES = """
SELECT run_id AS run, step_key AS step, owner, expires_at - now() AS left FROM queue WHERE status = 'leased'"""
_RETRIES = """
SELECT run_id AS run, step_key AS step, due_at - now() AS left FROM waits WHERE kind = 'retry' AND status = 'waiting'"""
_PLACES = """
SELECT run_id AS run, tenant_id AS tenant, step_key AS step, cap, starts_run, status, owner, lease_id, epoch
FROM queue ORDER BY step_id"""
_EVENTS = """
SELECT stream, tenant, seq, line FROM (
  SELECT stream_id AS stream, tenant_id AS tenant, seq, line FROM audit_events
  UNION ALL SELECT run_id, tenant_id, seq, line FROM run_lines) AS every
WHERE $1::uuid IS NULL OR stream = $1 ORDER BY stream, seq"""
_TOLD = """
SELECT j.run_id AS run, j.lines, j.vals FROM journal j JOIN runs r USING (run_id)
WHERE position($1::bytea IN j.lines) > 0 ORDER BY r.created_at, j.run_id, j.n"""
_EFFECTS = """
SELECT tenant_id AS tenant, key, run_id AS run, step_key AS step, receipt_id AS receipt, status
FROM effects ORDER BY tenant_id, key"""
ASKED = "approval.requested"
_APPROVALS = """
SELECT a.approval_id AS id, a.run_id AS run, a.tenant_id AS tenant, a.step_key AS step, a.status, a.choice, a.reason,
  a.escalated, a.channel, a.message_ts, m.questions -> a.approval_id::text AS kept
FROM approvals a LEFT JOIN remains m ON m.run_id = a.run_id ORDER BY a.created_at, a.approval_id"""
_VOTES = """
SELECT approval_id AS approval, person_id AS person, choice, reason, channel
FROM votes ORDER BY voted_at, person_id"""
_WAITS = """
SELECT wait_id AS id, run_id AS run, tenant_id AS tenant, step_id, step_key AS step, kind, status, token,
  correlation_key, context, result, channel, message_ts, due_at, due_at - now() AS due_in, created_at
FROM waits ORDER BY created_at, wait_id"""
_BUNDLES = "SELECT run_id AS run, name, uri, sha256, key_id FROM bundles ORDER BY created_at, run_id"
_COMMANDS = """
SELECT command_id AS id, run_id AS run, tenant_id AS tenant, kind, status, payload, attempts, last_error
FROM commands ORDER BY command_id"""
_NOTICES = """
SELECT tenant_id AS tenant, source, notification_id AS id, correlation_key, payload, result,
  processed_at IS NOT NULL AS processed
FROM inbox ORDER BY received_at, notification_id"""
_LEDGER = "SELECT run_id AS run, superstep, step_key AS step, channel, value FROM ledger ORDER BY superstep, step_key"
_SLOTS = """
SELECT cap, sum(slots)::int AS all, sum(taken)::int AS taken FROM (
  SELECT tenant_id, '' AS cap, max_concurrency AS slots,
    (SELECT count(*) FROM queue q WHERE q.tenant_id = t.tenant_id AND q.status <> 'claimable') AS taken FROM tenants t
  UNION ALL SELECT tenant_id, cap, slots, (SELECT count(*) FROM queue q
    WHERE q.tenant_id = c.tenant_id AND q.cap = c.cap AND q.status <> 'claimable') FROM caps c) AS every
WHERE $1::text IS NULL OR tenant_id = $1 GROUP BY cap ORDER BY cap"""
_HELD = """
SELECT (SELECT count(*) FROM queue WHERE status = 'leased' AND tenant_id = $1) AS running,
  (SELECT count(*) FROM queue WHERE status <> 'claimable' AND tenant_id = $1) AS taken,
  (SELECT count(*) FROM queue WHERE status = 'sent' AND tenant_id = $1) AS sent,
  (SELECT count(*) FROM queue WHERE status = 'leased' AND tenant_id = $1) AS both"""


def _row(step: StepRow, ended: Any) -> Mapping[str, Any]:
    names = ("step_id", "operation", "superstep", "status", "attempt", "lease_epoch", "output", "last_error")
    facts = {name: getattr(step, name) for name in names}
    return {**facts, "step_key": step.key, "step_index": step.index, "finished_at": ended}


def _fits(fact: object, wanted: Mapping[str, object]) -> bool:
    """Compare attributes; a name that no fact has is a mistake of the test and raises AttributeError."""
    for name, value in wanted.items():
        known = getattr(fact, name)
        if known not in value if isinstance(value, set | frozenset) else known != value:
            return False
    return True


def _only(found: list[Kind], wanted: Mapping[str, object]) -> Kind:
    assert len(found) == 1, f"{len(found)} fit {dict(wanted)}, not one: {found}"
    return found[0]


class Books:
    """Questions to the database, asked as the engine's role, or over one connection that a test already has."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def _rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        async with asking(self._source) as connection:
            return [dict(row) for row in await connection.fetch(sql, *parameters)]

    async def _all(self, kind: type[Kind], sql: str, wanted: Mapping[str, object]) -> list[Kind]:
        return [fact for fact in [kind(**row) for row in await self._rows(sql)] if _fits(fact, wanted)]

    # -- one run ------------------------------------------------------------------------------------------------------

    async def book_of(self, run: UUID) -> Book:
        """Everything on record about this run."""
        steps = await self.steps(run=run)
        return Book(
            run=await self.run(run),
            steps={step.key: step for step in steps},
            events=tuple(await self.events(run)),
            decisions=tuple(await self.decisions(run=run)),
            receipts=tuple(await self.receipts(run=run)),
            approvals=tuple(await self.approvals(run=run)),
            waits=tuple(await self.waits(run=run)),
            checkpoints=tuple(await self.checkpoints(run=run)),
            bundles=tuple(await self.bundles(run=run)),
            commands=tuple(await self.commands(run=run)),
            notices=tuple(await self.notices()),
        )

    async def runs(self, **wanted: object) -> list[Run]:
        return await self._all(Run, _RUNS, wanted)

    async def run(self, run: UUID | None = None, **wanted: object) -> Run:
        named = wanted if run is None else {"id": run, **wanted}
        return _only(await self.runs(**named), named)

    async def kept(self, run: UUID) -> bytes | None:
        """The state that is kept of a run beside its book."""
        (row,) = await self._rows("SELECT state FROM runs WHERE run_id = $1", run)
        return bytes(row["state"]) if row["state"] is not None else None

    async def runs_under_way(self, tenant: str | None = None) -> int:
        """The number of runs that have not finished."""
        return await self._count("SELECT count(*) FROM runs WHERE finished_at IS NULL", tenant)

    async def runs_finished(self, tenant: str | None = None) -> int:
        return await self._count("SELECT count(*) FROM runs WHERE finished_at IS NOT NULL", tenant)

    async def _count(self, sql: str, tenant: str | None) -> int:
        (row,) = await self._rows(f"{sql} AND ($1::text IS NULL OR tenant_id = $1)", tenant)
        return int(row["count"])

    async def status_of(self, run: UUID) -> str:
        return (await self.run(run)).status

    async def trigger_of(self, run: UUID) -> Any:
        """The input that the run was started with."""
        return (await self._folded(run)).trigger

    async def key_of(self, run: UUID) -> bytes | None:
        """The key of the run's commitments; None if it was removed."""
        (row,) = await self._rows("SELECT run_key FROM runs WHERE run_id = $1", run)
        key: bytes | None = row["run_key"]
        return key

    async def steps(self, **wanted: object) -> list[Step]:
        """The steps of runs, as their books tell them; of a run that cannot be read, as far as its lines do."""
        leases = {(row["run"], row["step"]): (row["owner"], row["left"]) for row in await self._rows(_LEASES)}
        retries = {(row["run"], row["step"]): row["left"] for row in await self._rows(_RETRIES)}
        of = {name: wanted[known] for known, name in (("run", "id"), ("tenant", "tenant")) if known in wanted}
        found: list[tuple[tuple[int, int, UUID], Step]] = []
        for run in await self.runs(**of):
            for row in await self._steps_of(run):
                place = (run.id, row["step_key"])
                owner, left = leases.get(place, (None, None))
                order = (row["superstep"], row["step_index"], row["step_id"])
                step = Step(
                    id=row["step_id"],
                    run=run.id,
                    tenant=run.tenant,
                    key=row["step_key"],
                    operation=row["operation"],
                    superstep=row["superstep"],
                    status=str(row["status"]),
                    attempt=row["attempt"],
                    lease_owner=owner,
                    lease_epoch=row["lease_epoch"],
                    lease_left=left,
                    output=row["output"],
                    error=row["last_error"],
                    eligible_in=retries.get(place),
                    finished_at=row["finished_at"],
                )
                found.append((order, step))
        every = [step for _, step in sorted(found, key=lambda each: each[0])]
        return [step for step in every if _fits(step, wanted)]

    async def _steps_of(self, run: Run) -> list[Mapping[str, Any]]:
        async with asking(self._source) as connection:
            definitions = Definitions(load_catalog())
            if run.purged_at is not None:
                return [{**row, "lease_epoch": 0} for row in (await retention.remains(connection, run.id))[0]]
            try:
                book = await books.read(connection, run.tenant, run.id)
                past = await folded(connection, definitions, book)
            except CountersealError:
                view = await load_to_end(connection, run.id, definitions.graphs)
                rows = {step.key: step for step in view.run.steps.values()}
                return [_row(step, None) for step in rows.values()]
            return [_row(step, past.ended.get(step.key)) for step in past.steps()]

    async def step(self, key: str | None = None, **wanted: object) -> Step:
        named = wanted if key is None else {"key": key, **wanted}
        return _only(await self.steps(**named), named)

    async def statuses_of(self, run: UUID) -> dict[str, str]:
        """The status of each step, by its key."""
        return {step.key: step.status for step in await self.steps(run=run)}

    async def leases_are_over(self) -> bool:
        """The time of every lease has run out, if there is any."""
        return all(step.lease_left is None or step.lease_left <= timedelta() for step in await self.steps())

    async def decisions(self, **wanted: object) -> list[Decision]:
        made = [
            Decision(
                run=run,
                step=line["step"],
                operation=line["data"]["operation"],
                action_digest=values.get("digest"),
                outcome=line["data"]["outcome"],
                rules=values.get("fired"),
                errors=values.get("faults"),
                reasons=values.get("reasons"),
                facts=values.get("facts"),
                policies=[f"{one['name']}@{one['version']}" for one in line["data"]["policies"]],
            )
            for run, line, values in await self._told("decision.made")
        ]
        return [decision for decision in made if _fits(decision, wanted)]

    async def _told(self, kind: str) -> list[tuple[UUID, Any, Any]]:
        """The lines of one type, each with its run and its values; those of a run that was emptied have none."""
        found = []
        for row in await self._rows(_TOLD, f'"type":"{kind}"'.encode()):
            values = unpack_values(row["vals"])
            lines = [(n, line) for n, line in enumerate(map(orjson.loads, row["lines"].split(b"\n")))]
            found += [(row["run"], line, values.get(n, {})) for n, line in lines if line["type"] == kind]
        return found

    async def decision(self, **wanted: object) -> Decision:
        return _only(await self.decisions(**wanted), wanted)

    async def receipts(self, **wanted: object) -> list[Receipt]:
        """The receipts: by the books, or by what retention left of them."""
        known = await self.runs(**{"id": wanted["run"]} if "run" in wanted else {})
        found = [
            Receipt(
                id=row.receipt_id,
                run=run.id,
                tenant=run.tenant,
                step=row.step_key,
                key=row.idempotency_key,
                **{name: getattr(row, name) for name in _SAME},
            )
            for run in known
            for row in await self._attempts(run)
        ]
        found.sort(key=lambda receipt: (receipt.intended_at, receipt.id))
        return [receipt for receipt in found if _fits(receipt, wanted)]

    async def _attempts(self, run: Run) -> Iterable[ReceiptRow]:
        if run.purged_at is None:
            return (await self._folded(run.id)).receipts.values()
        async with asking(self._source) as connection:
            return [ReceiptRow(**row) for row in (await retention.remains(connection, run.id))[1]]

    async def receipt(self, **wanted: object) -> Receipt:
        return _only(await self.receipts(**wanted), wanted)

    async def effects(self, **wanted: object) -> list[Effect]:
        return await self._all(Effect, _EFFECTS, wanted)

    async def approvals(self, **wanted: object) -> list[Approval]:
        # The rows come first: whatever is asked meanwhile has its line by the time that the lines are read.
        rows = await self._rows(_APPROVALS)
        votes: defaultdict[UUID, list[Vote]] = defaultdict(list)
        for vote in await self.votes():
            votes[vote.approval].append(vote)
        asked = {line["data"]["approval"]: (line["data"], told) for _, line, told in await self._told(ASKED)}
        known = []
        for row in rows:
            facts, told = asked[str(row["id"])]
            told = row.pop("kept") or told
            shown = {"kind": facts["kind"], "action_digest": told["digest"], "card": told["shown"]}
            shown |= {name: told[name] for name in ("nonce", "terms")}
            known.append(Approval(**row, **shown, votes=tuple(votes[row["id"]])))
        return [approval for approval in known if _fits(approval, wanted)]

    async def end_of(self, approval: UUID) -> str | None:
        """The code of the end that is stored with a question."""
        rows = await self._rows("SELECT approval_id, why FROM approvals")
        (row,) = [row for row in rows if row["approval_id"] == approval]
        return None if row["why"] is None else str(row["why"])

    async def approval(self, **wanted: object) -> Approval:
        return _only(await self.approvals(**wanted), wanted)

    async def votes(self, **wanted: object) -> list[Vote]:
        return await self._all(Vote, _VOTES, wanted)

    async def waits(self, **wanted: object) -> list[Wait]:
        return await self._all(Wait, _WAITS, wanted)

    async def wait(self, **wanted: object) -> Wait:
        return _only(await self.waits(**wanted), wanted)

    async def checkpoints(self, **wanted: object) -> list[Checkpoint]:
        """The states to which the books of runs come at their barriers."""
        found: list[Checkpoint] = []
        of = {"id": wanted["run"]} if "run" in wanted else {}
        for run in await self.runs(purged_at=None, **of):
            folded = await self._folded(run.id)
            found += [
                Checkpoint(run.id, row.superstep, row.state, row.digest, len(orjson.dumps(row.state)))
                for row in folded.checkpoints
            ]
        return [each for each in found if _fits(each, wanted)]

    async def _folded(self, run: UUID) -> Folded:
        """The run as its book tells it, from the first line on."""
        async with asking(self._source) as connection:
            # A run's operations are frozen with its workflow, so nothing of the catalog is asked for.
            graphs = Definitions(load_catalog()).graphs
            return (await load(connection, run, graphs, whole=True)).run

    async def state_of(self, run: UUID) -> Any:
        """The state at the newest barrier."""
        return (await self.checkpoints(run=run))[-1].state

    async def entries(self, **wanted: object) -> list[Entry]:
        """Entries of channels with a ledger."""
        return await self._all(Entry, _LEDGER, wanted)

    async def extensions(self, **wanted: object) -> list[Extension]:
        added = [
            Extension(run, line["data"]["number"], line["actor"]["id"], values.get("source"), values.get("operations"))
            for run, line, values in await self._told("run.extended")
        ]
        return [extension for extension in added if _fits(extension, wanted)]

    async def bundles(self, **wanted: object) -> list[Bundle]:
        return await self._all(Bundle, _BUNDLES, wanted)

    async def bundle(self, **wanted: object) -> Bundle:
        return _only(await self.bundles(**wanted), wanted)

    # -- the audit ----------------------------------------------------------------------------------------------------

    async def audit(self, stream: UUID | None = None, **wanted: object) -> list[Event]:
        """Lines of all chains, or of this one: ``audit(type="signal.ignored")``."""
        found = []
        for row in await self._rows(_EVENTS, stream):
            line = orjson.loads(row["line"])
            said = {name: line[name] for name in ("type", "ts", "actor", "step", "data")}
            event = Event(**row, **said)
            if _fits(event, wanted):
                found.append(event)
        return found

    async def events(self, run: UUID, **wanted: object) -> list[Event]:
        """The chain of one run."""
        return await self.audit(run, **wanted)

    async def event_types(self, run: UUID) -> list[str]:
        return [event.type for event in await self.events(run)]

    async def chain(self, run: UUID, observe: Callable[[dict[str, Any]], None] = lambda _: None) -> ChainReport:
        """Verify the chain of one run as an auditor does, against the head that its row names."""
        (row,) = await self._rows("SELECT audit_count, audit_head FROM runs WHERE run_id = $1", run)
        told = await self._rows("SELECT lines FROM journal WHERE run_id = $1 ORDER BY n", run)
        every = [each["lines"].split(b"\n") for each in told]
        head = ChainHead(f"run:{run}", row["audit_count"], row["audit_head"])
        return verify_lines(head, [line for lines in every for line in lines], map(len, every), observe)

    async def tenant_chain(self, tenant: str) -> ChainReport:
        """Verify the tenant's own stream, as ``chain``: each line is an append."""
        (row,) = await self._rows("SELECT audit_count, audit_head FROM tenants WHERE tenant_id = $1", tenant)
        told = [event.line for event in await self.tenant_events(tenant)]
        head = ChainHead(f"tenant:{tenant}", row["audit_count"], row["audit_head"])
        return verify_lines(head, told, [1] * len(told))

    async def lines(self, run: UUID) -> list[bytes]:
        """The chain of one run as it is stored, also if a line cannot be read any more."""
        return [row["line"] for row in await self._rows(_EVENTS, run)]

    async def directory_digest(self, tenant: str) -> str:
        """The digest of the tenant's people."""
        (row,) = await self._rows("SELECT directory_digest FROM tenants WHERE tenant_id = $1", tenant)
        return str(row["directory_digest"])

    async def tenant_events(self, tenant: str, **wanted: object) -> list[Event]:
        """The tenant's own chain."""
        rows = await self._rows("SELECT stream_id FROM tenants WHERE tenant_id = $1", tenant)
        return await self.audit(rows[0]["stream_id"], **wanted)

    # -- what goes in and out, and what is held -----------------------------------------------------------------------

    async def commands(self, **wanted: object) -> list[Command]:
        return await self._all(Command, _COMMANDS, wanted)

    async def command(self, **wanted: object) -> Command:
        return _only(await self.commands(**wanted), wanted)

    async def notices(self, **wanted: object) -> list[Notice]:
        return await self._all(Notice, _NOTICES, wanted)

    async def notice(self, **wanted: object) -> Notice:
        return _only(await self.notices(**wanted), wanted)

    async def places(self, **wanted: object) -> list[Place]:
        """The steps that may be claimed, are on their way, or are leased; those that stand longest in line first."""
        return await self._all(Place, _PLACES, wanted)

    async def slots(self, tenant: str | None = None) -> list[Slots]:
        return [Slots(**row) for row in await self._rows(_SLOTS, tenant)]

    async def slots_taken(self, tenant: str | None = None) -> int:
        return sum(slots.taken for slots in await self.slots(tenant))

    async def held(self, tenant: str) -> Held:
        """Count what the steps of a tenant hold at this moment."""
        (row,) = await self._rows(_HELD, tenant)
        return Held(**row)

    async def open_questions(self, tenant: str) -> list[Question]:
        """The open questions of a tenant at one moment."""
        asked = await self.approvals(tenant=tenant, open=True)
        keys = {(row.run, row.step, row.action_digest): row.key for row in await self.receipts(tenant=tenant)}
        return [Question(row.id, row.kind, keys.get((row.run, row.step, row.action_digest))) for row in asked]

    async def left_open(self, tenant: str) -> dict[str, list[str]]:
        """List whatever of a tenant has not come to its end, in words by kind; empty if everything has."""
        orders = await self.commands(tenant=tenant, over=False)
        found = {
            "runs": [f"{run.id} {run.status}" for run in await self.runs(tenant=tenant, finished_at=None)],
            "steps": [f"{step.key} {step.status}" for step in await self.steps(tenant=tenant, over=False)],
            "waits": [f"{wait.step} {wait.kind}" for wait in await self.waits(tenant=tenant, open=True)],
            "approvals": [question.step for question in await self.approvals(tenant=tenant, open=True)],
            "queue": [f"{place.step} {place.status}" for place in await self.places(tenant=tenant)],
            "commands": [f"{order.kind} {order.status} {order.last_error or ''}" for order in orders],
        }
        return {name: words for name, words in found.items() if words}

    async def rows_written_with_barrier(self, run: UUID, superstep: int) -> dict[str, int]:
        """The number of rows of each table that the commit of this barrier wrote; ``xmin`` names a row's commit."""
        told = f'"number":{superstep}[,}}][^\n]*"type":"checkpoint.committed"'
        barrier = "SELECT xmin::text FROM journal WHERE run_id = $1 AND convert_from(lines, 'UTF8') ~ $2"
        (commit,) = [row["xmin"] for row in await self._rows(barrier, run, told)]
        found = {}
        for name in await self._tables():
            (row,) = await self._rows(f"SELECT count(*) FROM {name} WHERE xmin::text = $1", commit)
            if row["count"]:
                found[name] = row["count"]
        return found

    # -- whole tables, whatever they are ------------------------------------------------------------------------------

    async def _tables(self, column: str = "tenant_id") -> list[str]:
        """The tables that have this column; every table of ours names its tenant."""
        return [row["name"] for row in await self._rows(_WITH_COLUMN, column)]

    async def fingerprint(self) -> dict[str, str]:
        """A digest of what every table holds: to say that nothing was written."""
        return await self._digests(await self._tables(), "")

    async def fingerprint_of(self, run: UUID) -> dict[str, str]:
        """A digest of what every table holds of one run. Leaves of the log get their places whenever a keeper looks."""
        tables = [name for name in await self._tables("run_id") if name != "log_leaves"]
        return await self._digests(tables, "WHERE run_id = $1", run)

    async def appends(self, run: UUID) -> list[tuple[bytes, int]]:
        """The lines of each append of a run, and the bytes that it has written to the journal."""
        sql = (
            "SELECT lines, length(lines) + coalesce(length(vals), 0) AS size FROM journal WHERE run_id = $1 ORDER BY n"
        )
        return [(row["lines"], row["size"]) for row in await self._rows(sql, run)]

    async def counts(self) -> dict[str, int]:
        """The number of rows of every table."""
        tables = await self._tables()
        return {name: (await self._rows(f"SELECT count(*)::int AS rows FROM {name}"))[0]["rows"] for name in tables}

    async def _digests(self, tables: Iterable[str], where: str, *parameters: object) -> dict[str, str]:
        content = "SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) AS sum FROM"
        return {name: (await self._rows(f"{content} {name} t {where}", *parameters))[0]["sum"] for name in tables}

    async def mentions(self, words: str) -> set[str]:
        """The tables that hold these words anywhere."""
        sql = "SELECT 1 FROM {} t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0 LIMIT 1"
        shown = (words, words.encode().hex())  # bytes are shown in hexadecimal
        found = {name for name in await self._tables() if await self._rows(sql.format(name), *shown)}
        told = await self._rows("SELECT vals FROM journal WHERE vals IS NOT NULL")
        values = [orjson.dumps(value) for row in told for value in unpack_values(row["vals"]).values()]
        return found | {"journal"} if any(words.encode() in value for value in values) else found


async def tenants_seen(connection: Connection) -> set[str]:
    """The tenants of whom this connection sees any row."""
    found = set()
    for (name,) in await connection.fetch(_WITH_COLUMN, "tenant_id"):
        if not await connection.fetchval("SELECT has_table_privilege($1, 'SELECT')", name):
            continue
        found |= {row["tenant_id"] for row in await connection.fetch(f"SELECT DISTINCT tenant_id FROM {name}")}
    return found


@asynccontextmanager
async def books_at(url: str) -> AsyncIterator[Books]:
    """The books of the database at this address, for a test that has no ``Database`` of its own."""
    async with Database(url, ENGINE_ROLE, connections=2) as database:
        yield Books(database)
