"""Latency of answers to Slack under 200 signed clicks per second on the real HTTP application.

The application runs in its own process, the clicker in another, and the keeper that draws the cards anew in a third.
Each click is a deciding vote on the card of a run that the product parked; in the end each card must be decided exactly
once, and must say so, though Slack's stand-in asks for fewer requests now and then (429).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from approvals.ports import MessageRef, Posted
from approvals.slack.cards import actions, button
from benchmarks.children import SLACK_TOKEN, Child, child, environment
from benchmarks.figures import Figure, Verdict, at_most, median, percentile, plain, spread_of
from benchmarks.postgres_use import processor_seconds
from benchmarks.stage import Stage, tell
from benchmarks.timed import CONCURRENCY_WITHIN, machine
from benchmarks.world import World
from core.terms import QUESTIONS
from runtime.store import approvals
from sandbox.faults import Fault
from sandbox.server import LoopbackServer
from sandbox.slack import Slack, SlackConfig
from sandbox.slack_state import BOT_USER, Message

RATE = 200
SECONDS = 10
WARM_UP = 100
CHANNEL = "C0OPS"
# So often, of so many updates, Slack's stand-in asks for a second's rest.
LIMITED = 20
DRAWN_SECONDS_MAX = 1800.0

_DECIDED = """
SELECT count(*) AS cards,
  count(*) FILTER (WHERE a.status = 'approved' AND a.decided_at IS NOT NULL AND v.votes = 1 AND e.events = 1) AS once
FROM approvals a
LEFT JOIN LATERAL (SELECT count(*) AS votes FROM votes WHERE approval_id = a.approval_id) v ON true
LEFT JOIN LATERAL (
  SELECT count(*) AS events FROM run_lines WHERE run_id = a.run_id AND type = 'approval.decided') e ON true
WHERE a.approval_id::text = ANY ($1)"""


async def measure(stage: Stage) -> list[Figure]:
    """Park the runs, start the application, click, and check every card."""
    rate, seconds, warm_up = stage.size((RATE, SECONDS, WARM_UP), (50, 1, 10))
    async with stage.world() as world:
        tell(f"parking {rate * seconds + warm_up:,} runs to click on")
        await park(world, rate * seconds + warm_up)
        # The application asks Slack who clicked and caches the answer, so the warm-up keeps this out of the figures.
        chat = Slack(SlackConfig(bot_token=SLACK_TOKEN))
        slack = LoopbackServer(chat.app)
        asked = {"COUNTERSEAL_SLACK_API_URL": f"{slack.url}/api/", "COUNTERSEAL_SLACK_CHANNEL": CHANNEL}
        # One channel shows 120 cards a minute, and a tenant 2,000 an hour: these cards would wait for half an hour.
        asked["COUNTERSEAL_BUDGETS"] = json.dumps(dict.fromkeys(("channel_messages", "cards"), 1_000_000))
        serve, keep = (["-m", "benchmarks.process", duty, "--slack"] for duty in ("serve", "keep"))
        given, logs = environment(world, **asked), world.folder
        cards = await _posted(world, chat)
        async with slack, child(serve, given, logs / "serve.log") as served, child(keep, given, logs / "keep.log"):
            await world.plain.execute("VACUUM (ANALYZE)")
            await world.plain.execute("CHECKPOINT")
            await _clicked(world, served, cards[:warm_up], rate)
            clicked = cards[warm_up:]
            limit = len(clicked) // LIMITED
            chat.faults.inject(Fault("chat.update", status=429, headers={"Retry-After": "1"}, times=limit, skip=limit))
            before = await _processors(world, served)
            found = await _clicked(world, served, clicked, rate)
            after = await _processors(world, served)
            used = [(then - now) * 1000 / len(clicked) for now, then in zip(before, after, strict=True)]
            drawn = await _drawn(chat, await _decided(world, clicked))
            found |= {"drawn": drawn, "limited": sum(bool(call.fault) for call in chat.faults.calls), "limit": limit}
        row = await world.plain.fetchrow(_DECIDED, [card["approval"] for card in clicked])
        assert row is not None
    return _figures(rate, found, int(row["once"]), len(clicked), used)


async def _posted(world: World, chat: Slack) -> list[dict[str, str]]:
    """Let a card of each question stand in the stand-in's channel, so that the keeper has only to draw them anew."""
    cards = []
    async with world.engine.connection() as connection:
        for each in await world.open_approvals():
            card = (await approvals.read(connection, each)).approval
            asked = [actions([button("Approve", "counterseal.approve", "{}")])]
            shown = chat.state.post(Message(CHANNEL, chat.state.next_ts(), BOT_USER, "A question", asked))
            await approvals.shown(connection, card.id, Posted(MessageRef(CHANNEL, shown.ts)))
            cards.append({"approval": str(card.id), "nonce": card.nonce, "channel": CHANNEL, "ts": shown.ts})
    return cards


async def _decided(world: World, cards: Sequence[dict[str, str]]) -> set[str]:
    """The messages of those of these questions that are decided: a click that is not taken draws nothing."""
    query = "SELECT message_ts FROM approvals WHERE status = 'approved' AND approval_id::text = ANY ($1)"
    return {row["message_ts"] for row in await world.plain.fetch(query, [card["approval"] for card in cards])}


async def _drawn(chat: Slack, wanted: set[str]) -> int:
    """The number of these cards on which nobody can press *Approve* any more, once that is all, or time is over."""
    messages = [one for one in chat.state.messages(CHANNEL) if one.ts in wanted]
    deadline = asyncio.get_running_loop().time() + DRAWN_SECONDS_MAX
    while True:
        drawn = sum("counterseal.approve" not in json.dumps(one.blocks) for one in messages)
        if drawn == len(wanted) or asyncio.get_running_loop().time() > deadline:
            return drawn
        await asyncio.sleep(0.2)


async def park(world: World, runs: int) -> None:
    """Start runs that each wait for a vote."""
    gate = asyncio.Semaphore(CONCURRENCY_WITHIN // 2)

    async def start(number: int) -> None:
        async with gate:  # a requester has so many questions open at once, and no more
            await world.start("parked", requester=f"requester-{number // QUESTIONS['requester']}")

    async with machine(world) as running, asyncio.TaskGroup() as group:
        for number in range(runs):
            group.create_task(start(number))
        while len(await world.open_approvals()) < runs:
            await running.notice(0.2)


async def _processors(world: World, served: Child) -> tuple[float, float]:
    """The processor seconds of the application and of PostgreSQL."""
    return (await served.ask())["cpu_seconds"], await processor_seconds(world.plain)


async def _clicked(world: World, served: Child, cards: Sequence[dict[str, str]], rate: int) -> dict[str, Any]:
    path = world.folder / "cards.jsonl"
    path.write_text("".join(json.dumps(card) + "\n" for card in cards), encoding="utf-8")
    people = ["-m", "benchmarks.clicker", served.said["url"], str(path), str(rate)]
    async with child(people, environment(world), world.folder / "clicker.log") as clicker:
        return clicker.said


def _figures(rate: int, found: dict[str, Any], once: int, clicks: int, used: list[float]) -> list[Figure]:
    taken: list[float] = found["milliseconds"]
    refused = sum(status != 200 for status in found["statuses"])
    seconds = [taken[start : start + rate] for start in range(0, len(taken), rate)]
    what = f"click → Slack answered, {rate} clicks/s"
    return [
        plain(
            f"{what}, p50",
            f"{median(taken):.1f} ms",
            spread=spread_of([median(one) for one in seconds]),
            value=median(taken),
        ),
        at_most(
            f"{what}, p99",
            100,
            percentile(taken, 99),
            "ms",
            spread=spread_of([percentile(one, 99) for one in seconds]),
            slowest=max(taken),
            connections=found["connections"],
        ),
        plain(
            "processor per click: application + PostgreSQL",
            f"{used[0]:.1f} + {used[1]:.1f} ms",
            application=used[0],
            postgres=used[1],
        ),
        Figure(
            f"{clicks:,} clicks: decided exactly once; answered other than 200",
            f"{clicks:,}; 0",
            f"{once:,}; {refused:,}",
            Verdict.WITHIN if once == clicks and not refused else Verdict.OVER,
            {"decided_once": once, "refused": refused},
        ),
        Figure(
            "decided cards: drawn anew; updates that Slack put off (429)",
            f"{once:,}; {found['limit']:,}",
            f"{found['drawn']:,}; {found['limited']:,}",
            Verdict.WITHIN if (found["drawn"], found["limited"]) == (once, found["limit"]) else Verdict.OVER,
            {"drawn": found["drawn"], "limited": found["limited"]},
        ),
    ]
