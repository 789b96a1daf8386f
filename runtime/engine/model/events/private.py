"""The mark of a private field of an event."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypeVar

Value = TypeVar("Value")

PRIVATE = "private"
# A field whose value stays out of the audit line.
Private: TypeAlias = Annotated[Value, PRIVATE]
