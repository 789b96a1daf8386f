"""The connector for one PostgreSQL database: reads declared tables, and writes one row per call.

A write is one transaction. It inserts its key into the declared table for keys, if there is one, locks its row,
compares the row's version with the one that was read, changes exactly one row or nothing, and commits. So a repeated
write is a no-op. If the row has changed meanwhile, the step reads it, asks policy and asks people again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import orjson
from msgspec import Struct

from connectors.operation import Operation
from connectors.port import (
    SOMEBODY,
    Before,
    Call,
    Done,
    Failure,
    InDoubt,
    NotSent,
    Outcome,
    Probe,
    ProbeVerdict,
    Refused,
)
from connectors.proposal import diff_fields
from connectors.readback import compare
from connectors.sql import statements
from connectors.sql.link import Link, Stopped, values_of
from connectors.sql.table import faults_in
from connectors.tables import FIELDS, HANDLERS, LIMIT, ROWS_MAX, SELECT, TableParams, params_of
from core.canonical import VALUE_BYTES_MAX, Json, JsonObject
from core.db import Connection

BYTES_MAX = VALUE_BYTES_MAX - 16 * 1024
_MARGIN_SECONDS = 5.0


class SqlSettings(Struct, frozen=True):
    """The address with its login. ``own`` returns the identity of our own database, which is never touched."""

    url: str
    own: Callable[[], Awaitable[str]]


class SqlConnector:
    """One database. A connection to the runtime's own database is refused."""

    def __init__(self, settings: SqlSettings) -> None:
        self._link = Link(settings.url, settings.own)
        self._resolved: set[str] = set()

    @property
    def target(self) -> str:
        """The address, and the login."""
        return self._link.target

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Read the columns that the diff names, and the row's version."""
        operation = call.declaration
        columns = diff_fields(operation, call.input)

        async def read(connection: Connection) -> Before | Refused:
            params = await self._params(connection, operation, call)
            found = await _row(connection, params, call, columns, lock=False)
            return Before(found[0], found[1]) if found is not None else _absent(params)

        result = await self._link.use(read, seconds=call.timeout_seconds, writes=False)
        return NotSent(result.message) if isinstance(result, InDoubt) else result

    async def perform(self, call: Call) -> Outcome:
        """Select, insert, update or delete, as the operation's handler says."""
        operation = call.declaration
        if operation.handler not in HANDLERS:
            return Refused("unknown_handler", f"the connector sql has no function {operation.function!r}")
        writes = operation.handler != SELECT
        work = self._write if writes else self._select

        async def perform(connection: Connection) -> Done | Failure:
            return await work(connection, await self._params(connection, operation, call), operation, call)

        return await self._link.use(perform, seconds=call.timeout_seconds, writes=writes)

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Look for the call's key if the declaration names a table for keys; otherwise compare the row's version."""
        operation = call.declaration
        if not operation.has_effect:
            return Probe(ProbeVerdict.NOT_APPLIED, f"{operation.name} changes nothing, so it can be repeated")
        # The earlier call may run for its lock timeout and then for its statement timeout before it is rolled back.
        left = 2 * operation.timeouts.perform.total_seconds() + _MARGIN_SECONDS - seconds_since_intent

        async def look(connection: Connection) -> Probe:
            params = await self._params(connection, operation, call)
            if params.idempotency_table is not None:
                done = await _recalled(connection, params.idempotency_table, call)
                where = f"in {params.idempotency_table}"
                if done is not None:
                    return Probe(ProbeVerdict.APPLIED, f"the key of this call is {where}", done)
                words = f"the key of this call is not {where}"
                return Probe.absent(words, words, seconds_left=left)
            return _judged(call, await _row(connection, params, call, (), lock=False), left)

        found = await self._link.use(look, seconds=call.timeout_seconds, writes=False)
        return found if isinstance(found, Probe) else Probe.unreadable("the database could not be asked", found)

    async def check(self) -> tuple[bool, str]:
        """Connect. Declarations are compared with the database by ``faults``."""
        faults = await self.faults(())
        return (False, str(faults)) if isinstance(faults, str) else (True, f"reachable as {self.target}")

    async def faults(self, declared: Iterable[Operation]) -> Sequence[str] | str:
        """Faults of declarations in this database.

        The result is a text if the database cannot be asked now; the first call checks again.
        """
        own = [operation for operation in declared if operation.handler in HANDLERS]

        async def look(connection: Connection) -> Done:
            found = [fault for operation in own for fault in await faults_in(connection, operation)]
            return Done({"faults": [*found]})

        result = await self._link.use(look, seconds=10.0, writes=False)
        if not isinstance(result, Done):
            return result.message
        faults = result.output["faults"]
        return [str(fault) for fault in faults] if isinstance(faults, list) else []

    async def aclose(self) -> None:
        """Release connections."""
        await self._link.close()

    async def _params(self, connection: Connection, operation: Operation, call: Call) -> TableParams:
        """The params of this call, checked once against the catalogue. ``Stopped`` if they do not fit."""
        params = params_of(call.input)
        known = f"{operation.digest}:{params.model_dump_json()}"
        if known not in self._resolved:
            declared = operation.model_copy(update={"params": params.model_dump()})
            if faults := await faults_in(connection, declared):
                raise Stopped(Refused("wrong_declaration", " ".join(faults)))
            self._resolved.add(known)
        return params

    async def _select(self, connection: Connection, params: TableParams, _: Operation, call: Call) -> Done:
        asked = call.input.get(LIMIT)
        limit = min(asked, ROWS_MAX) if isinstance(asked, int) else ROWS_MAX
        given = {name: value for name, value in call.input.items() if name not in {*TableParams.model_fields, LIMIT}}
        equal = sorted(name for name, value in given.items() if value is not None)
        text = statements.select(params.table, params.key, params.columns, equal, sorted(given.keys() - {*equal}))
        rows = await connection.fetch(text, orjson.dumps(given).decode(), limit + 1)
        records: list[Json] = []
        size = 0
        for row in rows[:limit]:
            size += len(row[0].encode())
            if records and size > BYTES_MAX:  # more rows than one output can hold
                break
            records.append(values_of(row[0]))
        writers = SOMEBODY if records else ()  # unless the declaration names the writer's column (`written_by`)
        return Done({"rows": records, "count": len(records), "truncated": len(rows) > len(records)}, writers=writers)

    async def _write(
        self, connection: Connection, params: TableParams, operation: Operation, call: Call
    ) -> Done | Failure:
        memory = params.idempotency_table
        if memory is not None:
            remember = statements.REMEMBER.format(table=statements.quoted(memory))
            if await connection.fetchval(remember, call.idempotency_key) is None:
                done = await _recalled(connection, memory, call)
                return Done({}) if done is None else done
        changed = await _moved(connection, params, operation, call)
        if changed is not None:
            raise Stopped(changed)
        done = await _changed(connection, params, operation, call)
        if memory is not None:
            keep = statements.KEEP.format(table=statements.quoted(memory))
            result = {"output": done.output, "after": done.after} | ({"altered": done.altered} if done.altered else {})
            await connection.execute(keep, call.idempotency_key, orjson.dumps(result).decode())
        return done


def _absent(params: TableParams) -> Refused:
    return Refused("not_found", f"{params.table} has no row with this key, or it is hidden from this login")


async def _row(
    connection: Connection, params: TableParams, call: Call, columns: Sequence[str], *, lock: bool
) -> tuple[JsonObject, str | None] | None:
    key = {name: call.input.get(name) for name in params.key}
    text = statements.read(params.table, params.key, columns or params.key, params.version, lock=lock)
    row = await connection.fetchrow(text, orjson.dumps(key).decode())
    return None if row is None else (values_of(row["row"]), row["version"])


async def _moved(
    connection: Connection, params: TableParams, operation: Operation, call: Call
) -> Refused | NotSent | None:
    """Lock the row. Returns the reason not to change it; None if its version is unchanged, or if this is an insert."""
    if operation.function == "insert":
        return None
    found = await _row(connection, params, call, (), lock=True)
    if found is None:
        return _absent(params)
    if call.before is not None and found[1] != call.before.version:
        return NotSent(f"the row of {params.table} has changed since it was read, so it is read and judged anew")
    return None


async def _changed(connection: Connection, params: TableParams, operation: Operation, call: Call) -> Done:
    fields = call.input.get(FIELDS)
    given: JsonObject = {name: call.input[name] for name in params.key if name in call.input}
    if operation.function == "delete":
        text = statements.delete(params.table, params.key)
    elif operation.function == "insert":
        given |= fields if isinstance(fields, dict) else {}
        shown = sorted({*params.key, *given})
        text = statements.insert(params.table, sorted(given), shown, params.version)
    else:
        written = fields if isinstance(fields, dict) else {}
        text = statements.update(params.table, params.key, sorted(written), params.version)
        given |= written
    rows = await connection.fetch(text, orjson.dumps(given).decode())
    if len(rows) != 1:
        words = f"{operation.name} would have changed {len(rows)} rows of {params.table}, not one; it is undone"
        raise Stopped(Refused("not_one_row", words))
    row = rows[0]
    after, intended = values_of(row["row"]), values_of(row["intended"])
    key: JsonObject = {name: after[name] for name in params.key}
    # A key that is given as null is made by the database.
    asked = {name: value for name, value in intended.items() if value is not None or name not in params.key}
    back = compare(asked, after, _same)
    shown_after: JsonObject = {name: after[name] for name in intended if name not in key}
    output: JsonObject = {"key": key, "version": row["version"], "fields": shown_after, **back.to_json()}
    return Done(output, after=shown_after, altered=back.altered)


def _same(asked: Json, found: Json) -> bool:
    """True if the column has the requested value in its own type; a text may lose the spaces around it."""
    texts = isinstance(asked, str) and isinstance(found, str) and str(asked).strip() == str(found).strip()
    return texts or (type(asked) is type(found) and asked == found)


async def _recalled(connection: Connection, memory: str, call: Call) -> Done | None:
    """The stored outcome of the call with this key; None if the key is not there."""
    row = await connection.fetchval(statements.RECALL.format(table=statements.quoted(memory)), call.idempotency_key)
    if row is None:
        return None
    stored = values_of(row).get("result")
    result = stored if isinstance(stored, dict) else {}
    output, after, altered = result.get("output"), result.get("after"), result.get("altered")
    return Done(
        output if isinstance(output, dict) else {},
        after=after if isinstance(after, dict) else None,
        altered=altered if isinstance(altered, dict) else {},
    )


def _judged(call: Call, row: tuple[JsonObject, str | None] | None, left: float) -> Probe:
    """Judge a write without a table for keys: only an unchanged row proves something, as a change names no author."""
    if row is None and call.before is None:
        return Probe.absent("the row is not there yet", "the row is not there", seconds_left=left)
    if row is not None and call.before is not None and row[1] == call.before.version:
        words = f"the row still has the version {row[1]}"
        return Probe.absent(words, f"{words}: nothing was written since", seconds_left=left)
    words = "the row has changed" if row is not None else "the row is gone"
    return Probe(ProbeVerdict.CANNOT_TELL, f"{words}, and nothing in the database says by whom")
