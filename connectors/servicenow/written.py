"""Judges the written fields and their outcome, for every write of the connector."""

from __future__ import annotations

from connectors.operation import Operation
from connectors.port import Call, Done
from connectors.readback import compare, same_text
from connectors.servicenow.client import TableClient
from core.canonical import JsonObject

# The facts about a record that people or a probe need besides the fields of the diff.
FACTS = ("number", "short_description", "sys_id", "sys_mod_count", "sys_updated_by", "sys_updated_on")
JOURNALS = frozenset({"work_notes", "comments", "comments_and_work_notes", "approval_history"})
VERSION = "sys_mod_count"


def table_of(call: Call) -> str:
    """The table of a call: its input's ``table``, or else the middle part of the operation's name."""
    return str(call.input.get("table") or call.operation.split(".")[1])


def settable(operation: Operation, written: JsonObject) -> JsonObject:
    """The written fields without journals, which are append-only and do not read back the written value."""
    journals = JOURNALS | set(operation.diff.appended if operation.diff else ())
    return {name: value for name, value in written.items() if name not in journals}


def done_of(record: JsonObject, intended: JsonObject, words: JsonObject | None = None) -> Done:
    """The outcome, from the record read back: a business rule may have altered our values, or an ACL dropped them.

    ``words`` are the display values of fields that were set by a display value.
    """
    after: JsonObject = {name: record[name] for name in intended if name in record}
    named = {name: value for name, value in (words or {}).items() if value and same_text(intended.get(name), value)}
    back = compare({name: value for name, value in intended.items() if name not in named}, after, same_text)
    facts = {name: record[name] for name in ("sys_id", "number", VERSION) if name in record}
    version = record.get(VERSION)
    external_id = f"{record['sys_id']}@{version}" if "sys_id" in record and version is not None else None
    return Done({**facts, "fields": after, **back.to_json()}, external_id, after, altered=back.altered)


async def settled(client: TableClient, table: str, record: JsonObject, fields: JsonObject, seconds: float) -> Done:
    """The outcome of a write. Fields that differ are read again as display values, which is what people see.

    ServiceNow resolves a name that was given for a reference or a choice. If it cannot be asked, its answer to the
    write counts. A crash here leaves a doubt, which the next lease resolves by a probe.
    """
    done = done_of(record, fields)
    if not done.altered or "sys_id" not in record:
        return done
    names = tuple(sorted(done.altered))
    words = await client.words(table, str(record["sys_id"]), names, timeout_seconds=seconds)
    return done_of(record, fields, words if isinstance(words, dict) else {})
