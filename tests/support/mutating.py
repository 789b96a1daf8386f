"""Changes bundles at random, from a seed: the bytes of the zip, or the content of one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from core.canonical import canonical_bytes
from evidence import layout
from tests.support.forging import VALUES

# Files that follow from the events. What is opened may be withheld, and what a history is judged by is not all bound.
DERIVED = (
    layout.EVENTS, layout.RUN_HEAD, layout.RUN_FILE, layout.APPROVALS, layout.RECEIPTS, layout.ATTEMPTS,
    layout.CHECKPOINT_LINES, layout.COSTS, layout.README, layout.PUBLIC_KEY,
)  # fmt: skip
_LINES = ("drop", "twice", "swap")
_JSON = ("scalar", "member", "without")


def containers(random: Random, good: bytes, forged: bytes) -> Iterator[bytes]:
    """Yield zips that are not the good one."""
    while True:
        at, size = random.randrange(len(good)), random.randrange(1, 64)
        junk = random.randbytes(size)
        # The lists at the end say where everything is.
        end = random.randrange(len(good) - 2000, len(good))
        found = random.choice([
            forged + good, good + forged, junk + good, good + junk, good[:at] + junk + good[at:],
            good[:at] + good[at + size :], good[:at] + good[at : at + size] * 2 + good[at + size :], good[:at],
            good[:at] + bytes([good[at] ^ 1 << random.randrange(8)]) + good[at + 1 :],
            good[:end] + bytes([good[end] ^ 1 << random.randrange(8)]) + good[end + 1 :],
        ])  # fmt: skip
        if found != good:
            yield found


def contents(random: Random, files: dict[str, bytes], only: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield a file, any or this one, and what it holds now."""
    while True:
        name = only or random.choice([*DERIVED, layout.OPENED, VALUES])
        data = files[name]
        ways = ["flip", "more"]
        if name.endswith((".json", ".jsonl")):
            ways += ["scalar"] if name in (layout.OPENED, VALUES) else [*_LINES, *_JSON]
        changed = _changed(random, data, random.choice(ways))
        if changed != data:
            yield name, changed


def _changed(random: Random, data: bytes, way: str) -> bytes:
    lines = data.splitlines(keepends=True)
    at, other = random.randrange(len(lines) or 1), random.randrange(len(lines) or 1)
    match way:
        case _ if not lines:
            return b"{}\n"
        case "flip":
            place = random.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1 << random.randrange(7)]) + data[place + 1 :]
        case "more":
            return data + random.choice([b"\n", b" ", b"{}\n", lines[at]])
        case "drop":
            del lines[at]
        case "twice":
            lines.insert(at, lines[at])
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            told = json.loads(lines[at])
            _edit(random, told, way)
            lines[at] = canonical_bytes(told) + b"\n"
    return b"".join(lines)


def _edit(random: Random, told: Any, way: str) -> None:
    """Change one member somewhere within."""
    holders = [one for one in _within(told) if one]
    if not holders:
        return
    holder = random.choice(holders)
    key = random.choice([*holder]) if isinstance(holder, dict) else random.randrange(len(holder))
    if way == "without":
        del holder[key]
    elif way == "member" and isinstance(holder, dict):
        holder["zz"] = random.choice([None, "x", 1])
    else:
        holder[key] = random.choice([None, True, 0, "x", [], {}])


def _within(told: Any) -> Iterator[Any]:
    if isinstance(told, dict | list):
        yield told
        for each in told.values() if isinstance(told, dict) else told:
            yield from _within(each)
