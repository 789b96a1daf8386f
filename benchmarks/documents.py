"""The measured operations, workflows and policies. The effect does nothing, so only our own cost is measured."""

from __future__ import annotations

import json

TENANT = "bench"
PERSON = "ana"
SLACK_USER = "U0ANA"
GROUP = "owners"
OPERATION = "bench.record.update"

OPERATIONS = """
operations:
  - name: bench.record.update
    handler: bench:update
    side_effects: external_call
    risk: medium
    summary: "Set {target}"
    target: "record/{name}"
    in_doubt: probe
    idempotency: {scope: step}
    input_schema:
      type: object
      required: [name, category]
      properties:
        name: {type: string, x-evidence: value}
        priority: {type: string, x-evidence: value}
        state: {type: string}
        category: {type: string}
        note: {type: string}
      additionalProperties: false
    output_schema: {type: object}
"""

CONDITIONS = (
    "action.reversible && action.changed.all(f, f in ['category', 'note', 'fields_{n}'])",
    "'priority' in action.changed && action.fields.priority == '{n}'",
    "counters.writes_in_run >= {n} + 100000",
    "action.risk == 'high' && run.workflow == 'workflow-{n}'",
    "action.target.startsWith('incident:{n}')",
    "actor.kind == 'agent' && tenant.workspace == 'workspace-{n}'",
    "'state' in action.changed && action.fields.state in ['6', '7', '{n}']",
    "run.trigger == 'webhook' && run.requested_by.matches('^svc-{n}[a-z]+$')",
    "'category' in action.present && action.fields.category == 'category-{n}'",
    "run.version > {n} + 100 || action.side_effects == 'none'",
)
MATCHES = ("{operation: bench.record.update}", "{operation: bench.*}", '{operation: "*"}')


def policy(rules: int, *, counting: bool = True) -> str:
    """A policy whose rules all match: one allows, one asks people if a priority is set, the others never fire.

    With ``counting``, some of them read the number of writes of the run.
    """
    lines = ["policy: benchmark", f"version: {1 if counting else 2}", "rules:"]
    usual = "counters.writes_in_run < 100000" if counting else "action.risk != 'high'"
    conditions = [condition for condition in CONDITIONS if counting or "counters" not in condition]
    for n in range(rules - 2):
        when = json.dumps(conditions[n % len(conditions)].replace("{n}", str(n)))
        match = MATCHES[n % len(MATCHES)]
        lines.append(f"  - {{id: rule-{n}, match: {match}, when: {when}, outcome: deny, because: It is so.}}")
    lines += [
        f"  - {{id: usual, match: {{connector: bench}}, when: {usual}, outcome: allow}}",
        "  - id: priority",
        "    match: {connector: bench}",
        "    when: \"'priority' in action.changed\"",
        "    outcome: needs_approval",
        f"    approvers: [{{group: {GROUP}, of: 1}}]",
        "    because: Priority changes wake people up.",
    ]
    return "\n".join(lines) + "\n"


def sequence(name: str, effects: int, ask_at: int | None = None) -> str:
    """A workflow of ``effects`` effects in sequence; the one at ``ask_at`` (from 1) waits for a person."""
    lines = [f"workflow: {name}", "version: 1", "channels: {notes: {reduce: append, keep: 20}}", "steps:"]
    for n in range(1, effects + 1):
        priority = ', priority: "urgent"' if n == ask_at else ""
        lines += [
            f"  - id: effect_{n}",
            f"    do: {OPERATION}",
            f'    with: {{name: "${{{{ trigger.number }}}}", category: "c{n}", note: "Effect {n}"{priority}}}',
            '    set: {notes: "${{ output.applied }}"}',
        ]
    return "\n".join(lines) + "\n"


ONE = sequence("one", 1)
W1 = sequence("w1", 4, ask_at=3)
W2 = sequence("w2", 10)
PARKED = sequence("parked", 1, ask_at=1)
# A loop takes at most 10,000 items, so a longer run has two of them.
LOOP = f"""
workflow: loop
version: 1
steps:
  - id: each
    foreach: ${{{{ trigger.items }}}}
    steps:
      - id: effect
        do: {OPERATION}
        with: {{name: "n${{{{ item }}}}", category: c}}
  - id: more
    foreach: ${{{{ trigger.more }}}}
    steps:
      - id: another
        do: {OPERATION}
        with: {{name: "n${{{{ item }}}}", category: c}}
"""
W3 = f"""
workflow: w3
version: 1
steps:
  - id: each
    foreach: ${{{{ trigger.items }}}}
    max_parallel: 1000
    steps:
      - id: effect
        do: {OPERATION}
        with: {{name: "n${{{{ item }}}}", category: c}}
"""
WORKFLOWS = (ONE, W1, W2, W3, PARKED, LOOP)
