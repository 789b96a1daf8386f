"""The demo lives beside an installation: it leaves that one's policy, people, key and settings alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
POLICY = "policy: mine\nversion: 1\nrules:\n  - {id: none, match: {operation: '*'}, outcome: deny}\n"
PEOPLE = "directory: mine\npeople: [{id: ann, name: Ann}]\ngroups: {leads: [ann]}\n"


async def _run(folder: Path, *command: str, **settings: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSEAL_", "AWS_"))}
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**kept, "PYTHONPATH": str(ROOT), **settings},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert process.returncode == 0, out.decode()[-3000:] + errors.decode()[-3000:]
    return out.decode()


@pytest.mark.timeout(400)
@pytest.mark.req("U-1")
async def test_the_demo_leaves_the_installation_alone_and_says_how_to_speak_to_it(tmp_path: Path) -> None:
    us = (sys.executable, "-m", "app")
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "people.yaml").write_text(PEOPLE)
    for arguments in (
        ("tenant", "create", "default"),
        ("directory", "publish", "people.yaml"),
        ("policy", "publish", "policy.yaml"),
    ):
        await _run(tmp_path, *us, *arguments)
    before = await _run(tmp_path, *us, "policy", "list", "--json")

    # Settings of the installation's: the demo would not even start with them.
    elsewhere = {
        "COUNTERSEAL_DATABASE_URL": "postgresql://nobody:word@127.0.0.1:9/nothing",
        "COUNTERSEAL_TENANT": "acme",
    }
    told = await _run(tmp_path, *us, "demo", "--auto", **elsewhere)
    shown = json.loads(told.splitlines()[-1])["runs"]
    assert all(run["verified"] for run in shown)

    assert await _run(tmp_path, *us, "policy", "list", "--json") == before
    assert json.loads(await _run(tmp_path, *us, "run", "list", "--json")) == []
    assert not (tmp_path / ".counterseal" / "keys").exists()
    assert (tmp_path / ".counterseal-demo" / "keys" / "evidence.pem").exists()

    # What it prints can be copied to another terminal.
    (listing,) = re.findall(r"^ +(COUNTERSEAL_HOME=\.counterseal-demo .* run list)$", told, re.MULTILINE)
    runs = json.loads(await _run(tmp_path, "/bin/sh", "-c", f"{listing} --json"))
    assert {run["run_id"]: run["status"] for run in shown}.items() <= {
        run["run_id"]: run["status"] for run in runs
    }.items()
    triaged = [run["reference"] for run in runs if run["workflow"] == "incident-triage"]
    assert sorted(triaged) == [run["reference"] for run in shown], (
        "the last is triaged like all, and an agent looks after it"
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
async def test_a_closed_terminal_ends_the_demo_with_all_that_it_has_started(tmp_path: Path, number: int) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSEAL_", "AWS_"))}
    ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nobody has these tests under nohup
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "demo", cwd=tmp_path, env={**kept, **ours},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    signal.signal(signal.SIGHUP, before)
    assert demo.stdout is not None
    shown = b""
    async for line in demo.stdout:
        shown += line
        if b"/login/" in line:
            break
    home = str(tmp_path)
    here = [one for one in psutil.process_iter(["cwd", "cmdline", "name"]) if home in str(one.info)]
    assert {"postgres"} < {one.info["name"] for one in here}, shown.decode()
    demo.send_signal(number)
    await demo.communicate()
    _, left = await asyncio.to_thread(psutil.wait_procs, here, timeout=100)
    assert left == []
