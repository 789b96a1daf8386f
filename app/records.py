"""Reads whole tables of ServiceNow for a comparison: page after page by the records' ids, to the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app import adapters
from app.settings import Settings
from connectors.servicenow.client import Page, TableClient
from core.canonical import JsonObject
from core.errors import ConfigurationError, TransportError
from runtime.requests.reconciling import Read

_ROWS = 250
_SECONDS = 60.0


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Read]:
    """A reader of all records that a query selects. ``ConfigurationError`` if no ServiceNow is set.

    ``TransportError`` if it answers with a failure, or shows fewer records than it counts: then a comparison would be
    wrong.
    """
    if settings.servicenow_url is None or settings.servicenow_username is None:
        words = "COUNTERSEAL_SERVICENOW_URL and COUNTERSEAL_SERVICENOW_USERNAME are not both set."
        raise ConfigurationError(words, remedy="Set them, or leave out --reconcile.")
    client = TableClient(adapters.servicenow_of(settings, settings.servicenow_url))

    async def read(table: str, query: str) -> list[JsonObject]:
        found, last, total = list[JsonObject](), "", None
        while True:
            part = f"{query}^sys_id>{last}^ORDERBYsys_id" if last else f"{query}^ORDERBYsys_id"
            page = await client.page(table, part, (), limit=_ROWS, timeout_seconds=_SECONDS)
            if not isinstance(page, Page):
                raise TransportError(f"ServiceNow did not tell its records of {table}: {page.message}")
            total = page.total if total is None else total
            if not page.rows:
                break
            found += page.rows
            last = str(page.rows[-1]["sys_id"])
        if total is not None and len(found) < total:
            words = f"ServiceNow counts {total} records of {table}, and shows our user {len(found)}."
            raise TransportError(words, remedy="Let the integration user read them all: an ACL hides some.")
        return found

    try:
        yield read
    finally:
        await client.aclose()
