"""Helpers of tests/runtime that several test files share: from test_cards_of_actions."""

from __future__ import annotations

from typing import Any

from runtime.requests.voting import Voting


async def card(runtime: Any, question: Any) -> Any:
    return await Voting(runtime.faces, runtime.definitions).view("acme", question)
