"""A list of known names is told once, whatever number of faults have it as their remedy, and is short."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import DefinitionError, nearest
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow

CHANNELS = [f"kept_{number}" for number in range(6)]
STEPS = "".join(f"  - {{reference: r, set: {{zz{number}: 1}}}}\n" for number in range(4))
NEEDS = "".join(f"  - {{id: s{number}, reference: r, needs: [qqq{number}]}}\n" for number in range(4))
HEAD = "workflow: w\nversion: 1\nchannels: {%s}\nsteps:\n"
SHORT, LONG = ", ".join(f"{name}: {{}}" for name in CHANNELS), ", ".join(f"kept_{number}: {{}}" for number in range(60))
RULES = "".join(f"  - {{id: r{n}, match: {{operation: zzz.zzz{n}.q}}, outcome: allow}}\n" for n in range(4))


def workflow(text: str) -> Any:
    return load_workflow(text, "w.yaml", load_catalog(), typed=True)


def policy(text: str) -> Any:
    return Definitions(load_catalog()).compile_policy(text, "p.yaml")


CASES: dict[str, tuple[Any, str, str]] = {
    "channels": (workflow, HEAD % SHORT + STEPS, "kept_0, kept_1"),
    "many channels": (workflow, HEAD % LONG + STEPS, "60, such as"),
    "needs": (workflow, HEAD % SHORT + NEEDS, "There are: "),
    "operations": (policy, "policy: p\nversion: 1\nrules:\n" + RULES, "such as"),
    "channels and needs": (workflow, HEAD % SHORT + STEPS + NEEDS, "kept_0, kept_1"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_list_of_known_names_is_told_once(case: str) -> None:
    read, text, known = CASES[case]
    with pytest.raises(DefinitionError) as raised:
        read(text)
    told = str(raised.value)
    assert (told.count(known), len(raised.value.problems) >= 4) == (1, True), told
    assert max(map(len, told.splitlines())) < 300
    assert all(problem.remedy for problem in raised.value.problems), "a program gets each with its remedy"


def test_a_long_list_is_cut_to_the_names_that_are_most_alike() -> None:
    names = [f"{letter}_{number}" for letter in "abcd" for number in range(30)]
    told = nearest("c_zzzzzzzz", names)
    assert told.startswith("Known here are 120, such as c_")
    assert told.count(", ") <= 5
