"""Check by the tenant's directory that the people whom a policy or a workflow asks can decide. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct
from pydantic import BaseModel

from approvals.tally import Groups, shortfalls, stuck_requesters
from core.documents import Document, Path, load_document
from core.errors import Problem
from core.identity import Role
from core.terms import GroupQuorum, Terms, Tier
from core.validation import validate
from policy.evaluate import quorums, terms_of
from policy.model import InDoubt, PolicyDocument
from runtime.definition.leaves import gate_terms
from runtime.definition.model import AssignDocument, EscalationDocument, GateDocument, WorkflowDocument

UNCHECKED = "the tenant has no directory yet, so whether anybody can decide was not checked."
# A question: its path, its keys (of the question and of its escalation), the part that asks, and the terms.
_Asked: TypeAlias = tuple[Path, tuple[str, str], str, Terms]
_REMEDY = "Publish the directory first: `counterseal directory publish FILE`."


class Findings(Struct):
    """Questions without deciders: always (``problems``), or in some cases, or unchecked (``warnings``)."""

    problems: list[Problem]
    warnings: list[str]


def of_policy(text: str, file: str, groups: Groups | None) -> Findings:
    """Look at every rule that asks people, by itself. ``groups`` is None if there is no directory."""
    document = load_document(text, file)
    content = validate(document, PolicyDocument)
    asked = [
        (("rules", index), ("approvers", "escalate"), f", rule {rule.id}", terms_of([rule]))
        for index, rule in enumerate(content.rules)
        if rule.asks
    ]
    asked += [
        (("rules", index), ("in_doubt", "in_doubt"), f", rule {rule.id}: in doubt", _in_doubt(rule.in_doubt))
        for index, rule in enumerate(content.rules)
        if rule.in_doubt is not None
    ]
    return _findings(document, f"policy {content.policy} version {content.version}", asked, groups)


def _in_doubt(named: InDoubt) -> Terms:
    # The requester does not say what became of the action; ``allow`` keeps this check from warning of that.
    return Terms(Tier.HIGH, quorums(named.approvers), allow=(Role.REQUESTER,))


def of_workflow(text: str, file: str, groups: Groups | None) -> Findings:
    """Look at every gate, every task and every escalation of a workflow."""
    document = load_document(text, file)
    content = validate(document, WorkflowDocument)
    return _findings(document, f"workflow {content.workflow} version {content.version}", _asked(content, ()), groups)


def _asked(part: BaseModel, path: Path) -> Iterator[_Asked]:
    match part:
        case GateDocument():
            yield path, ("approvers", "approvers"), "", gate_terms(part)
        case AssignDocument():
            # Any member of the group may do the task; that the requester does it is no fault.
            terms = Terms(Tier.MEDIUM, (GroupQuorum(part.group),), allow=(Role.REQUESTER,))
            yield path, ("group", "group"), "", terms
        case EscalationDocument():
            yield path, ("escalate", "escalate"), "", Terms(Tier.MEDIUM, (GroupQuorum(part.escalate),))
    for name, info in type(part).model_fields.items():
        value: Any = getattr(part, name)
        here = (*path, info.alias or name)
        for index, item in enumerate(value) if isinstance(value, tuple) else ((None, value),):
            if isinstance(item, BaseModel):
                yield from _asked(item, here if index is None else (*here, index))


def _findings(document: Document, name: str, asked: Iterable[_Asked], groups: Groups | None) -> Findings:
    found = Findings([], [])
    for path, keys, which, terms in asked:
        if groups is None:
            return Findings([], [str(document.problem(path, UNCHECKED, _REMEDY))])  # once is enough
        short = shortfalls(terms, groups)
        for one in short:
            message = f"{name}{which}: {'its escalation: ' if one.escalation else ''}{one.message}"
            found.problems.append(document.problem((*path, keys[one.escalation]), message, one.remedy))
        if not short and (stuck := stuck_requesters(terms, groups)):
            shown = f"{', '.join(stuck[:5])}{' and others' if len(stuck) > 5 else ''}"
            message = f"{name}{which}: nobody could decide what {shown} requested, for want of others."
            found.warnings.append(str(document.problem((*path, keys[0]), message, "Put more people into the groups.")))
    return found
