"""A workflow with every key, compiled and compared whole; every fault of workflows, extensions and directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

from connectors.catalog import Source, load_catalog
from connectors.operation import Operation
from core.errors import CountersealError, DefinitionError, InputError
from core.templates import Template
from policy.facts import OperationFacts
from policy.load import load_policy
from policy.sets import PolicySet
from runtime.definition import deciders, reserved
from runtime.definition import workflow as workflow_module
from runtime.definition.compiler import constants_of
from runtime.definition.edges import edges_of, nodes_of
from runtime.definition.foresight import fixed_facts, foresee_steps
from runtime.definition.people import load_directory
from runtime.definition.workflow import extended, load_workflow, read_extension
from runtime.engine.commit import MutationRow
from runtime.engine.workflow import Workflow
from tests.definition.conftest import DECLARATIONS
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("X-1")

EXPECTED = Path(__file__).with_name("every_part.json")


def plain(value: Any) -> Any:
    """The value as JSON: a template by what it reads and says, an operation by its name."""
    match value:
        case Template():
            return {"reads": sorted(value.references), "uses": sorted(value.functions), "says": [*value.authored()]}
        case Operation():
            return value.name
        case timedelta():
            return f"{value.total_seconds()} s"
        case Enum():
            return str(value)
        case Struct():
            return plain(asdict(value))
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case frozenset() | set():
            return sorted(map(str, value))
        case list() | tuple():
            return [plain(item) for item in value]
    if is_dataclass(value):
        shown = {item.name: plain(getattr(value, item.name)) for item in fields(value) if item.name != "flow"}
        return {"is": type(value).__name__, **shown}
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


WHOLE = """workflow: whole
version: 3
title: The whole
reference: ${{ trigger.id }}
triggers:
  servicenow: {table: incident, events: [update, insert], when: "${{ trigger.a == '1' }}", dedupe: "${{ trigger.b }}"}
caps: {max_writes_per_run: 7, max_concurrency: 8, max_runs_per_min: 9}
sla: PT5H
retention: P30D
channels:
  seen: {reduce: append, initial: [1], keep: 5, ledger: true}
  sum: {reduce: sum}
  map: {reduce: merge, initial: "${{ trigger.c }}"}
  next: {}
  turns: {reduce: union}
result: ${{ state.seen }}
steps:
  - id: a
    do: probe.effect.apply
    with: {name: "${{ trigger.d }}", value: [1, "x ${{ run.id }}"]}
    set: {seen: "${{ output.x }}", sum: 1}
    reference: ${{ output.ref }}
    on_failure: [{id: mend, do: probe.effect.apply, with: {name: "${{ error.code }}"}}]
    on_rejected: [{id: tell, set: {next: "${{ error.message }}"}}]
  - id: late
    do: probe.case.open
    with: {token: "${{ wait.token }}"}
    timeout: PT1H
    on_timeout: {escalate: owners, expires: P2DT3H, start: {workflow: other@2, with: {x: "${{ run.reference }}"}}}
  - id: later
    needs: [a]
    do: probe.case.open
    on_timeout: {escalate: leads}
  - id: ask
    needs: [late, a]
    approve: {summary: "Go on with ${{ steps.a.output.y }}?", approvers: {group: owners}, quorum: 2, tier: high,
              two_person: true, allow: [editor], expires: P1DT8H, remind: [PT1H, P1DT2H],
              escalate: {after: P1DT4H, to: {slack_group: S0}}}
  - id: ask_all
    approve: {summary: Sure?, approvers: [{group: a}, {slack_group: b, of: 3}]}
  - {id: nap, wait: {for: PT2H}}
  - {wait: {until: "${{ trigger.e }}"}}
  - {id: hears, wait: {signal: done, correlate: "${{ trigger.f }}"}, timeout: PT9H}
  - {wait: {signal: go}}
  - id: look
    task: {title: "Look at ${{ trigger.g }}", description: "It is ${{ trigger.h }}.", assign: {group: kyc},
           form: {type: object, properties: {ok: {type: boolean}}}}
    timeout: PT6H
  - {id: child, run: other@4, with: {x: 1}, inherit: [seen, sum, seen], timeout: PT7H, abandon: true}
  - {id: plain_child, run: other}
  - {continue_with: {workflow: further, with: {y: 2}}}
  - id: fork
    if: ${{ steps.a.status == 'succeeded' }}
    then: [{id: yes_, set: {next: 1}}]
    else: [{id: no_, set: {next: 2}}, {reference: "${{ run.id }}"}]
  - foreach: ${{ trigger.rows }}
    as: row
    max_parallel: 3
    steps: [{id: each, do: probe.effect.apply, with: {name: "${{ row.name + string(index) }}"}}]
  - foreach: ${{ trigger.rows }}
    steps: [{set: {next: "${{ item }}"}}]
  - {while: "${{ run.checkpoint < 5 }}", max: 6, steps: [{set: {next: "${{ index }}"}}]}
  - {while: "${{ false }}", steps: [{id: never, do: probe.effect.apply, with: {name: x}}]}
  - id: triage
    agent:
      model: gpt-4o-mini
      instructions: "Triage ${{ trigger.i }}."
      input: ${{ trigger.j }}
      tools:
        - probe.effect.apply
        - {do: probe.effect.apply, with: {value: "${{ trigger.k }}"}, name: fixed}
        - {run: other@5, name: child}
        - {ask: {name: people, title: "Say, ${{ trigger.l }}", assign: {group: leads},
                 form: {type: object, properties: {ok: {type: boolean}}}}}
      limits: {turns: 2, calls: 3, asks: 4, refusals: 5, tokens: 6, cost: "7.5"}
      result: {type: object}
      on_limit: fail
      on_denied: fail
      remember: {channel: turns, turns: 9}
    timeout: PT10H
"""


def test_a_whole_workflow_compiles_to_what_it_was(compiled: Callable[[str], Workflow]) -> None:
    workflow = compiled(WHOLE)
    found = plain({name: getattr(workflow, name) for name in workflow.__dataclass_fields__ if name != "text"})
    found["connectors"] = list(workflow.connectors)
    found["edges"] = [f"{one.source} -{one.kind}-> {one.target}" for one in edges_of(workflow.graph)]
    found["nodes"] = nodes_of(workflow.graph)
    found["foreseen"] = [one.told() for one in foresee_steps(workflow, policies())]
    operation = workflow.operations["probe.effect.apply"]
    found["facts"] = [fixed_facts(workflow, operation, step) for step in (None, "a")]
    small = compiled("workflow: w\nversion: 1\nsteps: [{id: a, do: probe.effect.apply, with: {name: x}}]\n")
    found["small"] = plain({name: getattr(small, name) for name in small.__dataclass_fields__ if name != "text"})
    for each in (found, found["small"]):
        del each["digest"], each["graph"]["digest"]
    as_it_was(EXPECTED, found)


def policies() -> PolicySet:
    known = {
        name: OperationFacts({"name": "string"})
        for name in ("probe.effect.apply", "probe.case.open", "model.chat.complete")
    }
    rules = (
        "policy: p\nversion: 1\nrules:\n"
        "- {id: a, match: {operation: '*'}, when: run.step == 'a', outcome: deny, otherwise: allow}\n"
        "- {id: b, match: {operation: '*'}, when: step.origin == 'agent', outcome: deny}\n"
        "- {id: c, match: {operation: '*'}, when: agent.step == 'triage', outcome: deny}\n"
        "- {id: d, match: {operation: probe.case.open}, when: action.risk == 'low', outcome: deny}\n"
    )
    return PolicySet.of(load_policy(rules, "p.yaml", known))


@pytest.mark.parametrize("on_limit", ["conclude", "fail"])
@pytest.mark.parametrize("on_denied", ["tell", "fail"])
def test_agents_end_as_each_of_their_words_says(
    compiled: Callable[[str], Workflow], on_limit: str, on_denied: str
) -> None:
    text = WHOLE.replace("on_limit: fail", f"on_limit: {on_limit}").replace(
        "on_denied: fail", f"on_denied: {on_denied}"
    )
    agent: Any = compiled(text).graph.leaves["triage"]
    assert (agent.fails_at_limit, agent.fails_if_denied) == (on_limit == "fail", on_denied == "fail")


HEAD = "workflow: w\nversion: 1\nchannels: {n: {}, m: {reduce: union}}\nsteps:\n"
CALL = "do: probe.effect.apply, with: {name: x}"
FAULTS = {
    "unknown operation": "- {id: a, do: probe.effect.aply, with: {name: x}}",
    "timeout of a call": f"- {{id: a, {CALL}, timeout: PT1H}}",
    "inputs": "- {id: a, do: probe.effect.apply, with: {nam: x}}",
    "token": '- {id: a, do: probe.effect.apply, with: {name: "${{ wait.token }}"}}',
    "forward": f'- {{id: a, do: probe.effect.apply, with: {{name: "${{{{ steps.b.output }}}}"}}}}\n- {{id: b, {CALL}}}',
    "its own output": '- {id: a, do: probe.effect.apply, with: {name: "${{ output.x }}"}}',
    "the error of nothing": '- {id: a, do: probe.effect.apply, with: {name: "${{ error.code }}"}}',
    "the signal of a call": f'- {{id: a, {CALL}, set: {{n: "${{{{ signal.x }}}}"}}}}',
    "the output of a write": '- {id: a, set: {n: "${{ output.x }}"}}',
    "circle": f"- {{id: a, needs: [c], {CALL}}}\n- {{id: b, {CALL}}}\n- {{id: c, {CALL}}}",
    "needs": f"- {{id: a, {CALL}}}\n- {{id: b, needs: [x, a, y], {CALL}}}",
    "ids": f"- {{id: a, {CALL}}}\n- {{id: a, {CALL}}}\n- {{{CALL}}}",
    "kinds": f"- {{id: a, {CALL}, wait: {{for: PT1H}}}}\n- {{id: b}}",
    "foreign keys of a call": f"- {{id: a, {CALL}, as: b, max: 3, abandon: true, inherit: [n], max_parallel: 2}}",
    "foreign keys of a wait": "- {wait: {for: PT1H}, with: {x: 1}, on_rejected: [{set: {n: 1}}]}",
    "foreign keys of a gate": "- {id: a, approve: {summary: s, approvers: {group: g}}, timeout: PT1H, with: {a: 1}}",
    "foreign keys of a condition": "- {if: '${{ true }}', then: [{set: {n: 1}}], set: {n: 1}, reference: x}",
    "foreign keys of a write": "- {set: {n: 1}, timeout: PT1H, with: {a: 1}}",
    "empty composites": "- {if: '${{ true }}'}\n- {foreach: '${{ [1] }}'}\n- {while: '${{ true }}'}",
    "conditions": "- {if: '${{ 1 }}', then: [{set: {n: 1}}]}\n- {while: yes?, steps: [{set: {n: 1}}]}\n"
    "- {foreach: '${{ 5 }}', steps: [{set: {n: 1}}]}",
    "names": "- {foreach: '${{ [1] }}', as: run, steps: [{set: {n: 1}}]}\n"
    "- {foreach: '${{ [1] }}', as: item, steps: [{set: {n: '${{ item }}'}}]}\n"
    "- {foreach: '${{ [1] }}', as: step, steps: [{set: {n: '${{ step }}'}}]}",
    "names of others": "- {foreach: '${{ [1] }}', as: trigger, steps: [{set: {n: 1}}]}\n"
    "- {foreach: '${{ [1] }}', as: state, steps: [{set: {n: 1}}]}\n"
    "- {foreach: '${{ [1] }}', as: index, steps: [{set: {n: '${{ index }}'}}]}\n"
    "- {foreach: '${{ [1] }}', as: steps, steps: [{set: {n: 1}}]}\n"
    "- {id: a, reference: x}\n- {foreach: '${{ [1] }}', as: steps, steps: [{set: {n: 1}}]}",
    "names of loops around": "- foreach: '${{ [1] }}'\n  as: row\n  steps:\n"
    "  - {foreach: '${{ row }}', as: row, steps: [{set: {n: 1}}]}\n"
    "  - {foreach: '${{ row }}', steps: [{set: {n: '${{ item }}'}}]}\n"
    "  - {foreach: '${{ row }}', as: index, steps: [{set: {n: 1}}]}\n"
    "  - {foreach: '${{ row }}', as: item, steps: [{set: {n: '${{ item }}'}}]}",
    "what is in a loop": "- {id: l, foreach: '${{ [1] }}', steps: [{id: a, do: probe.case.open, set: {n: 1}}]}\n"
    "- {set: {n: '${{ steps.a.output }}'}}\n- {set: {n: '${{ steps.a.status }}'}}\n- {set: {n: '${{ item }}'}}\n"
    "- {set: {n: '${{ index }}'}}\n- {set: {n: '${{ steps.l.output }}'}}",
    "what is beside": "- {id: a, do: probe.case.open}\n- {id: b, needs: [], set: {n: '${{ steps.a.output }}'}}\n"
    "- {needs: [b], set: {n: '${{ steps.a.status }}'}}\n- {needs: [a], set: {n: '${{ steps.a.output }}'}}",
    "channels": "- {set: {x: 1}}\n- {id: a, run: other, inherit: [n, y]}",
    "waits": "- {wait: {}}\n- {wait: {for: PT1H, signal: s}}\n- {wait: {for: PT1H, correlate: x}, timeout: PT1H}",
    "gates": "- {id: a, approve: {summary: '${{ x }}', approvers: {group: g}, expires: PT1H, remind: [PT1H], "
    "escalate: {after: PT2H, to: {group: h}}}}",
    "several with a quorum": "- {id: a, approve: {summary: s, approvers: [{group: g}], quorum: 2}}",
    "tasks": "- {id: a, task: {title: '${{ x }}', description: '${{ y }}', form: {type: list}, assign: {group: g}}}",
    "escalations": "- {id: a, do: probe.case.open, on_timeout: {escalate: g}}\n- {id: a_escalation, set: {n: 1}}",
    "escalations and steps inside": "- {id: a, do: probe.case.open, on_timeout: {escalate: g}}\n"
    "- if: '${{ true }}'\n  then:\n  - {id: a_escalation, set: {n: 1}}\n  - {id: a_escalation_start, set: {n: 1}}",
    "agents": "- {id: a, agent: {model: unknown-model, instructions: '${{ x }}', input: i, tools: [x.y.z, "
    "{do: probe.effect.apply, with: {zz: 1}}], limits: {cost: '1'}, result: {type: x}, remember: {channel: n}}}",
    "turns": "- {id: a, agent: {model: gpt-4o, instructions: i, input: i, remember: {channel: m}}, set: {m: 1}}",
    "what each kind gives": "\n".join(
        f"- {{{step}, set: {{n: '${{{{ output }}}}', m: '${{{{ signal }}}}'}}, reference: '${{{{ output.x }}}}'}}"
        for step in (
            f"id: a, {CALL}",
            "id: b, do: probe.case.open",
            "id: c, approve: {summary: s, approvers: {group: g}}",
            "id: d, task: {title: t, form: {type: object, properties: {x: {type: string}}}, assign: {group: g}}",
            "id: e, run: other",
            "id: f, agent: {model: gpt-4o, instructions: i, input: i}",
            "wait: {for: PT1H}",
            "wait: {signal: s}",
            "continue_with: {workflow: other}",
            "id: z",
        )
    ),
    "foreign keys without a meaning": f"- {{id: a, {CALL}, abandon: false, inherit: [], else: []}}\n"
    "- {if: '${{ true }}', then: [{set: {n: 1}}], set: {}, timeout: PT1H}",
    "two kinds that need an id": f"- {{{CALL}, run: other}}\n- {{run: other, wait: {{for: PT1H}}}}",
    "ids inside": f"- {{id: b, {CALL}}}\n- id: a\n  {CALL.replace(', ', chr(10) + '  ')}\n  on_failure:\n"
    f"  - {{id: c, {CALL}}}\n  - if: '${{{{ true }}}}'\n    then:\n    - {{id: d, set: {{n: 1}}}}\n"
    f"- {{id: d, {CALL}}}\n- {{id: c, {CALL}}}\n- {{id: c, {CALL}}}",
    "turns of nothing inside": "- {id: a, agent: {model: gpt-4o, instructions: i, input: i, remember: {channel: m}}}\n"
    "- if: '${{ true }}'\n  then:\n  - {set: {n: 1}}\n  - {set: {n: 1, m: 2}}\n"
    "  - {id: b, agent: {model: gpt-4o, instructions: i, input: i, remember: {channel: z}}}",
    "needs of one line": f"- {{id: a, {CALL}}}\n- {{id: b, needs: [y, a, x, a], {CALL}, set: {{z: 1, y: 2}}}}",
    "turns of nothing": "- {id: a, agent: {model: gpt-4o, instructions: i, input: i, remember: {channel: z}}}",
}
WHOLES = {
    "no channels": "workflow: w\nversion: 1\nsteps:\n- {set: {x: 1}}\n- {id: a, run: other, inherit: [y]}\n"
    "- {id: b, agent: {model: gpt-4o, instructions: i, input: i, remember: {channel: z}}}",
    "an escalation's start": "workflow: w\nversion: 1\nsteps:\n- {id: a, do: probe.case.open, on_timeout: "
    "{escalate: g, start: {workflow: o, with: {x: '${{ y }}'}}}}\n- {id: a_escalation_start, reference: x}",
    "turns with bounds": "workflow: w\nversion: 1\nchannels: {a: {reduce: union, keep: 3}, b: {reduce: union, "
    "initial: [1]}, c: {reduce: append}}\nsteps:\n"
    + "\n".join(
        f"- {{id: {name}_, agent: {{model: gpt-4o, instructions: i, input: i, remember: {{channel: {name}}}}}}}"
        for name in "abc"
    ),
    "initial": "workflow: w\nversion: 1\nchannels: {a: {reduce: append, initial: 1}, b: {reduce: sum, initial: x}}\n"
    "steps: [{set: {a: 1}}]",
    "result": "workflow: w\nversion: 1\nresult: ${{ steps.b.output }}\nsteps: [{id: a, set: {}, reference: x}]",
    "reference": "workflow: w\nversion: 1\nreference: ${{ 5 }}\nsteps: [{reference: x}]",
    "trigger": "workflow: w\nversion: 1\ntriggers: {servicenow: {table: t, when: '${{ run.id }}', dedupe: '${{ x'}}\n"
    "steps: [{reference: x}]",
}


def lines(problems: Any) -> list[str]:
    return [f"{one.line}:{one.column} {one.message} {one.remedy}".rstrip() for one in problems]


def test_faults_are_named_as_they_were(compiled: Callable[[str], Workflow]) -> None:
    found: dict[str, Any] = {}
    for name, text in {**{name: HEAD + steps for name, steps in FAULTS.items()}, **WHOLES}.items():
        try:
            compiled(text)
        except DefinitionError as error:
            found[name] = lines(error.problems)
        else:
            found[name] = []
    as_it_was(EXPECTED.with_name("every_fault.json"), found)


BASE = (
    "workflow: w\nversion: 1\nchannels: {n: {}}\nsteps:\n- {id: a, set: {n: 1}}\n"
    "- {id: g, approve: {summary: s, approvers: {group: x}}}\n- {id: b, needs: [a], set: {n: 2}}\n- {set: {n: 3}}\n"
)
EXTENSIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "at the end": ({"steps": [{"id": "c", "set": {"n": 4}}]}, ()),
    "two at the end": ({"steps": [{"id": "c", "set": {"n": 4}}, {"set": {"n": 5}}]}, ()),
    "before one": ({"steps": [{"id": "c", "set": {"n": 4}}], "before": ["b"]}, ()),
    "before the first": ({"steps": [{"id": "c", "set": {"n": 4}}], "before": ["a"]}, ()),
    "before two": (
        {"steps": [{"id": "c", "set": {"n": 4}}, {"id": "d", "set": {"n": 4}}], "before": ["b", "set_3"]},
        (),
    ),
    "with needs": ({"steps": [{"id": "c", "needs": [], "set": {"n": 4}}], "before": ["b"]}, ()),
    "behind a gate": ({"steps": [{"id": "c", "needs": ["a"], "set": {"n": 4}}, {"id": "d", "set": {"n": 5}}]}, ("g",)),
    "behind a gate, without needs": ({"steps": [{"set": {"n": 4}}, {"needs": ["a"], "set": {"n": 5}}]}, ("g",)),
    "before nobody": ({"steps": [{"set": {"n": 4}}], "before": ["z"]}, ()),
    "a taken id": ({"steps": [{"id": "a", "set": {"n": 4}}]}, ()),
    "a fault": ({"steps": [{"set": {"n": 4}}, {"set": {"z": 4}}]}, ()),
    "a need of nobody": ({"steps": [{"needs": ["z"], "set": {"n": 4}}]}, ()),
    "a circle": ({"steps": [{"id": "c", "needs": ["b"], "set": {"n": 4}}], "before": ["b"]}, ()),
    "no steps": ({"steps": []}, ()),
    "nothing": ({}, ()),
    "a strange key": ({"steps": [{"set": {"n": 4}}], "after": []}, ()),
    "a strange key of a step": ({"steps": [{"set": {"n": 4}, "x": 1}]}, ()),
    "an empty key": ({"steps": [{"set": {"n": 4}, "timeout": None}]}, ()),
}


def test_extensions_are_placed_and_refused_as_they_were(compiled: Callable[[str], Workflow]) -> None:
    base, found = compiled(BASE), dict[str, Any]()
    for name, (source, gates) in EXTENSIONS.items():
        try:
            read_extension(source)
            graph = extended(base, [MutationRow(1, "person:ann", source, {}, gates)]).graph
            found[name] = [f"{node.id} needs {', '.join(node.needs)}" for node in graph.root.nodes][:9]
        except CountersealError as error:
            found[name] = str(error)
    as_it_was(EXPECTED.with_name("every_extension.json"), found)


def test_a_fault_of_an_extension_is_told_by_its_own_place(compiled: Callable[[str], Workflow]) -> None:
    """However many extensions there were before, and wherever in a branch the fault stands."""
    good: dict[str, Any] = {"steps": [{"id": "c", "set": {"n": 4}}, {"id": "d", "set": {"n": 5}}]}
    base = compiled(BASE)
    for before in (0, 2):
        rows = [MutationRow(n, "p", good if n == 0 else {"steps": [{"set": {"n": n}}]}, {}, ()) for n in range(before)]
        for at in range(2):
            steps: list[Any] = [{"set": {"n": 1}}] * at
            steps.append({"if": "${{ true }}", "then": [{"set": {"n": 1}}, {"set": {"z": 1}}]})
            with pytest.raises(InputError) as caught:
                extended(base, [*rows, MutationRow(9, "p", {"steps": steps}, {}, ())])
            assert caught.value.where == f"steps[{at}].then[1].set.z"


def test_an_extended_graph_has_what_its_new_steps_bring(compiled: Callable[[str], Workflow]) -> None:
    base = compiled(BASE.replace("set: {n: 3}", "set: {n: '${{ size([1]) }}'}, reference: '${{ steps.b.status }}'"))
    call = {"do": "probe.effect.apply", "with": {"name": "${{ steps.new.output.x.lowerAscii() }}"}}
    source: dict[str, Any] = {
        "steps": [{"id": "new", "do": "probe.effect.apply", "with": {"name": "x"}, "on_failure": [call | {"id": "f"}]}]
    }
    with pytest.raises(InputError, match="undeclared"):
        extended(base, [MutationRow(1, "p", source, frozen("probe.effect.apply"), ())])
    source["steps"].append(call | {"id": "next"})
    source["steps"][0]["on_failure"] = [{"set": {"n": "${{ error.code }}"}}]
    found = extended(base, [MutationRow(1, "p", source, frozen("probe.effect.apply"), ())])
    assert (found.graph.failed, base.graph.failed) == ({"set_4_on_failure_0": "new"}, {})
    assert (sorted(found.graph.leaves), found.graph.read) == (
        ["a", "b", "g", "new", "next", "set_3", "set_4_on_failure_0"],
        base.graph.read | {"new"},
    )
    assert ([*found.operations], found.functions) == (["probe.effect.apply"], ("lowerAscii", "size"))
    assert (found.name, found.digest, found.graph.digest) == (base.name, base.digest, base.graph.digest)


def frozen(*names: str) -> dict[str, Any]:
    known = load_catalog([Source("probe.yaml", DECLARATIONS)]).operations
    return {name: known[name].model_dump(mode="json", by_alias=True) for name in names}


@pytest.mark.parametrize("result", ["0", "false", "{}", "[]", "''"])
def test_a_result_may_be_nothing_much(compiled: Callable[[str], Workflow], result: str) -> None:
    head = "workflow: w\nversion: 1\n"
    found = compiled(f"{head}result: {result}\nsteps: [{{reference: x}}]\n").graph.result
    assert found is not None
    assert found.render({}) in (0, False, {}, [], "")
    assert compiled(f"{head}steps: [{{reference: x}}]\n").graph.result is None


@pytest.mark.parametrize("missing", [None, ""])
def test_what_never_changes_of_a_run_stands_under_its_names(missing: str | None) -> None:
    """A run without a reference, or that nobody requested, has null there, and not a text."""
    started = datetime(2026, 1, 2, tzinfo=UTC)
    assert constants_of({"a": [1]}, UUID(int=7), "w", 3, "INC1", "ann", started) == {
        "trigger": {"a": [1]},
        "run.id": "00000000-0000-0000-0000-000000000007",
        "run.workflow": "w",
        "run.version": 3,
        "run.reference": "INC1",
        "run.requested_by": "ann",
        "run.started_at": started,
    }
    found = constants_of(missing, UUID(int=7), "w", 3, missing, missing, started)
    assert [found[name] for name in ("trigger", "run.reference", "run.requested_by")] == [missing] * 3


def test_each_step_of_a_branch_is_for_the_leaf_around_it(compiled: Callable[[str], Workflow]) -> None:
    """A branch may have loops, conditions and branches of its own: then the nearest leaf is the one that failed."""
    text = (
        HEAD
        + f"""- id: a
  do: probe.case.open
  on_failure:
  - {{id: mend, {CALL}, on_failure: [{{id: again, {CALL}}}]}}
  - {{id: fork, if: "${{{{ true }}}}", then: [{{id: in_fork, {CALL}}}], else: [{{id: else_, set: {{n: 1}}}}]}}
  - {{id: each, foreach: "${{{{ [1] }}}}", steps: [{{id: in_each, {CALL}, on_failure: [{{id: deep, set: {{n: 1}}}}]}}]}}
  on_timeout: {{escalate: g, start: {{workflow: other}}}}
- {{id: b, if: "${{{{ true }}}}", then: [{{id: free, {CALL}}}]}}
"""
    )
    graph = compiled(text).graph
    assert graph.failed == {
        **dict.fromkeys(("mend", "fork", "in_fork", "else_", "each", "in_each"), "a"),
        "again": "mend",
        "deep": "in_each",
        **dict.fromkeys(("a_escalation_start", "a_escalation"), "a"),
    }
    index = [node.index for node in graph.leaves.values()]
    assert len({*index}) == len(index)


def test_a_durable_call_is_escaped_and_hands_its_token_out(declarations: Callable[..., Any]) -> None:
    typed = "properties: {t: {type: string, x-language: html}}"
    catalog = declarations(
        (
            'target: "case"\n    in_doubt: ask\n    input_schema: {type: object}',
            f"""target: "case"
    in_doubt: ask
    input_schema: {{type: object, {typed}}}""",
        )
    )
    text = HEAD + '- {id: a, do: probe.case.open, with: {t: "<b>${{ trigger.t }}</b>", u: "${{ trigger.t }}"}}'
    node: Any = load_workflow(text, "w.yaml", catalog).graph.leaves["a"]
    assert node.inputs.render({"trigger": {"t": "<i>"}}) == {"t": "<b>&lt;i&gt;</b>", "u": "<i>"}


def test_a_fact_of_an_operation_is_its_own_connector(compiled: Callable[[str], Workflow]) -> None:
    workflow = compiled(WHOLE)
    operation = workflow.operations["probe.effect.apply"]
    other = Operation.model_validate({**operation.model_dump(mode="json"), "name": "crm.x.y", "connector": "probe"})
    told = [fixed_facts(workflow, one, None) for one in (operation, other)]
    assert [one["action.connector"] for one in told] == ["probe", "probe"]
    assert [(one["run.workflow"], one["run.version"]) for one in told] == [("whole", 3)] * 2
    assert all("run.step" not in one for one in told)


def test_steps_that_wait_for_nobody_stand_in_the_order_of_the_document(compiled: Callable[[str], Workflow]) -> None:
    names = ("z", "b", "a", "y", "c")
    text = HEAD + "\n".join(f"- {{id: {name}, needs: [], set: {{n: 1}}}}" for name in names)
    text += "\n- {id: last, needs: [c, z], set: {n: 1}}\n- {id: first, needs: [], set: {n: 1}}\n"
    nodes = compiled(text).graph.root.nodes
    assert [node.id for node in nodes] == [*names, "last", "first"]
    assert [node.needs for node in nodes][-2:] == [("c", "z"), ()]


@pytest.mark.parametrize(("more", "fits"), [(8, True), (9, False)])
def test_a_graph_has_so_many_steps(
    compiled: Callable[[str], Workflow], monkeypatch: pytest.MonkeyPatch, more: int, fits: bool
) -> None:
    assert workflow_module.STEPS_MAX == 500
    monkeypatch.setattr(workflow_module, "STEPS_MAX", 12)
    rows = [MutationRow(n, "p", {"steps": [{"set": {"n": 4}}] * many}, {}, ()) for n, many in enumerate((4, more - 4))]
    if fits:
        assert len(extended(compiled(BASE), rows).graph.root.nodes) == 12
        return
    with pytest.raises(InputError) as caught:
        extended(compiled(BASE), rows)
    assert str(caught.value) == "steps: makes 13 steps; a graph has at most 12"


@pytest.mark.parametrize(("many", "fits"), [(0, False), (1, True), (100, True), (101, False)])
def test_an_extension_has_between_one_and_a_hundred_steps(many: int, fits: bool) -> None:
    source = {"steps": [{"set": {"n": 4}}] * many}
    if fits:
        assert len(read_extension(source).steps) == many
        return
    with pytest.raises(InputError, match=r"^steps: is not right: Tuple should have at (least 1|most 100) item"):
        read_extension(source)


STAFF = """directory: staff
version: 4
people:
  - {id: ann, name: Ann Lee, email: [a@b.example, c@d.example], slack: U0ANN, os: ann, servicenow: al, oidc: "x#Y"}
  - {id: bob, name: Bob, active: false, slack: T0T/U0BOB}
  - {id: cat, name: Cat}
service_accounts:
  - {id: bot, owner: ann}
  - {id: bot2, owner: bob, name: Bot, servicenow: [x, y]}
groups: {leads: [ann, bob], all: [ann, bob, cat], none: []}
"""
WRONG = {
    "id twice": ("id: cat", "id: ANN"),
    "account twice": ("name: Cat", "name: Cat, os: ANN"),
    "owner": ("owner: ann", "owner: bot2"),
    "stranger": ("[ann, bob, cat]", "[ann, zoe, bot]"),
    "twice": ("leads: [ann, bob]", "leads: [ann, bob, ann]"),
    "slack": ("U0ANN", "u0ann"),
    "team": ("T0T/U0BOB", "X0T/U0BOB"),
    "email": ("a@b.example", "a@b@c"),
    "spaces": ("os: ann", "os: 'a  b'"),
    "no name": (", name: Cat", ""),
    "version": ("version: 4", "version: 0"),
    "strange key": ("name: Cat", "nme: Cat"),
    "person id": ("id: cat", "id: .cat"),
    "machine twice": ("id: bot2", "id: cat"),
    "account of a person and a machine, twice": ("servicenow: [x, y]", "servicenow: [al, AL]"),
    "accounts of two kinds": ("name: Cat", "name: Cat, os: [ANN, own], slack: U0ANN"),
}


def test_directories_are_read_and_refused_as_they_were() -> None:
    staff = load_directory(STAFF, "d.yaml")
    found: dict[str, Any] = {"entries": [plain(to_builtins(one)) for one in staff.entries]}
    for one in found["entries"]:
        one["groups"].sort()
    found["deciders"] = plain(staff.deciders)
    for name, (old, new) in WRONG.items():
        assert old in STAFF
        with pytest.raises(DefinitionError) as caught:
            load_directory(STAFF.replace(old, new, 1), "d.yaml")
        found[name] = lines(caught.value.problems)
    as_it_was(EXPECTED.with_name("every_directory.json"), found)


GROUPS = {"owners": frozenset({"ann"}), "leads": frozenset({"ann", "bob"}), "kyc": frozenset[str]()}
RULES = """policy: p
version: 2
rules:
- {id: a, match: {connector: x}, outcome: needs_approval, approvers: [{group: owners, of: 2}]}
- {id: b, match: {connector: x}, outcome: needs_approval, approvers: [{group: leads, of: 2}]}
- {id: c, match: {connector: x}, when: "true", outcome: allow, otherwise: needs_approval, approvers: [{group: leeds}]}
- {id: d, match: {connector: x}, outcome: allow, in_doubt: {approvers: [{group: kyc}]}}
- {id: e, match: {connector: x}, outcome: needs_approval, approvers: [{group: leads}], expires: PT9H,
   escalate: {after: PT1H, to: {group: kyc}}}
- {id: f, match: {connector: x}, outcome: deny}
- {id: g, match: {connector: x}, outcome: allow, in_doubt: {approvers: [{group: owners}]}}
- {id: h, match: {connector: x}, outcome: allow, in_doubt: {approvers: [{group: leads}, {group: owners, of: 3}]}}
- {id: i, match: {connector: x}, outcome: needs_approval, approvers: [{group: leads}],
   in_doubt: {approvers: [{group: no}]}}
"""


def test_people_who_cannot_decide_are_named_as_they_were() -> None:
    many = {"owners": frozenset(f"p{n}" for n in range(6)), "leads": frozenset(f"p{n}" for n in range(5))}
    asks = "policy: p\nversion: 1\nrules:\n- {{id: a, match: {{connector: x}}, outcome: needs_approval, "
    asks += "approvers: [{{group: {}, of: {}}}]}}\n"
    found = {
        "policy": told(deciders.of_policy(RULES, "p.yaml", GROUPS)),
        "policy without a directory": told(deciders.of_policy(RULES, "p.yaml", None)),
        "workflow": told(deciders.of_workflow(WHOLE, "w.yaml", GROUPS)),
        "workflow without a directory": told(deciders.of_workflow(WHOLE, "w.yaml", None)),
        "six stuck": told(deciders.of_policy(asks.format("owners", 6), "p.yaml", many)),
        "five stuck": told(deciders.of_policy(asks.format("leads", 5), "p.yaml", many)),
        "asks nobody": told(deciders.of_workflow("workflow: w\nversion: 1\nsteps: [{reference: x}]", "w.yaml", None)),
    }
    as_it_was(EXPECTED.with_name("every_decider.json"), found)


def told(found: deciders.Findings) -> Any:
    return {"problems": list(map(str, found.problems)), "warnings": found.warnings}


def test_our_own_names_are_refused_as_they_were() -> None:
    found: dict[str, Any] = {}
    for name in ("counterseal-", "counterseal-x", "counterseal", "my-counterseal-x"):
        text = f"# c\nworkflow: {name}\nversion: 1\nsteps: []\n"
        found[name] = [
            refusal(reserved.refuse_reserved, name, text, "w.yaml"),
            refusal(reserved.refuse_start, name, "api"),
            refusal(reserved.refuse_start, name, reserved.TRIGGER),
            refusal(reserved.refuse_altering, name),
        ]
    as_it_was(EXPECTED.with_name("every_own_name.json"), found)


def refusal(call: Callable[..., None], *given: str) -> str:
    try:
        call(*given)
    except CountersealError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_the_question_about_a_policy_is_what_it_was() -> None:
    workflow = load_workflow(reserved.POLICY_CHANGE_SOURCE, "own.yaml", load_catalog())
    [gate] = plain(workflow.graph.root)["nodes"]
    assert (workflow.name, workflow.version, workflow.title) == ("counterseal-policy-change", 1, "A change of policy")
    assert (gate["id"], gate["summary"]["says"]) == ("decide", [])
    terms = gate["terms"]
    assert terms["approvers"] == [{"group": "policy_approvers", "of": 1, "source": "group"}]
    assert (terms["expires_seconds"], terms["remind_seconds"], terms["allow"]) == (604800, [86400, 259200], [])
