"""The variables of a step itself give way to names that an author has chosen."""

from __future__ import annotations

import pytest

from core.errors import ExpressionError
from core.templates import compile_template
from runtime.definition.visible import compiled, seen_besides

MORE = {"wait.token": "string", "step.id": "string"}


@pytest.mark.parametrize(
    ("variables", "hidden"),
    [
        ({}, set()),
        ({"trigger": "dyn", "steps.wait.output": "dyn", "tokens": "dyn"}, set()),
        ({"wait": "dyn"}, {"wait.token"}),
        ({"step": "dyn"}, {"step.id"}),
        ({"step": "dyn", "wait": "dyn"}, {"wait.token", "step.id"}),
        ({"step.id": "string"}, set()),
    ],
)
def test_a_loops_item_hides_what_begins_with_its_name(variables: dict[str, str], hidden: set[str]) -> None:
    assert seen_besides(variables, MORE) == variables | {
        name: kind for name, kind in MORE.items() if name not in hidden
    }


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("${{ step.id }}", {"step.id"}),
        ("${{ wait.token }}", {"wait.token"}),
        ("${{ a.all(step, step.id > 1) }}", {"a"}),
        ("${{ a.exists(wait, wait.token == '') }}", {"a"}),
        ("${{ a.all(x, x == step.id) }}", {"a", "step.id"}),
    ],
)
def test_a_macros_variable_takes_the_place_of_ours(text: str, reads: set[str]) -> None:
    made = compiled(lambda environment: compile_template(environment, text), {"a": "dyn", **MORE})
    assert made.references == reads


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${{ a.all(a, a == 1) }}", "the loop variable 'a' hides a declared one"),
        ("${{ a.all(step, step.id == step.id) && step.id == '' }}", "undeclared|hides"),
        ("${{ nothing }}", "undeclared reference to 'nothing'"),
    ],
)
def test_no_other_name_gives_way_and_the_first_fault_is_told(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        compiled(lambda environment: compile_template(environment, text), {"a": "dyn", **MORE})
