"""The installed release is enough outside of a clone, in a folder of somebody's own, whatever modules lie in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = "import sys; from app.cli import main; sys.argv[0] = 'counterseal'; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel; its dependencies are those of this environment."""
    made, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = made.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def counterseal(site: Path, folder: Path, *arguments: str) -> Any:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERSEAL_")}
    command = [sys.executable, "-P", "-c", RUN, *arguments]
    environment = settings | {"PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_folder_of_ones_own_begins_without_a_clone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "core.py").write_text("raise SystemExit('a module of somebody else')")
    version = counterseal(installed, tmp_path, "--version")
    assert (version.returncode, version.stdout) == (0, "counterseal 0.2.0\n")
    begun = counterseal(installed, tmp_path, "init", "mine")
    assert begun.returncode == 0, begun.stderr
    mine = tmp_path / "mine"
    assert oct((mine / "counterseal.env").stat().st_mode & 0o777) == "0o600"
    for kind, name in (("workflow", "incident-triage"), ("policy", "it-operations")):
        file = next(mine.rglob(f"{name}.yaml"))
        checked = counterseal(installed, mine, kind, "check", str(file.relative_to(mine)))
        assert checked.returncode == 0, checked.stderr + checked.stdout
    again = counterseal(installed, tmp_path, "init", "mine")
    assert again.returncode == 2
    assert "not an empty folder" in again.stderr
    assert "usage: counterseal sandbox" in counterseal(installed, tmp_path, "sandbox", "--help").stdout
