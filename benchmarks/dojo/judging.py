"""Judging the calls of one script without a runtime: the policies, the matcher and the declarations, nothing else.

This is the quick way. It is honest about what a policy says of a call and where its values come from, by the same code
that a runtime uses; it proves nothing about steps, approvals or receipts. ``--engine`` makes the calls in real runs.
"""

from __future__ import annotations

from collections import Counter

from benchmarks.dojo.declared import Declared, output_of
from benchmarks.dojo.scripts import Call
from connectors.marks import kind_at, records_of
from connectors.operation import Operation
from connectors.proposal import build_action
from core.canonical import Json, JsonObject
from core.origins.matching import Matcher
from policy.evaluate import Decision, build_facts, evaluate
from policy.facts import CARRIES, ORIGIN, FactContext, is_traced

AGENT, MODEL = "assistant", "scripted"


class Sitting:
    """One script before the judge: what the model was shown so far, and what it has done."""

    def __init__(self, declared: Declared, suite: str, requested: str) -> None:
        self._declared, self._suite = declared, suite
        self._matcher = Matcher()
        self._matcher.given("requester", requested)
        self._let_out: Counter[str] = Counter()
        self._own = False
        self._asked = self._refused = self._turn = 0
        self._read: dict[str, None] = {}

    def judge(self, call: Call) -> Decision:
        """Say what the policies say of a call that the model makes now."""
        self._turn += 1
        operation = self._declared.operation(self._suite, call.tool)
        policies, workflow = self._declared.policies, f"dojo-{self._suite}"
        reads = policies.applying(workflow, operation.name).references
        traced = {name: self._traced(name, operation, call.arguments) for name in reads if is_traced(name)}
        facts = build_facts(build_action(operation, call.arguments), self._context(call, workflow), traced)
        decision = evaluate(policies, facts, operation.name, workflow)
        self._own = self._matcher.said(call.arguments)
        return decision

    def done(self, call: Call, result: Json) -> None:
        """Show the model the result of the call that was judged last."""
        operation = self._declared.operation(self._suite, call.tool)
        records = records_of(operation.output_schema)
        self._matcher.shown(operation.name, output_of(result), records=records, own=self._own)
        self._let_out[call.digest] += 1
        self._read[operation.name] = None

    def asked(self) -> None:
        """Count a question to people."""
        self._asked += 1

    def refused(self) -> None:
        """Count a call that a policy or people refused. It shows the model nothing."""
        self._refused += 1

    def _traced(self, name: str, operation: Operation, inputs: JsonObject) -> object:
        argument = name.removeprefix(ORIGIN).removeprefix(CARRIES)
        if argument not in inputs:
            return []
        if name.startswith(CARRIES):
            return self._matcher.carries(inputs[argument])
        schema = operation.input_schema
        return self._matcher.origins(inputs[argument], kind_at(schema, (argument,)))

    def _context(self, call: Call, workflow: str) -> FactContext:
        return FactContext(
            run_workflow=workflow,
            same_in_run=self._let_out[call.digest],
            refused_in_run=self._refused,
            asked_in_run=self._asked,
            agent_step=AGENT,
            agent_turn=self._turn,
            agent_model=MODEL,
            agent_read=tuple(self._read),
            writes_in_run=sum(self._let_out.values()),
        )
