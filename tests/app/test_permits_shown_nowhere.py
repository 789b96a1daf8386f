"""A permit is in the answer to its fetch and nowhere else: no line of a log, no problem, no card, no table, no page."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.access import Role
from core.canonical import digest
from tests.support.gated import NONCE, Bot, agent, begun, call

pytestmark = pytest.mark.req("promise 1")
MEGABYTE = "x" * (1 << 20)
JSON = {"Content-Type": "application/json"}
UNREADABLE = {
    "too deep": "[" * 40 + "]" * 40,
    "a lone surrogate": r'"\ud800"',
    "no number": "NaN",
    "twice": '1, "output": 2',
}


async def wrong(bot: Bot, other: Bot, action: str, second: str, permit: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Send what an enemy sends with a permit; return the answers, with the statuses that are right."""
    report = {"permit": permit, "outcome": "succeeded", "digest": digest(asked)}
    fetch = {"nonce": NONCE, "digest": digest(asked)}

    async def post(path: str, body: Any, by: Bot = bot) -> httpx.Response:
        return await by.client.post(f"/v1/actions/{path}", json=body)

    async def raw(text: str) -> httpx.Response:
        content = json.dumps(report)[:-1] + f', "output": {text}}}'
        return await bot.client.post(f"/v1/actions/{action}/outcome", content=content, headers=JSON)

    return {
        "of another agent": (404, await post(f"{action}/outcome", report, other)),
        "a beat of another agent": (404, await post(f"{action}/heartbeat", {"permit": permit}, other)),
        "of another action": (409, await post(f"{second}/outcome", report)),
        "a beat of another action": (409, await post(f"{second}/heartbeat", {"permit": permit})),
        "in capitals": (422, await post(f"{action}/outcome", {**report, "permit": permit.upper()})),
        "with more": (422, await post(f"{action}/outcome", {**report, "permits": permit})),
        "as a list": (422, await post(f"{action}/heartbeat", {"permit": [permit]})),
        "an outcome that is none": (422, await post(f"{action}/outcome", {**report, "outcome": permit})),
        "a digest that is none": (422, await post(f"{action}/outcome", {**report, "digest": f"{permit}0"})),
        "as a nonce": (409, await post(f"{action}/permit", {**fetch, "nonce": permit})),
        "as the digest": (409, await post(f"{action}/permit", {**fetch, "digest": permit})),
        "in the address": (422, await post(f"{permit}/permit", fetch)),
        "in the query": (400, await bot.client.get(f"/v1/actions/{action}?permit={permit}")),
        "a megabyte": (413, await post(f"{action}/outcome", {**report, "output": MEGABYTE})),
        **{what: (400, await raw(text)) for what, text in UNREADABLE.items()},
    }


async def test_a_permit_is_shown_nowhere_and_what_is_wrong_with_it_changes_nothing(
    installation: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    bot = await begun(installation)
    action, asked, permit = await bot.out("free")
    second, other = await bot.ask(call("free", n=2)), await agent(installation, "other")
    for what, (status, answer) in (await wrong(bot, other, action, second, permit, asked)).items():
        assert answer.status_code == status, (what, answer.text[:300])
        assert permit not in answer.text.lower(), what
        assert await bot.status(action) == "executing", what
    said = {"sent": 1, "words": "‮\x1b[2J<!channel>"}
    done = await bot.report(action, permit, "succeeded", asked, output=said, detail="a\x07b‮c")
    assert (done.json()["status"], done.json()["output"]) == ("applied", said)
    await installation.app.sweeper().sweep()
    await installation.work()
    reader = await installation.client(Role.ADMIN)
    pages = [f"/v1/runs/{action}{part}" for part in ("", "/receipts", "/events", "/story")]
    shown = [(await reader.get(page)).text for page in pages]
    assert all(permit not in one for one in shown)
    assert await installation.books.mentions(permit) == set()
    assert NONCE not in "".join(shown), "nor the nonce, which gets it again"
    assert await installation.books.bundle(run=UUID(action))
    lines = capfd.readouterr()
    assert "run started" in lines.out + lines.err
    assert permit not in lines.out.lower() + lines.err.lower()
