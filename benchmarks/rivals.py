"""Budgets that are multiples of what other engines reach; they exist only if `PEERS=1` measured the engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import FOLDER, Figure, Verdict, median, short, spread_of, unmeasured

PEERS = FOLDER / "peers.json"
# The peer that wakes a run fastest.
WAKES_FASTEST = "restate"
RATES = {"w1": "runs_per_second", "w2": "steps_per_second"}


@dataclass(frozen=True, slots=True)
class Rival:
    """The leanest job by hand in one workload, and its median rate per second."""

    name: str
    rate: float


def against(what: str, factor: float, workload: str, found: Sequence[float], unit: str, path: Path = PEERS) -> Figure:
    """The figure of our rounds, with ``factor`` times the median of the leanest job by hand as its budget."""
    value, spread, numbers = median(found), spread_of(found), {"value": median(found), "factor": factor}
    rival = leanest(workload, path)
    if rival is None:
        budget = f"≥ {factor} times the leanest job by hand (PEERS=1 was not run)"
        return unmeasured(what, budget, f"{short(value)} {unit}", spread=spread, **numbers)
    limit = factor * rival.rate
    verdict = Verdict.WITHIN if value >= limit else Verdict.OVER
    budget = f"≥ {factor} times the leanest job by hand ({rival.name}, {short(rival.rate)})"
    return Figure(what, budget, f"{short(value)} {unit}", verdict, {**numbers, "limit": limit}, spread)


def as_quick(what: str, factor: float, found: Sequence[float], path: Path = PEERS, **numbers: float) -> Figure:
    """Hold the p50 of our rounds, in milliseconds, against that of the peer that wakes a run fastest."""
    value, spread = median(found), spread_of(found)
    theirs = _engines(path).get(WAKES_FASTEST, {}).get("as_is", {}).get("latency", {}).get("p50_ms")
    if not theirs:
        budget = f"≤ {factor:g} times Restate's (PEERS=1 was not run)"
        return unmeasured(what, budget, f"{short(value)} ms", spread=spread, value=value, factor=factor, **numbers)
    limit = factor * median(theirs)
    verdict = Verdict.WITHIN if value <= limit else Verdict.OVER
    budget = f"≤ {factor:g} times Restate's ({short(median(theirs))} ms)"
    return Figure(what, budget, f"{short(value)} ms", verdict, {"value": value, "limit": limit, **numbers}, spread)


def leanest(workload: str, path: Path = PEERS) -> Rival | None:
    """The fastest engine that is governed by hand in the result of `python -m benchmarks.peers`; None if there is none.

    The figures are those without commit delay.
    """
    found = [
        Rival(engine["name"], median(rates))
        for engine in _engines(path).values()
        if engine.get("by_hand") and (rates := engine["as_is"].get(workload, {}).get(RATES[workload]))
    ]
    return max(found, key=lambda rival: rival.rate, default=None)


def _engines(path: Path) -> dict[str, Any]:
    try:
        engines: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["engines"]
    except OSError:
        return {}
    return engines
