"""One proposed call of an operation."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from core.canonical import JsonObject


class Risk(StrEnum):
    """The harm that an operation can do, as declared."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SideEffects(StrEnum):
    """The kind of side effect that an operation has."""

    NONE = "none"
    INTERNAL_DB = "internal_db"
    EXTERNAL_CALL = "external_call"
    HUMAN_PROCESS = "human_process"


class Change(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One field that an action would change: the value that was read (None if unknown) and the proposed value.

    ``unreadable``: the target did not show the value, so nobody knows what would be overwritten. ``label`` is the
    target's name for the field, ``before_label`` and ``after_label`` are its names for the values; "" for none.
    """

    field: str
    before: Any  # JSON
    after: Any
    unreadable: bool = False
    label: str = ""
    before_label: str = ""
    after_label: str = ""


class Labels(NamedTuple):
    """The target's names for a field, for its old value and for its new value; "" where it has none."""

    field: str = ""
    before: str = ""
    after: str = ""


NO_LABELS = Labels()


class Action(Struct, frozen=True):
    """A complete proposed action: policy judges it, people approve it, the connector performs exactly this.

    ``input`` is the operation's whole rendered input. ``fields`` are its proposed writes (a part of the input, or all
    of it). ``before`` holds the target's values as read, for the fields that the operation's ``diff`` names, and
    ``target_version`` the target's version at that read (for ServiceNow ``sys_mod_count``); both are None without a
    pre-read. ``reverse`` is the ``{operation, input}`` that restores every field whose value was read; None if nothing
    can. ``system`` is the outside system by address and account, "" for none. ``shaped`` lists the people who
    shaped it besides the run's requester, each as ``<role>:<principal>``. ``connector`` is the connector that performs
    it; "" means the first part of the operation's name. ``unreadable`` are the fields that the pre-read asked for and
    the target did not show: absent is not null. ``shown`` are the target's other values that the action's texts show to
    people, by their paths (``facts.short_description``): an approval binds them like ``before``. ``subjects`` are the
    people whom the action is about by its declaration, as texts. ``facts`` and ``labels`` are what the pre-read tells
    people: an approval binds only those that a text shows. ``writers`` are the principals who last wrote the values
    that were read.
    """

    operation: str
    input: JsonObject
    fields: JsonObject
    target: str
    target_version: str | None
    before: JsonObject | None
    risk: Risk
    side_effects: SideEffects
    reversible: bool
    summary: str
    reverse: JsonObject | None = None
    system: str = ""
    shaped: tuple[str, ...] = ()
    connector: str = ""
    unreadable: tuple[str, ...] = ()
    facts: JsonObject | None = None
    labels: Mapping[str, Labels] | None = None
    shown: JsonObject = {}
    subjects: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """The fields whose proposed value differs from the value read; all fields if nothing was read."""
        before, labels = self.before or {}, self.labels or {}
        return tuple(
            Change(field, before.get(field), after, field in self.unreadable, *labels.get(field, NO_LABELS))
            for field, after in self.fields.items()
            if self.before is None or field not in before or before[field] != after
        )
