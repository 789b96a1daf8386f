"""Deletes records: all of a record is read first, so that people see what is removed, and it can be restored."""

from __future__ import annotations

import re

from connectors.exchange import deadline_in, seconds_to
from connectors.port import Call, Done, InDoubt, NotSent, Outcome, Probe, ProbeVerdict, Refused
from connectors.servicenow.client import ServiceNowSettings, TableClient
from connectors.servicenow.creating import CORRELATION
from connectors.servicenow.presence import NOT_FOUND, is_gone
from connectors.servicenow.written import JOURNALS, VERSION, table_of
from core.canonical import JsonObject

CONFLICT = "version_conflict"
_NAME = re.compile(r"(?!sys_)[a-z][a-z0-9_]*")
# Not restored: the instance numbers a record itself, and the restoring action has a key of its own.
_NOT_RESTORED = JOURNALS | {"number", CORRELATION}


def removed_of(record: JsonObject) -> JsonObject:
    """The values that a deletion removes and a creation can restore: the non-empty ones."""
    named = {name: value for name, value in record.items() if _NAME.fullmatch(name) and name not in _NOT_RESTORED}
    return {name: named[name] for name in sorted(named) if named[name] not in (None, "")}


class Deleting:
    """Deletes records in one instance."""

    def __init__(self, client: TableClient, settings: ServiceNowSettings) -> None:
        self._client = client
        self._settings = settings

    async def read(self, call: Call, *fields: str) -> JsonObject | Refused | NotSent | None:
        """Read the record (all fields if none are named); None if it is gone, ``Refused`` if it has another version."""
        table, sys_id, deadline = table_of(call), str(call.input["sys_id"]), deadline_in(call.timeout_seconds)
        record = await self._client.get(table, sys_id, fields, timeout_seconds=call.timeout_seconds)
        if isinstance(record, Refused) and record.code == NOT_FOUND:
            deleted = await is_gone(self._client, table, sys_id, timeout_seconds=seconds_to(deadline))
            if isinstance(deleted, Refused | NotSent):
                return deleted
            return None if deleted else NotSent(f"{table} {sys_id} was not there and is there now")
        if not isinstance(record, dict):
            return record
        version, wanted = record.get(VERSION), call.input.get("if_version")
        if version is None:
            return Refused("unreadable", f"our user may not read {VERSION} of {table} {sys_id}")
        if wanted is not None and str(version) != wanted:
            return Refused(CONFLICT, f"{VERSION} of {table} {sys_id} is {version}, not {wanted}: nothing is deleted")
        return record

    async def perform(self, call: Call) -> Outcome:
        """Delete the record if it is unchanged since it was read. For a record that is already gone nothing is sent.

        A crash before the answer leaves a doubt, which the next lease resolves by looking for the record.
        """
        table, sys_id, deadline = table_of(call), str(call.input["sys_id"]), deadline_in(call.timeout_seconds)
        record = await self.read(call, "number", "sys_id", VERSION)
        if not isinstance(record, dict):
            return _gone(sys_id) if record is None else record
        if call.before is not None and str(record[VERSION]) != call.before.version:
            return NotSent(f"{table} {sys_id} has changed since it was read, so it is read and judged anew")
        failed = await self._client.delete(table, sys_id, timeout_seconds=seconds_to(deadline))
        if failed is not None and not (isinstance(failed, Refused) and failed.code == NOT_FOUND):
            return failed
        deleted = await _not_found(self._client, table, sys_id, seconds_to(deadline))
        if deleted is None:
            return InDoubt(f"{table} {sys_id}: ServiceNow answered, and what became of the record cannot be read")
        if not deleted:
            words = f"ServiceNow says that {table} {sys_id} is deleted, and it is still there: a rule has kept it"
            return Refused("not_deleted", words) if failed is None else failed
        if failed is not None:
            return _gone(sys_id)
        facts = {name: record[name] for name in ("number",) if name in record}
        return Done({"sys_id": sys_id, **facts, "deleted": True}, f"{sys_id}@{record[VERSION]}")

    async def probe(self, call: Call, seconds_since_intent: float) -> Probe:
        """Look for the record. If it was read before and is gone now, no second call is needed, whoever removed it."""
        table, sys_id = table_of(call), str(call.input["sys_id"])
        deleted = await is_gone(self._client, table, sys_id, timeout_seconds=call.timeout_seconds)
        if isinstance(deleted, Refused | NotSent):
            return Probe.unreadable("nobody can tell if the record is gone", deleted)
        if deleted:
            words = f"{table} {sys_id} was there before, and is gone; the Table API does not say by whom"
            return Probe(ProbeVerdict.APPLIED, words, Done({"sys_id": sys_id, "deleted": True}, sys_id))
        limit = self._settings.transaction_limit_seconds
        early = f"{table} {sys_id} is there, but a transaction may run for {limit:g} s"
        late = f"{table} {sys_id} is there, {seconds_since_intent:.0f} s after the intent: nothing was deleted"
        return Probe.absent(early, late, seconds_left=limit - seconds_since_intent)


async def _not_found(client: TableClient, table: str, sys_id: str, seconds: float) -> bool | None:
    """True if a record that our user could read just before is not found, False if it is; None if nobody can tell."""
    left = await client.get(table, sys_id, ("sys_id",), timeout_seconds=seconds)
    if isinstance(left, dict):
        return False
    return True if isinstance(left, Refused) and left.code == NOT_FOUND else None


def _gone(sys_id: str) -> Done:
    return Done({"sys_id": sys_id, "deleted": False})
