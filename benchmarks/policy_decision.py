"""How long one policy decision takes over 50 rules, all of which match the operation: median microseconds.

Run: python -m benchmarks.policy_decision [--decisions N] [--json]. Budget: at most 100 µs (DESIGN section 9).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from core.action import Action, Risk, SideEffects
from core.canonical import JsonObject
from policy.evaluate import evaluate
from policy.facts import FactContext, OperationFacts, build_facts
from policy.load import Policy, load_policy

OPERATION = "servicenow.incident.update"
NAMES = ("priority", "urgency", "impact", "state", "assigned_to", "category", "work_notes")
FIELDS = dict.fromkeys(NAMES, "string")
CONDITIONS = (
    "action.reversible && action.changed.all(f, f in ['assigned_to', 'work_notes', 'fields_{n}'])",
    "'priority' in action.changed && action.fields.priority == '{n}'",
    "counters.writes_in_run >= {n} + 100",
    "action.risk == 'high' && run.workflow == 'workflow-{n}'",
    "action.target.startsWith('incident:{n}')",
    "actor.kind == 'agent' && tenant.workspace == 'workspace-{n}'",
    "'state' in action.changed && action.fields.state in ['6', '7', '{n}']",
    "run.trigger == 'webhook' && run.requested_by.matches('^svc-{n}[a-z]+$')",
    "'category' in action.present && action.fields.category == 'category-{n}'",
    "run.version > {n} + 100 || action.side_effects == 'none'",
)
MATCHES = ("{operation: servicenow.incident.update}", "{operation: servicenow.*}", '{operation: "*"}')


def policy_of(rules: int) -> Policy:
    """A policy whose rules all match, with ten kinds of conditions; one allows, the others seldom fire."""
    lines = ["policy: benchmark", "version: 1", "rules:"]
    for n in range(rules):
        when = json.dumps(CONDITIONS[n % len(CONDITIONS)].replace("{n}", str(n)))
        outcome = "allow" if n % len(CONDITIONS) == 0 else "deny"
        match = MATCHES[n % len(MATCHES)]
        lines.append(f"  - {{id: rule-{n}, match: {match}, when: {when}, outcome: {outcome}, because: It is so.}}")
    return load_policy("\n".join(lines), "benchmark.yaml", {OPERATION: OperationFacts(FIELDS, frozenset(FIELDS))})


def main() -> None:
    """Print the median, the 99th percentile and the share of building the facts."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--decisions", type=int, default=5_000)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    policy = policy_of(50)
    fields: JsonObject = {"assigned_to": "beth", "work_notes": "x" * 200, "category": "network"}
    before: JsonObject = {"assigned_to": "", "work_notes": "", "category": "network"}
    action = Action(
        OPERATION, fields, fields, "incident:x", "7", before, Risk.LOW, SideEffects.EXTERNAL_CALL, True, "Assign"
    )
    context = FactContext(run_workflow="triage", run_version=3, run_requested_by="ann", actor_kind="agent")
    assert evaluate(policy, build_facts(action, context), OPERATION).outcome == "allow"
    times, facts_times = [], []
    for _ in range(options.decisions):
        start = time.perf_counter_ns()
        facts = build_facts(action, context)
        built = time.perf_counter_ns()
        evaluate(policy, facts, OPERATION)
        times.append((time.perf_counter_ns() - start) / 1_000)
        facts_times.append((built - start) / 1_000)
    result = {
        "rules": 50,
        "decisions": options.decisions,
        "median_us": round(statistics.median(times), 1),
        "p99_us": round(statistics.quantiles(times, n=100)[98], 1),
        "median_facts_us": round(statistics.median(facts_times), 1),
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(
            f"one decision over 50 rules: median {result['median_us']} µs, p99 {result['p99_us']} µs, of which facts "
            f"{result['median_facts_us']} µs ({options.decisions} decisions; budget 100 µs)"
        )


if __name__ == "__main__":
    main()
