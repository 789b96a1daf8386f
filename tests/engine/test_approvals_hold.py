"""An approval binds what was shown and what rules read, and no version; a write that changes nothing asks nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from connectors.catalog import Source, load_catalog
from connectors.port import Before, NotSent
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.engine.book.instructions import Perform, ReadBefore
from runtime.engine.book.recorded import read_line
from runtime.engine.life.step import begin
from runtime.engine.model.events import ActionIntended, ActionUnneeded, ApprovalSuperseded
from tests.engine.governing import Governed
from tests.support.engine_stage import KEY

pytestmark = pytest.mark.req("promise 3")
OPERATION = """
operations:
  - name: desk.ticket.update
    handler: desk:update
    side_effects: external_call
    risk: medium
    summary: "Update {facts.number|id} ({facts.short}): {fields}"
    target: "ticket/{id}"
    writes: fields
    diff: {fields: [priority, code, impact, owner, state], appended: [notes]}
    in_doubt: probe
    input_schema:
      type: object
      required: [id, fields]
      additionalProperties: false
      properties:
        id: {type: string}
        fields:
          type: object
          additionalProperties: false
          properties: {priority: {type: string}, code: {type: string, x-secret: true}, notes: {type: string}}
    output_schema: {type: object}
"""
FLOW = """
workflow: w
version: 1
reference: r
steps:
  - {id: a, do: desk.ticket.update, with: {id: "1", fields: {priority: "1", code: "new"}}}
"""
RULES = """
policy: p
version: 1
rules:
  - id: asks
    match: {connector: desk}
    when: action.before.impact != 'none'
    outcome: needs_approval
    approvers: [{group: owners}]
"""
FIRST = Before({"priority": "3", "code": "old", "impact": "all", "owner": "ana", "state": "1"}, "7", {"short": "Mail"})


@cache
def catalog() -> Any:
    return load_catalog([Source("desk.yaml", OPERATION)])


@dataclass
class Ticket(Governed):
    """A run that writes a ticket, which others write, too."""

    target: Before = FIRST
    calls: list[Any] = field(default_factory=list)

    def carry_out(self, key: str, work: Any) -> Any:
        if isinstance(work, ReadBefore):
            known = replace(work.known, before=self.target)
            return self.move(key, lambda t, s: begin(self.held_by(t, s, known)))
        if isinstance(work, Perform):
            self.calls.append(work.call)
        return super().carry_out(key, work)

    def now(self, version: str | None = None, facts: dict[str, str] | None = None, **values: Any) -> Ticket:
        """Others have written the ticket; a value of None is one that can no longer be read."""
        changed = {name: value for name, value in {**self.target.values, **values}.items() if value is not None}
        number = version or str(int(self.target.version or "0") + 1)
        self.target = Before(changed, number, {**self.target.facts, **(facts or {})})
        return self

    def all_of(self, kind: type[Any]) -> list[Any]:
        book = [read_line(line, self.values.get(n, {}), KEY) for n, line in enumerate(self.lines)]
        return [each.event for each in book if isinstance(each.event, kind)]

    @property
    def receipt(self) -> Any:
        return list(self.whole().run.receipts.values())[-1]


def ticket(policy: str = RULES, flow: str = FLOW) -> Ticket:
    run = Ticket(load_workflow(flow, "test.yaml", catalog()), {})
    run.open()
    run.policy = PolicySet.of(Definitions(catalog()).compile_policy(policy, "policy.yaml"))
    return run


def test_six_writes_of_others_while_a_card_is_open_take_one_vote() -> None:
    run = ticket().drive()
    for n in range(6):
        run.now(owner=f"other{n}", facts={"sys_updated_by": f"other{n}"})
    run.answer("ana").drive()
    assert (run.status, len(run.calls), len(run.book_of_questions())) == ("succeeded", 1, 1)
    assert run.calls[0].before.version == "13"
    (intent,) = run.all_of(ActionIntended)
    assert (intent.approved_version, intent.proposed["before"]["version"]) == ("7", "13")
    assert (run.receipt.approved_version, run.receipt.version) == ("7", "13")


CHANGES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "a field on the card": (
        {"priority": "2"}, [{"field": "priority", "of": "target", "was": "3", "now": "2"}],
    ),
    "a field that can no longer be read": (
        {"priority": None}, [{"field": "priority", "of": "target", "was": "3"}],
    ),
    "a secret field": ({"code": "x"}, [{"field": "code", "of": "target"}]),
    "a field that a rule reads": (
        {"impact": "some"}, [{"field": "impact", "of": "target", "was": "all", "now": "some"}],
    ),
    "a fact in the summary": (
        {"facts": {"short": "Phone"}},
        [{"field": "facts.short", "of": "target", "was": "Mail", "now": "Phone"}],
    ),
    "a fact that the summary shows only now": (
        {"facts": {"number": "T1"}}, [{"field": "facts.number", "of": "target", "now": "T1"}],
    ),
    "a field that nobody saw": ({"state": "2"}, []),
    "the version alone": ({}, []),
}  # fmt: skip


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_whatever_was_shown_or_read_voids_and_nothing_else_does(what: str, retried: bool) -> None:
    """Between vote and act, and between an attempt that was not sent and the next one: the race with other writers."""
    change, fields = CHANGES[what]
    run = ticket().drive().answer("ana")
    if retried:
        run.said = [NotSent("The row has changed since it was read.")]
        run.drive().now(**change).due().drive()
    else:
        run.now(**change).drive()
    if not fields:
        assert (run.status, len(run.book_of_questions())) == ("succeeded", 1)
        assert run.calls[-1].before.version == run.receipt.version == "8"
        assert run.receipt.action["before"]["version"] == "8"
        assert len(run.whole().run.receipts) == 1
        return
    assert (run.status, len(run.book_of_questions()), len(run.calls)) == ("waiting_approval", 2, int(retried))
    if not retried:  # a used approval is not void, it carries nothing more
        (void,) = run.all_of(ApprovalSuperseded)
        assert void.changed == fields
    run.answer("ana").drive()
    assert run.status == "succeeded"


@pytest.mark.parametrize(
    ("more", "sent"),
    [("action.before.impact != 'none'", 1), ("action.before.impact != 'none' && action.before.owner != ''", 1)],
)
def test_a_new_policy_that_reads_more_and_asks_the_same_voids_nothing(more: str, sent: int) -> None:
    run = ticket().drive().answer("ana").now(owner="ben")
    text = RULES.replace("action.before.impact != 'none'", more).replace("version: 1", "version: 2")
    run.policy = PolicySet.of(Definitions(catalog()).compile_policy(text, "policy.yaml"))
    run.drive()
    assert (run.status, len(run.calls)) == ("succeeded", sent)


SAME: dict[str, str] = {"priority": "1", "code": "new"}
DENY = RULES.replace("outcome: needs_approval\n    approvers: [{group: owners}]", "outcome: deny")
ALLOW = RULES.replace("outcome: needs_approval\n    approvers: [{group: owners}]", "outcome: allow")


@pytest.mark.parametrize(
    ("policy", "flow", "before", "nothing"),
    [
        (RULES, FLOW, SAME, True),
        (ALLOW, FLOW, SAME, True),
        (DENY, FLOW, SAME, False),
        (RULES, FLOW, {**SAME, "priority": "2"}, False),
        (RULES, FLOW, {**SAME, "priority": None}, False),
        (RULES, FLOW.replace('code: "new"', 'notes: "n"'), SAME, False),
    ],
)
def test_a_write_that_changes_nothing_asks_nobody(policy: str, flow: str, before: Any, nothing: bool) -> None:
    run = ticket(policy, flow).now("7", **before).drive()
    assert (run.status == "succeeded") is nothing
    assert (len(run.all_of(ActionUnneeded)), run.calls) == (int(nothing), [])
    if not nothing:
        assert (run.status == "failed_terminal") is (policy == DENY)
        return
    assert (run.book_of_questions(), run.whole().run.writes) == ([], 0)
    assert (run.receipt.status, run.receipt.resolution, run.receipt.attempt) == ("succeeded", "nothing to do", 0)
    assert run.receipt.output["fields"] == SAME


def test_what_somebody_else_did_meanwhile_is_not_done_again() -> None:
    run = ticket().drive().now(**SAME).answer("ana").drive()
    assert (run.status, run.calls, len(run.book_of_questions())) == ("succeeded", [], 1)
    (void,) = run.all_of(ApprovalSuperseded)
    assert [one["field"] for one in void.changed] == ["code", "priority"]
