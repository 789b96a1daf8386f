"""The evidence of a period, as files: every leaf of the log, the runs of the period, and the tenant's lines.

``check`` compares them with a signed checkpoint, offline: no leaf, no run and no line of the period is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct

from core.canonical import JsonObject, canonical_bytes
from core.errors import InputError
from evidence.chain import ChainHead, timestamp
from evidence.log import tree
from evidence.log.leaves import LeafKind
from evidence.log.rings import Ring

LEAVES, CHECKPOINT, RUNS, EVENTS, SAMPLE, SUMMARY = (
    "leaves.jsonl", "checkpoint", "runs.json", "tenant-events.jsonl", "sample.json", "period.json",
)  # fmt: skip


class Checked(Struct):
    """The result for the files of a period: how many leaves, runs and lines, and every problem in words.

    ``newest`` is the time of the newest leaf: later events may belong to the period and be missing here.
    """

    origin: str
    size: int
    root: bytes
    leaves: Sequence[bytes]
    runs: int = 0
    lines: int = 0
    newest: str = ""
    problems: Sequence[str] = ()


def sampled(runs: Iterable[str], seed: str, count: int) -> list[str]:
    """A sample of these runs, drawn by the seed: whoever has the seed draws the same runs."""
    return sorted(runs, key=lambda run: sha256(f"{seed}:{run}".encode()).digest())[:count]


def within(leaf: Mapping[str, Any], since: str, until: str) -> bool:
    """True if a leaf is of this period. Both ends are texts as leaves have them; the second one is not in it."""
    return since <= str(leaf["ts"]) < until


def bounds(since: datetime, until: datetime) -> tuple[str, str]:
    """The ends of a period as leaves write times."""
    return timestamp(since), timestamp(until)


def check(files: Mapping[str, bytes], ring: Ring) -> Checked:
    """Check the files of a period. ``InputError`` if one is missing, or no valid key has signed the checkpoint."""
    try:
        checkpoint, _ = ring.opened(files[CHECKPOINT], CHECKPOINT)
        leaves = files[LEAVES].splitlines()
        summary, runs, sample = (json.loads(files[name]) for name in (SUMMARY, RUNS, SAMPLE))
        parsed: list[dict[str, Any]] = [json.loads(leaf) for leaf in leaves]
        found = Checked(checkpoint.origin, len(leaves), tree.root_of(map(tree.leaf_hash, leaves)), leaves)
        found.newest = max((str(leaf["ts"]) for leaf in parsed), default="")
        found.runs, found.lines = len(runs), len(files[EVENTS].splitlines())
        found.problems = [
            *_completeness(found, checkpoint.size, checkpoint.root, parsed, summary),
            *_population(parsed, runs, summary),
            *_sample(runs, sample),
            *_lines(parsed, files[EVENTS].splitlines(), summary),
        ]
    except KeyError as error:
        raise InputError(f"lacks {error}", where="period") from None
    except (ValueError, TypeError, AttributeError):
        raise InputError("is not as it was written", where="period") from None
    return found


def _completeness(
    found: Checked, size: int, root: bytes, leaves: Sequence[JsonObject], summary: Mapping[str, Any]
) -> Iterator[str]:
    if (found.size, found.root) != (size, root):
        yield f"the {found.size} leaves do not come to the root of the checkpoint, which has {size}"
    if any(canonical_bytes(leaf) != text for leaf, text in zip(leaves, found.leaves, strict=True)):
        yield "a leaf is not in canonical form"
    if not found.origin.endswith(f"/{summary['tenant']}") or any(
        leaf["tenant"] != summary["tenant"] for leaf in leaves
    ):
        yield f"the log is of another tenant than {summary['tenant']}"


def _population(
    leaves: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> Iterator[str]:
    opened = {str(one["run"]): int(one["number"]) for one in leaves if one["kind"] == LeafKind.OPENED}
    if sorted(opened.values()) != [*range(1, len(opened) + 1)]:
        yield "the numbers of the tenant's runs have a gap"
    wanted = {
        str(one["run"]) for one in leaves
        if one["kind"] == LeafKind.OPENED and within(one, summary["since"], summary["until"])
    }  # fmt: skip
    listed = [str(one["run"]) for one in runs]
    for run in sorted(wanted - {*listed}):
        yield f"run {run} (number {opened[run]}) was opened in the period and is not listed"
    for run in sorted({*listed} - wanted):
        yield f"run {run} is listed and was not opened in the period"
    if len({*listed}) != len(listed):
        yield "a run is listed twice"
    ended = {LeafKind.CLOSED, LeafKind.LATE}
    heads = {(str(one.get("run")), int(one["count"]), str(one["head"])) for one in leaves if one["kind"] in ended}
    for one in runs:
        if one["closed"] and (str(one["run"]), one["lines"], one["head"]) not in heads:
            yield f"run {one['run']} is listed with a head of which the log has no leaf"


def _sample(runs: Sequence[Mapping[str, Any]], sample: Mapping[str, Any]) -> Iterator[str]:
    drawn = sampled([str(one["run"]) for one in runs], str(sample["seed"]), len(sample["runs"]))
    if drawn != sample["runs"]:
        yield "the sample is not the one that its seed draws"


def _lines(leaves: Sequence[Mapping[str, Any]], lines: Sequence[bytes], summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield each line of the tenant in the period that does not lead to the head in its leaf."""
    heads = {int(one["count"]): str(one["head"]) for one in leaves if one["kind"] == LeafKind.TOLD}
    start = ChainHead.of(f"tenant:{summary['tenant']}").hash
    wanted = sorted(
        int(one["count"]) for one in leaves
        if one["kind"] == LeafKind.TOLD and within(one, summary["since"], summary["until"])
    )  # fmt: skip
    if len(wanted) != len(lines):
        yield f"{len(wanted)} lines of the tenant are of the period, and {len(lines)} are here"
        return
    for count, line in zip(wanted, lines, strict=True):
        before = heads.get(count - 1, start if count == 1 else "")
        if ChainHead("", count - 1, before).after([line]).hash != heads[count]:
            yield f"line {count} of the tenant is not the one of which the log has a leaf"
