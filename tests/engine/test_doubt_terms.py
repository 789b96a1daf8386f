"""The people a question about an action in doubt is put to: the candidates in order, and who can answer (Q-8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from core.identity import Directory, Entry, Role
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier
from runtime.definition.workflow import load_workflow
from runtime.engine.ask import DOUBT_EXPIRES_SECONDS
from runtime.engine.contributors import mark
from runtime.engine.operators import IN_DOUBT, OPERATORS, asked_about
from runtime.engine.replaying import unopened
from tests.engine.conftest import KEY, RUN_ID
from tests.engine.governing import CATALOG, EFFECT

pytestmark = pytest.mark.req("Q-8")

NAMED, TWO, SLACK = GroupQuorum("named"), GroupQuorum("two", 2), GroupQuorum("s1", source=GroupSource.SLACK_GROUP)
STORED = Terms(
    Tier.LOW,
    (GroupQuorum("owners"),),
    two_person=True,
    allow=(Role.UPDATER,),
    expires_seconds=60,
    remind_seconds=(5,),
    escalate=Escalation(9, GroupQuorum(OPERATORS)),
    fresh_seconds=7,
)


def about(*groups: GroupQuorum) -> Terms:
    """The terms of a question that these groups answer."""
    return Terms(Tier.HIGH, groups, expires_seconds=DOUBT_EXPIRES_SECONDS)


# The terms by which it was let out, without what belongs to that question alone.
OWN = replace(STORED, remind_seconds=(), escalate=None, expires_seconds=DOUBT_EXPIRES_SECONDS)
OPS = GroupQuorum(OPERATORS)
EVERYBODY = {"ana": "named", "ben": "two", "col": "two", "dan": "operators", "eve": "owners", "fay": "owners"}


def asked(people: dict[str, str], named: Any = None, terms: Any = None, shaped: tuple[str, ...] = ()) -> Terms:
    """The terms of the question, in a directory of these people and their groups."""
    directory = Directory.of("d1", [Entry(name, name, groups=frozenset(of.split())) for name, of in people.items()])
    run = unopened(RUN_ID, KEY, load_workflow(EFFECT, "test.yaml", CATALOG).graph)
    run.requested_by = "person:req"
    transition: Any = SimpleNamespace(view=SimpleNamespace(run=run, directory=directory))
    action = {IN_DOUBT: named, "terms": terms and terms.to_json()}
    receipt: Any = SimpleNamespace(action={name: value for name, value in action.items() if value is not None})
    return asked_about(transition, receipt, frozenset(mark(Role.UPDATER, f"person:{one}", "x") for one in shaped))


def without(*names: str) -> dict[str, str]:
    return {name: of for name, of in EVERYBODY.items() if name not in names}


TOLD: Any = [{"group": "named"}, {"group": "two", "of": 2}]
ONE: Any = [{"group": "named"}]
CASES: list[tuple[str, dict[str, str], Any, Any, tuple[str, ...], Terms]] = [
    ("policy's groups come first", EVERYBODY, TOLD, STORED, (), about(NAMED, TWO)),
    ("each of them has to answer", without("col"), TOLD, STORED, (), about(OPS)),
    ("a group without people is passed over", without("ana"), ONE, STORED, (), about(OPS)),
    ("who shaped the action does not answer", EVERYBODY, ONE, STORED, ("ana",), about(OPS)),
    ("somebody else's part keeps nobody out", EVERYBODY, ONE, STORED, ("eve",), about(NAMED)),
    ("operators come before the approvers", EVERYBODY, None, STORED, (), about(OPS)),
    ("operators who shaped it do not answer", EVERYBODY, None, STORED, ("dan",), OWN),
    ("no operators are the approvers' turn", without("dan"), None, STORED, (), OWN),
    ("an action without approvers asks operators", EVERYBODY, None, None, (), about(OPS)),
    ("even if there are none", without("dan"), None, None, (), about(OPS)),
    ("policy's groups are passed over for the approvers", without("ana", "dan"), ONE, STORED, (), OWN),
    ("policy's groups are asked if nobody can answer", {}, ONE, STORED, (), about(NAMED)),
    ("and if there are no approvers either", {}, ONE, None, (), about(NAMED)),
    ("operators are the first of two that cannot", {"dan": "operators"}, None, STORED, ("dan",), about(OPS)),
    ("approvers are asked if they alone are known", {}, None, STORED, (), OWN),
    (
        "a slack group may answer at any time",
        EVERYBODY,
        [{"group": "s1", "source": "slack_group"}],
        STORED,
        (),
        about(SLACK),
    ),
    ("the requester does not answer", {"req": "named", "dan": "operators"}, ONE, None, (), about(OPS)),
    ("policy may name no groups", EVERYBODY, [], STORED, (), about(OPS)),
]


@pytest.mark.parametrize(
    ("people", "named", "terms", "shaped", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_doubt_is_put_to_the_first_who_can_answer(
    people: dict[str, str], named: Any, terms: Any, shaped: tuple[str, ...], wanted: Terms
) -> None:
    assert asked(people, named, terms, shaped) == wanted
