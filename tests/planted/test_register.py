"""The register of planted faults fits the tree, and each guard has a fault. `make faults` plants them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.planted import wanted
from tools.faults import REGISTER, Edit, Fault, load, problems

GOOD = Fault("good", "area", ("promise 1",), (Edit("tools/faults.py", "def load(", "def lode("),), ("x",))


@pytest.fixture(scope="module")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]


def test_every_fault_fits_its_file_and_names_tests_that_are_there(repository: Path) -> None:
    assert problems(load(repository), repository) == []


def test_every_guard_has_a_fault(repository: Path) -> None:
    bare = wanted.lacking(load(repository), repository)
    assert not bare, f"plant a fault in {REGISTER} for:\n" + "\n".join(bare)


def test_a_fault_breaks_what_is_known(repository: Path) -> None:
    known = set(wanted.named(repository))
    told = {name for fault in load(repository) for name in fault.breaks}
    assert {name for name in told if re.fullmatch(r"promise \d+|[A-Z]-\d+", name)} - known == set()


@pytest.mark.parametrize(
    ("edit", "tests", "said"),
    [
        (Edit("tools/faults.py", "no such text here, " + "ever", ""), ("x",), "0 times"),
        (Edit("tools/faults.py", "return", "raise"), ("x",), "times: fit the fault"),
        (Edit("tools/no_such.py", "return", "raise"), ("x",), "0 times"),
        (Edit("tools/faults.py", "def load(", "def load("), ("x",), "nothing is changed"),
        (Edit("tools/faults.py", "def load(", "def lode("), (), "it names no test"),
        (Edit("tools/faults.py", "def load(", "def lode("), ("tests/planted/test_register.py::test_none",), "no test"),
    ],
)
def test_what_does_not_fit_is_named(repository: Path, edit: Edit, tests: tuple[str, ...], said: str) -> None:
    found = problems([Fault("one", "area", ("promise 1",), (edit,), tests)], repository)
    assert any(said in line for line in found), found


def test_a_name_stands_there_once(repository: Path) -> None:
    assert "good: this name is there twice" in problems([GOOD, GOOD], repository)


def test_a_guard_without_a_fault_is_named(repository: Path) -> None:
    bare = wanted.lacking([], repository)
    for name in ("promise 12", "Q-14", "the state table wait", "pk_effects", "ix_commands_one_at_a_time"):
        assert name in bare
    assert [name for name in bare if name.startswith(f"{wanted.QUERIES}/claims.sql:") and name.endswith("FOR UPDATE")]
    assert [name for name in bare if name.startswith(wanted.FUNCTIONS) and name.endswith("RAISE EXCEPTION")]
