"""Reads the texts of a bundle as the runtime does, for ``evidence verify``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from connectors.catalog import Catalog, load_catalog
from core.canonical import Json, JsonObject
from core.documents import load_document
from core.errors import CountersealError, InputError
from core.globs import Glob
from evidence.judging.case import WITHHELD
from policy.evaluate import evaluate
from policy.facts import OperationFacts
from policy.sets import BrokenPolicy, PolicySet
from runtime.definition.canonical import steps_of
from runtime.definition.catalog import operation_facts, readable
from runtime.definition.workflow import load_workflow, thaw_operations


class Texts:
    """Compiles a workflow by the declarations that its bundle holds, and reads policies."""

    def steps(self, text: str, definition: JsonObject) -> JsonObject:
        """See ``evidence.judged.Compiler``."""
        operations = definition.get("operations")
        try:
            catalog = thaw_operations(operations if isinstance(operations, dict) else {}, "definition.json")
            return steps_of(load_workflow(text, "workflow", catalog).graph)
        except CountersealError as error:
            raise InputError(f"the workflow's text does not compile: {error}") from None

    def __init__(self) -> None:
        self._sets: dict[tuple[str, ...], tuple[PolicySet, bool]] = {}

    def decide(
        self, texts: Sequence[str], definition: JsonObject, operation: str, workflow: str, facts: JsonObject
    ) -> tuple[str, list[str], bool] | None:
        """See ``evidence.judged.Compiler``."""
        key = tuple(texts)
        if key not in self._sets:
            self._sets[key] = _compiled(texts, definition)
        policies, whole = self._sets[key]
        if policies.broken:
            return None
        decision = evaluate(policies, facts, operation, workflow)
        return str(decision.outcome), [rule.id for rule in decision.rules], whole

    def document(self, text: str) -> Json:
        """See ``evidence.judged.Compiler``."""
        try:
            return load_document(text, "policy").value
        except CountersealError as error:
            raise InputError(f"a policy cannot be read: {error}") from None


def _compiled(texts: Sequence[str], definition: JsonObject) -> tuple[PolicySet, bool]:
    """The compiled policies, and true if the declarations (ours and the bundle's) cover all their rules."""
    packaged = load_catalog()
    shown = {
        name: declared for part in ("operations", "added") for name, declared in _object(definition.get(part)).items()
        if isinstance(declared, dict) and WITHHELD not in declared
    }  # fmt: skip
    operations = {**packaged.operations, **thaw_operations(shown, "definition.json").operations}
    facts = operation_facts(Catalog(operations, packaged.packaged))
    found = [readable(text, "policy", facts) for text in texts]
    if not any(isinstance(one, BrokenPolicy) for one in found):
        return PolicySet(found), True
    return PolicySet(readable(_about(text, facts), "policy", facts) for text in texts), False


def _about(text: str, facts: Mapping[str, OperationFacts]) -> str:
    """The policy without its rules for unknown operations. Such rules can only make an outcome stricter."""
    try:
        document = _object(load_document(text, "policy").value)
    except CountersealError:
        return text
    rules = document.get("rules")
    known = (
        [rule for rule in rules if _is_known(_object(_object(rule).get("match")), facts)]
        if isinstance(rules, list)
        else []
    )
    return json.dumps({**document, "rules": known})


def _is_known(match: JsonObject, facts: Mapping[str, OperationFacts]) -> bool:
    glob, connector = Glob.of(str(match.get("operation") or "*")), match.get("connector")
    return any(glob.matches(name) and connector in (None, one.connector_of(name)) for name, one in facts.items())


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
