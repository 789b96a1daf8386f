"""What a verification found, as a table: never a bare PASSED."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum

from core.canonical import JsonObject

_WIDTH = 100


class Status(StrEnum):
    """``warning``: true as far as it goes, and a person should weigh it. ``not_proven``: nothing here shows it."""

    OK = "ok"
    FAILED = "failed"
    WARNING = "warning"
    NOT_PROVEN = "not_proven"


@dataclass(frozen=True, slots=True)
class Row:
    """One check and its result, with what was found in words."""

    check: str
    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All rows, in the order of checking."""

    rows: tuple[Row, ...]

    @property
    def failed(self) -> tuple[Row, ...]:
        """The checks that failed."""
        return tuple(row for row in self.rows if row.status is Status.FAILED)

    @property
    def ok(self) -> bool:
        """Whether no check failed. Read the other rows before relying on it."""
        return not self.failed

    def to_json(self) -> JsonObject:
        """The table for programs."""
        return {
            "ok": self.ok,
            "rows": [{"check": row.check, "status": str(row.status), "detail": row.detail} for row in self.rows],
        }

    def to_text(self) -> str:
        """The table for people. Characters that a terminal would act upon are shown as escapes."""
        wide = max(len(row.check) for row in self.rows)
        indent = " " * (wide + 14)
        lines: list[str] = []
        for row in self.rows:
            detail = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in row.detail)
            first = f"{row.check:<{wide}}  {row.status:<10}  "
            lines += textwrap.wrap(detail, _WIDTH, initial_indent=first, subsequent_indent=indent) or [first.rstrip()]
        counts = {status: sum(row.status is status for row in self.rows) for status in Status}
        summary = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return "\n".join([*lines, "", f"{'no check failed' if self.ok else 'VERIFICATION FAILED'}: {summary}"])
