"""ServiceNow as a connector: get, query, create, update, delete, pre-read, and a probe for an earlier write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from connectors.exchange import Unread, deadline_in, public_address, seconds_to
from connectors.operation import Operation
from connectors.port import SOMEBODY, Before, Call, Done, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.proposal import GONE, diff_fields, writes_of
from connectors.servicenow.client import ServiceNowSettings, TableClient
from connectors.servicenow.creating import Creating
from connectors.servicenow.deleting import Deleting, removed_of
from connectors.servicenow.labels import LabelReader
from connectors.servicenow.listing import Listing
from connectors.servicenow.written import FACTS, VERSION, done_of, settable, settled, table_of
from core.canonical import Json, JsonObject
from core.identity import Kind

# The fields that name who created a record, and who changed it last.
WRITERS = ("sys_created_by", "sys_updated_by")


class ServiceNowConnector:
    """One instance. The table is the input's ``table`` or else the middle part of the operation's name."""

    def __init__(self, settings: ServiceNowSettings) -> None:
        self._settings = settings
        self._client = TableClient(settings)
        self._labels = LabelReader(self._client)
        self._creating = Creating(self._client, settings)
        self._deleting = Deleting(self._client, settings)

    @property
    def target(self) -> str:
        """The address, and the account if it is known."""
        return public_address(self._settings.base_url, self._settings.account)

    async def read_before(self, call: Call) -> Before | Refused | NotSent:
        """Read the fields that the diff names, and ``sys_mod_count`` as the version. Absent fields are left out.

        Before a deletion the whole record is read. Before a creation it is checked that the record to restore is still
        gone.
        """
        if call.declaration.function == "create":
            return await self._creating.read_before(call)
        if call.declaration.function == "delete":
            return await self._read_whole(call)
        fields = diff_fields(call.declaration, call.input)
        record = await self._read(call, {*fields, *FACTS, *WRITERS})
        if not isinstance(record, dict):
            return record
        version = record.get(VERSION)
        values, facts = ({name: record[name] for name in names if name in record} for names in (fields, FACTS))
        after = {name: value for name, value in writes_of(call.declaration, call.input).items() if name in fields}
        labels = await self._labels.of(table_of(call), values, after)
        writers = tuple(sorted({*self._writers(record)}))
        return Before(values, None if version is None else str(version), facts, labels, writers)

    async def _read_whole(self, call: Call) -> Before | Refused | NotSent:
        """Read everything that a deletion removes, with its writers. A missing record has no values."""
        read = await self._deleting.read(call)
        if read is None:
            return Before({}, None, {GONE: True}, writers=())
        if not isinstance(read, dict):
            return read
        values = removed_of(read)
        facts = {name: read[name] for name in FACTS if name in read}
        labels = await self._labels.of(table_of(call), values, dict.fromkeys(values))
        return Before(values, str(read[VERSION]), facts, labels, tuple(sorted({*self._writers(read)})))

    async def perform(self, call: Call) -> Outcome:
        """Get, query, create, update or delete, as the operation's handler says."""
        operation = call.declaration
        if operation.function == "get":
            wanted = _names(call.input.get("fields"))
            record = await self._read(call, {*wanted, *WRITERS} if wanted else ())
            return self._done(record, [record], wanted) if isinstance(record, dict) else record
        if operation.function == "query":
            return await self._query(call)
        if operation.function == "update":
            return await self._update(call, operation)
        if operation.function == "create":
            return await self._creating.perform(call)
        if operation.function == "delete":
            return await self._deleting.perform(call)
        return Refused("unknown_handler", f"the ServiceNow connector has no function {operation.function!r}")

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        """Read the record, and the journal if the call wrote to it, and judge; see ``_judge``."""
        operation = call.declaration
        if not operation.has_effect:
            return Probe(ProbeVerdict.NOT_APPLIED, f"{operation.name} changes nothing, so it can be repeated")
        if operation.function == "create":
            return await self._creating.probe(call, seconds_since_intent)
        if operation.function == "delete":
            return await self._deleting.probe(call, seconds_since_intent)
        written = writes_of(operation, call.input)
        fields = settable(operation, written)
        record = await self._read(call, {*fields, *FACTS})
        if not isinstance(record, dict):
            return Probe.unreadable("the record could not be read", record)
        marked: bool | None = None
        if len(fields) < len(written):
            entries = await self._marked_entries(call)
            if not isinstance(entries, list):
                return Probe.unreadable("the record's journal could not be read", entries)
            marked = bool(entries)
        return _judge(self._settings, call.before, fields, record, marked, seconds_since_intent)

    async def check(self) -> tuple[bool, str]:
        """Read one row of ``incident``, and report if our own user name is configured."""
        rows = await self._client.query("incident", "", ("sys_id",), limit=1, timeout_seconds=10.0)
        if not isinstance(rows, list):
            return False, rows.message
        if self._settings.integration_user is None:
            return True, "reachable and authorised; name the integration user, or a probe cannot tell our writes"
        return True, f"reachable and authorised as {self._settings.integration_user}"

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()

    async def _read(self, call: Call, fields: Iterable[str]) -> JsonObject | Refused | NotSent:
        names = tuple(sorted(fields))
        sys_id = str(call.input["sys_id"])
        return await self._client.get(table_of(call), sys_id, names, timeout_seconds=call.timeout_seconds)

    async def _query(self, call: Call) -> Outcome:
        limit, offset, wanted = call.input.get("limit"), call.input.get("offset"), _names(call.input.get("fields"))
        done = await Listing(
            self._client,
            table_of(call),
            str(call.input["query"]),
            tuple(dict.fromkeys((*wanted, *WRITERS))) if wanted else (),
            limit if isinstance(limit, int) else None,
            offset if isinstance(offset, int) else 0,
        ).read(call.timeout_seconds)
        rows = done.output["records"] if isinstance(done, Done) else None
        if not isinstance(done, Done) or not isinstance(rows, list):
            return done
        read = [row for row in rows if isinstance(row, dict)]
        return self._done({**done.output, "records": [_only(row, wanted) for row in read]}, read)

    def _done(self, output: JsonObject, rows: Sequence[JsonObject], wanted: tuple[str, ...] = ()) -> Done:
        """The records that were read, with the people who created and last changed these records."""
        writers = {one for row in rows for one in self._writers(row)}
        return Done(_only(output, wanted), writers=tuple(sorted(writers)))

    def _writers(self, row: JsonObject) -> Iterator[str]:
        """The writers of a record as ServiceNow names them.

        A name that an ACL hides, or our own user's, means somebody unknown: the record does not tell for whom we wrote.
        """
        for name in WRITERS:
            value = row.get(name)
            own = not isinstance(value, str) or not value.strip() or value == self._settings.integration_user
            yield from SOMEBODY if own else (f"{Kind.SERVICENOW}:{str(value).strip()}",)

    async def _update(self, call: Call, operation: Operation) -> Outcome:
        written = writes_of(operation, call.input)
        fields = settable(operation, written)
        if strange := [name for name, value in written.items() if name not in fields and not isinstance(value, str)]:
            return Refused("invalid", f"{strange[0]} is appended to, so it must be text")
        mark = marker(call.idempotency_key)
        body: JsonObject = {name: value if name in fields else f"{value}\n{mark}" for name, value in written.items()}
        sys_id = str(call.input["sys_id"])
        deadline = deadline_in(call.timeout_seconds)
        record = await self._client.patch(table_of(call), sys_id, body, timeout_seconds=call.timeout_seconds)
        if isinstance(record, Unread):  # it succeeded with an unreadable record: read the written fields
            back = await self._read(call, {*fields, *FACTS})
            record = back if isinstance(back, dict) else record
        if not isinstance(record, dict):
            return record
        sent: JsonObject = {**record, "sys_id": sys_id}
        return await settled(self._client, table_of(call), sent, fields, seconds_to(deadline))

    async def _marked_entries(self, call: Call) -> list[JsonObject] | Refused | NotSent:
        query = f"element_id={call.input['sys_id']}^valueLIKE{marker(call.idempotency_key)}"
        fields, seconds = ("element", "value"), call.timeout_seconds
        found = await self._client.query("sys_journal_field", query, fields, limit=10, timeout_seconds=seconds)
        # Filter again: an instance that ignores a part of the query must not make a stranger's note ours.
        mark = marker(call.idempotency_key)
        return [row for row in found if mark in str(row.get("value", ""))] if isinstance(found, list) else found


def marker(idempotency_key: str) -> str:
    """The mark that we append to a note, so that a probe can find the note."""
    return f"[counterseal:{idempotency_key[:16]}]"


def _names(value: Json) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _only(record: JsonObject, names: tuple[str, ...]) -> JsonObject:
    """The requested fields; all fields if none were named."""
    return {name: value for name, value in record.items() if name in names} if names else record


def _judge(
    settings: ServiceNowSettings,
    before: Before | None,
    intended: JsonObject,
    record: JsonObject,
    marked: bool | None,
    seconds_since_intent: float,
) -> Probe:
    """Judge if a write was applied, with the evidence in words.

    The Table API has no idempotency key, so the verdict depends on our mark in the journal, the fields, the count of
    modifications and the last editor. Absence proves nothing before the transaction limit has passed. ``intended``
    leaves journal fields out. ``marked`` is None if the call wrote no journal.
    """
    done = done_of(record, intended)
    if marked:
        return Probe(ProbeVerdict.APPLIED, "the record's journal holds the entry with this action's mark", done)
    if before is None:
        return _cannot_tell("the record was not read before the write, so there is nothing to compare it with")
    version, now = before.version, str(record.get(VERSION, ""))
    if not _is_count(version) or not _is_count(now):
        return _cannot_tell(f"{VERSION} was {version!r} and is {now!r}, which cannot be compared")
    count, count_now = int(version or ""), int(now)
    hidden = [name for name in intended if name not in record]
    differing = sorted({*done.altered, *hidden})
    if count_now == count:
        if marked is None and intended and not differing:
            return Probe(ProbeVerdict.APPLIED, "the fields held the intended values before, and hold them now", done)
        limit = settings.transaction_limit_seconds
        early = f"{VERSION} is still {count}, but a transaction may run for {limit:g} s"
        late = f"{VERSION} is still {count}, {seconds_since_intent:.0f} s after the intent: nothing was written since"
        return Probe.absent(early, late, seconds_left=limit - seconds_since_intent)
    editor = str(record.get("sys_updated_by", ""))
    modified = f"{VERSION} went from {count} to {count_now}, last changed by {editor or 'nobody named'}"
    if marked is False:
        return _cannot_tell(f"{modified}, yet no journal entry that our user can see bears this action's mark")
    if differing:
        return _cannot_tell(f"{modified}, and the fields are not as intended: {', '.join(differing)}")
    if not settings.integration_user:
        return _cannot_tell(f"{modified}, the fields are as intended, but our own user name is not configured")
    if editor != settings.integration_user:
        return _cannot_tell(f"{modified}, the fields are as intended, but we are {settings.integration_user}")
    return Probe(ProbeVerdict.APPLIED, f"{modified}, which is us, and all fields are as intended", done)


def _cannot_tell(evidence: str) -> Probe:
    return Probe(ProbeVerdict.CANNOT_TELL, evidence)


def _is_count(text: str | None) -> bool:
    return bool(text) and str(text).isascii() and str(text).isdigit()
