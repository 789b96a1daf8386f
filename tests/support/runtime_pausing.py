"""Helpers of tests/runtime that several test files share: from test_pausing."""

from __future__ import annotations

from typing import Any

from core.terms import Stopped
from evidence.chain import Actor
from runtime.requests import pausing

OPS = Actor("person", "olga")


KINDS = {"tenant": "", "workflow": "w", "connector": "probe", "run": "RUN"}


async def pause(runtime: Any, what: str, run_id: Any = None, reason: str = "An emergency.") -> Any:
    name = KINDS[what].replace("RUN", str(run_id))
    verb = (runtime.faces, runtime.definitions, "acme", Stopped(what), name)
    return await pausing.pause(*verb, reason, OPS)


async def resume(runtime: Any, what: str, run_id: Any = None) -> Any:
    name = KINDS[what].replace("RUN", str(run_id))
    return await pausing.resume(runtime.faces, runtime.definitions, "acme", Stopped(what), name, "", OPS)
