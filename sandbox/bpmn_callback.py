"""The worker that posts a process's end to its ``counterseal_callback_url``, with retries.

With a real engine this is a small separate worker, or an HTTP connector inside the model.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import httpx

from sandbox.bpmn_state import BpmnState, EngineError, ExternalTask
from sandbox.watch import Watched
from sandbox.web import http_client

TOPIC: Final = "counterseal-callback"
WORKER: Final = "sandbox-callback"
_URL: Final = "counterseal_callback_url"
_ERROR: Final = "counterseal_error"
_OWN: Final = "counterseal_"


@dataclass(slots=True)
class Delivery:
    """One report and its attempts. ``statuses``: each attempt's HTTP status, 0 if nobody answered."""

    task_id: str
    url: str
    body: dict[str, object]
    statuses: list[int] = field(default_factory=list)
    done: bool = False


class Callbacks(Watched):
    """Takes every external task of its topic as soon as it appears, and delivers its report."""

    def __init__(self, state: BpmnState, token: str, *, backoff: tuple[float, ...]) -> None:
        super().__init__()
        self.deliveries: list[Delivery] = []
        self._state = state
        self._token = token
        self._backoff = backoff
        self._tasks: set[asyncio.Task[None]] = set()
        self._client = http_client(10)
        state.on_external.append(self._notice)

    def _notice(self, task: ExternalTask) -> None:
        if task.activity.topic != TOPIC or task.worker_id:
            return
        task.worker_id, task.locked_until = WORKER, float("inf")
        delivery = Delivery(task.task_id, str(task.variables().get(_URL, "")), report(task))
        self.deliveries.append(delivery)
        running = asyncio.create_task(self._deliver(delivery))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        for pause in (*self._backoff, None):
            status = await self._attempt(delivery)
            delivery.statuses.append(status)
            self.changed()
            if 200 <= status < 300 or pause is None:
                break
            await asyncio.sleep(pause)
        try:
            if 200 <= delivery.statuses[-1] < 300:
                self._state.complete_external(delivery.task_id, WORKER, {})
            else:
                words = f"{delivery.url or 'no callback address'} answered {delivery.statuses}"
                self._state.fail_external(delivery.task_id, WORKER, words, 0, 0)
        except EngineError as gone:
            if gone.status != 404:  # 404: the process was canceled meanwhile; anything else is our bug
                raise
        delivery.done = True
        self.changed()

    async def _attempt(self, delivery: Delivery) -> int:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            return (await self._client.post(delivery.url, json=delivery.body, headers=headers)).status_code
        except (httpx.HTTPError, httpx.InvalidURL):
            return 0

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.aclose()


def report(task: ExternalTask) -> dict[str, object]:
    """The body of a signal: ``{"id", "output"}`` or ``{"id", "error"}``."""
    variables = task.variables()
    error = variables.get(_ERROR)
    if isinstance(error, str):
        return {"id": task.task_id, "error": {"code": "process_error", "message": error}}
    return {"id": task.task_id, "output": {name: v for name, v in variables.items() if not name.startswith(_OWN)}}
