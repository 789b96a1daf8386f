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


_LINE = 118


def written(value: Any, depth: int = 0) -> str:
    """JSON to be read by people: what fits on a line stands on one."""
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


def as_it_was(file: Path, found: Mapping[str, Any]) -> None:
    """Compare with the file, part by part; ``COUNTERSEAL_WRITE_WHOLE=1`` writes it anew: read the difference then."""
    told = json.loads(json.dumps(found))
    if WRITE:
        file.write_text(f"{written(told)}\n", encoding="utf-8")
    wanted = json.loads(file.read_text(encoding="utf-8"))
    assert told.keys() == wanted.keys()
    for name, value in wanted.items():
        assert told[name] == value, name


_NAMED = (
    ("id", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")),
    ("digest", re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")),
    ("short", re.compile(r"(?<!-)\b[0-9a-f]{12}(?:[0-9a-f]{4})?\b")),
    ("wait", re.compile(r"(?<![\w.-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{22}(?![\w.-])")),
    ("worker", re.compile(r"[\w.-]+:\d+:[0-9a-f]{6}\b")),
    ("minute", re.compile(r"(?:\b\d+\^\{date_short_pretty\} \{time\}\|)?\b20\d\d-\d\d-\d\d \d\d:\d\d UTC")),
    ("time", re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:Z|[+]00:00)")),
)


class Named:
    """Names for what is another each time, by the order in which it appears; times are one and the same.

    ``more`` are patterns of further kinds, which are looked for first.
    """

    def __init__(self, more: Mapping[str, str] | None = None) -> None:
        self._seen: dict[str, str] = {}
        self._kinds = (*((kind, re.compile(pattern)) for kind, pattern in (more or {}).items()), *_NAMED)

    def __call__(self, value: Any) -> Any:
        if isinstance(value, dict):
            # A bundle is as long as the name of the worker, in which is the number of its process.
            return {self(name): "<bytes>" if name == "bytes" else self(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, str):
            return value
        for kind, pattern in self._kinds:
            value = pattern.sub(partial(self._name, kind), value)
        return value

    def _name(self, kind: str, found: re.Match[str]) -> str:
        if kind in ("time", "minute"):
            return f"<{kind}>"
        many = sum(name.startswith(f"<{kind}") for name in self._seen.values())
        return self._seen.setdefault(found[0], f"<{kind} {many}>")
