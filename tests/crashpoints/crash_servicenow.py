"""A ServiceNow instance that outlives the process: its records are kept in a file, and each request is two points.

A death before a request is one that is lost. A death after it is one that landed, and whose answer nobody has read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from connectors.port import Call, Probe
from connectors.servicenow.client import BasicAuth, ServiceNowSettings
from connectors.servicenow.connector import ServiceNowConnector
from sandbox.server import LoopbackServer
from sandbox.servicenow import ServiceNow
from sandbox.servicenow_access import INTEGRATION_USER
from sandbox.servicenow_state import Effect as Write
from sandbox.servicenow_state import Record

# The records that were there before: one that is to go, and one that stays, so that the table shows something.
OLD, OTHER = "old", "other"


class Instance:
    """The instance, in this process, on the records that the one before has left."""

    def __init__(self, folder: Path, killer: Any) -> None:
        self._file, self._killer = folder / "instance.json", killer
        self._now = ServiceNow()
        state = self._now.state
        kept = json.loads(self._file.read_text()) if self._file.exists() else None
        for sys_id in (OLD, OTHER) if kept is None else ():
            state.seed("incident", {"sys_id": sys_id, "short_description": sys_id})
        if kept is not None:
            state.tables = kept
        state.on_write.append(self._keep)
        self._server = LoopbackServer(self)

    def _keep(self, write: Write, _: Record) -> None:
        """Keep the records and a line for the write, as its own transaction does."""
        whole = self._file.with_suffix(".new")
        whole.write_text(json.dumps(self._now.state.tables))
        whole.replace(self._file)
        with self._file.with_name("writes.jsonl").open("a") as file:
            file.write(json.dumps([write.operation, write.sys_id]) + "\n")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        number = self._killer.enter(f"instance.{scope['method']}")
        answers: list[Any] = []

        async def later(message: Any) -> None:
            answers.append(message)

        await self._now.app(scope, receive, later)
        self._killer.leave(number)
        for message in answers:
            await send(message)

    async def open(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop()
        await self._now.close()

    def connector(self) -> Any:
        """The connector of the instance, whose calls are points as well."""
        settings = ServiceNowSettings(self._server.url, BasicAuth(INTEGRATION_USER, "sandbox"))
        return self._killer.wrap("connector", _Later(settings), "read_before", "perform", "probe")


class _Later(ServiceNowConnector):
    """Asked an hour after the intent: whoever left it in doubt is dead, and what was sent has arrived.

    It is the same instance at whatever port it is served.
    """

    target = "instance"

    async def probe(self, call: Call, *, seconds_since_intent: float) -> Probe:
        return await super().probe(call, seconds_since_intent=seconds_since_intent + 3600)


def written(folder: Path) -> list[str]:
    """The writes of incidents, in their order: an insert twice is a record that was made twice."""
    lines = (folder / "writes.jsonl").read_text().splitlines()
    return [str(json.loads(line)[0]) for line in lines]
