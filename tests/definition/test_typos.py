"""A name that is misspelt in an expression is found before anything runs: below `trigger`, outputs, and in policies."""

from __future__ import annotations

import pytest

from connectors.catalog import Source, load_catalog
from core.errors import DefinitionError
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow

OPERATIONS = """
operations:
  - name: shop.order.find
    connector: transform
    handler: transform:apply
    params: {value: {}}
    side_effects: none
    risk: low
    summary: Find
    target: shop
    in_doubt: idempotent
    input_schema: {type: object, additionalProperties: false, properties: {}}
    output_schema:
      type: object
      $defs: {line: {type: object, properties: {sku: {type: string}, price: {type: number}}}}
      properties:
        customer:
          type: object
          properties: {name: {type: string}, address: {type: object, properties: {city: {type: string}}}}
        lines: {type: array, items: {$ref: "#/$defs/line"}}
        best: {allOf: [{$ref: "#/$defs/line"}, {properties: {stars: {type: integer}}}]}
        extra: {type: object, properties: {note: {type: string}}, additionalProperties: true}
        raw: {}
  - name: shop.order.set
    connector: servicenow
    handler: servicenow:update
    params: {table: orders}
    side_effects: external_call
    risk: low
    summary: Set
    target: "orders/{sys_id}"
    writes: fields
    diff: {fields: written}
    in_doubt: probe
    input_schema:
      type: object
      additionalProperties: false
      required: [sys_id, fields]
      properties:
        sys_id: {type: string}
        fields:
          type: object
          additionalProperties: false
          properties: {state: {type: string}, priority: {type: string}}
    output_schema: {type: object}
"""
WORKFLOW = """
workflow: typed
version: 1
reference: ${{ trigger.number }}
trigger:
  type: object
  required: [number, subject_person]
  properties:
    number: {type: string}
    subject_person: {type: string}
    rows:
      type: array
      items:
        type: object
        properties: {id: {type: string}, tags: {type: object, properties: {hot: {type: boolean}}}}
    more: {type: object, additionalProperties: true}
channels: {seen: {reduce: append}}
steps:
  - {id: find, do: shop.order.find, set: {seen: "${{ %(own)s }}"}}
  - {id: list, do: servicenow.incident.query, with: {query: "active=true"}}
  - {id: fetch, do: http.request.send, with: {method: GET, url: "https://example.org/${{ %(here)s }}"}}
  - id: each
    foreach: ${{ steps.find.output.lines }}
    as: line
    steps: [{id: inner, do: transform.data.apply, with: {value: "${{ %(loop)s }}"}}]
  - {id: choose, if: "${{ string(%(choice)s) == 'x' }}", then: [{id: yes_, set: {seen: "${{ %(branch)s }}"}}]}
"""
RIGHT = {
    "own": "output.best.stars",
    "here": "trigger.more.anything.goes",
    "loop": "line.sku",
    "choice": "steps.find.output.raw.may.be.all",
    "branch": "has(steps.find.output.extra.unsaid) ? steps.list.output.records[0].any : steps.fetch.output.json.x",
}
TRIGGER = [
    "trigger.sbject_person", "trigger.numbr", "trigger.Number", "trigger.rws", "trigger.rows[0].idd",
    "trigger.rows[0].tags.hott", "trigger.rows.map(r, r.nmae)", "trigger.rows.exists(r, r.tags.ht)",
    "trigger.rows.filter(r, r.id == 'a').map(r, r.ids)", "trigger['sbject']", "has(trigger.mre)",
    "trigger.?subject.orValue('')",
    "'sbject' in trigger", "trigger.number.length", "trigger.subject_person.name", "[trigger.nunber]",
    "size({'a': trigger.row})",
    "trigger.number == trigger.numbre",
]  # fmt: skip
OUTPUT = [
    "steps.find.output.rows", "steps.find.output.customer.nme", "steps.find.output.customer.address.cty",
    "steps.find.output.lines[0].skuu", "steps.find.output.lines.map(l, l.prise)", "steps.find.output.best.star",
    "steps.list.output.record", "steps.list.output.totl", "steps.list.output.count.value", "steps.fetch.output.stats",
    "steps.fetch.output.bdy", "steps.find.output['custommer']",
    "steps.list.output.records.size() + steps.list.output.cuont",
]  # fmt: skip
ELSEWHERE = [("own", "output.custmer"), ("own", "output.lines[0].pric"), ("loop", "line.skew"), ("loop", "item.cost")]
POLICY = """
policy: typed
version: 1
rules:
  - {id: one, match: {operation: shop.order.set}, outcome: allow, because: Ours., when: "%s"}
"""
RULES = ["action.before.stat == '1'", "action.before.prioritty == '1'", "'stat' in action.read",
         "'priorty' in action.present", "action.fields.sate == '1'"]  # fmt: skip
TYPOS = [
    *(("choice", text) for text in TRIGGER), *(("branch", text) for text in OUTPUT), *ELSEWHERE,
    *(("policy", text) for text in RULES),
]  # fmt: skip
CATALOG = load_catalog([Source("shop.yaml", OPERATIONS)])


def compiled(place: str, text: str) -> None:
    if place == "policy":
        Definitions(CATALOG).check_policy(POLICY % text, "p.yaml", CATALOG)
    else:
        load_workflow(WORKFLOW % (RIGHT | {place: text}), "w.yaml", CATALOG, typed=True)


def test_forty_typos_are_forty() -> None:
    assert len({*TYPOS}) == 40


@pytest.mark.parametrize(("place", "text"), TYPOS, ids=str)
def test_a_typo_is_found_with_its_place(place: str, text: str) -> None:
    with pytest.raises(DefinitionError) as found:
        compiled(place, text)
    (problem,) = found.value.problems
    assert problem.line > 1
    assert problem.remedy


@pytest.mark.parametrize(
    ("place", "text"),
    [
        *RIGHT.items(), ("choice", "trigger.?subject_person.orValue('')"),
        ("choice", "trigger.rows.map(r, r.tags.hot)"),
        ("branch", "steps.find.output.lines.filter(l, l.price > 1.0).map(l, l.sku)"), ("loop", "item.price"),
        ("branch", "steps.find.output.customer.address.city.upperAscii()"), ("policy", "'state' in action.read"),
        ("policy", "'state' in action.read && action.before.state == '1' && 'priority' in action.present"),
    ],
)  # fmt: skip
def test_what_is_right_or_may_be_is_let_through(place: str, text: str) -> None:
    compiled(place, text)


def test_what_was_published_before_names_were_checked_goes_on() -> None:
    """A run of an earlier release, and a start with the same text, do not fail by a name that is unknown today."""
    load_workflow(WORKFLOW % (RIGHT | {"choice": TRIGGER[0]}), "w.yaml", CATALOG)
    Definitions(CATALOG).compile_policy(POLICY % RULES[2], "p.yaml", CATALOG)


PEOPLE = """
workflow: people
version: 1
channels: {seen: {reduce: append}}
steps:
  - id: fill
    task:
      title: Fill in
      form:
        type: object
        properties:
          amount: {type: integer}
          lines: {type: array, items: {type: string, enum: [a, b]}, uniqueItems: true}
      assign: {group: desk}
    set: {seen: "${{ %(own)s }}"}
  - id: triage
    agent:
      model: m
      instructions: Do.
      input: x
      result: {type: object, properties: {verdict: {type: object, properties: {why: {type: string}}}}}
  - {id: last, set: {seen: "${{ %(later)s }}"}}
"""


@pytest.mark.parametrize(("place", "text"), [
    ("own", "output.amuont"), ("later", "steps.fill.output.line"),
    ("later", "steps.triage.output.verdit"), ("later", "steps.triage.output.verdict.wy"),
], ids=str)  # fmt: skip
def test_a_typo_below_what_a_form_or_an_agent_gives_is_found(place: str, text: str) -> None:
    right = {"own": "output.amount", "later": "[steps.fill.output.lines[0], steps.triage.output.verdict.why]"}
    load_workflow(PEOPLE % right, "w.yaml", CATALOG, typed=True)
    wrong = PEOPLE % (right | {place: text})
    with pytest.raises(DefinitionError) as found:
        load_workflow(wrong, "w.yaml", CATALOG, typed=True)
    assert len(found.value.problems) == 1
    load_workflow(wrong, "w.yaml", CATALOG)  # what an earlier release has published goes on
