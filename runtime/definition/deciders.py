"""Check by the tenant's directory that the people whom a policy or a workflow asks can decide. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field
from pydantic import BaseModel

from approvals.model import Terms
from approvals.tally import Groups, shortfalls, stuck_requesters
from core.documents import Document, Path, load_document
from core.errors import Problem
from core.validation import validate
from policy.evaluate import terms_of
from policy.model import Outcome, PolicyDocument
from runtime.definition.leaves import gate_terms, terms_json
from runtime.definition.model import AssignDocument, EscalationDocument, GateDocument, WorkflowDocument
from runtime.engine.ask import terms_of as approval_terms

UNCHECKED = "the tenant has no directory yet, so whether anybody can decide was not checked."
_REMEDY = "Publish the directory first: `counterseal directory publish FILE`."


class Findings(Struct):
    """``problems``: nobody could ever decide. ``warnings``: nobody could in some cases, or it was not checked."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def of_policy(text: str, file: str, groups: Groups | None) -> Findings:
    """Look at every rule that asks people, by itself. ``groups`` is None where there is no directory."""
    document = load_document(text, file)
    content = validate(document, PolicyDocument)
    found = Findings()
    for index, rule in enumerate(content.rules):
        if rule.outcome is Outcome.NEEDS_APPROVAL:
            terms = approval_terms(terms_of([rule]))
            what = f"policy {content.policy} version {content.version}, rule {rule.id}"
            _look(found, document, ("rules", index), ("approvers", "escalate"), what, terms, groups)
    return found


def of_workflow(text: str, file: str, groups: Groups | None) -> Findings:
    """Look at every gate, every task and every escalation of a workflow."""
    document = load_document(text, file)
    content = validate(document, WorkflowDocument)
    found = Findings()
    what = f"workflow {content.workflow} version {content.version}"
    for path, asked in _asked(content, ()):
        if isinstance(asked, GateDocument):
            terms, key = Terms.from_json(gate_terms(asked)), "approvers"
        elif isinstance(asked, AssignDocument):
            # Whoever is assigned does the task; that the requester does it is no fault.
            terms, key = Terms.from_json(terms_json(asked.group, 1, allow_requester=True)), "group"
        else:
            terms, key = Terms.from_json(terms_json(asked.escalate, 1)), "escalate"
        _look(found, document, path, (key, key), what, terms, groups)
    return found


def _asked(part: BaseModel, path: Path) -> Iterator[tuple[Path, GateDocument | AssignDocument | EscalationDocument]]:
    if isinstance(part, GateDocument | AssignDocument | EscalationDocument):
        yield path, part
    for name, info in type(part).model_fields.items():
        value: Any = getattr(part, name)
        here = (*path, info.alias or name)
        for index, item in enumerate(value) if isinstance(value, tuple) else ((None, value),):
            if isinstance(item, BaseModel):
                yield from _asked(item, here if index is None else (*here, index))


def _look(
    found: Findings,
    document: Document,
    path: Path,
    keys: tuple[str, str],
    what: str,
    terms: Terms,
    groups: Groups | None,
) -> None:
    if groups is None:
        words = str(document.problem(path, UNCHECKED, _REMEDY))
        found.warnings += [words] if not found.warnings else []  # once says it
        return
    short = shortfalls(terms, groups)
    for one in short:
        message = f"{what}: {'its escalation: ' if one.escalation else ''}{one.message}"
        found.problems.append(document.problem((*path, keys[one.escalation]), message, one.remedy))
    if not short and (stuck := stuck_requesters(terms, groups)):
        shown = f"{', '.join(stuck[:5])}{' and others' if len(stuck) > 5 else ''}"
        message = f"{what}: nobody could decide what {shown} requested, for want of others."
        found.warnings.append(str(document.problem((*path, keys[0]), message, "Put more people into the groups.")))
