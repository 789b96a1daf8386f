"""The verifier as a distribution of its own: small, with four libraries, and right with nothing else installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packages" / "verify"
# The libraries, and what cryptography needs besides.
MODULES = ("cryptography", "msgspec", "orjson", "rfc8785", "cffi", "_cffi_backend", "typing_extensions")
BYTES_MAX = 10 * 1024 * 1024


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and its libraries, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in MODULES:
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        origin = Path(found.origin)
        place = origin.parent if origin.name == "__init__.py" else origin
        (folder / place.name).symlink_to(place)
    return folder


def run(bare: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; sys.path.append({str(bare)!r}); from counterseal_verify.__main__ import main; sys.exit(main())"
    )
    return subprocess.run([sys.executable, "-I", "-S", "-c", program, *arguments], capture_output=True, text=True)


def test_a_bundle_is_checked_with_nothing_else_installed(bare: Path, workshop: Any) -> None:
    path = workshop.save(workshop.build())
    right, unknown = run(bare, str(path), "--key", str(workshop.key)), run(bare, str(path))
    path.write_bytes(path.read_bytes().replace(b"maria", b"mario"))
    altered, nothing = run(bare, str(path), "--key", str(workshop.key)), run(bare, "/nowhere/bundle.zip")
    assert [one.returncode for one in (right, unknown, altered, nothing)] == [0, 6, 1, 2], right.stderr


def test_it_is_small_and_of_this_release(wheel: Path, bare: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for module in [one for one in bare.iterdir() if one.is_symlink()]:
            for file in [module] if module.is_file() else sorted(module.resolve().rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, f"{module.name}/{file.name}{hash(file)}")
    assert wheel.stat().st_size + (tmp_path / "all.zip").stat().st_size <= BYTES_MAX
    own, whole = (tomllib.loads((at / "pyproject.toml").read_text())["project"] for at in (FOLDER, ROOT))
    assert own["version"] == whole["version"]
    assert {*own["dependencies"]} <= {*whole["dependencies"]}, "the same bounds as the whole has"
    assert {re.split(r"[<>=]", one)[0] for one in own["dependencies"]} <= {*MODULES}
