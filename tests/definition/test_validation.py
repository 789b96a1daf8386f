"""Problems of documents, whole: each at its place, with what it is and what to do about it."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from core.documents import load_document
from core.errors import DefinitionError
from core.validation import validate
from policy.model import PolicyDocument
from runtime.definition.model import WorkflowDocument

POLICY = "policy: p\nversion: 1\nrules:\n  - {id: a, match: {connector: probe}, outcome: allow%s}\n"
FLOW = "workflow: w\nversion: 1\nsteps:\n  - %s\n"
EMPTY = "the key is here and has no value. Write its value, or take the key out."
NAMES = "must be a name that expressions can use: letters, digits and _, not starting with a digit."
AGENT = "{id: a, agent: {model: m, instructions: i, input: j, %s}}"
STRANGE = "channels: {a: {reduce: min2, keep: 0}}\ntriggers: {servicenow: {table: T, events: [delete]}}\n"


def told(text: str, model: type[BaseModel]) -> list[str]:
    with pytest.raises(DefinitionError) as refused:
        validate(load_document(text, "d.yaml"), model)
    return [str(one).removeprefix("d.yaml:") for one in refused.value.problems]


@pytest.mark.parametrize(
    ("more", "problems"),
    [
        (", when: ", ["4:56: rules[0].when: the key is here and has no value. Write its value, or take the key out."]),
        (
            ", when: ' '",
            ["4:56: rules[0].when: the key is here and has no value. Write its value, or take the key out."],
        ),
        (", wen: x", ["4:56: rules[0]: unknown key 'wen'. Did you mean 'when'?"]),
        (
            ", otherwise: maybe",
            ['4:56: rules[0].otherwise: "maybe" is not accepted. One of deny, needs_approval, allow.'],
        ),
        (
            ", tier: low, expires: soon",
            ["4:67: rules[0].expires: 'soon' is not an ISO 8601 duration. Write PT30M, PT8H or P14D."],
        ),
        (
            ", approvers: [{group: a, slack_group: b}]",
            ["4:68: rules[0].approvers[0]: name exactly one of group, slack_group."],
        ),
        (", approvers: [{grup: a}]", ["4:69: rules[0].approvers[0]: unknown key 'grup'. Did you mean 'group'?"]),
        (", in_doubt: {approvers: []}", ["4:67: rules[0].in_doubt.approvers: holds 0 of at least 1 items."]),
        (
            ", approvers: [{group: a, of: 21}], remind: [PT1H, x]",
            [
                "4:79: rules[0].approvers[0].of: input should be less than or equal to 20.",
                "4:104: rules[0].remind[1]: 'x' is not an ISO 8601 duration. Write PT30M, PT8H or P14D.",
            ],
        ),
    ],
)
def test_faults_of_a_rule_are_told_where_they_stand(more: str, problems: list[str]) -> None:
    assert told(POLICY % more, PolicyDocument) == problems


@pytest.mark.parametrize(
    ("step", "problems"),
    [
        (
            "{id: a, do: x, on_timeout: [], with: {a: null}}",
            ["4:20: steps[0].on_timeout: holds 0 of at least 1 items."],
        ),
        (
            "{id: a, do: x, on_timeout: {escalat: g}}",
            [
                "4:20: steps[0].on_timeout: the key 'escalate' is missing.",
                "4:33: steps[0].on_timeout: unknown key 'escalat'. Did you mean 'escalate'?",
            ],
        ),
        (
            "{id: a.b, do: x}",
            [f"4:6: steps[0].id: {NAMES}"],
        ),
        (
            "{id: a, if: x, then: [{id: b, do: 7}], else: [{id: c, set: 1}]}",
            [
                "4:35: steps[0].then[0].do: input should be a valid string.",
                "4:59: steps[0].else[0].set: input should be an object.",
            ],
        ),
        (
            "{id: a, approve: {summary: s, approvers: [{group: g}], quorum: 2}}",
            ["4:13: steps[0].approve: say how many of each group by `of`; `quorum` belongs to a single group."],
        ),
        (
            "{id: a, approve: {summary: s, approvers: {grp: g}}}",
            [
                "4:35: steps[0].approve.approvers: the key 'group' is missing.",
                "4:47: steps[0].approve.approvers: unknown key 'grp'. Did you mean 'group'?",
            ],
        ),
        (
            AGENT % "tools: [7, {ask: 1}, ''], limits: {turns: 0}, on_limit: stop",
            [
                "4:66: steps[0].agent.tools[0]: input should be an object.",
                "4:70: steps[0].agent.tools[1].ask: input should be an object.",
                f"4:79: steps[0].agent.tools[2]: {EMPTY}",
                "4:93: steps[0].agent.limits.turns: input should be greater than or equal to 1.",
                '4:104: steps[0].agent.on_limit: "stop" is not accepted. One of conclude, fail.',
            ],
        ),
    ],
)
def test_faults_of_a_step_are_told_where_they_stand(step: str, problems: list[str]) -> None:
    assert told(FLOW % step, WorkflowDocument) == problems


@pytest.mark.parametrize(
    ("text", "model", "problems"),
    [
        ("policy: p\nrules: []\n", PolicyDocument, ["1:1: the key 'version' is missing."]),
        (
            "policy: p\nversion: 0\nrules: []\n",
            PolicyDocument,
            ["2:1: version: input should be greater than or equal to 1."],
        ),
        ("policy: p\nversion: '1'\nrules: []\n", PolicyDocument, ["2:1: version: input should be a valid integer."]),
        (
            "policy: P\nversion: 1\nrules: []\n",
            PolicyDocument,
            ["1:1: policy: string should match pattern '^[a-z0-9][a-z0-9_.-]*$'."],
        ),
        (
            "policy: ''\nversion: 1\nrules: []\n",
            PolicyDocument,
            ["1:1: policy: the key is here and has no value. Write its value, or take the key out."],
        ),
        ("policy: p\nversion: 1\nrules: 7\n", PolicyDocument, ["3:1: rules: input should be a valid array."]),
        (
            "policy: p\nversion: 1\nrules:\n  - {id: a, match: {}, outcome: allow}\n",
            PolicyDocument,
            ["4:13: rules[0].match: name an operation or a connector, such as operation: servicenow.incident.*."],
        ),
        ("- a\n", PolicyDocument, ["1:1: input should be an object."]),
        ("a\n", PolicyDocument, ["1:1: input should be an object."]),
        (
            "workflow: w\nversion: 1\nsteps: []\n" + STRANGE,
            WorkflowDocument,
            [
                "3:1: steps: holds 0 of at least 1 items.",
                '4:16: channels.a.reduce: "min2" is not accepted. One of replace, append, merge, sum, max, min, union.',
                "4:30: channels.a.keep: input should be greater than or equal to 1.",
                "5:25: triggers.servicenow.table: string should match pattern '^[a-z][a-z0-9_]*$'.",
                '5:44: triggers.servicenow.events[0]: "delete" is not accepted. One of insert, update.',
            ],
        ),
    ],
)
def test_faults_of_a_document_are_told_in_the_order_of_their_places(
    text: str, model: type[BaseModel], problems: list[str]
) -> None:
    assert told(text, model) == problems
