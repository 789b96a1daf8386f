"""The command `counterseal demo --auto`, as a newcomer runs it: an empty folder, no service, no settings."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.other_verifiers import by_node, by_python

ROOT = Path(__file__).parents[2]


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COUNTERSEAL_", "AWS_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


@pytest.mark.timeout(300)
@pytest.mark.req("U-1")
@pytest.mark.req("U-7")
@pytest.mark.req("U-8")
@pytest.mark.req("Q-21")
@pytest.mark.req("Q-22")
@pytest.mark.req("P-14")
@pytest.mark.parametrize("options", [[], ["--aws", "moto"]], ids=["embedded", "aws"])
async def test_the_demo_ends_with_four_verified_bundles(tmp_path: Path, options: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", "demo", "--auto", *options, cwd=tmp_path, env=_environment(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, out.decode()[-3000:] + err.decode()[-3000:]
    report = json.loads(out.decode().splitlines()[-1])
    ended = ["succeeded", "failed_terminal", "failed_terminal", "succeeded"]
    assert [run["status"] for run in report["runs"]] == ended
    assert all(run["verified"] for run in report["runs"])
    # Raj, who asked, hears of each of the four exactly once, with the reason.
    reasons = ["Done:", "Not during the month-end close.", "closed by people", "Nobody of ours wrote this address."]
    assert [len(run["told"]) for run in report["runs"]] == [1, 1, 1, 1]
    assert [reason in run["told"][0] for reason, run in zip(reasons, report["runs"], strict=True)] == [True] * 4
    for run in report["runs"]:
        _verify_elsewhere(Path(run["bundle"]), run["sha256"], tmp_path)
    _tells_it_all(Path(report["runs"][3]["bundle"]))


def _tells_it_all(bundle: Path) -> None:
    """The bundle of the agent that obeyed: what it asked for, what came of it, and where the address came from."""
    with zipfile.ZipFile(bundle) as archive:
        events = [json.loads(line) for line in archive.read("events.jsonl").splitlines()]
    values = bundle.with_name(f"{bundle.name}.values.jsonl").read_bytes()
    opened = [json.loads(line)["opened"] for line in values.splitlines()]
    (card,) = [value for shown in opened for _, path, value in shown if path.endswith("/card")]
    asked = [source for one in events if one["type"] == "agent.answered" for source, _ in one["data"]["calls"]]
    assert asked == ["servicenow.incident.get"] + ["servicenow.incident.update"] * 5
    decided = [one["data"] for one in events if one["type"] == "decision.made"]
    ruled = [(one["outcome"], one["rules"][-1]) for one in decided if one["operation"].endswith(".update")]
    assert ruled == [("deny", "agent-triage/people-close")] * 4 + [("needs_approval", "agent-triage/addresses")]
    types = {one["type"] for one in events}
    assert {"agent.began", "approval.voted", "approval.decided"} <= types
    assert "action.intended" not in types, "nothing was sent that changes anything"
    (source,) = [source for source in card["sources"] if source["field"] == "watch_list"]
    place = (source["words"], source["of"], source["ours"], source["value"])
    assert place == ("was returned by", "servicenow.incident.get", False, "all-customers@lists.example.net")
    assert (card["agent"]["step"], card["agent"]["turn"], card["agent"]["requester"]) == ("triage", 6, "raj.quist")


def _verify_elsewhere(bundle: Path, sha256: str, folder: Path) -> None:
    """Verify in a folder of its own, with no server running and a database that does not exist."""
    away = folder / f"away-{bundle.stem}"
    away.mkdir()
    moved = shutil.copy(bundle, away / "bundle.zip")
    key = shutil.copy(bundle.parent / "evidence.pub.pem", away)
    environment = {**_environment(away), "COUNTERSEAL_DATABASE_URL": "postgresql://nobody:word@127.0.0.1:1/nothing"}
    for command in (["app", "evidence", "verify"], ["evidence.verify"]):
        done = subprocess.run(
            [sys.executable, "-m", *command, str(moved), "--key", str(key)],
            cwd=away, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    for verify in (by_python, by_node):
        assert verify(away, Path(key), [Path(moved)]) == [(0, set())]
    with zipfile.ZipFile(moved) as archive:
        archive.extractall(away / "files")
    sums = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=away / "files", capture_output=True, check=False)
    assert sums.returncode == 0, sums.stdout
    whole = subprocess.run(["sha256sum", str(moved)], capture_output=True, text=True, check=True)
    assert whole.stdout.split()[0] == sha256
