"""The guards of which each has to have a fault: of requirements, state tables, the schema and the code.

A guard with a place is a span of a file, and a fault has it if one of its edits meets that span.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.faults import Fault, text_of

SCHEMA = "migrations/versions/0006_tables.sql"
FUNCTIONS = "migrations/versions/0007_functions.sql"
QUERIES = "runtime/store/queries"
MACHINES = {
    "run": ("runtime/engine/model/states.py", "RUN: Machine"),
    "step": ("runtime/engine/model/states.py", "STEP: Machine"),
    "wait": ("runtime/engine/model/states.py", "WAIT: Machine"),
    "command": ("runtime/engine/model/states.py", "COMMAND: Machine"),
    "effect": ("runtime/engine/model/states.py", "EFFECT: Machine"),
    "approval": ("approvals/model.py", "APPROVAL: Machine"),
    "receipt": ("evidence/receipts.py", "RECEIPT: Machine"),
}
PROMISES = [f"promise {number}" for number in range(1, 13)]
# Guards without a fault, each with the reason.
_KEYS = "bundles caps commands group_members inbox ledger people policies remains tokens unavailable waits workflows"
EXEMPT = {
    # tests/store/test_uniques.py tries each primary key alike, so the faults of a few show that it can fail.
    **dict.fromkeys((f"pk_{table}" for table in (*_KEYS.split(), "workspaces")), "It is one of a class."),
    "pk_tenants": "All other tables refer to it: the schema cannot be made without it.",
}

_REQUIREMENT = re.compile(r"^\| ([UQOVXP]-\d+) \|", re.MULTILINE)
_UNIQUE = re.compile(r"CONSTRAINT ((?:pk|uq)_\w+)|CREATE UNIQUE INDEX (\w+)")
_LOCK = re.compile(r"FOR (?:NO KEY )?(?:UPDATE|SHARE)\b|pg_advisory_xact_lock\w*\(")
_REFUSES = re.compile(r"RETURN NULL;|RETURN false;|RAISE EXCEPTION")

Span = tuple[str, int, int]


def named(root: Path) -> list[str]:
    """The promises and requirements: a fault says itself which of them it breaks."""
    numbers = _REQUIREMENT.findall((root / "docs/requirements.md").read_text(encoding="utf-8"))
    return [name for name in (*PROMISES, *numbers) if name not in EXEMPT]


def placed(root: Path) -> dict[str, Span]:
    """The guards that stand somewhere: state tables, unique constraints, locks, refusals of the database."""
    found = dict(_tables(root))
    schema = (root / SCHEMA).read_text(encoding="utf-8")
    for match in _UNIQUE.finditer(schema):
        found[match[1] or match[2]] = (SCHEMA, match.start(), schema.index(")", match.end()) + 1)
    queries = (f"{QUERIES}/{path.name}" for path in sorted((root / QUERIES).glob("*.sql")))
    for file in (FUNCTIONS, *queries):
        found |= _matches(root, file, _LOCK)
    functions = text_of(FUNCTIONS, root, {})
    for name, (_, start, end) in _matches(root, FUNCTIONS, _REFUSES).items():
        declared = functions[functions.rindex("CREATE OR REPLACE FUNCTION", 0, start) :].partition("\n")[0]
        if name.endswith("EXCEPTION") or not declared.endswith("RETURNS trigger LANGUAGE plpgsql AS $function$"):
            found[name] = (FUNCTIONS, _begin(functions, start), end)  # what a trigger answers is of no matter
    return {name: span for name, span in found.items() if name not in EXEMPT}


def _tables(root: Path) -> Iterator[tuple[str, Span]]:
    for name, (file, begins) in MACHINES.items():
        text = (root / file).read_text(encoding="utf-8")
        start = text.index(begins)
        yield f"the state table {name}", (file, start, text.index("\n)", start))


def _matches(root: Path, file: str, pattern: re.Pattern[str]) -> dict[str, Span]:
    text = text_of(file, root, {})
    return {
        f"{file}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}": (file, match.start(), match.end())
        for match in pattern.finditer(text)
    }


def _begin(text: str, refusal: int) -> int:
    """The end of the statement before the one that refuses: what is asked stands behind it."""
    return max(text.rfind(word, 0, refusal) for word in ("END IF;", "BEGIN\n", "BEGIN ", "FUNCTION "))


def lacking(faults: list[Fault], root: Path) -> list[str]:
    """Name each guard that no fault takes away."""
    said = {name for fault in faults for name in fault.breaks}
    texts: dict[str, str] = {}
    edits = [
        (edit.file, found.start(), found.end())
        for fault in faults
        for edit in fault.edits
        for found in re.finditer(re.escape(edit.old), text_of(edit.file, root, texts))
    ]
    bare = [name for name in named(root) if name not in said]
    for name, (file, start, end) in placed(root).items():
        if not any(file == other and start < last and first < end for other, first, last in edits):
            bare.append(name)
    return bare
