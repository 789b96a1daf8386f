"""Distinguishes a deleted record from a hidden one: the Table API answers 404 for both."""

from __future__ import annotations

from connectors.exchange import deadline_in, seconds_to
from connectors.port import NotSent, Refused
from connectors.servicenow.client import Page, TableClient

NOT_FOUND = "not_found"


async def is_gone(client: TableClient, table: str, sys_id: str, *, timeout_seconds: float) -> bool | Refused | NotSent:
    """True if the record does not exist, False if it does. ``Refused`` if nobody can tell.

    A count of rows includes those that an ACL on records hides. It is also 0 if our user may not read the table at all,
    so it proves something only if our user sees another record of the table.
    """
    deadline = deadline_in(timeout_seconds)
    record = await client.get(table, sys_id, ("sys_id",), timeout_seconds=timeout_seconds)
    if isinstance(record, dict):
        return False
    if not isinstance(record, Refused) or record.code != NOT_FOUND:
        return record
    query, seconds = f"sys_id={sys_id}", seconds_to(deadline)
    same = await client.page(table, query, ("sys_id",), limit=1, timeout_seconds=seconds)
    if not isinstance(same, Page):
        return same
    if same.rows or same.total != 0:
        return Refused(NOT_FOUND, f"{record.message}; the instance does not say that there is no such record")
    other = await client.page(table, "", ("sys_id",), limit=1, timeout_seconds=seconds_to(deadline))
    if not isinstance(other, Page):
        return other
    if not other.rows:
        return Refused(NOT_FOUND, f"{record.message}; {table} shows our user no record at all")
    return True
