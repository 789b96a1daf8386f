"""The time of one policy decision over 50 rules, all of which match the operation: median microseconds.

Run: python -m benchmarks.policy_decision [--decisions N] [--json]. Budget: at most 100 µs.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.documents import OPERATION, OPERATIONS, policy
from benchmarks.figures import Figure, at_most, median, percentile, spread_of
from connectors.catalog import Source, load_catalog
from connectors.proposal import build_action
from policy.evaluate import build_facts, evaluate
from policy.facts import FactContext
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions

RULES = 50
DECISIONS = 5_000
ROUNDS = 3


def measure(decisions: int = DECISIONS) -> Figure:
    """Measure building the facts and deciding, as the worker does for each action."""
    catalog = load_catalog([Source("bench.yaml", OPERATIONS)])
    rules = PolicySet.of(Definitions(catalog).compile_policy(policy(RULES), "benchmark.yaml"))
    action = build_action(catalog.get(OPERATION), {"name": "INC1", "category": "network", "note": "x" * 200})
    context = FactContext(run_workflow="triage", run_version=3, run_requested_by="ann", actor_kind="agent")
    assert evaluate(rules, build_facts(action, context), OPERATION).outcome == "allow"
    rounds = []
    for _ in range(ROUNDS):
        times, facts_times = [], []
        for _ in range(decisions):
            start = time.perf_counter_ns()
            facts = build_facts(action, context)
            built = time.perf_counter_ns()
            evaluate(rules, facts, OPERATION)
            times.append((time.perf_counter_ns() - start) / 1_000)
            facts_times.append((built - start) / 1_000)
        rounds.append((median(times), percentile(times, 99), median(facts_times)))
    halves, lasts, shares = zip(*rounds, strict=True)
    return at_most(
        f"one policy decision over {RULES} rules",
        100,
        median(halves),
        "µs",
        spread=spread_of(halves),
        p99=median(lasts),
        facts=median(shares),
        decisions=decisions,
    )


def main() -> None:
    """Print the median, the 99th percentile and the share of building the facts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--decisions", type=int, default=DECISIONS)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    figure = measure(options.decisions)
    if options.json:
        print(json.dumps(figure.numbers))
        return
    found = figure.numbers
    print(f"{figure.what}: median {figure.measured}, p99 {found['p99']:.1f} µs, facts {found['facts']:.1f} µs")


if __name__ == "__main__":
    main()
