"""Judging an action by the active policy, and recording the decision with all that it read (U-4, Q-16). Pure."""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

from msgspec import Struct

from core.action import Action
from core.canonical import Json, JsonObject
from core.ids import derived_id
from evidence.chain import Actor
from evidence.commitments import blind
from policy.evaluate import Decision, build_facts, deny, evaluate
from policy.facts import COUNTER, FactContext
from policy.load import Policy
from runtime.engine.commit import StepRow
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.events import DecisionMade
from runtime.engine.transition import Transition
from runtime.engine.workflow import Workflow


class BrokenPolicy(Struct, frozen=True):
    """The tenant's active policy cannot be read; ``message`` says why. It allows nothing."""

    digest: str
    message: str


ActivePolicy: TypeAlias = Policy | BrokenPolicy | None


def readable(policy: ActivePolicy) -> Policy | None:
    """The policy, if there is one that can be read."""
    return policy if isinstance(policy, Policy) else None


def judge(
    transition: Transition,
    step: StepRow,
    workflow: Workflow,
    policy: ActivePolicy,
    action: Action,
    *,
    counted: bool = False,
) -> Decision:
    """Policy's answer, under the caps (Q-12). Total: whatever is wrong is a denial with its reason.

    ``counted`` says that this very action is one of the run's writes already, because it was intended before.
    """
    view, writes = transition.view, transition.run.writes - counted
    if isinstance(policy, BrokenPolicy):
        return deny("policy:unreadable", f"The policy cannot be read, so nothing is allowed. {policy.message}")
    caps = [cap for cap in (view.writes_max, workflow.writes_max) if cap is not None]
    transition.rows.writes_max = min(caps, default=None)
    if workflow.operations[action.operation].has_effect and caps and writes >= min(caps):
        sentence = f"This run has made {writes} writes; at most {min(caps)} are allowed."
        return deny("cap:max_writes_per_run", sentence, policy.digest if policy else None)
    context = FactContext(
        run_workflow=view.workflow,
        run_version=view.workflow_version,
        run_id=str(view.run_id),
        run_reference=view.run.reference,
        run_requested_by=view.run.requested_by,
        run_trigger=view.trigger_type,
        run_step=step.key,
        actor_id=f"workflow:{view.workflow}",
        actor_kind="workflow",
        writes_in_run=writes,
        tenant_id=view.tenant_id,
        tenant_workspace=view.workspace_id,
    )
    return evaluate(policy, build_facts(action, context), action.operation)


def denied(decision: Decision) -> StepError:
    """The error with which a step fails because policy denies what it would do."""
    return StepError(ErrorClass.AUTHORIZATION, "policy_denied", " ".join(decision.reasons))


def record_decision(
    transition: Transition, step: StepRow, policy: ActivePolicy, decision: Decision, operation: str, bound: str
) -> UUID:
    """Tell the decision about the action with this digest; the id of the decision.

    Its append is guarded by what it was decided on: the policy, and the run's counters where a rule has read them.
    """
    view, rows = transition.view, transition.rows
    usable = policy if isinstance(policy, Policy) else None
    rows.checks_policy, rows.expected_policy = True, view.policy_digest
    rows.counted |= COUNTER in decision.facts_read
    name = f"decision:{step.key}:{step.lease_epoch}:{step.attempt}:{view.version}:{bound}"
    decision_id = derived_id(view.run_id, name)
    named: JsonObject | None = None
    if usable is not None and decision.policy_digest is not None:
        named = {"name": usable.name, "version": usable.version, "digest": usable.digest}
    rules: list[Json] = [rule.id for rule in decision.rules]
    errors: list[Json] = [error.rule for error in decision.errors]
    read: dict[str, Any] = dict(decision.facts_read)
    made = DecisionMade(
        decision=decision_id,
        action=blind(view.run.run_key, bound),
        operation=operation,
        outcome=str(decision.outcome),
        policy=named,
        rules=rules,
        errors=errors,
        digest=bound,
        fired=[{"id": r.id, "outcome": str(r.outcome), "because": r.because} for r in decision.rules],
        faults=[{"rule": e.rule, "message": e.message} for e in decision.errors],
        reasons=list(decision.reasons),
        facts=read,
    )
    actor = Actor("policy", f"{usable.name}@{usable.version}" if usable else "none")
    transition.tell(made, step=step.key, actor=actor)
    return decision_id
