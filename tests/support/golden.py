"""Golden files: what a public contract is today. One file for each contract, in tests/golden.

``make golden`` writes them anew. Their difference then reads like a list of changes, and is reviewed like one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# Read at once: some tests empty their environment.
_WRITE = bool(os.environ.get("COUNTERSEAL_WRITE_GOLDEN"))
_LINE = 122
_REMEDY = "if the change is meant, run `make golden` and read the difference"


def written(value: Any, depth: int = 0) -> str:
    """JSON for people: what fits on a line stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth <= _LINE or not isinstance(value, dict | list):
        return line
    inner = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {written(item, depth + 1)}" for name, item in value.items()]
    else:
        parts = [written(item, depth + 1) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(f"{inner}{part}" for part in parts) + f"\n{' ' * depth}{last}"


def matches_golden(name: str, found: Mapping[str, Any]) -> None:
    """Compare a contract with its golden file, part by part."""
    file, plain = GOLDEN / f"{name}.json", json.loads(json.dumps(found))
    if _WRITE:
        file.write_text(f"{written(plain)}\n", encoding="utf-8")
    expected = json.loads(file.read_text(encoding="utf-8"))
    assert plain.keys() == expected.keys(), _REMEDY
    for part, value in expected.items():
        assert plain[part] == value, f"{part}: {_REMEDY}"


def lines_match_golden(name: str, text: str) -> None:
    """Compare a text with its golden file, line by line."""
    file = GOLDEN / name
    if _WRITE:
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines(), _REMEDY
