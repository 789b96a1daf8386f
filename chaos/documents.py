"""The published documents: workflows of every shape, policies, people, and operations with many retries."""

from __future__ import annotations

from chaos import agents

MAX_CONCURRENCY = 12

OPERATIONS = """
operations:
  - name: servicenow.incident.note
    handler: servicenow:update
    side_effects: external_call
    risk: low
    summary: "Note on {sys_id}: {work_notes}"
    target: incident/{sys_id}
    writes: [work_notes]
    in_doubt: probe
    timeouts: {perform: PT10S}
    retry: &patient {attempts: 20, backoff: [1, 2, 4], jitter: 0.2}
    diff: {fields: [], appended: [work_notes], harmless: [work_notes]}
    input_schema: &note
      type: object
      additionalProperties: false
      required: [sys_id, work_notes]
      properties:
        sys_id: {type: string, x-evidence: value}
        work_notes: {type: string, x-evidence: value}
    output_schema: {type: object}
  - name: servicenow.problem.note
    handler: servicenow:update
    side_effects: external_call
    risk: low
    summary: "Note on {sys_id}: {work_notes}"
    target: problem/{sys_id}
    writes: [work_notes]
    in_doubt: probe
    timeouts: {perform: PT10S}
    retry: *patient
    diff: {fields: [], appended: [work_notes], harmless: [work_notes]}
    input_schema: *note
    output_schema: {type: object}
  - name: servicenow.incident.set
    handler: servicenow:update
    side_effects: external_call
    risk: medium
    summary: "Set {fields} of {sys_id}"
    target: incident/{sys_id}
    writes: fields
    in_doubt: probe
    timeouts: {perform: PT10S}
    retry: *patient
    diff: &diff {fields: written, appended: [work_notes], harmless: [work_notes]}
    input_schema: &set
      type: object
      additionalProperties: false
      required: [sys_id, fields]
      properties:
        sys_id: {type: string, x-evidence: value}
        fields: {type: object, additionalProperties: {type: string, x-evidence: value}}
    output_schema: {type: object}
  - name: servicenow.problem.mark
    handler: servicenow:update
    side_effects: external_call
    risk: low
    summary: "Mark {sys_id}"
    target: problem/{sys_id}
    writes: fields
    in_doubt: idempotent
    timeouts: {perform: PT10S}
    retry: *patient
    diff: *diff
    input_schema: *set
    output_schema: {type: object}
  - name: slack.chat.tell
    handler: slack:post
    side_effects: external_call
    risk: low
    summary: "Tell {text}"
    target: channel/{channel}
    in_doubt: ask
    timeouts: {perform: PT10S}
    retry: *patient
    input_schema: &words
      type: object
      additionalProperties: false
      required: [channel, text]
      properties:
        channel: {type: string, x-evidence: value}
        text: {type: string, x-evidence: value}
    output_schema: {type: object}
  - name: servicenow.problem.set
    handler: servicenow:update
    side_effects: external_call
    risk: medium
    summary: "Set {fields} of {sys_id}"
    target: problem/{sys_id}
    writes: fields
    in_doubt: probe
    timeouts: {perform: PT10S}
    retry: *patient
    diff: *diff
    input_schema: *set
    output_schema: {type: object}
  - name: slack.chat.say
    handler: slack:post
    side_effects: external_call
    risk: low
    summary: "Say {text}"
    target: channel/{channel}
    in_doubt: probe
    timeouts: {perform: PT10S}
    retry: *patient
    input_schema: *words
    output_schema: {type: object}
  - name: slack.chat.once
    handler: slack:post
    side_effects: external_call
    risk: low
    summary: "Say {text} once"
    target: channel/{channel}
    in_doubt: probe
    idempotency: {scope: reference}
    timeouts: {perform: PT10S}
    retry: *patient
    input_schema: *words
    output_schema: {type: object}
  - name: bpmn.papers.share
    kind: durable
    handler: bpmn:start
    side_effects: human_process
    risk: medium
    summary: "Start {process} once"
    target: process/{process}
    in_doubt: probe
    idempotency: {scope: reference}
    timeouts: {perform: PT10S, complete: P1D}
    retry: *patient
    input_schema: &papers
      type: object
      additionalProperties: false
      required: [process]
      properties:
        process: {type: string, x-evidence: value}
        variables: {type: object}
    output_schema: {type: object}
  - name: bpmn.papers.request
    kind: durable
    handler: bpmn:start
    side_effects: human_process
    risk: medium
    summary: "Start {process}"
    target: process/{process}
    in_doubt: probe
    timeouts: {perform: PT10S, complete: P1D}
    retry: *patient
    input_schema: *papers
    output_schema: {type: object}
"""

POLICY = """
policy: chaos
version: 1
rules:
  - {id: marks, match: {operation: servicenow.problem.mark}, outcome: allow, because: "Edition 1."}
  - {id: notes, match: {operation: "*.note"}, outcome: allow}
  - {id: models, match: {connector: model}, outcome: allow}
  - {id: words, match: {operation: "slack.chat.*"}, outcome: allow}
  - {id: papers, match: {operation: "bpmn.papers.*"}, outcome: allow}
  - id: priority
    match: {operation: "*.set"}
    when: "'priority' in action.changed"
    outcome: needs_approval
    approvers: [{group: owners}]
  - id: urgency
    match: {operation: "*.set"}
    when: "'urgency' in action.changed"
    outcome: needs_approval
    approvers: [{group: owners, of: 2}]
    two_person: true
  - id: nobody
    match: {operation: "*.set"}
    when: "'subcategory' in action.changed"
    outcome: needs_approval
    approvers: [{group: owners}]
    expires: PT6S
"""

# A second policy, for messages only. ``Office`` publishes and retires it in turn, and in one edition it asks people.
TONE = """
policy: tone
version: 1
applies: {connectors: [slack]}
rules:
  - {id: heard, match: {operation: "slack.chat.*"}, outcome: allow}
"""
TONE_ASKS = (
    TONE
    + """
  - id: tone
    match: {operation: "slack.chat.*"}
    outcome: needs_approval
    approvers: [{group: owners}]
"""
)

DIRECTORY = """
directory: chaos
people:
  - {id: ana.lee, name: Ana Lee, slack: U0ANA}
  - {id: ben.ortiz, name: Ben Ortiz, slack: U0BEN}
  - {id: cara.diaz, name: Cara Diaz, slack: U0CARA}
  - {id: raj.quist, name: Raj Quist}
groups:
  owners: [ana.lee, ben.ortiz, cara.diaz]
  operators: [ana.lee, ben.ortiz, cara.diaz]
  kyc: [ana.lee]
"""

_NOTE = (
    "  - {id: %s, do: servicenow.problem.note,"
    ' with: {sys_id: "${{ trigger.sys_id }}", work_notes: "${{ trigger.ref }}:%s"}}\n'
)
_SET = '  - {id: ask, do: servicenow.problem.set, with: {sys_id: "${{ trigger.sys_id }}", fields: {%s: "1"}}}\n'
_HEAD = "workflow: %s\nversion: 1\nreference: ${{ trigger.ref }}\nsteps:\n"
_BRIEF = _HEAD.replace("steps:", "retention: PT5S\nsteps:")


def _note(name: str) -> str:
    return _NOTE % (name, name)


WORKFLOWS = {
    "webhook": """
workflow: webhook
version: 1
reference: ${{ trigger.short_description }}
triggers:
  servicenow: {table: incident, events: [insert], dedupe: "${{ trigger.sys_id }}:${{ trigger.sys_mod_count }}"}
steps:
  - {id: a, do: servicenow.incident.note, with: {sys_id: "${{ trigger.sys_id }}", work_notes: "${{ run.reference }}:a"}}
  - {id: b, do: servicenow.incident.note, with: {sys_id: "${{ trigger.sys_id }}", work_notes: "${{ run.reference }}:b"}}
  - {id: ask, do: servicenow.incident.set, with: {sys_id: "${{ trigger.sys_id }}", fields: {priority: "1"}}}
  - {id: said, do: slack.chat.say, with: {channel: C0INC, text: "${{ run.reference }}:said"}}
""",
    "rejected": _BRIEF % "rejected" + _note("a") + _SET % "priority" + _note("never"),
    "two": _BRIEF % "two" + _SET % "urgency" + _note("z"),
    "loop": _HEAD % "loop"
    + "  - foreach: ${{ trigger.items }}\n    as: thing\n    max_parallel: 3\n    steps:\n"
    + "      - id: ask\n        do: servicenow.problem.set\n"
    + '        with: {sys_id: "${{ thing }}", fields: {priority: "1"}}\n'
    + _note("z"),
    "durable": _HEAD % "durable"
    + "  - id: papers\n    do: bpmn.papers.request\n"
    + '    with: {process: document-request, variables: {client: "${{ trigger.ref }}"}}\n'
    + _note("z"),
    "late": _HEAD % "late"
    + "  - id: papers\n    do: bpmn.papers.request\n"
    + '    with: {process: document-request, variables: {client: "${{ trigger.ref }}"}}\n'
    + "    timeout: PT8S\n    on_timeout:\n    "
    + _note("late")
    + _note("z"),
    "child": _HEAD % "child"
    + '  - {id: c, run: inner, with: {ref: "${{ trigger.ref }}", sys_id: "${{ trigger.sys_id }}"}}\n'
    + "  - wait: {for: PT2S}\n"
    + _note("z"),
    "inner": _HEAD % "inner" + _note("a") + '  - wait: {signal: go, correlate: "${{ trigger.ref }}"}\n' + _note("b"),
    "wide": _BRIEF % "wide"
    + "  - foreach: ${{ trigger.items }}\n    as: thing\n    max_parallel: 40\n    steps:\n"
    + "      - id: put\n        do: servicenow.problem.note\n"
    + '        with: {sys_id: "${{ thing.id }}", work_notes: "${{ thing.note }}"}\n'
    + _note("z"),
    "mark": _HEAD % "mark"
    + "  - id: mark\n    do: servicenow.problem.mark\n"
    + '    with: {sys_id: "${{ trigger.sys_id }}", fields: {category: "network"}}\n'
    + '  - {id: tell, do: slack.chat.tell, with: {channel: C0INC, text: "${{ trigger.ref }}:told"}}\n',
    "expired": _BRIEF % "expired" + _note("a") + _SET % "subcategory" + _note("never"),
    "extended": _HEAD % "extended"
    + _note("a")
    + '  - wait: {signal: more, correlate: "${{ trigger.ref }}"}\n'
    + _note("b"),
    "shared": _HEAD % "shared"
    + '  - {id: once, do: slack.chat.once, with: {channel: C0INC, text: "${{ run.reference }}:once"}}\n'
    + "  - id: papers\n    do: bpmn.papers.share\n"
    + '    with: {process: document-request, variables: {client: "${{ trigger.ref }}"}}\n'
    + _NOTE % ("z", "z${{ trigger.n }}"),
    "retried": _HEAD % "retried" + _note("a") + _SET % "priority" + _note("b"),
    "canceled": _HEAD % "canceled"
    + _note("a")
    + '  - wait: {signal: never, correlate: "${{ trigger.ref }}"}\n'
    + _note("b"),
    "agent": agents.workflow(),
    "task": _HEAD % "task"
    + "  - id: t\n    task:\n      title: Who?\n      assign: {group: kyc}\n"
    + "      form: {type: object, properties: {name: {type: string}}}\n"
    + _note("z"),
}
