"""Other durable engines, measured beside Counterseal: ``python -m benchmarks.peers``, or ``make bench PEERS=1``.

Each engine runs in a virtual environment of its own, and its driver imports this package there: so nothing is imported
here that only Counterseal's environment has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers.results import Comparison


def compare(
    *,
    runs: int = 400,
    latency_runs: int = 100,
    rounds: int = 3,
    names: Sequence[str] | None = None,
) -> Comparison:
    """Install what is missing, measure, and return what was found. Takes about a quarter of an hour.

    Blocks, and runs an event loop of its own. ``names`` are of ``engines.PEERS``; Counterseal is always measured. What
    cannot be installed or fails is in the result with its reason: this raises for the fault of no peer.
    """
    from benchmarks.peers.comparing import Sizes, measure
    from benchmarks.peers.engines import chosen

    return measure(chosen(names), Sizes(runs, latency_runs, rounds))
