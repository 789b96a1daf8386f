"""Builds an action from an operation and its input, with its summary, its reversal and its idempotency key."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from msgspec.structs import replace

from connectors import display
from connectors.canonical import canonical
from connectors.masking import hidden, shown
from connectors.operation import Operation, Paths, text_parts
from connectors.parts import KeyScope
from connectors.port import Before
from connectors.schema import misfit
from connectors.tables import UPDATE
from core.action import Action
from core.canonical import Json, JsonObject, canonical_bytes, digest
from core.errors import InputError
from core.identity import named_in

SUMMARY_LENGTH_MAX = 300
MISSING = "?"
# The key, in a stored action, of the system to which it is sent, if that is known.
SYSTEM = "system"
# The fact that a record to be removed was already missing at the pre-read.
GONE = "gone"
# The first parts of placeholders whose values come from the target.
_TARGET = ("before", "facts")
# The facts about a record that a write's output contains.
_OF_OUTPUT = ("sys_id", "number", "sys_mod_count")


def build_action(operation: Operation, values: JsonObject, before: Before | None = None) -> Action:
    """The action of calling ``operation`` with this input; ``InputError`` names the JSON path of a wrong input.

    The action's input is the canonical form of ``values``; both forms must fit the declaration. ``before`` is the
    pre-read of operations that declare ``diff``; without it a write counts as not reversible. A field that was not read
    before cannot be restored, so ``reverse`` leaves it out. ``reversible`` is True if every written field can be
    restored or is harmless.
    """
    _check(operation, values)
    made = canonical(operation.handler, {**values, **operation.params})
    given = {name: made[name] for name in values}
    if given != values:
        _check(operation, given)
    return kept_action(operation, made, before)


def _check(operation: Operation, values: JsonObject) -> None:
    try:
        fits = operation.input_validator.is_valid(values)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where="input") from None
    if not fits:
        raise misfit(operation.input_validator, values, where="input")
    if operation.connector == "slack":
        display.check({**values, **operation.params})


def kept_action(operation: Operation, values: JsonObject, before: Before | None = None) -> Action:
    """The action with exactly this whole input, including ``params``. It is not checked again: it was when proposed.

    Secret values of the input are masked in the target and in the summary.
    """
    fields = writes_of(operation, values)
    if operation.removes and before is not None:
        fields = dict.fromkeys(sorted(before.values))
    secret = operation.takes_secrets
    target = render(operation.target, shown(operation, values) if secret else values)
    words: JsonObject = {**(hidden(operation, values) if secret else values), "target": target}
    words |= {"before": None, "facts": None}
    if before is not None:
        words |= {"before": before.values, "facts": before.facts}
    summary = render(operation.summary, words)
    restorable: JsonObject = {}
    if operation.reverse is not None and before is not None:
        restorable = {name: before.values[name] for name in fields if name in before.values}
    reverse: JsonObject | None = None
    if operation.reverse is not None and restorable:
        template = operation.reverse.input
        real: JsonObject = {**words, **values, "before": restorable}
        reverse = {"operation": operation.reverse.operation, "input": fill(template, real)}
    harmless = operation.diff.harmless if operation.diff else ()
    undone = bool(fields) and all(name in restorable or name in harmless for name in fields)
    return Action(
        operation=operation.name,
        input=values,
        fields=fields,
        target=target,
        target_version=before.version if before else None,
        before=before.values if before else None,
        risk=operation.risk,
        side_effects=operation.side_effects,
        reversible=undone or not operation.has_effect,
        summary=summary if len(summary) <= SUMMARY_LENGTH_MAX else summary[: SUMMARY_LENGTH_MAX - 1] + "…",
        reverse=reverse,
        connector=operation.connector,
        unreadable=() if before is None else _unreadable(operation, values, before),
        facts=before.facts if before else None,
        labels=before.labels if before else None,
        shown=_shown(operation, words),
        subjects=() if operation.subject is None else _subjects(operation, values),
        writers=before.writers if before else (),
    )


def _subjects(operation: Operation, values: JsonObject) -> tuple[str, ...]:
    """The people whom the action is about. A placeholder without a value means somebody unknown."""
    parts = text_parts(operation.subject)
    lacks = any(_first(part, values) is None for part in parts if not isinstance(part, str))
    return named_in(None if lacks else fill(operation.subject, values))


def _shown(operation: Operation, words: JsonObject) -> JsonObject:
    """The values of the target that an operation's texts show besides the written fields, by path."""
    found: JsonObject = {}
    for paths in _of_target(operation.summary, operation.title or "", operation.link or ""):
        for path in paths:
            value = _first((path,), words)
            if value is not None:
                found |= {".".join(path): value} if path[0] in _TARGET else {}
                break  # the text shows the first path that has a value
    return found


@cache
def _of_target(*texts: str) -> tuple[Paths, ...]:
    """The placeholders in declared texts that may show values of the target."""
    parts = (part for text in texts for part in text_parts(text) if not isinstance(part, str))
    return tuple(paths for paths in parts if any(path[0] in _TARGET for path in paths))


def _unreadable(operation: Operation, values: JsonObject, before: Before) -> tuple[str, ...]:
    """The fields that the pre-read asked for and the target did not show."""
    return tuple(name for name in diff_fields(operation, values) if name not in before.values)


def rebuilt_action(operation: Operation, stored: JsonObject, before: Before | None) -> Action:
    """Build an action again from its stored input, as it was proposed. Only the declaration sets ``params``."""
    given = {name: value for name, value in stored.items() if name not in operation.params}
    return kept_action(operation, given | _fixed(operation, stored), before)


def _fixed(operation: Operation, stored: JsonObject) -> JsonObject:
    """The declaration's ``params`` as they were kept; if they have changed, the present ones in canonical form."""
    try:
        made = canonical(operation.handler, operation.params)
        same = made == canonical(operation.handler, {name: stored.get(name) for name in made})
    except InputError:
        return operation.params  # a declaration of an earlier release: its action was proposed with exactly these
    return {name: stored[name] for name in made} if same else made


def given_action(operation: Operation, values: JsonObject) -> Action:
    """The action with its input as it was given, before it is made canonical. It is only compared, and never sent."""
    _check(operation, values)
    return kept_action(operation, {**values, **operation.params})


def masked(operation: Operation, action: Action) -> Action:
    """The action for people to see: without the values that its handler knows to be secret. It is never sent."""
    facts = shown(operation, action.input)
    if facts is action.input:
        return action
    return replace(action, input=facts, fields=action.fields if operation.removes else writes_of(operation, facts))


def action_digest(action: Action, asked: Json = None, read: Iterable[str] = ()) -> str:
    """SHA-256 over operation, input, system, target, those who shaped it, the approval's terms, and the values seen.

    Approvals bind to it (promise 3). The values seen are those of the target that the card shows, and the fields that
    rules ``read``. The target's version is left out, so that another person's note voids nothing.
    """
    if action.before is None:
        return versioned_digest(action, asked)
    seen = {name: action.before[name] for name in {*action.fields, *read} if name in action.before}
    return digest({**_judged(action, asked), "before": seen, "shown": action.shown})


def versioned_digest(action: Action, asked: Json = None) -> str:
    """The digest to which approvals of earlier releases bind: with all values read, and the target's version."""
    return digest({**_judged(action, asked), "before": action.before, "target_version": action.target_version})


def _judged(action: Action, asked: Json) -> JsonObject:
    bound: JsonObject = {"asked": asked, "input": action.input, "operation": action.operation, "target": action.target}
    if action.system or action.shaped:
        bound |= {"system": action.system, "shaped": [*action.shaped]}
    return bound


def unchanged(operation: Operation, action: Action, before: Before | None) -> JsonObject | None:
    """The output for a write whose target has every value already; None if the write would change something.

    A missing record counts as removed already.

    Only a handler that sets nothing but the fields of ``writes`` is known to change nothing else. An appended or
    unreadable field always counts as a change.
    """
    if operation.removes and before is not None and before.facts.get(GONE) is True:
        return {"sys_id": action.input["sys_id"], "deleted": False}
    if before is None or operation.function != "update" or operation.writes is None or not action.fields:
        return None
    if not all(name in before.values and _equal(before.values[name], value) for name, value in action.fields.items()):
        return None
    facts: JsonObject = {"fields": {**action.fields}, "altered": []}
    key = action.input.get("key")
    if operation.handler == UPDATE and isinstance(key, list):
        return {"key": {str(name): action.input.get(str(name)) for name in key}, "version": before.version, **facts}
    return {**{name: before.facts[name] for name in _OF_OUTPUT if name in before.facts}, **facts}


def _equal(one: Json, other: Json) -> bool:
    """True if two values are the same JSON: 1 is not true."""
    return canonical_bytes(one) == canonical_bytes(other)


def action_json(action: Action, before: Before | None) -> JsonObject:
    """The stored form of an action, from which exactly the same action can be performed or probed later."""
    read: Json = None if before is None else before.kept()
    document: JsonObject = {"input": action.input, "target": action.target, "summary": action.summary, "before": read}
    return {**document, SYSTEM: action.system} if action.system else document


def idempotency_key(
    operation: Operation, action: Action, *, tenant: str, workflow: str, run: str, step: str, reference: str | None
) -> str:
    """SHA-256 over the scope and the fields that distinguish effects in it; the same for every attempt at one action.

    Scope ``step``: one effect per execution of a step. ``step`` names the execution (each iteration of a loop has its
    own), so setting A, then B, then A again is three effects. Scope ``reference`` or ``tenant``: the same call (the
    declared key fields, or the whole input) is one effect for the business reference or the tenant, from any run.
    """
    scope = operation.idempotency.scope
    chosen: Json = {name: action.input.get(name) for name in operation.idempotency.key}
    if scope is KeyScope.STEP:
        return digest(["step", tenant, workflow, run, step, operation.name, chosen])
    effect: Json = chosen if operation.idempotency.key else action.input
    if scope is KeyScope.TENANT:
        return digest(["tenant", tenant, operation.name, action.target, effect])
    if not reference:
        raise InputError(
            f"{operation.name} is idempotent within the run's reference, and this run has none.",
            where="reference",
            remedy="Give the workflow a reference.",
        )
    return digest(["reference", tenant, reference, operation.name, action.target, effect])


def same_call(operation: Operation, stored: JsonObject, target: str, action: Action) -> bool:
    """True if an input kept with this target is that of the action, even if an earlier release kept it uncanonical."""
    try:
        made = canonical(operation.handler, stored)
    except InputError:
        return False
    return made == action.input and (made != stored or target == action.target)


def as_given(operation: Operation, values: JsonObject, action: Action) -> Action:
    """The action as release 0.2.0 proposed it, from its input as it was given, to compute its key only."""
    given = {**values, **operation.params}
    return action if given == action.input else replace(action, input=given, target=render(operation.target, given))


def writes_of(operation: Operation, values: JsonObject) -> JsonObject:
    """The proposed writes in an input: one object property, some named properties, or the whole input."""
    if operation.writes is None:
        return dict(values)
    if isinstance(operation.writes, str):
        found = values.get(operation.writes)
        return dict(found) if isinstance(found, dict) else {}
    return {name: values[name] for name in operation.writes if name in values}


def diff_fields(operation: Operation, values: JsonObject) -> tuple[str, ...]:
    """The fields to read before this call writes, sorted, without append-only fields."""
    if operation.diff is None:
        return ()
    if operation.diff.fields == "record":
        return ()
    fields = writes_of(operation, values) if operation.diff.fields == "written" else operation.diff.fields
    return tuple(sorted(set(fields) - set(operation.diff.appended)))


def render(text: str, values: JsonObject) -> str:
    """A declared text with its placeholders filled. An object is shown as the names of its keys.

    This never fails: a missing value is shown as ``?``. Placeholders inside values are not expanded.
    """
    made = ""
    for part in text_parts(text):
        found = part if isinstance(part, str) else _first(part, values)
        if isinstance(found, dict):
            found = ", ".join(found) or None
        if found is None:
            found = MISSING
        made += found if isinstance(found, str) else canonical_bytes(found).decode()
    return made


def fill(template: Json, values: JsonObject) -> Json:
    """A structure with filled placeholders; a text that is just one placeholder becomes the value itself."""
    if isinstance(template, dict):
        return {key: fill(item, values) for key, item in template.items()}
    if isinstance(template, list):
        return [fill(item, values) for item in template]
    if not isinstance(template, str):
        return template
    match text_parts(template):
        case [tuple(paths)]:
            return _first(paths, values)
        case _:
            return render(template, values)


def _first(paths: Paths, values: JsonObject) -> Json:
    """The first value at these paths that is neither null nor empty text."""
    for path in paths:
        found: Json = values
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None and found != "":
            return found
    return None
