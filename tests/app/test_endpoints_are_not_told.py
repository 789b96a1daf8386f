"""Webhooks tell nothing to whoever cannot sign: an endpoint that is not configured answers like any other."""

from __future__ import annotations

from typing import Any

import pytest

EVENT = {"table": "incident", "event": "insert", "sys_id": "a" * 32}


@pytest.mark.parametrize("how", [{"secret": "w" * 40}, {"at": 0.0}, {"headers": {"X-Counterseal-Signature": ""}}, {}])
async def test_an_endpoint_that_there_is_not_answers_like_a_wrong_signature(installation: Any, how: Any) -> None:
    refused = {"secret": "w" * 40} | how
    there = await installation.webhook(EVENT, **refused)
    not_there = await installation.webhook(EVENT, endpoint="nowhere", **refused)
    assert there.status_code == not_there.status_code == 401
    assert there.content == not_there.content
    assert [*there.headers] == [*not_there.headers]
