"""Whole results beside what they were: a file of JSON that a person has read. It shows whatever changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Read at once: some tests empty their environment.
WRITE = bool(os.environ.get("COUNTERSEAL_WRITE_WHOLE"))


def as_it_was(file: Path, found: Mapping[str, Any]) -> None:
    """Compare with the file, part by part; ``COUNTERSEAL_WRITE_WHOLE=1`` writes it anew: read the difference then."""
    told = json.loads(json.dumps(found))
    if WRITE:
        file.write_text(f"{json.dumps(told, indent=1, ensure_ascii=False)}\n", encoding="utf-8")
    wanted = json.loads(file.read_text(encoding="utf-8"))
    assert told.keys() == wanted.keys()
    for name, value in wanted.items():
        assert told[name] == value, name
