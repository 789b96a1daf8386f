"""Reads the instance's names for fields, choices and references. Only people read them; no approval binds them.

They are cached for an hour. A card never waits long for them, and never fails without them: a value whose label does
not come in time is shown as it is stored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping

from connectors.exchange import deadline_in
from connectors.servicenow.client import TableClient
from core.action import Labels
from core.canonical import Json, JsonObject

KEPT_SECONDS = 3600.0
# The time for which a failed lookup is not repeated.
AGAIN_SECONDS = 60.0
WITHIN_SECONDS = 2.0
_ROWS_MAX = 1000
_KEPT_MAX = 2000
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ID = re.compile(r"[0-9a-f]{32}")


class LabelReader:
    """Reads labels of one instance, and keeps them. Safe for concurrent use."""

    def __init__(self, client: TableClient) -> None:
        self._client = client
        self._labels: dict[tuple[str, ...], tuple[float, Mapping[str, str]]] = {}

    async def of(self, table: str, before: JsonObject, after: JsonObject) -> dict[str, Labels]:
        """The labels of the fields that would be written. A field whose label does not arrive in time is left out."""
        names = tuple(sorted(name for name in after if _NAME.fullmatch(name)))
        found: dict[str, Labels] = {}
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                for name in names:
                    found[name] = await self._field(table, name, names, before.get(name), after[name])
        except TimeoutError:
            pass  # the known labels are enough
        return found

    async def _field(self, table: str, name: str, names: tuple[str, ...], before: Json, after: Json) -> Labels:
        columns = await self._rows(table, "sys_dictionary", names, ("column_label", "reference"))
        choices = await self._rows(table, "sys_choice", names, ("value", "label"))
        kind = columns.get(f"{name}.reference", "")
        words = [
            choices.get(f"{name}.{value}") or await self._named(kind, value) if isinstance(value, str) else ""
            for value in (before, after)
        ]
        return Labels(columns.get(f"{name}.column_label", ""), *words)

    async def _rows(self, table: str, kind: str, names: tuple[str, ...], wanted: tuple[str, str]) -> Mapping[str, str]:
        """The names in one of the instance's system tables for these fields; entries for the record's own table win."""
        key = (kind, table, *names)
        if (known := self._known(key)) is not None:
            return known
        query = f"nameIN{table},task^elementIN{','.join(names)}"
        query += "^inactive=false^language=en" if kind == "sys_choice" else ""
        fields = ("name", "element", *wanted)
        rows = await self._client.query(kind, query, fields, limit=_ROWS_MAX, timeout_seconds=WITHIN_SECONDS)
        labels = rows if isinstance(rows, list) else []
        return self._keep(key, _read(sorted(labels, key=lambda row: row.get("name") == table), kind), bool(labels))

    async def _named(self, table: str, sys_id: str) -> str:
        """The name of a record that a field refers to; "" if it has none."""
        if not _NAME.fullmatch(table) or not _ID.fullmatch(sys_id):
            return ""
        key = ("record", table, sys_id)
        if (known := self._known(key)) is None:
            record = await self._client.get(table, sys_id, ("name",), timeout_seconds=WITHIN_SECONDS)
            name = record.get("name") if isinstance(record, dict) else None
            known = self._keep(key, {"name": name} if isinstance(name, str) else {}, isinstance(record, dict))
        return known.get("name", "")

    def _known(self, key: tuple[str, ...]) -> Mapping[str, str] | None:
        until, labels = self._labels.get(key, (0.0, None))
        return labels if until > deadline_in(0) else None

    def _keep(self, key: tuple[str, ...], labels: Mapping[str, str], found: bool) -> Mapping[str, str]:
        if len(self._labels) >= _KEPT_MAX:
            self._labels.clear()
        self._labels[key] = (deadline_in(KEPT_SECONDS if found else AGAIN_SECONDS), labels)
        return labels


def _read(rows: Iterable[JsonObject], kind: str) -> Mapping[str, str]:
    """The rows by field: for choices the label of each value, for columns the label and the referenced table."""
    found = {}
    for row in rows:
        labels = {name: value for name, value in row.items() if isinstance(value, str)}
        element = labels.get("element", "")
        if kind == "sys_choice":
            found[f"{element}.{labels.get('value', '')}"] = labels.get("label", "")
        else:
            found |= {f"{element}.{name}": labels.get(name, "") for name in ("column_label", "reference")}
    return found
