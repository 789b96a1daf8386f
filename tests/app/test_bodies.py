"""Bodies of requests: read up to their limit, and refused unread if their announced length is beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from app.http.middleware import read_body
from core.bounded_json import BODY_BYTES_MAX

MOST = BODY_BYTES_MAX


def request(chunks: list[int], announced: str | None) -> tuple[Request, list[int]]:
    """A request whose body comes in chunks of these sizes, and those that were not read."""
    left = list(chunks)

    async def receive() -> Any:
        size = left.pop(0)
        return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

    headers = [] if announced is None else [(b"content-length", announced.encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive), left


@pytest.mark.parametrize(
    ("chunks", "announced"),
    [([0], None), ([MOST], None), ([MOST], str(MOST)), ([MOST - 1, 1], None), ([3], "many"), ([3], "-1")],
)
async def test_a_body_is_read_up_to_its_limit(chunks: list[int], announced: str | None) -> None:
    made, left = request(chunks, announced)
    assert len(await read_body(made)) == sum(chunks)
    assert left == []


@pytest.mark.parametrize(
    ("chunks", "announced", "unread"),
    [
        ([MOST + 1], None, 0),
        ([MOST, 1, 1], None, 1),
        ([1, 1], str(MOST + 1), 2),
        ([1, 1], "1000000", 2),
        ([1, 1], "9" * 4000, 2),
        ([1, 1], "0" * 6 + "999999", 2),
        ([1, 1], "9" * 12 + "0" * 11 + "1", 2),
    ],
)
async def test_a_body_beyond_its_limit_is_read_no_further(
    chunks: list[int], announced: str | None, unread: int
) -> None:
    made, left = request(chunks, announced)
    with pytest.raises(HTTPException) as refused:
        await read_body(made)
    assert (refused.value.status_code, refused.value.detail) == (413, "At most 262144 bytes are accepted.")
    assert len(left) == unread
