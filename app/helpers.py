"""Reads texts of tenants, and rehearses steps, in processes that can be ended: by processor time and by memory.

A job has no result but that it came to its end: then the same work is known to be bounded, and the caller does it
itself, in a thread. If a helper is ended, the caller gets ``TooCostly``, and nothing else was stopped. Helpers wait for
more work for a while, because starting one takes a second. No helper has a secret of the settings
(``app.environments``).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

import orjson

from connectors.operation import Operation
from core.budgets import TooCostly, most
from core.canonical import JsonObject
from core.errors import TransportError
from core.turns import Turns
from runtime.engine.model.rows import Claim

SECONDS = most("helper_seconds")
# The limit for a helper that waits for something, as a multiple of its processor time.
PATIENCE = 12
# Documents up to this size need no helper: reading one takes less time than starting a helper.
ASIDE_BYTES = 16 * 1024
TOGETHER_MAX = 2
# The time after which a helper without work ends, and the time that a helper gets to end.
IDLE_SECONDS, ENDING_SECONDS = 60, 1.0
# The exit code of a helper that has no memory left.
NO_MEMORY = 3
# The work was not done for another reason than its cost, such as a signal to this process and all its children, which
# systemd and terminals send.
UNFINISHED = 1
# Signals that may have ended a used helper before this text came: it waited too long for work, or somebody killed it.
# The job is tried in a new helper. The deadline for processor time is another signal (SIGXCPU).
NO_FAULT = (-signal.SIGALRM, -signal.SIGKILL)
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Helpers:
    """Starts helpers: two at once, and one for each tenant. ``seconds`` of processor time end one."""

    def __init__(self, seconds: int = SECONDS) -> None:
        self._seconds = seconds
        # Idle helpers by whether they rehearse steps: only helpers that rehearse have our settings.
        self._idle: dict[bool, list[Process]] = {False: [], True: []}
        self._turns = Turns(TOGETHER_MAX, of_one=1)

    async def read(self, tenant: str, kind: str, text: str, file: str, declared: Mapping[str, Operation]) -> None:
        """Compile a document against these declarations of the tenant and the packaged ones.

        ``TooCostly`` if the helper was ended. The caller, who compiles the document next, finds its problems.
        """
        if len(text) > ASIDE_BYTES:
            known: JsonObject = {name: one.model_dump(mode="json") for name, one in declared.items()}
            job: JsonObject = {"job": kind, "text": text, "file": file, "operations": known}
            await self._done(tenant, job, f"reading {file}")

    async def rehearse(self, url: str, tenant: str, run_id: UUID, claim: Claim, owner: str) -> None:
        """Rehearse a step that this lease holds, on the database at ``url``. ``TooCostly`` if the helper was ended."""
        lease: JsonObject = {"key": claim.key, "id": str(claim.id), "epoch": claim.epoch, "owner": owner}
        await self._done(tenant, {"job": "step", "url": url, "run": str(run_id), "lease": lease}, "beginning this step")

    async def close(self) -> None:
        """End the helpers that wait for work."""
        for idle in self._idle.values():
            while idle:
                await _ended(idle.pop())

    async def _done(self, tenant: str, job: JsonObject, what: str) -> None:
        async with self._turns.place(tenant):
            code = await self._code({**job, "seconds": self._seconds})
        if code < 0 or code == NO_MEMORY:
            words = f"{what} was ended: it takes more than {self._seconds} s of processor time, or too much memory"
            raise TooCostly(words, remedy="Make it smaller: fewer rules, steps or references, shorter lists.")
        if code:
            raise TransportError("A helper that reads texts aside could not do its work; its error is in the log.")

    async def _code(self, job: JsonObject) -> int:
        """The exit code of a helper that did this job; negative if a signal ended it."""
        from app import environments  # helpers import this module, and start faster without the settings

        rehearses = job["job"] == "step"
        while self._idle[rehearses]:
            code = await self._run_job(self._idle[rehearses].pop(), job)
            if code not in NO_FAULT:
                return code
        needed = environments.without_secrets(os.environ) if rehearses else environments.plain(os.environ)
        command, pipe = (sys.executable, "-P", "-m", "app.helper"), asyncio.subprocess.PIPE
        made = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=needed)
        return await self._run_job(made, job)

    async def _run_job(self, helper: Process, job: JsonObject) -> int:
        assert helper.stdin is not None, "it is a pipe"
        assert helper.stdout is not None, "it is a pipe"
        answer, waited = b"", False
        try:
            async with asyncio.timeout(PATIENCE * SECONDS):
                helper.stdin.write(orjson.dumps(job) + b"\n")  # what it reads stands in no argument
                await helper.stdin.drain()
                answer = await helper.stdout.readline()
        except TimeoutError:
            waited = True  # for a machine or a database, not for its work: its processor time is bounded by itself
        except ConnectionError:
            pass
        finally:
            if answer.strip() == b"0":  # whatever has used up its memory gets no work of another tenant
                self._idle[job["job"] == "step"].append(helper)
            else:
                await _ended(helper)
        if waited or -(helper.returncode or 0) in STOPPING:
            return UNFINISHED
        return int(answer) if answer else helper.returncode or UNFINISHED


async def _ended(helper: Process) -> None:
    """End a helper, unless it ends by itself: then its exit code tells why."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_SECONDS):
            if helper.stdin is not None:
                helper.stdin.close()
            await helper.wait()
    if helper.returncode is None:
        helper.kill()
        await helper.wait()
