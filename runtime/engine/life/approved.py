"""Approvals as authority: what an approval binds, and how its votes let out exactly the bound action. Pure.

An approval binds the action, what people were shown of its target, and what the rules read of it. Another version of
the target with the same values binds the same, so a note that somebody adds while a card is open voids nothing (promise
3). What was bound is kept beside the question and the receipt (``READ``), so a new policy that reads more voids nothing
either. An approval that an earlier release recorded binds the version, as it did then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalKind
from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import action_digest, rebuilt_action, versioned_digest
from core.action import Action
from core.canonical import Json, JsonObject
from evidence.receipts import ReceiptStatus
from policy.evaluate import Decision
from runtime.engine.book.instructions import GivenApproval, given_approval, still_approved
from runtime.engine.life import ask
from runtime.engine.life.proposal import Leased, Proposal
from runtime.engine.model.errors import SENT, VOID, ErrorClass, StepError
from runtime.engine.model.rows import ReceiptRow

# The member of a stored action that names the bound fields besides the written ones: those that rules read.
READ = "read"
_BEFORE = "action.before."


class Bound(Struct, frozen=True):
    """The digest that an approval binds to, and the fields of the target that rules have read for it."""

    digest: str
    read: tuple[str, ...] = ()

    def kept(self, action: Action) -> JsonObject:
        """The member of a stored action that records which fields are bound."""
        return {} if action.before is None else {READ: [*self.read]}


def bind(action: Action, decision: Decision) -> Bound:
    """Bind the action, the values that its rules read, and the terms and rules by which policy asks for approval.

    Without an approval there are no terms. The policies' own digests are left out: a new policy that decides the same
    voids nothing.
    """
    if action.before is None:  # so no rule has read anything of the target
        return Bound(action_digest(action, asked_by(decision)))
    names = (name.removeprefix(_BEFORE) for name in decision.facts_read if name.startswith(_BEFORE))
    read = tuple(sorted({*names} - action.fields.keys()))
    return Bound(action_digest(action, asked_by(decision), read), read)


def earlier_binding(action: Action, decision: Decision, stored: Mapping[str, Any] | None, bound: str) -> Bound | None:
    """The earlier binding, if it also holds for this action and decision; None if it does not.

    ``stored`` is the stored action, if it is still known, and ``bound`` its digest.
    """
    read, names = (stored or {}).get(READ), tuple[str, ...]()
    if isinstance(read, list):
        names = tuple(map(str, read))
        now = action_digest(action, asked_by(decision), names)
    else:
        version = action.target_version if stored is None else _version_in(stored)
        now = versioned_digest(replace(action, target_version=version), asked_by(decision))
    return Bound(bound, names) if now == bound else None


def again_bound(receipt: ReceiptRow) -> Bound:
    """The binding of an action that was let out before."""
    read = receipt.action.get(READ)
    return Bound(receipt.action_digest, tuple(str(name) for name in read) if isinstance(read, list) else ())


def asked_by(decision: Decision) -> Json:
    """The rules and terms by which policy asks people; None if it does not ask."""
    if decision.approval is None:
        return None
    rules: list[Json] = [rule.own_id for rule in decision.rules if rule.outcome is decision.outcome]
    return {"rules": rules, "terms": decision.approval.bound()}


def _version_in(stored: Mapping[str, Any] | None) -> str | None:
    """The version of the target in a stored action; None if it was not read."""
    before = (stored or {}).get("before")
    return before["version"] if isinstance(before, dict) else None


def drift(operation: Operation, stored: Mapping[str, Any], action: Action) -> list[JsonObject] | None:
    """The values that differ from the bound ones: each ``field`` with ``was`` and ``now``; None if none differ.

    ``of`` says whose value it is: the ``target``'s as it was read, or the one that the ``action`` would write. A value
    that is secret, or was not read, is left out.
    """
    read = stored.get("before")
    before = Before.of_kept(read) if isinstance(read, dict) else None
    old = rebuilt_action(operation, stored["input"], before)
    secret = {*secret_names(operation.input_schema, old.input), *secret_names(operation.input_schema, action.input)}
    names = {*old.fields, *(stored.get(READ) or old.before or ())}
    found = _differing("target", _only(old.before, names), _only(action.before, names), secret)
    found += _differing("target", old.shown, action.shown, secret)
    found += _differing("action", {**old.input, **old.fields}, {**action.input, **action.fields}, secret)
    return found or None


def _only(values: JsonObject | None, names: set[str]) -> JsonObject:
    return {name: value for name, value in (values or {}).items() if name in names}


def _differing(of: str, was: JsonObject, now: JsonObject, secret: set[str]) -> list[JsonObject]:
    found = []
    for name in sorted({*was, *now}):
        if name in was and name in now and was[name] == now[name]:
            continue
        if isinstance(was.get(name), dict) and isinstance(now.get(name), dict):
            continue  # an object of fields: each of them is told by itself
        entry: JsonObject = {"field": name, "of": of}
        hidden = name in secret or name.rpartition(".")[2] in secret
        entry |= {} if hidden or name not in was else {"was": was[name]}
        entry |= {} if hidden or name not in now else {"now": now[name]}
        found.append(entry)
    return found


# -- the votes of an approval, and the one action that they let out --------------------------------------------------

_NOT_APPROVED = StepError(
    ErrorClass.AUTHORIZATION,
    "not_approved",
    "An approval was recorded, but the votes in the run's book do not meet its terms.",
)


def counted_again(leased: Leased, given: GivenApproval) -> Leased | None:
    """Count the votes of a recorded approval again. If there are too few, fail the step and return None.

    A recorded approval alone lets no action out. If its votes are too old, or their voters may no longer vote, it is
    void, and people are asked again. The same holds for a doubt (promise 1).
    """
    transition = leased.transition
    if not given.carried:
        ask.supersede(transition, leased.step, given.approval_id)
        if not leased.is_doubtful and transition.view.run.canceling is None:
            transition.fail(leased.step, _NOT_APPROVED.to_json())
            return None
    elif (why := given.void(transition.view)) is not None:
        ask.supersede(transition, leased.step, given.approval_id, why)
    else:
        return leased
    return leased.knowing(replace(leased.known, given=None))


def matching(p: Proposal, bound: str) -> UUID | None:
    """The approval of exactly this action: an unused one, or one used by an attempt that certainly failed.

    An attempt that failed after it was sent, or because the target was not what was approved, has used it up.
    """
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION and given.digest == bound:
        return given.approval_id
    if receipt is None or not p.owns(receipt):
        return None  # an approval given to another run lets nothing out here
    if receipt.status != ReceiptStatus.FAILED or receipt.action_digest != bound:
        return None
    if {*SENT, *VOID} & {*(receipt.error or {})}:
        return None
    used = still_approved(p.transition.view, p.transition.run, receipt)
    if used is None or not p.step.again:
        return used
    # In a step begun anew, the approval must be fresh, and the attempt that used it certainly without effect.
    given = given_approval(p.transition.run, used)
    binds = given is not None and given.void(p.transition.view) is None and receipt.error is not None
    return used if binds else None


def bound_by(p: Proposal, action: Action, decision: Decision) -> Bound:
    """The binding of the action: that of the approval or the earlier intent if it still holds, or else a new one."""
    given, receipt = p.known.given, p.known.receipt
    if given is not None and given.kind is ApprovalKind.ACTION:
        asked = p.transition.run.approvals[given.approval_id]
        if (bound := earlier_binding(action, decision, asked.action, asked.action_digest)) is not None:
            return bound
    own = receipt is not None and p.owns(receipt)
    bound = earlier_binding(action, decision, receipt.action, receipt.action_digest) if own and receipt else None
    return bound or bind(action, decision)


def version_of(p: Proposal, approval: UUID | None) -> str | None:
    """The version of the target that people were asked about; None if it was not read, or is no longer known."""
    asked = None if approval is None else p.transition.run.approvals.get(approval)
    return None if asked is None else _version_in(asked.action)


def void(p: Proposal, action: Action | None = None) -> None:
    """Void the approval given for the step's action, and show that on its card. Answers of other kinds stay.

    ``action`` is what would be performed now: the card says which of its values are others than those approved.
    """
    given = p.known.given
    if given is None or given.kind is not ApprovalKind.ACTION:
        return
    asked = p.transition.run.approvals[given.approval_id].action
    changed = None if action is None or asked is None else drift(p.operation, asked, action)
    ask.supersede(p.transition, p.step, given.approval_id, changed=changed)
