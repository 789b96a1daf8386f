"""Whole results beside what they were: a file of JSON that a person has read. It shows whatever changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import partial
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


_NAMED = (
    ("id", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")),
    ("digest", re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")),
    ("worker", re.compile(r"[\w.-]+:\d+:[0-9a-f]{6}\b")),
    ("time", re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(?:Z|[+]00:00)")),
)


class Named:
    """Names for what is another each time, by the order in which it appears; times are one and the same."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self(name): self(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, str):
            return value
        for kind, pattern in _NAMED:
            value = pattern.sub(partial(self._name, kind), value)
        return value

    def _name(self, kind: str, found: re.Match[str]) -> str:
        if kind == "time":
            return "<time>"
        many = sum(name.startswith(f"<{kind}") for name in self._seen.values())
        return self._seen.setdefault(found[0], f"<{kind} {many}>")
