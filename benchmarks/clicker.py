"""People who click: `python -m benchmarks.clicker URL FILE RATE` sends one signed click per line of FILE, at that rate.

The load is open: a click is sent when it is due, even if earlier clicks have no answer yet. Latency counts from the due
time, so a server that falls behind cannot hide it. The client speaks HTTP/1.1 on bare streams with keep-alive, to cost
the machine little. Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import uvloop

from benchmarks.children import SIGNING_SECRET
from benchmarks.documents import SLACK_USER
from sandbox.slack_state import TEAM_ID

ANSWER_SECONDS = 30.0


@dataclass
class Clicker:
    """Sends prepared requests to one server, over as many connections as needed."""

    host: str
    port: int
    opened: int = 0
    _free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def send(self, request: bytes) -> int:
        """Send one request. Returns the status of the answer, or 0 if there is none."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = self._kept() or await self._open()
                try:
                    writer.write(request)
                    status, length, kept = _read_head(await reader.readuntil(b"\r\n\r\n"))
                    await reader.readexactly(length)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return 0
        if kept:
            self._free.append((reader, writer))
        else:
            writer.close()
        return status

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A free connection that the server has not closed; it closes idle ones after some seconds."""
        while self._free:
            reader, writer = self._free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.opened += 1
        return await asyncio.open_connection(self.host, self.port)

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


def _read_head(head: bytes) -> tuple[int, int, bool]:
    """The status, the length of the body, and True if the connection is kept alive."""
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if value}
    return int(first.split()[1]), int(fields.get("content-length", "0")), fields.get("connection") != "close"


def signed(host: str, card: Mapping[str, str], at: int) -> bytes:
    """The signed request that Slack sends when Ana presses Approve on this card."""
    payload = {
        "type": "block_actions",
        "user": {"id": SLACK_USER, "team_id": TEAM_ID},
        "team": {"id": TEAM_ID},
        "container": {"type": "message", "channel_id": card["channel"], "message_ts": card["ts"]},
        "trigger_id": "1.2.3",
        "actions": [
            {
                "type": "button",
                "action_id": "counterseal.approve",
                "block_id": "b",
                "value": json.dumps({"a": card["approval"], "n": card["nonce"]}),
            }
        ],
    }
    body = f"payload={quote(json.dumps(payload))}".encode()
    digest = hmac.new(SIGNING_SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    head = (
        f"POST /slack/events HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\nX-Slack-Request-Timestamp: {at}\r\nX-Slack-Signature: v0={digest}\r\n\r\n"
    )
    return head.encode() + body


async def click(url: str, cards: Sequence[Mapping[str, str]], rate: float) -> dict[str, object]:
    """Press all buttons, ``rate`` per second. Returns milliseconds and status of each, in order."""
    where = urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    clicker = Clicker(where.hostname, where.port)
    requests = [signed(where.netloc, card, int(time.time())) for card in cards]
    found: list[tuple[float, int]] = [(0.0, 0)] * len(requests)
    begun = time.perf_counter()

    async def one(number: int) -> None:
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        status = await clicker.send(requests[number])
        found[number] = ((time.perf_counter() - due) * 1000, status)

    async with asyncio.TaskGroup() as group:
        for number in range(len(requests)):
            group.create_task(one(number))
    clicker.close()
    return {
        "milliseconds": [taken for taken, _ in found],
        "statuses": [status for _, status in found],
        "connections": clicker.opened,
    }


if __name__ == "__main__":
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(click(sys.argv[1], [json.loads(line) for line in lines], float(sys.argv[3])))))
