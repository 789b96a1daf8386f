"""The embedded PostgreSQL is killed under a running installation: it comes back, and everything goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 90.0
WORKFLOW = """
workflow: parked
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: ask, approve: {summary: Go on?, approvers: {group: leads}}}
  - {id: rest, wait: {for: PT0.5S}}
"""
PEOPLE = "directory: d\npeople: [{id: ann, name: Ann}]\ngroups: {leads: [ann]}\n"


class Folder:
    """A newcomer's folder: nothing is configured but the port."""

    def __init__(self, path: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSEAL_")}
        self.path = path
        self.environment = {**kept, "PYTHONPATH": str(ROOT), "COUNTERSEAL_PORT": "0"}

    @asynccontextmanager
    async def started(self, *parts: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Processes of these parts; what each said when it was up."""
        processes = []
        try:
            for part in parts:
                with (self.path / f"{part}.log").open("wb") as log:
                    process = await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "app", part, "--json",
                        cwd=self.path, env=self.environment, stdout=asyncio.subprocess.PIPE, stderr=log,
                    )  # fmt: skip
                processes.append((part, process))
            yield [json.loads(await self._said(part, process)) for part, process in processes]
            for part, process in processes:
                assert process.returncode is None, self.log(part)
        finally:
            for _, process in processes:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                await process.communicate()

    async def _said(self, part: str, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, self.log(part)
        return line

    def log(self, part: str) -> str:
        return (self.path / f"{part}.log").read_text()

    async def run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *arguments, cwd=self.path, env=self.environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return out.decode()

    def kill_postgres(self) -> None:
        """The postmaster of this folder, and nobody else's."""
        data = self.path / ".counterseal" / "postgres" / "cluster" / "data"
        os.kill(int((data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)


async def _until(fact: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for a fact in another process; there is nothing that could tell us of it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            if found := await fact():
                return found
            await asyncio.sleep(0.05)


def _asking(client: httpx.AsyncClient, path: str, wanted: int) -> Callable[[], Awaitable[Any]]:
    async def asked() -> httpx.Response | None:
        answer = await client.get(path)
        assert answer.status_code in (200, 503), answer.text
        return answer if answer.status_code == wanted else None

    return asked


@pytest.mark.timeout(400)
@pytest.mark.req("Q-8")
@pytest.mark.parametrize("parts", [("up",), ("serve", "work", "keep")], ids=["up", "parts"])
async def test_a_killed_postgres_comes_back_and_the_run_goes_through(tmp_path: Path, parts: tuple[str, ...]) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "parked.yaml").write_text(WORKFLOW)
    (tmp_path / "people.yaml").write_text(PEOPLE)
    if parts != ("up",):
        await folder.run("tenant", "create", "default")
    async with folder.started(*parts) as said:
        await folder.run("directory", "publish", "people.yaml")
        await folder.run("workflow", "publish", "parked.yaml")
        token = await folder.run("token", "create", "--subject", "ann", "--role", "admin", "--role", "approver")
        headers = {"Authorization": f"Bearer {token.strip()}"}
        async with httpx.AsyncClient(base_url=said[0]["url"], headers=headers, trust_env=False, timeout=90) as client:
            started = await folder.run("run", "start", "parked", "--input", '{"number": "INC1"}', "--json")
            run = json.loads(started)["run_id"]
            for _ in range(2):
                folder.kill_postgres()
                await _until(_asking(client, "/readyz", 503))
                await _until(_asking(client, "/readyz", 200))

            async def asked() -> Any:
                return (await client.get("/v1/approvals")).json()["items"]

            (approval,) = await _until(asked)
            vote = await client.post(f"/v1/approvals/{approval['approval_id']}/votes", json={"choice": "approve"})
            assert vote.status_code == 200, vote.text

            async def ended() -> Any:
                found = (await client.get(f"/v1/runs/{run}")).json()
                return found if found["status"] == "succeeded" else None

            await _until(ended)
    words = "the embedded PostgreSQL had died and is started again"
    assert sum(words in folder.log(part) for part in parts) >= 1
