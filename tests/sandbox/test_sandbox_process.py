"""The process ``python -m sandbox`` serves other processes and ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys

import httpx
import pytest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_where_it_is_and_stops_at_a_signal(number: signal.Signals) -> None:
    arguments = ("-m", "sandbox", "--bot-token", "xoxb-other")
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    urls = json.loads(await process.stdout.readline())
    async with httpx.AsyncClient(verify=False, trust_env=False) as client:
        answer = await client.post(urls["slack_api"] + "auth.test", headers={"Authorization": "Bearer xoxb-other"})
        assert answer.json()["ok"] is True
        assert (await client.get(urls["servicenow"] + "/api/now/table/incident")).status_code == 401
        assert (await client.get(urls["model"] + "/models")).status_code == 401
    process.send_signal(number)
    assert await process.wait() == 0
    assert await process.stdout.read() == b""


async def test_a_port_that_is_taken_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = ("-m", "sandbox", "--model-port", str(taken.getsockname()[1]))
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.PIPE)
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"give another port" in errors
    assert b"Traceback" not in errors
