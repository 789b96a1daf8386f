"""The generated parts of docs/ are what the code says now."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "generate_docs.py"), *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)


def test_docs_are_current(docs_root: Path) -> None:
    done = generate(docs_root, "--check")
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun: .venv/bin/python tools/generate_docs.py"


@pytest.fixture
def copied_docs(docs_root: Path, tmp_path: Path) -> Path:
    """The tool and the pages in a folder of their own."""
    for folder in ("docs", "tools"):
        shutil.copytree(docs_root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_stale_page_is_found_and_written_anew(copied_docs: Path) -> None:
    page = copied_docs / "docs" / "concepts.md"
    current = page.read_text(encoding="utf-8")
    assert "queued --> running: start" in current
    page.write_text(current.replace("queued --> running: start", "queued --> succeeded: start"), encoding="utf-8")
    found = generate(copied_docs, "--check")
    assert found.returncode == 1
    assert "docs/concepts.md is not current" in found.stdout
    assert generate(copied_docs).returncode == 0
    assert page.read_text(encoding="utf-8") == current


def test_a_setting_without_a_description_is_refused(copied_docs: Path) -> None:
    words = copied_docs / "tools" / "settings.yaml"
    lines = [line for line in words.read_text(encoding="utf-8").splitlines() if not line.startswith("port:")]
    words.write_text("\n".join(lines), encoding="utf-8")
    done = generate(copied_docs, "--check")
    assert done.returncode == 2
    assert "port" in done.stderr


def test_a_part_that_nothing_generates_is_refused(copied_docs: Path) -> None:
    (copied_docs / "docs" / "index.md").write_text("<!-- generated: nothing -->\n<!-- end -->\n", encoding="utf-8")
    done = generate(copied_docs, "--check")
    assert done.returncode == 2
    assert "nothing" in done.stderr
