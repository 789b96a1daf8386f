"""Other durable engines, compared with Counterseal: ``python -m benchmarks.peers``, or ``make bench PEERS=1``.

Each engine runs in its own virtual environment, and its driver imports this package there. So this module must not
import anything that only Counterseal's environment has.
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
    """Install missing engines, measure, and return the results. Takes about a quarter of an hour.

    Blocks, and runs its own event loop. ``names`` are of ``engines.PEERS``; Counterseal is always measured. A peer that
    cannot be installed or fails is in the result with its reason; no fault of a peer raises.
    """
    from benchmarks.peers.comparing import Sizes, measure
    from benchmarks.peers.engines import chosen

    return measure(chosen(names), Sizes(runs, latency_runs, rounds))
