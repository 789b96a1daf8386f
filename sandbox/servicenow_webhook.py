"""The stand-in's business rule: sends people's changes of incidents to a webhook, signed, at least once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import httpx

from sandbox.watch import Watched
from sandbox.web import http_client

Encoding = Literal["base64", "hex"]
_FIELDS: Final = (
    "sys_id", "sys_mod_count", "number", "short_description", "description", "priority", "urgency", "impact", "state",
    "category", "caller_id", "opened_by", "assigned_to", "assignment_group", "cmdb_ci", "sys_updated_on",
    "sys_updated_by",
)  # fmt: skip


@dataclass(slots=True)
class Delivery:
    """One event and its attempts. ``statuses``: each attempt's HTTP status, 0 if nobody answered."""

    delivery_id: str
    body: bytes
    statuses: list[int] = field(default_factory=list)
    done: bool = False


def sign(secret: str, timestamp: int, body: bytes, encoding: Encoding = "base64") -> str:
    """Sign: ``sha256=`` and HMAC-SHA256 over ``{timestamp}.{body}``. CertificateEncryption.generateMac gives base64."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "sha256=" + (digest.hex() if encoding == "hex" else base64.b64encode(digest).decode())


class Webhooks(Watched):
    """Sends each event in its own task, so events may arrive out of order, as from asynchronous business rules."""

    def __init__(self, url: str, secret: str, *, encoding: Encoding = "base64", backoff: tuple[float, ...]) -> None:
        super().__init__()
        self.url = url
        self.secret = secret
        self.encoding: Encoding = encoding
        self.backoff = backoff
        self.deliveries: list[Delivery] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._client = http_client(10)

    def notify(self, table: str, event: str, record: Mapping[str, str]) -> None:
        """Start to deliver one event. A no-op if no URL is configured."""
        if not self.url:
            return
        payload = {"table": table, "event": event} | {name: record.get(name, "") for name in _FIELDS}
        # A business rule can read current.opened_by.user_name. Here, whoever inserted the record has opened it.
        payload["opened_by_user_name"] = record.get("sys_created_by", "")
        self._start(Delivery(str(uuid.uuid4()), json.dumps(payload, separators=(",", ":")).encode()))

    def redeliver(self, delivery: Delivery) -> None:
        """Send the same event again, under the same id: a duplicate, which every receiver must tolerate."""
        delivery.done = False
        self._start(delivery, known=True)

    def _start(self, delivery: Delivery, *, known: bool = False) -> None:
        if not known:
            self.deliveries.append(delivery)
        task = asyncio.create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        for pause in (*self.backoff, None):
            status = await self._attempt(delivery)
            delivery.statuses.append(status)
            self.changed()
            if 0 < status < 500 or pause is None:
                break
            await asyncio.sleep(pause)
        delivery.done = True
        self.changed()

    async def _attempt(self, delivery: Delivery) -> int:
        timestamp = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "X-Counterseal-Timestamp": str(timestamp),
            "X-Counterseal-Signature": sign(self.secret, timestamp, delivery.body, self.encoding),
            "X-Counterseal-Delivery": delivery.delivery_id,
        }
        try:
            return (await self._client.post(self.url, content=delivery.body, headers=headers)).status_code
        except httpx.HTTPError:
            return 0

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()
