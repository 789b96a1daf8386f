"""Judges what was let out: decisions, intents, doubts, the cards about them, the declarations of their operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from evidence.events import EventType as E
from evidence.judging.case import Case, Judge, Step, split_key
from evidence.judging.people import GATE, IN_DOUBT, Asked, People
from evidence.judging.terms import (
    OPERATORS,
    always_fire,
    is_of,
    misjudged,
    of_doubt,
    other_gate,
    outcomes_of,
    rules_of,
    weaker,
)
from evidence.receipts import ReceiptStatus

_DOUBTS = {"applied": "happened", "not_applied": "again", "failed": "fail"}
_BY = ("probe", "again", "people", "none")
_OUTCOMES = ("deny", "needs_approval", "allow")


class _Effect(Struct):
    action: str
    operation: str
    step: str | None
    attempt: int
    status: str = ReceiptStatus.INTENDED
    retried: bool = False
    gate: str | None = None


class _Decided(Struct):
    seq: int
    step: str | None
    operation: str
    outcome: str
    rules: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    used: bool = False


class Actions(Judge):
    """Follows decisions and effects. ``done`` names the steps whose effects are known to have happened."""

    name = "actions"

    def __init__(self, case: Case, people: People) -> None:
        super().__init__(case)
        self.people = people
        self.steps: Callable[[], Mapping[str, Step]] | None = None
        self.done: set[str] = set()
        self.allowed: dict[str | None, str] = {}
        self._effects: dict[str, _Effect] = {}
        self._decisions: dict[str, _Decided] = {}
        self._newest: dict[str | None, str] = {}
        self._run: dict[str, Any] = {}
        self._canceled = False
        self._does = {
            E.DECISION_MADE: self._decide,
            E.APPROVAL_REQUESTED: self._question,
            E.ACTION_INTENDED: self._intend,
            E.ACTION_DOUBT_RESOLVED: self._resolve,
            E.ACTION_UNNEEDED: self._unneeded,
        }
        self._ends = {
            E.ACTION_SUCCEEDED: "succeeded", E.ACTION_FAILED: "failed", E.ACTION_IN_DOUBT: "in_doubt",
        }  # fmt: skip

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        kind, data = event["type"], event["data"]
        if kind == E.RUN_OPENED:
            self._run = {**data["workflow"], "step": None}
        elif kind in (E.RUN_CANCELED, E.RUN_REOPENED):
            self._canceled = kind == E.RUN_CANCELED
            if kind == E.RUN_REOPENED:
                self.done.difference_update(str(pair[0]) for pair in data["steps"] if isinstance(pair, list) and pair)
        elif kind == E.ACTION_RECALLED:
            self.done.add(event["step"])
        elif (does := self._does.get(kind)) is not None:
            does(event)
        elif (status := self._ends.get(kind)) is not None and data["receipt"] in self._effects:
            effect = self._effects[data["receipt"]]
            effect.status = status
            if event["step"] not in (effect.step, None):
                self.fault(event, f"the effect was let out at the step {effect.step}")
            if status == ReceiptStatus.SUCCEEDED:
                self.done.add(str(effect.step))
                if data.get("ran") != effect.gate:
                    self.fault(event, "it counts as done, and its agent does not report that just this call ran")

    # -- decisions ---------------------------------------------------------------------------------------------------

    def _decide(self, event: dict[str, Any]) -> None:
        data, step = event["data"], event["step"]
        rules = tuple(map(str, data.get("rules") or ()))
        policies = tuple(str(one.get("digest")) for one in data["policies"] if isinstance(one, dict))
        made = _Decided(event["seq"], step, data["operation"], str(data["outcome"]), rules, policies)
        self._decisions[data["decision"]] = made
        self._newest[step] = data["decision"]
        self.allowed[step] = made.outcome
        if event["actor"]["kind"] != "policy":
            self.fault(event, f"{event['actor']['kind']} is no policy, and decided")
        if made.outcome not in _OUTCOMES:
            self.fault(event, f"no policy comes to {made.outcome!r}")
            return
        self._by_rules(event, made)

    def _by_rules(self, event: dict[str, Any], made: _Decided) -> None:
        """Compare the decision with the rules that it names: the strictest of them decides, and errors deny."""
        rules = rules_of(self.case, made.policies)
        if rules is None:
            if made.outcome != "deny":
                self.fault(event, "it is no denial, and one of its policies cannot be read")
            return
        if event["data"].get("errors") and made.outcome != "deny":
            self.fault(event, "rules could not be evaluated, and it is no denial")
        if made.outcome == "deny":
            return  # also by caps, by an account that is off, by no rule at all
        if strange := [rule for rule in made.rules if rule not in rules]:
            self.fault(event, f"no policy has a rule {strange[0]!r}")
        for names in always_fire(self.case, made.policies, made.operation):
            if not {*names} & {*made.rules}:
                self.fault(event, f"the rule {names[0]} has no condition, and the decision leaves it out")
        if not strange and (why := misjudged(made.outcome, [rules[rule] for rule in made.rules])) is not None:
            self.fault(event, why)

    # -- questions ---------------------------------------------------------------------------------------------------

    def _question(self, event: dict[str, Any]) -> None:
        """Compare a question with the decision, the gate or the doubt that it is about."""
        asked = self.people.asked.get(event["data"]["approval"])
        if asked is None or asked.seq != event["seq"]:
            return
        step = event["step"]
        decision = self._decisions.get(self._newest.get(step, ""))
        if asked.kind == "action":
            if decision is None or decision.outcome != "needs_approval":
                self.fault(event, "people are asked what no decision has left to them")
        elif asked.kind == IN_DOUBT and not any(
            one.action == asked.action and one.status == ReceiptStatus.IN_DOUBT for one in self._effects.values()
        ):
            self.fault(event, "people are asked about an action that is not in doubt")
        self._terms(event, asked, decision)
        self._card(event, asked, decision if asked.kind == "action" else None)

    def _terms(self, event: dict[str, Any], asked: Asked, decision: _Decided | None) -> None:
        """Compare the terms of a question with the rules, or the gate, that ask for them."""
        if asked.question is None:
            return
        terms, policies = asked.question.terms, decision.policies if decision is not None else ()
        if asked.kind == "action" and decision is not None:
            rules = rules_of(self.case, policies) or {}
            for why in weaker(terms, [rules[rule] for rule in decision.rules if rule in rules]):
                self.fault(event, why)
        elif asked.kind == GATE and self.steps is not None:
            gate = self.steps().get(split_key(event["step"])[1])
            if gate is None or gate.operation != "approve":
                self.fault(event, f"{event['step']} is no gate of the workflow")
            elif (name := other_gate(terms, gate)) is not None:
                self.fault(event, f"its {name} is not that of the workflow's gate")
        elif asked.kind == IN_DOUBT:
            before = [one for one in self.people.asked.values() if one.question and one.action == asked.action]
            known = {group.key for one in before[:-1] if one.question for group in one.question.terms.approvers}
            known |= {OPERATORS, *of_doubt(self.case, policies)}
            if strange := [one.key for one in terms.approvers if not any(is_of(one.key, name) for name in known)]:
                self.fault(event, f"nothing lets {strange[0]} decide about this doubt")

    def _card(self, event: dict[str, Any], asked: Asked, decision: _Decided | None) -> None:
        """Compare the card with the action or the gate that it is about."""
        question = asked.question
        card = None if question is None else question.card
        if card is None:
            withheld = question is not None and event["data"].get("secret") is not True
            if self.whole and withheld and not self.case.sidecar_missing:
                self.fault(event, "its card is withheld although nothing on it is secret")
            return
        wanted: dict[str, object] = {
            "step": event["step"], "workflow": self._run.get("name"),
            "workflow_version": self._run.get("version"),
        }  # fmt: skip
        wanted |= {"operation": "approve"} if asked.kind == GATE else {"tier": event["data"].get("tier")}
        if asked.kind == IN_DOUBT:
            same = [one.operation for one in self._effects.values() if one.action == asked.action]
            wanted |= {"operation": same[-1]} if same else {}
        elif decision is not None:
            wanted["operation"] = decision.operation
            rules = card.get("rules")
            shown = [str(one.get("id")) for one in rules if isinstance(one, dict)] if isinstance(rules, list) else []
            self._shown_rules(event, shown, decision)
        for name, value in wanted.items():
            if name in card and card[name] != value:
                self.fault(event, f"the card shows another {name} than what was judged")

    def _shown_rules(self, event: dict[str, Any], shown: list[str], decision: _Decided) -> None:
        """Judge that the card names the rules that ask people, and no others."""
        if strange := [one for one in shown if one not in decision.rules]:
            self.fault(event, f"the card names the rule {strange[0]!r}, which the decision does not")
            return
        rules = rules_of(self.case, decision.policies) or {}
        for name in decision.rules:
            mays = outcomes_of(rules[name]) if name in rules else frozenset()
            if (name in shown and mays and decision.outcome not in mays) or (
                name not in shown and mays == {decision.outcome}
            ):
                self.fault(event, f"the card names other rules than those that ask: {name!r}")

    # -- effects -----------------------------------------------------------------------------------------------------

    def _intend(self, event: dict[str, Any]) -> None:
        data, step = event["data"], event["step"]
        self._decision(event)
        effect = self._effects.get(data["receipt"])
        before = 0 if effect is None else effect.attempt
        if data["attempt"] != before + 1:
            self.fault(event, f"attempt {data['attempt']} follows attempt {before}")
        if effect is not None and effect.status == ReceiptStatus.IN_DOUBT and not effect.retried:
            self.fault(event, "it is sent again although nothing has ended the doubt")
        if effect is not None and effect.step != step:
            self.fault(event, f"the effect was let out at the step {effect.step} before")
        if self._canceled:
            self.fault(event, "it was let out after the run was canceled")
        if self.case.definition is not None and self.case.definition.effect(data["operation"]) is not True:
            self.fault(event, f"{data['operation']} is declared to have no effect, or not at all")
        if self.whole and type(data.get("stop")) is not int:
            self.fault(event, "it does not name the stop number under which it was let out")
        gate = self._gate(event, effect)
        self._effects[data["receipt"]] = _Effect(data["action"], data["operation"], step, data["attempt"], gate=gate)

    def _gate(self, event: dict[str, Any], effect: _Effect | None) -> str | None:
        """The call that an agent carries out by its one permit; None if the runtime carries it out."""
        definition, operation, named = self.case.definition, event["data"]["operation"], event["data"].get("gate")
        gate = named if effect is None else effect.gate
        if gate is not None and any(one.gate and one.step == event["step"] for one in self._effects.values()):
            self.fault(event, "a permit had gone out for it before, and there is no second one")
        if definition is not None and definition.at_agents(operation) not in (None, gate is not None):
            self.fault(event, f"{operation} is declared to be carried out by another than the line says")
        return gate

    def _decision(self, event: dict[str, Any]) -> None:
        """Judge if the decision is the newest at this step, and lets nothing else out."""
        data = event["data"]
        made = self._decisions.get(data["decision"])
        if made is None:
            return  # the row "authority" says so
        if made.step != event["step"] or self._newest.get(event["step"]) != data["decision"]:
            self.fault(event, f"the decision {data['decision']} is not the newest at this step")
        if made.used:
            self.fault(event, f"the decision {data['decision']} has let out something before")
        made.used = True
        if data["approval"] is None:
            return
        asked = self.people.asked.get(data["approval"])
        if asked is not None and asked.seq > event["seq"]:
            self.fault(event, "people were asked afterwards")

    def _unneeded(self, event: dict[str, Any]) -> None:
        self._decision(event | {"data": {**event["data"], "approval": None}})
        self.done.add(str(event["step"]))

    def _resolve(self, event: dict[str, Any]) -> None:
        data = event["data"]
        effect = self._effects.get(data["receipt"])
        if effect is None:
            return
        resolution, by = str(data["resolution"]), data.get("by")
        effect.retried = resolution == "not_applied"
        effect.status = {"applied": "succeeded", "failed": "failed"}.get(resolution, effect.status)
        if resolution == "applied":
            self.done.add(str(effect.step))
        if by is None and not self.whole:
            return
        if by not in _BY:
            self.fault(event, "nothing says who ended the doubt")
        elif by == "people":
            self._by_people(event, effect, resolution)
        elif data.get("approval") is not None:
            self.fault(event, "it names an answer of people, who did not end it")
        elif by == "none" and resolution != "failed":
            self.fault(event, f"nobody found out, and it counts as {resolution}")
        elif by in ("probe", "again") and self.case.definition is not None:
            declared = (self.case.definition.declared(effect.operation) or {}).get("in_doubt")
            if declared != {"probe": "probe", "again": "idempotent"}[str(by)]:
                self.fault(event, f"{effect.operation} is declared to leave a doubt to {declared!r}")

    def _by_people(self, event: dict[str, Any], effect: _Effect, resolution: str) -> None:
        data = event["data"]
        asked = self.people.asked.get(str(data.get("approval")))
        if asked is None or asked.action != effect.action or asked.step != effect.step:
            self.fault(event, "no question about this action ended the doubt")
            return
        wanted = _DOUBTS.get(resolution) if asked.kind == IN_DOUBT else "approved"
        if asked.kind == IN_DOUBT and resolution != "failed" and not asked.used:
            self.fault(event, "the answer that ended the doubt was not used up")
        # What people ordered to do again counts as failed, if policy denies it now or the run was canceled.
        ordered = resolution == "failed" and asked.status in ("again", "approved")
        if asked.status != wanted and not ordered:
            self.fault(event, f"people said {asked.status}, and it counts as {resolution}")
