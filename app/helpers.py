"""Reads texts of tenants, and rehearses steps, in processes that can be ended: by processor time and by memory.

A helper does one job and ends. Its result is only that it came to its end: then the same work is known to be bounded,
and the caller does it itself, in a thread. A helper that is ended says ``TooCostly``, and nothing else was stopped.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from uuid import UUID

import orjson

from core.budgets import TooCostly, most
from core.canonical import JsonObject
from core.errors import TransportError
from runtime.engine.model.rows import Claim

SECONDS = most("helper_seconds")
# A helper that waits for something gets so many times its processor time.
PATIENCE = 12
# Documents up to this size are bounded by it: reading one takes less time than to start a helper.
ASIDE_BYTES = 16 * 1024
TOGETHER_MAX = 2
# The exit code of a helper that has no memory left.
NO_MEMORY = 3


class Helpers:
    """Starts helpers: two at once, and one for each tenant. ``seconds`` of processor time end one."""

    def __init__(self, seconds: int = SECONDS) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(TOGETHER_MAX)
        self._own: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, tenant: str, kind: str, text: str, file: str) -> None:
        """Compile a document. ``TooCostly`` if that was ended. Its problems are found by whoever compiles it next."""
        if len(text) > ASIDE_BYTES:
            await self._done(tenant, {"job": kind, "text": text, "file": file}, f"reading {file}")

    async def rehearse(self, url: str, tenant: str, run_id: UUID, claim: Claim, owner: str) -> None:
        """Rehearse a step that this lease holds, on the database at ``url``. ``TooCostly`` if that was ended."""
        lease: JsonObject = {"key": claim.key, "id": str(claim.id), "epoch": claim.epoch, "owner": owner}
        await self._done(tenant, {"job": "step", "url": url, "run": str(run_id), "lease": lease}, "beginning this step")

    async def _done(self, tenant: str, job: JsonObject, what: str) -> None:
        async with self._own[tenant], self._free:
            code = await self._code({**job, "seconds": self._seconds})
        if code < 0 or code == NO_MEMORY:
            words = (
                f"{what} was ended: it takes more than {self._seconds} seconds of processor time, or too much memory"
            )
            raise TooCostly(words, remedy="Make it smaller: fewer rules, steps or references, shorter lists.")
        if code:
            raise TransportError("A helper that reads texts aside could not do its work; its error is in the log.")

    @staticmethod
    async def _code(job: JsonObject) -> int:
        """The exit code of a helper that did this job; negative if a signal ended it."""
        command = (sys.executable, "-P", "-m", "app.helper")
        helper = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=os.environ)
        try:
            async with asyncio.timeout(PATIENCE * SECONDS):
                await helper.communicate(orjson.dumps(job))  # what it reads stands in no argument
        except TimeoutError:
            pass
        finally:
            if helper.returncode is None:
                helper.kill()
                await helper.wait()
        return helper.returncode or 0
