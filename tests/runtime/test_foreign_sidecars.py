"""Values that lie beside another bundle than their own: three verifiers refuse them alike, and say what to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from connectors.port import Refused
from evidence.chain import Actor
from evidence.layout import VALUES
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from tests.support.other_verifiers import row_by_each
from tests.support.runtime_retrying import Evidence

GATE = """
workflow: w
version: 1
reference: ${{ run.id }}
steps:
  - {id: ok, approve: {summary: "Go on?", approvers: {group: owners}}}
  - {id: two, do: probe.effect.apply, with: {name: two}}
"""
ANOTHER = "or of another run or tenant, or a changed one. `counterseal evidence get "
LEAVE = "It is of another run or tenant, of a later edition, or was changed: leave it out"
OK, OPEN, FAILED = "ok", "not_proven", "failed"
VALUE_ROW, MORE_ROW = "values", "further disclosures"

# The bundle, what lies beside it, what is given as --disclosed; the row, its status, and words of it.
CASES: dict[str, tuple[str, str, str, str, str, str]] = {
    "its own": ("new", "new", "", VALUE_ROW, OK, "disclosed: "),
    "an earlier edition's": ("new", "old", "", VALUE_ROW, FAILED, ANOTHER),
    "a later edition's": ("old", "new", "", VALUE_ROW, FAILED, ANOTHER),
    "another run's": ("new", "other", "", VALUE_ROW, FAILED, ANOTHER),
    "an empty file": ("new", "empty", "", VALUE_ROW, FAILED, ANOTHER),
    "a changed one": ("new", "changed", "", VALUE_ROW, FAILED, ANOTHER),
    "none": ("new", "", "", VALUE_ROW, OPEN, "withheld: "),
    "its own, from elsewhere": ("new", "", "new", VALUE_ROW, OK, "disclosed: "),
    # What an earlier edition opens is true of the later one, too: each value is compared with its line.
    "an earlier edition's, from elsewhere": ("new", "new", "old", MORE_ROW, OK, "each as its event's line"),
    "a later edition's, from elsewhere": ("old", "old", "new", MORE_ROW, FAILED, LEAVE),
    "another run's, from elsewhere": ("new", "new", "other", MORE_ROW, FAILED, LEAVE),
    "a changed one, from elsewhere": ("new", "", "changed", MORE_ROW, FAILED, LEAVE),
    "nothing that can be read": ("new", "", "empty", MORE_ROW, OK, "0 values"),
}  # fmt: skip


@pytest.fixture
async def bundles(runtime: Any, tmp_path: Path) -> dict[str, Path]:
    """Two editions of a reopened run, and another run's bundle."""
    evidence, found = Evidence(runtime, tmp_path), dict[str, Path]()
    runtime.outside.script["two"] = [Refused("no", "not today")]

    async def ends(name: str) -> None:
        await runtime.worker().work_off()
        await evidence.write()
        (found[name],) = {*evidence.all()} - {*found.values()}

    run = await runtime.go(GATE)
    await runtime.person("ana", ("owners",))
    await runtime.vote("ana", "approve")
    await ends("old")
    await runtime.retry(run, "mended", Actor("person", "olga"))
    await ends("new")
    await runtime.start("w", ref="other")
    await runtime.worker().work_off()
    await runtime.vote("ana", "reject")
    await ends("other")
    for name, path in found.items():
        (tmp_path / name).write_bytes(path.read_bytes())
        shutil.copy(path.with_name(path.name + VALUES), tmp_path / f"{name}{VALUES}")
    (tmp_path / f"empty{VALUES}").write_bytes(b"")
    changed = (tmp_path / f"new{VALUES}").read_bytes().replace(b"because", b"whyever")
    (tmp_path / f"changed{VALUES}").write_bytes(changed)
    (tmp_path / "public.pem").write_bytes(FileSigner.load(tmp_path / "key").public_key.pem)
    return found


@pytest.mark.req("X-20")
async def test_each_verifier_says_alike_whose_values_lie_beside_a_bundle(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    assert {*bundles} == {"old", "new", "other"}
    path, key = tmp_path / "bundle.zip", tmp_path / "public.pem"
    beside, wrong = path.with_name(path.name + VALUES), list[Any]()
    for name, (bundle, near, more, row, status, words) in CASES.items():
        shutil.copy(tmp_path / bundle, path)
        beside.unlink(missing_ok=True)
        if near:
            shutil.copy(tmp_path / f"{near}{VALUES}", beside)
        further = [tmp_path / f"{more}{VALUES}"] if more else []
        found = verify_bundle(path, public_key=key, disclosed=further)
        (ours,) = [one for one in found.rows if one.check == row]
        given = [word for one in further for word in ("--disclosed", str(one))]
        for code, told, detail in [
            (found.exit_code, str(ours.status), ours.detail), *row_by_each(tmp_path, key, path, row, *given),
        ]:  # fmt: skip
            fits = (told, code != 0, words in detail) == (status, status == FAILED, True)
            wrong += [] if fits and (detail == ours.detail or status == OK) else [(name, code, told, detail)]
    assert wrong == []
