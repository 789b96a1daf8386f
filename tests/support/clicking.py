"""Clicks and submissions as they come from a question's own message, or from a window that was opened for a person."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any
from uuid import UUID

from approvals.slack.payloads import parse_submission
from approvals.slack.windows import Windows
from core.db import Database
from core.errors import InputError
from tests.support.books import Books

_PLACED = "UPDATE approvals SET channel = $2, message_ts = $3 WHERE approval_id = $1 AND message_ts IS NULL"
CARD = {"channel_id": "C0CARDS", "message_ts": "1.2"}
_PLACE = "SELECT channel, message_ts FROM approvals WHERE approval_id = $1"


async def honestly(engine: Database, books: Books, payload: dict[str, Any], secret: str) -> dict[str, Any]:
    """The same payload with the place of the question's card, or with the mark of a window that was opened for this.

    A card that was not delivered counts as delivered at ``CARD``. A click from elsewhere stays where it is.
    """
    payload = deepcopy(payload)
    try:
        if payload.get("type") == "block_actions":
            await _place(engine, payload)
        elif payload.get("type") == "view_submission":
            await _open(books, payload, secret)
    except (InputError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        pass  # a payload of something else, or one that is malformed on purpose, is sent as it is
    return payload


async def _place(engine: Database, payload: dict[str, Any]) -> None:
    asked = UUID(json.loads(payload["actions"][0]["value"])["a"])
    container = payload["container"]
    async with engine.connection() as connection:
        await connection.execute(_PLACED, asked, *CARD.values())
        row = await connection.fetchrow(_PLACE, asked)
    if row is not None and container == {"type": "message", **CARD}:
        payload["container"] = {**container, "channel_id": row["channel"], "message_ts": row["message_ts"]}


async def _open(books: Books, payload: dict[str, Any], secret: str) -> None:
    view = payload["view"]
    metadata = json.loads(view["private_metadata"])
    question = await books.approvals(id=UUID(metadata["a"]))
    metadata["d"] = question[0].action_digest if question else "0" * 64
    view["private_metadata"] = json.dumps(metadata)
    clicker = parse_submission(payload).clicker
    view["private_metadata"] = Windows(secret).marked(view, clicker)["private_metadata"]
