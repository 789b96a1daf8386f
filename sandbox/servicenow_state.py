"""The records behind the ServiceNow stand-in: tables of string values, journals, and the log of applied writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from sandbox.watch import Watched

Record = dict[str, str]
JOURNAL_FIELDS: Final = {"work_notes": "Work notes", "comments": "Additional comments"}
JOURNAL_TABLE: Final = "sys_journal_field"
REFERENCES: Final = {
    "opened_by": "sys_user",
    "caller_id": "sys_user",
    "assigned_to": "sys_user",
    "closed_by": "sys_user",
    "resolved_by": "sys_user",
    "manager": "sys_user",
    "assignment_group": "sys_user_group",
    "cmdb_ci": "cmdb_ci",
    "business_service": "cmdb_ci",
}
_NUMBER_PREFIX: Final = {"incident": "INC", "change_request": "CHG", "problem": "PRB", "sc_request": "REQ"}
_FIRST_NUMBER: Final = 10_001
_PRIORITY: Final = {  # the shipped "Priority Data Lookup": impact, urgency -> priority
    ("1", "1"): "1", ("1", "2"): "2", ("1", "3"): "3",
    ("2", "1"): "2", ("2", "2"): "3", ("2", "3"): "4",
    ("3", "1"): "3", ("3", "2"): "4", ("3", "3"): "5",
}  # fmt: skip
_INCIDENT_DEFAULTS: Final = {
    "state": "1",
    "impact": "3",
    "urgency": "3",
    "category": "inquiry",
    "description": "",
    "short_description": "",
    "assigned_to": "",
    "assignment_group": "",
    "caller_id": "",
    "cmdb_ci": "",
    "close_code": "",
    "close_notes": "",
    "correlation_id": "",
    "active": "true",
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One write that was applied. ``changes``: field -> (before, after); before is "" for an insert."""

    at: float
    operation: str  # insert | update | delete
    user: str
    table: str
    sys_id: str
    sys_mod_count: int
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


class ServiceNowState(Watched):
    """All tables. Every write goes through insert, update or delete; applied writes are in ``effects``."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.clock = clock
        self.tables: dict[str, dict[str, Record]] = {}
        self.effects: list[Effect] = []
        self.on_write: list[Callable[[Effect, Record], None]] = []
        self._numbers: dict[str, int] = {}

    def now_text(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).strftime("%Y-%m-%d %H:%M:%S")

    def record(self, table: str, sys_id: str) -> Record | None:
        return self.tables.get(table, {}).get(sys_id)

    def find(self, table: str, **equal: str) -> Record | None:
        """The first record whose fields equal these: ``find("incident", number="INC0010001")``."""
        rows = self.tables.get(table, {}).values()
        return next((row for row in rows if all(row.get(name) == value for name, value in equal.items())), None)

    def seed(self, table: str, record: Record) -> Record:
        """Add an initial record: no effect is logged and no business rule runs."""
        stamped = {**self._stamps("system"), **record}
        self.tables.setdefault(table, {})[stamped["sys_id"]] = stamped
        return stamped

    def insert(self, table: str, fields: Mapping[str, str], user: str) -> Record:
        record = {**(_INCIDENT_DEFAULTS if table == "incident" else {}), **self._stamps(user)}
        if prefix := _NUMBER_PREFIX.get(table):
            number = self._numbers.get(table, _FIRST_NUMBER)
            self._numbers[table] = number + 1
            record["number"] = f"{prefix}{number:07d}"
        if table == "incident":
            record["opened_at"] = record["sys_created_on"]
            record["opened_by"] = self._user_id(user)
        record |= {name: value for name, value in _settable(fields).items() if name not in JOURNAL_FIELDS}
        _derive_priority(record, fields, was=None)
        self.tables.setdefault(table, {})[record["sys_id"]] = record
        self._append_journals(table, record, fields, user)
        self._applied("insert", table, record, user, {name: ("", value) for name, value in _settable(fields).items()})
        return record

    def update(self, table: str, sys_id: str, fields: Mapping[str, str], user: str) -> Record:
        """Change a record; KeyError if there is none. Like GlideRecord.update, an update without changes is a no-op."""
        record = self.tables[table][sys_id]
        before = dict(record)
        settable = _settable(fields)
        record |= {name: value for name, value in settable.items() if name not in JOURNAL_FIELDS}
        _derive_priority(record, fields, was=before)
        changes = {
            name: (before.get(name, ""), record.get(name, ""))
            for name in record
            if record[name] != before.get(name, "")
        }
        changes |= {name: ("", settable[name]) for name in JOURNAL_FIELDS if settable.get(name)}
        if not changes:
            return record
        record["sys_mod_count"] = str(int(record["sys_mod_count"]) + 1)
        record["sys_updated_on"] = self.now_text()
        record["sys_updated_by"] = user
        self._append_journals(table, record, fields, user)
        self._applied("update", table, record, user, changes)
        return record

    def delete(self, table: str, sys_id: str, user: str) -> None:
        """Remove a record; KeyError if there is none."""
        record = self.tables[table].pop(sys_id)
        self._applied("delete", table, record, user, {})

    def writes(self, table: str, sys_id: str = "", user: str = "") -> list[Effect]:
        """The applied writes to a table, or to one record of it, or by one user, oldest first."""
        return [
            effect
            for effect in self.effects
            if effect.table == table and sys_id in ("", effect.sys_id) and user in ("", effect.user)
        ]

    def _user_id(self, user: str) -> str:
        found = self.find("sys_user", user_name=user)
        return found["sys_id"] if found else ""

    def _stamps(self, user: str) -> Record:
        now = self.now_text()
        stamps = {"sys_id": uuid.uuid4().hex, "sys_mod_count": "0", "sys_domain": "global", "sys_tags": ""}
        return stamps | {
            "sys_created_on": now, "sys_created_by": user, "sys_updated_on": now, "sys_updated_by": user,
        }  # fmt: skip

    def _append_journals(self, table: str, record: Record, fields: Mapping[str, str], user: str) -> None:
        for name, label in JOURNAL_FIELDS.items():
            text = fields.get(name, "")
            if not text:
                record.setdefault(name, "")
                continue
            entry = self._stamps(user) | {"name": table, "element_id": record["sys_id"], "element": name, "value": text}
            self.tables.setdefault(JOURNAL_TABLE, {})[entry["sys_id"]] = entry
            author = (self.find("sys_user", user_name=user) or {}).get("name", user)
            record[name] = f"{entry['sys_created_on']} - {author} ({label})\n{text}\n\n" + record.get(name, "")

    def _applied(
        self, operation: str, table: str, record: Record, user: str, changes: Mapping[str, tuple[str, str]]
    ) -> None:
        count = int(record["sys_mod_count"])
        effect = Effect(self.clock(), operation, user, table, record["sys_id"], count, dict(changes))
        self.effects.append(effect)
        self.changed()
        for listener in self.on_write:
            listener(effect, record)


def _settable(fields: Mapping[str, str]) -> Record:
    """Leave out ``sys_*`` and the number, which the system sets; the Table API also ignores them silently."""
    return {name: value for name, value in fields.items() if not name.startswith("sys_") and name != "number"}


def _derive_priority(record: Record, fields: Mapping[str, str], *, was: Record | None) -> None:
    if "impact" not in record or "urgency" not in record or "priority" in fields:
        return
    moved = was is None or any(record[name] != was.get(name) for name in ("impact", "urgency"))
    if moved:
        record["priority"] = _PRIORITY.get((record["impact"], record["urgency"]), record.get("priority", "5"))
