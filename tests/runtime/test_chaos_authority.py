"""The authority that ``make chaos`` counts anew: what went out without one is found, whatever the product thinks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chaos.authority import unauthorised
from chaos.publish import UNCERTAIN_SECONDS, Office
from connectors.catalog import load_catalog
from runtime.definition.catalog import Definitions

AT = "2026-11-22T12:00:00.000Z"


def line(kind: str, step: str | None = "a", actor: str = "engine", **data: Any) -> bytes:
    return json.dumps({"type": kind, "step": step, "ts": AT, "actor": {"id": actor}, "data": data}).encode()


def decided(outcome: str, rule: str = "urgency", action: str = "d1") -> bytes:
    return line("decision.made", decision="D", action=action, operation="o", outcome=outcome, rules=[rule])


def voted(person: str, choice: str = "approve") -> bytes:
    return line("approval.voted", actor=person, approval="A", choice=choice)


def found(*before: bytes, step: str = "a", approval: str | None = "A") -> list[str]:
    intent = line("action.intended", step, receipt="R", action="d1", operation="o", decision="D", approval=approval)
    return unauthorised([*before, intent], lambda person, at: person in ("ana", "ben") and at > 0)


ASKED = line("approval.requested", approval="A", action="d1")


def test_what_was_allowed_or_approved_by_enough_owners_may_go_out() -> None:
    assert found(decided("allow"), approval=None) == []
    assert found(decided("needs_approval"), ASKED, voted("ana"), voted("ben")) == []
    assert found(decided("needs_approval", "priority"), ASKED, voted("ana")) == []


@pytest.mark.parametrize(
    "before",
    [
        (),
        (decided("deny"),),
        (decided("allow", action="d2"),),
        (decided("needs_approval"), voted("ana"), voted("ben")),
        (decided("needs_approval"), line("approval.requested", approval="A", action="d2"), voted("ana"), voted("ben")),
        (decided("needs_approval"), ASKED, voted("ana")),
        (decided("needs_approval", "chaos/urgency"), ASKED, voted("ana")),
        (decided("needs_approval"), ASKED, voted("ana"), voted("ana")),
        (decided("needs_approval"), ASKED, voted("ana"), voted("cara")),
        (decided("needs_approval"), ASKED, voted("ana"), voted("ben"), voted("ben", "reject")),
    ],
)
def test_whatever_else_goes_out_is_found(before: tuple[bytes, ...]) -> None:
    assert len(found(*before)) == 1


def test_a_decision_about_another_step_lets_nothing_out() -> None:
    assert len(found(decided("allow"), step="b", approval=None)) == 1


def test_who_was_an_owner_then_is_known_but_for_the_moments_after_a_change() -> None:
    later = 1000.0
    office = Office("", Definitions(load_catalog()), [(0.0, frozenset({"ana", "cara"})), (later, frozenset({"ana"}))])
    assert office.owned("cara", later - 1)
    assert office.owned("cara", later + 1)
    assert not office.owned("cara", later + UNCERTAIN_SECONDS + 1)
    assert office.owned("ana", later + UNCERTAIN_SECONDS + 1)
