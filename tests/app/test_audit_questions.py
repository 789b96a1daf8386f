"""The commands of docs/audit-questions.md: at most three for each question, and they say what it asks for."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from app.cli.outcome import Exit

DOCS = Path(__file__).parents[2] / "docs" / "audit-questions.md"
DAY = re.compile(r"2026-1[01]-(01|15)T(00|12):00:00Z")
# The programs of others with which a bundle is verified; a machine may lack one.
OF_OTHERS = ("unzip", "sha256sum", "openssl", "node")
# The words that an answer must have, by the number of the question; {…} are ids.
SAID: dict[int, tuple[str, ...]] = {
    1: ("{run}", "ana.lee: approve"),
    2: ("authority of people", "decisions evaluated again", "no check failed"),
    3: ("2 runs", "Nothing of the period is missing."),
    4: ("tests", "ana.lee", "leads"),
    5: ("Endanger INC1", "report.html"),
    6: ('"person": "ana.lee"', '"why": "separation_of_duties"'),
    7: ("pause.set", "pause.lifted", "for the audit"),
    8: ("succeeded", "equal"),
    9: ("evidence.exported", "evidence.read"),
    10: ("Signature Verified Successfully", "no check failed", "rules not evaluated"),
}


def questions() -> dict[int, list[str]]:
    """The commands of each question, by its number."""
    _, *parts = re.split(r"^## (?=\d+\. )", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    blocks = {
        int(part.split(".")[0]): re.findall(r"^```(?:sh)?\n(.*?)^```", part, re.DOTALL | re.MULTILINE) for part in parts
    }
    return {number: [line for block in found for line in block.splitlines()] for number, found in blocks.items()}


def _moved(dates: dict[str, datetime], found: re.Match[str]) -> str:
    return dates[found[0][5:10]].isoformat()


def test_each_question_is_answered_by_its_commands(
    command: Any, outside_world: Any, work_off: Any, tmp_path: Path, monkeypatch: Any, request: Any
) -> None:
    shared = sys.modules[type(outside_world).__module__]
    people = shared.PEOPLE.replace("id: ann, name: Ann", "id: ana.lee, name: Ana Lee").replace(
        "[ann,", "[ana.lee, raj.quist,"
    )
    people = people.replace("id: tess, name: Tess", "id: raj.quist, name: Raj Quist")
    texts = dict(
        zip(("simple", "asking"), shared.WORKFLOWS.split("---")[:2], strict=True), policy=shared.POLICY, people=people
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERSEAL_PERSON", "raj.quist")
    for name, text in texts.items():
        Path(f"{name}.yaml").write_text(text)
    command("directory", "publish", "people.yaml")
    command("workflow", "publish", "simple.yaml", "asking.yaml")
    command("policy", "publish", "policy.yaml")
    run = command.json("run", "start", "asking", "--input", '{"number": "INC1"}')["run_id"]
    other = command.json("run", "start", "simple", "--input", '{"number": "INC2"}')["run_id"]
    work_off(outside_world)
    (waiting,) = command.json("approval", "list")
    command("approval", "approve", waiting["approval_id"], exit_code=Exit.CONFLICT)
    command("approval", "approve", waiting["approval_id"], "--as", "ana.lee")
    work_off(outside_world)
    for verb in ("pause", "resume"):
        command(verb, "tenant", "--reason", "for the audit")
    command("evidence", "trust")
    for handed in re.findall(r"`counterseal (evidence (?:key|verifier) [^`]*)`", DOCS.read_text(encoding="utf-8")):
        command(*handed.split())
    now = datetime.now(UTC)
    asked = questions()
    assert [*asked] == [*range(1, 11)]
    for number, lines in asked.items():
        if number == 10 and not all(map(shutil.which, OF_OTHERS)):
            continue
        assert 1 <= len(lines) <= 3, number
        told = ""
        for line in lines:
            line = line.replace("RUN", run).replace("APPROVAL", waiting["approval_id"])
            dates = {
                "10-01": now - timedelta(days=1),
                "11-01": now + timedelta(days=1),
                "10-15": now + timedelta(hours=1),
            }
            line = DAY.sub(partial(_moved, dates), line)
            program, *words = shlex.split(line)
            if program == "counterseal":
                told += command(*words)
            else:
                done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
                told += done.stdout
        for words_ in SAID[number]:
            assert words_.format(run=run, other=other) in told, (number, words_, told)
    text = DOCS.read_text(encoding="utf-8").lower()
    assert "supporting evidence" in text
    assert "complian" not in text
