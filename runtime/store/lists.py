"""Reads lists of questions: those that one step asks in every iteration of a loop, and those on one message."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from approvals.model import ApprovalStatus
from approvals.ports import MessageRef
from core.db import Connection
from runtime.engine.book.contributors import stated_contributors
from runtime.engine.book.recorded import check_stored
from runtime.store.approvals import StoredApproval, question, question_in, stored_of
from runtime.store.journal import Append, appends
from runtime.store.statements import statements

_SQL = statements("lists")
_OF_MESSAGE = _SQL["of_message"]
_OF_LIST = _SQL["of_list"]
_SEVERAL = _SQL["several"]
_ASKED_IN = _SQL["asked_in"]


class Listed(Struct, frozen=True):
    """A question of a list: the place of its card, and a flag if somebody has voted on it."""

    approval_id: UUID
    status: ApprovalStatus
    message: MessageRef | None
    voted: bool

    @property
    def fresh(self) -> bool:
        """True while the question is open and has no votes."""
        return self.status is ApprovalStatus.REQUESTED and not self.voted


async def of_message(connection: Connection, approval_id: UUID) -> list[UUID]:
    """The questions on the same message as this one, itself included; none if it is on no message."""
    return [row["approval_id"] for row in await connection.fetch(_OF_MESSAGE, approval_id)]


async def of_list(connection: Connection, approval_id: UUID) -> list[Listed]:
    """The questions of this question's list, in the order in which they were asked; none if it is on no list."""
    rows = await connection.fetch(_OF_LIST, approval_id)
    return [
        Listed(
            row["approval_id"],
            ApprovalStatus(row["status"]),
            MessageRef(row["channel"], row["message_ts"]) if row["message_ts"] else None,
            row["voted"],
        )
        for row in rows
    ]


async def several(connection: Connection, ids: Sequence[UUID]) -> list[StoredApproval]:
    """These questions of one run, in the order in which they were asked. An append that asked many is read once."""
    rows = await connection.fetch(_SEVERAL, ids)
    runs = {UUID(row["approval"]["run_id"]) for row in rows}
    places = [row["approval"]["n"] for row in rows if row["kept"] is None]
    asked_in: dict[int, list[Append]] = {}
    for row in await connection.fetch(_ASKED_IN, [*runs], places):
        asked_in[row["n"]] = [*appends((row["first_seq"],), (row["lines"],), (row["vals"],))]
        for append in asked_in[row["n"]]:
            check_stored(append.lines[-1], append.stored, row["run_key"] or b"")
    found = []
    for row in rows:
        approval_id, place = UUID(row["approval"]["approval_id"]), row["approval"]["n"]
        if row["kept"] is not None:
            asked = question({**dict(row), "asked": row["lines"], "asked_at": row["first_seq"]}, approval_id)
        else:
            asked = question_in(asked_in.get(place, ()), approval_id, None, row["run_key"] or b"")
        found.append(stored_of(row, asked, asked.digest, asked.shown or {}, stated_contributors(asked)))
    return found
