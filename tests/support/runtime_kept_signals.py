"""Helpers of tests/runtime that several test files share: from test_kept_signals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

HEAD = "workflow: w\nversion: 1\nreference: ${{ trigger.ref }}\nchannels: {got: {reduce: append}}\nsteps:\n"


PAID = "  - {id: paid, wait: {signal: paid}, set: {got: '${{ output.amount }}'}}\n"


MORE = PAID.replace("id: paid", "id: more")


TRIGGER = {"ref": "c1"}


async def begun(runtime: Any, text: str, refs: str = "1") -> list[UUID]:
    await runtime.tenant()
    await runtime.policy()
    await runtime.publish(text)
    runs = [(await runtime.start("w", TRIGGER, ref=ref)).run_id for ref in refs]
    await runtime.worker().work_off()
    return runs
