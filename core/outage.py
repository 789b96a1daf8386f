"""Distinguishes errors of the database or network from errors in the data to be written."""

from __future__ import annotations

import asyncpg
import structlog

from core.errors import CountersealError, TransportError

log = structlog.get_logger(__name__)

# SQLSTATE classes of errors in our data or statements, which a retry cannot fix: data, constraint, statement, program
# limit, and the moves that our triggers refuse.
_LASTING = ("22", "23", "42", "54", "P0")

# Classes of errors that pass by themselves: connection, read-only server, a transaction that was idle for too long,
# lost race, resources, locks, operator, disk.
_AWAY = ("08", "25006", "25P03", "40", "53", "55", "57", "58")


def is_passing(error: Exception) -> bool:
    """True if an error comes from the database or the network at this moment, and not from the step itself."""
    if isinstance(error, asyncpg.PostgresError):
        return not str(error.sqlstate or "").startswith(_LASTING)
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)  # asyncpg's error for a parameter that it cannot encode
    return isinstance(error, OSError | TimeoutError | TransportError)


def is_away(error: Exception) -> bool:
    """True if PostgreSQL cannot serve at this moment, or its answer was lost: a retry makes sense."""
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate or "").startswith(_AWAY)
    return is_passing(error)


def report(words: str, error: Exception, **facts: str) -> None:
    """Log an error of a loop that goes on: one line for an outage or an error of ours, otherwise with its traceback."""
    if is_passing(error):
        log.warning(words, reason=f"{type(error).__name__}: {error}", **facts)
    elif isinstance(error, CountersealError):
        log.error(words, reason=str(error), **facts)
    else:
        log.error(words, exc_info=error, **facts)
