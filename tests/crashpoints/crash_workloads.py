"""The workloads that are killed at every point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OPERATIONS = """
operations:
  - name: probe.effect.apply
    handler: probe:apply
    side_effects: external_call
    risk: medium
    summary: "Set {name}"
    target: "thing/{name}"
    in_doubt: probe
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    retry: {attempts: 4, backoff: [5], jitter: 0}
  - name: probe.mail.send
    handler: probe:send
    side_effects: external_call
    risk: high
    summary: "Send {name}"
    target: "mail/{name}"
    in_doubt: ask
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
  - name: probe.case.open
    kind: durable
    handler: probe:case
    side_effects: human_process
    risk: low
    summary: "Open {name}"
    target: "case/{name}"
    in_doubt: probe
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    timeouts: {complete: P14D}
  - name: probe.case.share
    kind: durable
    handler: probe:case
    side_effects: human_process
    risk: low
    summary: "Open {name} once"
    target: "case/{name}"
    in_doubt: probe
    idempotency: {scope: reference}
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    timeouts: {complete: P14D}
  - name: probe.ticket.open
    handler: probe:open
    side_effects: external_call
    risk: low
    summary: "Open a ticket about {name}"
    target: "ticket/{name}"
    in_doubt: probe
    idempotency: {scope: tenant}
    input_schema: {type: object, required: [name], properties: {name: {type: string}}, additionalProperties: false}
    output_schema: {type: object}
    retry: {attempts: 4, backoff: [5], jitter: 0}
"""
POLICY = """
policy: crash
version: 1
rules:
  - {id: all, match: {connector: probe}, outcome: allow}
  - {id: model, match: {connector: model}, outcome: allow}
  - {id: never, match: {operation: probe.effect.apply}, when: action.fields.name == 'denied', outcome: deny}
  - {id: tools, match: {connector: agent}, outcome: allow}
  - id: asked-tools
    match: {connector: agent}
    when: action.fields.tool == 'ask'
    outcome: needs_approval
    approvers: [{group: owners}]
  - {id: kept, match: {connector: records}, outcome: allow}
  - {id: made, match: {operation: servicenow.record.create}, outcome: allow}
  - id: removed
    match: {operation: servicenow.record.delete}
    outcome: needs_approval
    approvers: [{group: owners}]
  - {id: rows, match: {operation: crm.customer.*}, outcome: allow}
  - id: asked-rows
    match: {operation: crm.customer.*}
    when: action.fields.status.startsWith('ask')
    outcome: needs_approval
    approvers: [{group: owners}]
  - id: asked
    match: {operation: probe.effect.apply}
    when: action.fields.name.startsWith('ask')
    outcome: needs_approval
    approvers: [{group: owners}]
"""
DENY = "policy: crash\nversion: 2\nrules:\n  - {id: none, match: {connector: probe}, outcome: deny}\n"
DIRECTORY = """
directory: people
people: [{id: olga, name: Olga}, {id: hugo, name: Hugo}]
service_accounts: [{id: bot, owner: hugo}]
groups: {owners: [olga], operators: [olga, hugo], kyc: [olga]}
"""
# With it a change of policy takes two of a group, and one is proposed.
TWO_PEOPLE = DIRECTORY.replace("people: [", "people: [{id: nina, name: Nina}, ").replace(
    "groups: {", "groups: {policy_approvers: [nina, olga], "
)
# And so does a change of who they are: the first proposes it, the second does the same.
_THIRD = TWO_PEOPLE.replace("people: [", "people: [{id: otto, name: Otto}, ")
THREE_PEOPLE = _THIRD.replace("[nina, olga]", "[nina, olga, otto]")
NEXT = POLICY.replace("version: 1", "version: 2") + "  - {id: more, match: {connector: slack}, outcome: deny}\n"
HEAD = "workflow: %s\nversion: 1\nreference: r\nsteps:\n"


def _effects(*names: str) -> str:
    return "".join(f"  - {{id: s_{name}, do: probe.effect.apply, with: {{name: {name}}}}}\n" for name in names)


def _records(*keys: str) -> str:
    put = "  - {id: k_%s, do: records.put, with: {collection: kept, key: %s, value: {n: 1}}}\n"
    return "".join(put % (key, key) for key in keys)


def _row(number: int, verb: str, status: str) -> str:
    return f"  - {{id: c_{number}, do: crm.customer.{verb}, with: {{id: {number}, fields: {{status: {status}}}}}}}\n"


@dataclass(frozen=True)
class Workload:
    """A run, the choices of people, and what is to be true at the end. ``effects`` happen exactly once each.

    An ``open`` run gets one more step, and is closed then. ``refused_once`` is refused the first time, and somebody
    goes on with the run; or, if it ``holds`` the step, tries that again. ``records`` are written once each, and so are
    ``rows`` of another database. ``workers`` work at the same time, with nothing in common but the database and the
    process that dies. With ``proposes``, a change of policy takes two people, and is made by the vote of the second.
    ``calls`` are those of an agent's only turn with any: tool and name; one with the name ``doubt`` is in doubt.
    ``incidents`` are the writes of an instance of ServiceNow, each once, in their order.
    With ``gate`` there is no workflow: an agent carries out tools of its own (``crash_gate``).
    ``runs`` is their number, if it is not that of the workflows.
    """

    name: str
    workflows: tuple[str, ...]
    effects: frozenset[str]
    status: str = "succeeded"
    trigger: dict[str, Any] = field(default_factory=dict)
    choice: str = "approve"
    refuses_first: frozenset[str] = frozenset()
    times_out: bool = False
    workers: int = 1
    refused_once: str = ""
    holds: bool = False
    open: bool = False
    records: frozenset[str] = frozenset()
    rows: frozenset[int] = frozenset()
    proposes: bool = False
    incidents: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    gate: bool = False
    runs: int | None = None


_ALL = (
    Workload("w1", (HEAD % "w1" + _effects("a", "b", "ask", "d"),), frozenset({"a", "b", "ask", "d"})),
    Workload(
        "rejected",
        (HEAD % "rejected" + _effects("a", "ask", "never"),),
        frozenset({"a"}),
        status="failed_terminal",
        choice="reject",
    ),
    # People approve what fails then: it is held beside a step that goes on, and tried again without another question.
    Workload(
        "held",
        (
            HEAD % "held"
            + "  - {id: a, do: probe.effect.apply, with: {name: ask}, on_failure: {hold: operators}}\n"
            + "  - {id: b, needs: [], do: probe.effect.apply, with: {name: b}}\n",
        ),
        frozenset({"ask", "b"}),
        refused_once="ask",
        holds=True,
    ),
    Workload("retry", (HEAD % "retry" + _effects("a", "b"),), frozenset({"a", "b"}), refuses_first=frozenset({"b"})),
    Workload(
        "loop",
        (
            HEAD % "loop"
            + "  - foreach: ${{ trigger.items }}\n    max_parallel: 2\n"
            + "    steps: [{id: e, do: probe.effect.apply, with: {name: '${{ item }}'}}]\n"
            + _effects("z"),
        ),
        frozenset({"ask1", "ask2", "z"}),
        trigger={"items": ["ask1", "ask2"]},
    ),
    Workload(
        "wide",
        (
            HEAD % "wide"
            + "  - foreach: ${{ trigger.items }}\n    max_parallel: 4\n"
            + "    steps: [{id: e, do: probe.effect.apply, with: {name: '${{ item }}'}}]\n"
            + _effects("z"),
        ),
        frozenset({"a", "b", "c", "d", "z"}),
        trigger={"items": ["a", "b", "c", "d"]},
        workers=2,
    ),
    Workload(
        "durable",
        (
            HEAD % "durable"
            + "  - {id: c, do: probe.case.open, with: {name: case}, timeout: P1D,"
            + " on_timeout: [{id: t, do: probe.effect.apply, with: {name: late}}]}\n"
            + _effects("z"),
        ),
        frozenset({"case", "late", "z"}),
        times_out=True,
    ),
    Workload(
        "completed",
        (
            HEAD % "completed"
            + "  - {id: c, do: probe.case.open, with: {name: case}}\n"
            + "  - {id: t, task: {title: T, form: {type: object, properties: {name: {type: string}}},"
            + " assign: {group: kyc}}}\n"
            + _effects("z"),
        ),
        frozenset({"case", "z"}),
    ),
    Workload(
        "records",
        (HEAD % "records" + _effects("a") + _records("r1", "r2") + _effects("ask") + _records("r3"),),
        frozenset({"a", "ask"}),
        records=frozenset({"r1", "r2", "r3"}),
    ),
    Workload(
        "sql",
        (
            HEAD % "sql"
            + _row(1, "update", "gold")
            + _row(2, "set", "gold")
            + _row(3, "update", "ask1")
            + _row(4, "set", "ask2")
            + _row(5, "look", "gold"),
        ),
        frozenset(),
        rows=frozenset({1, 2, 3, 4, 5}),
    ),
    Workload(
        "servicenow",
        (
            HEAD % "servicenow"
            + "  - {id: m, do: servicenow.record.create, with: {table: incident, fields: {short_description: new}}}\n"
            + "  - {id: d, do: servicenow.record.delete, with: {table: incident, sys_id: old}}\n"
            + "  - {id: n, do: servicenow.record.delete, with: {table: incident, sys_id: old}}\n",
        ),
        frozenset(),
        incidents=("insert", "delete"),
    ),
    Workload(
        "child",
        (
            HEAD % "child"
            + "  - {id: c, run: inner, with: {x: 1}}\n  - {id: i, run: quick, with: {x: 1}}\n"
            + _effects("z"),
            HEAD % "inner" + _effects("a") + "  - wait: {signal: go, correlate: x}\n" + _effects("b"),
            HEAD % "quick" + _effects("q"),
        ),
        frozenset({"a", "b", "q", "z"}),
    ),
    Workload(
        "continued",
        (
            HEAD % "continued"
            + _effects("ask")
            + "  - {id: c, continue_with: {workflow: after, with: {x: 1}}}\n"
            + _effects("z"),
            HEAD % "after" + _effects("a", "b"),
        ),
        frozenset({"ask", "z", "a", "b"}),
    ),
    Workload(
        "set",
        (
            "workflow: set\nversion: 1\nreference: r\nchannels: {log: {reduce: append, ledger: true}}\nsteps:\n"
            "  - set: {log: first}\n"
            + _effects("a")
            + "  - {reference: 'r ${{ size(state.log) }}', set: {log: '${{ state.log[0] }} again'}}\n"
            + "  - foreach: ${{ trigger.items }}\n    max_parallel: 2\n    steps: [{set: {log: '${{ item }}'}}]\n"
            + _effects("ask", "z"),
        ),
        frozenset({"a", "ask", "z"}),
        trigger={"items": [1, 2]},
    ),
    Workload(
        "retried",
        (HEAD % "retried" + _effects("a", "ask", "d"),),
        frozenset({"a", "ask", "d"}),
        refused_once="ask",
    ),
    Workload("proposed", (HEAD % "proposed" + _effects("a", "ask"),), frozenset({"a", "ask"}), proposes=True),
    Workload(
        "agent",
        (
            HEAD % "agent"
            + "  - id: triage\n    agent: {model: m, instructions: Do it., input: Now.,"
            + " tools: [probe.effect.apply, probe.mail.send]}\n"
            + _effects("z"),
        ),
        frozenset({"ask", "doubt", "z"}),
        calls=(("probe_effect_apply", "ask"), ("probe_mail_send", "doubt"), ("probe_effect_apply", "denied")),
    ),
    Workload("gate", (), frozenset({"ask", "silent"}), gate=True),
    Workload("open", (HEAD % "open" + _effects("a"),), frozenset({"a", "more"}), open=True),
    Workload(
        "inherited",
        (
            "workflow: inherited\nversion: 1\nreference: r\n"
            "channels: {log: {reduce: append, ledger: true, initial: ['${{ trigger.first }}']}}\nsteps:\n"
            "  - set: {log: two}\n"
            "  - {id: c, run: heir, inherit: [log], set: {log: '${{ output }}'}}\n" + _effects("z"),
            "workflow: heir\nversion: 1\nreference: r\nresult: '${{ size(state.log) }}'\n"
            "channels: {log: {reduce: append, keep: 2, ledger: true}}\nsteps:\n"
            "  - set: {log: own}\n" + _effects("ask"),
        ),
        frozenset({"ask", "z"}),
        trigger={"first": "one"},
    ),
    Workload(
        "shared",
        (
            HEAD % "shared"
            + "  - foreach: ${{ trigger.items }}\n    max_parallel: 3\n"
            + "    steps: [{id: c, run: sharer, with: {item: '${{ item }}'}}]\n"
            + _effects("z"),
            HEAD % "sharer"
            + "  - {id: t, do: probe.ticket.open, with: {name: ticket}}\n"
            + "  - {id: c, do: probe.case.share, with: {name: case}}\n",
        ),
        frozenset({"ticket", "case", "z"}),
        trigger={"items": [1, 2, 3]},
        workers=2,
        runs=4,
    ),
    # Each run within writes once, and what it asks is refused; two of them go on side by side.
    Workload(
        "family",
        (
            HEAD % "family"
            + "  - foreach: ${{ trigger.items }}\n    max_parallel: 2\n"
            + "    steps: [{id: c, run: member, with: {item: '${{ item }}'}}]\n"
            + _records("f1")
            + "  - {id: n, continue_with: {workflow: next, with: {x: 1}}}\n",
            HEAD % "member"
            + "  - {id: e, do: probe.effect.apply, with: {name: 'm${{ string(trigger.item) }}'}}\n"
            + "  - {id: q, do: probe.effect.apply, with: {name: 'ask${{ string(trigger.item) }}'},"
            + " on_rejected: [{id: p, do: probe.effect.apply, with: {name: 'p${{ string(trigger.item) }}'}}]}\n",
            HEAD % "next" + _effects("z") + "  - {id: r, do: records.get, with: {collection: kept, key: f1}}\n",
        ),
        frozenset({"m1", "m2", "p1", "p2", "z"}),
        choice="reject",
        trigger={"items": [1, 2]},
        records=frozenset({"f1"}),
        workers=2,
        runs=4,
    ),
)
WORKLOADS = {work.name: work for work in _ALL}
