"""Judges the calls of one script without a runtime, by the policies, the matcher and the declarations only.

This is for ``--quick``. Decisions and origins are exact, because the code is the runtime's own; it proves nothing about
steps, approvals or receipts. Without ``--quick`` the calls are made in real runs.
"""

from __future__ import annotations

from collections import Counter

from benchmarks.dojo.declared import Declared, output_of
from benchmarks.dojo.scripts import Call
from connectors.marks import kept_of, kind_at, records_of
from connectors.operation import Operation
from connectors.proposal import build_action
from core.canonical import Json, JsonObject
from core.origins.ingredients import Origins
from core.origins.matching import Matcher
from core.origins.repeats import Path, Performed
from policy.evaluate import Decision, build_facts, evaluate
from policy.facts import CARRIES, ORIGIN, FactContext, is_traced

AGENT, MODEL = "assistant", "scripted"


class Sitting:
    """One script under judgment: the results that the model was shown, and the calls that it has made."""

    def __init__(self, declared: Declared, suite: str, requested: str) -> None:
        self._declared, self._suite = declared, suite
        self._matcher = Matcher()
        self._matcher.add_source("requester", requested)
        self._let_out: Counter[str] = Counter()
        self._performed = Performed()
        self._origins: dict[Path, Origins] = {}
        self._own = False
        self._asked = self._refused = self._turn = 0
        self._read: dict[str, None] = {}

    def judge(self, call: Call) -> Decision:
        """The policies' decision on the call that the model makes now."""
        self._turn += 1
        operation = self._declared.operation(self._suite, call.tool)
        policies, workflow = self._declared.policies, f"dojo-{self._suite}"
        reads = policies.applying(workflow, operation.name).references
        asked = [name for name in reads if is_traced(name)]
        self._origins = self._origins_of(operation, call.arguments) if asked else {}
        traced = {name: self._traced(name, call.arguments) for name in asked}
        facts = build_facts(build_action(operation, call.arguments), self._context(call, workflow), traced)
        decision = evaluate(policies, facts, operation.name, workflow)
        self._own = self._matcher.add_call(call.arguments)
        return decision

    def done(self, call: Call, result: Json) -> None:
        """Show the model the result of the last judged call."""
        operation = self._declared.operation(self._suite, call.tool)
        records = records_of(operation.output_schema)
        protected = kept_of(operation.output_schema)
        shown, asked = output_of(result), call.arguments
        self._matcher.add_result(
            operation.name, shown, records=records, own=self._own, protected=protected, asked=asked
        )
        if operation.has_effect:
            self._performed.add(operation.name, call.arguments)
        self._let_out[call.digest] += 1
        self._read[operation.name] = None

    def asked(self) -> None:
        """Count a question to people."""
        self._asked += 1

    def refused(self) -> None:
        """Count a call that a policy or people refused. The model is shown no result."""
        self._refused += 1

    def _origins_of(self, operation: Operation, inputs: JsonObject) -> dict[Path, Origins]:
        given: dict[Path, Json] = {(name,): value for name, value in inputs.items()}
        found: dict[Path, Origins] = {
            path: self._matcher.origins(value, kind_at(operation.input_schema, path), name=path[0])
            for path, value in given.items()
        }
        return self._performed.spend(operation.name, given, found, ())

    def _traced(self, name: str, inputs: JsonObject) -> object:
        argument = name.removeprefix(ORIGIN).removeprefix(CARRIES)
        if argument not in inputs:
            return []
        if name.startswith(CARRIES):
            return self._matcher.carries(inputs[argument])
        return self._origins[(argument,)]

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
