"""The binding of an approval: the action, what people were shown of its target, and what the rules read of it. Pure.

Another version of the target with the same values binds the same, so a note that somebody adds while a card is open
voids nothing (promise 3). What was bound is kept beside the question and the receipt (``READ``), so a new policy that
reads more voids nothing either. Whatever was kept by an earlier release binds the version, as it did then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import action_digest, rebuilt_action, versioned_digest
from core.action import Action
from core.canonical import Json, JsonObject
from policy.evaluate import Decision
from runtime.engine.model.rows import ReceiptRow

# In a stored action: the fields besides the written ones whose values before are bound, because rules read them.
READ = "read"
_BEFORE = "action.before."


class Bound(Struct, frozen=True):
    """The digest that an approval binds to, and the fields of the target that rules have read for it."""

    digest: str
    read: tuple[str, ...] = ()

    def kept(self, action: Action) -> JsonObject:
        """The members of a stored action that tell what is bound."""
        return {} if action.before is None else {READ: [*self.read]}


def bind(action: Action, decision: Decision) -> Bound:
    """Bind the action, what its rules read, and the terms and rules by which policy asks for it.

    Without an approval there are no terms. The policies' own digests are left out: a new policy that decides the same
    voids nothing.
    """
    if action.before is None:  # so no rule has read anything of the target
        return Bound(action_digest(action, asked_by(decision)))
    names = (name.removeprefix(_BEFORE) for name in decision.facts_read if name.startswith(_BEFORE))
    read = tuple(sorted({*names} - action.fields.keys()))
    return Bound(action_digest(action, asked_by(decision), read), read)


def held(action: Action, decision: Decision, kept: Mapping[str, Any] | None, bound: str) -> Bound | None:
    """The binding of before, if that holds for the action and the decision of now; None if it does not.

    ``kept`` is the stored action, if it is still known, and ``bound`` its digest.
    """
    read, names = (kept or {}).get(READ), tuple[str, ...]()
    if isinstance(read, list):
        names = tuple(map(str, read))
        now = action_digest(action, asked_by(decision), names)
    else:
        version = action.target_version if kept is None else version_of(kept)
        now = versioned_digest(replace(action, target_version=version), asked_by(decision))
    return Bound(bound, names) if now == bound else None


def again_bound(receipt: ReceiptRow) -> Bound:
    """The binding of an action that was let out before."""
    read = receipt.action.get(READ)
    return Bound(receipt.action_digest, tuple(str(name) for name in read) if isinstance(read, list) else ())


def asked_by(decision: Decision) -> Json:
    """The rules and terms by which policy asks; None if it does not."""
    if decision.approval is None:
        return None
    rules: list[Json] = [rule.own_id for rule in decision.rules if rule.outcome is decision.outcome]
    return {"rules": rules, "terms": decision.approval.bound()}


def version_of(kept: Mapping[str, Any] | None) -> str | None:
    """The version of the target in a stored action; None if it was not read."""
    before = (kept or {}).get("before")
    return before["version"] if isinstance(before, dict) else None


def drift(operation: Operation, kept: Mapping[str, Any], action: Action) -> list[JsonObject] | None:
    """The values that are others than those that were bound: each ``field`` with ``was`` and ``now``; None if none are.

    ``of`` says whose value it is: the ``target``'s as it was read, or the one that the ``action`` would write. A value
    that is secret, or was not read, is left out.
    """
    read = kept.get("before")
    before = Before.of_kept(read) if isinstance(read, dict) else None
    old = rebuilt_action(operation, kept["input"], before)
    secret = {*secret_names(operation.input_schema, old.input), *secret_names(operation.input_schema, action.input)}
    names = {*old.fields, *(kept.get(READ) or old.before or ())}
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
