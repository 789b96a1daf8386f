"""The engine, the policy and the chain work without a database, a queue or a network being so much as imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

PURE = "runtime.engine.life.transition, runtime.engine.book.plan, evidence.chain, policy.evaluate, approvals.quorum"
OUTSIDE = (
    "asyncpg",
    "sqlalchemy",
    "alembic",
    "boto3",
    "botocore",
    "httpx",
    "aiohttp",
    "slack_bolt",
    "slack_sdk",
    "fastapi",
)


@pytest.mark.req("O-5")
@pytest.mark.req("P-13")
def test_what_is_pure_loads_nothing_that_reaches_outside() -> None:
    code = f"import {PURE}, sys; print(*[name for name in {OUTSIDE!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
