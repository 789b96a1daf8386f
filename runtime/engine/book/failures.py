"""Failures of calls that people had approved, counted for a whole family of runs. Pure.

A run keeps its own failures with their messages. The counters of its family keep only the approval, the time and the
code.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from core.canonical import JsonObject
from runtime.engine.model.run import Family, Run

Failures = Mapping[str, list[JsonObject]]

# The number of failures that are kept for one call: the last ones.
KEPT = 20


def of_call(run: Run, family: Family | None, run_id: UUID, key: str) -> list[JsonObject]:
    """The failures of the same call, of this run and of the others of its family, the oldest first."""
    found = [*run.failures.get(key, []), *_of_others(family, run_id, key)] if key else []
    return sorted(found, key=lambda one: str(one["at"]))


def since_begun(run: Run, family: Family | None, key: str) -> int:
    """The number of failures of this call since people last had a run of the family begin anew."""
    own = run.failures.get(key, []) if key else []
    if family is None or not key:
        return sum(one["again"] == run.begun_anew for one in own)
    known = family.failed.get(key, [])
    counted = {one["approval"] for one in known}
    return sum(one["again"] == family.anew for one in known) + sum(one["approval"] not in counted for one in own)


def of_first(run_id: UUID, known: Failures) -> Failures:
    """The failures with which the outermost run begins the counters of its family."""
    return {key: [_kept(run_id, one) for one in found] for key, found in known.items()}


def moved(family: Family, run_id: UUID, before: Failures, after: Failures, again: int) -> Failures:
    """The family's failures of the calls that have failed since ``before``; new ones get the number ``again``."""
    return {
        key: _joined(family.failed.get(key, []), [
            _kept(run_id, one, again) for one in found if one not in before.get(key, [])
        ])
        for key, found in after.items()
        if found != before.get(key, [])
    }  # fmt: skip


def _joined(known: list[JsonObject], new: list[JsonObject]) -> list[JsonObject]:
    """Both lists together, with only the last failure of each approval."""
    anew = {one["approval"] for one in new}
    return [*(one for one in known if one["approval"] not in anew), *new][-KEPT:]


def _of_others(family: Family | None, run_id: UUID, key: str) -> list[JsonObject]:
    known = [] if family is None else family.failed.get(key, [])
    return [{**one, "message": None} for one in known if one["run"] != str(run_id)]


def _kept(run_id: UUID, failure: JsonObject, again: int | None = None) -> JsonObject:
    facts: JsonObject = {name: failure[name] for name in ("approval", "at", "code")}
    return facts | {"run": str(run_id), "again": failure["again"] if again is None else again}
