"""The generated parts of docs/ are what the code says now."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_docs_are_current(docs_root: Path) -> None:
    command = [sys.executable, str(docs_root / "tools" / "generate_docs.py"), "--check"]
    done = subprocess.run(command, cwd=docs_root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + "\nRun: .venv/bin/python tools/generate_docs.py"


@pytest.fixture
def copied(docs_root: Path, tmp_path: Path) -> Any:
    """The tool, working on a copy of the pages."""
    for folder in ("docs", "tools"):
        shutil.copytree(docs_root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    spec = importlib.util.spec_from_file_location("copied_generate_docs", tmp_path / "tools" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_stale_page_is_found_and_written_anew(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = copied.DOCS / "concepts.md"
    current = page.read_text(encoding="utf-8")
    assert "queued --> running: start" in current
    page.write_text(current.replace("queued --> running: start", "queued --> succeeded: start"), encoding="utf-8")
    assert copied.main(["--check"]) == 1
    assert "docs/concepts.md is not current" in capsys.readouterr().out
    assert copied.main([]) == 0
    assert page.read_text(encoding="utf-8") == current


def test_a_setting_without_a_description_is_refused(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = copied.ROOT / "tools" / "settings.yaml"
    lines = [line for line in words.read_text(encoding="utf-8").splitlines() if not line.startswith("port:")]
    words.write_text("\n".join(lines), encoding="utf-8")
    assert copied.main(["--check"]) == 2
    assert "port" in capsys.readouterr().err


def test_a_part_that_nothing_generates_is_refused(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (copied.DOCS / "index.md").write_text("<!-- generated: nothing -->\n<!-- end -->\n", encoding="utf-8")
    assert copied.main(["--check"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_part_that_no_page_has_is_reported(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (copied.DOCS / "http.md").unlink()
    assert copied.main(["--check"]) == 2
    assert "routes" in capsys.readouterr().err
