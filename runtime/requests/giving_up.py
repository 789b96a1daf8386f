"""Gives up a message that failed for good: a person says why nobody needs it, and the tenant's audit keeps that."""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct

from core.canonical import JsonObject, check_text
from core.db import Connection
from core.errors import InputError, NotFoundError
from evidence.chain import Actor
from evidence.events import EventType
from runtime.store import audit, outbox

# Evidence is never given up: once the cause is mended, it is written again.
NEVER = ("bundle",)


class GivenUp(Struct, frozen=True):
    """A message that was given up. ``run_id`` is its run; None for a message of the tenant."""

    message: UUID
    tenant: str
    kind: str
    run_id: UUID | None


async def give_up(connection: Connection, message: UUID, actor: Actor, reason: str) -> GivenUp:
    """Give a message up in the caller's transaction, with its line in the tenant's audit.

    ``NotFoundError`` if no such message has failed. A crash before the commit leaves the message as it was.
    """
    check_text(reason, "reason")
    if not reason.strip():
        raise InputError("is empty.", where="reason", remedy="Say why nobody needs it any more.")
    row = await outbox.give_up(connection, message, NEVER)
    if row is None:
        words = f"There is no message {message} that has failed and can be given up."
        raise NotFoundError(words, remedy="See `counterseal queue dead`. Evidence is written by `evidence again RUN`.")
    found = GivenUp(message, row["tenant"], row["kind"], row["run_id"])
    facts: JsonObject = {"message": str(message), "kind": found.kind, "reason": reason}
    run: JsonObject = {} if found.run_id is None else {"run": str(found.run_id)}
    await audit.record(connection, found.tenant, EventType.MESSAGE_GIVEN_UP, actor, facts | run)
    return found
