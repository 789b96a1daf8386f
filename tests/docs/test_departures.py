"""The table of departures in docs/requirements.md names real requirements, and exactly the moves that were added."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runtime.engine.model.states import RUN, STEP

# What the document of the queue and worker state machine draws, written down here and nowhere derived.
DRAWN = {
    "run": """queued running, queued canceled, running waiting_approval, running succeeded, running failed_retryable,
      running failed_terminal, running canceled, waiting_approval running, waiting_approval failed_terminal,
      failed_retryable running, failed_retryable failed_terminal""",
    "step": """ready running, ready canceled, running waiting_approval, running succeeded, running failed_retryable,
      running failed_terminal, running canceled, waiting_approval ready, waiting_approval failed_terminal,
      failed_retryable ready, failed_retryable failed_terminal""",
}
MOVE = re.compile(r"(\w+) → (\w+)")


@pytest.fixture(scope="module")
def page(docs_root: Path) -> tuple[str, str]:
    text = (docs_root / "docs" / "requirements.md").read_text(encoding="utf-8")
    demands, _, departures = text.partition("## Where Counterseal adds or departs")
    assert departures
    return demands, departures


def test_every_departure_is_of_a_requirement_and_has_a_reason(page: tuple[str, str]) -> None:
    known = set(re.findall(r"^\| ([A-Z]-\d+) \|", page[0], re.MULTILINE))
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|(.*)\|$", page[1], re.MULTILINE)
    assert len(rows) > 20
    for numbers, rest in rows:
        assert {*numbers.split(", ")} <= known, numbers
        cells = [cell.strip() for cell in rest.split("|")]
        assert len(cells) == 3, numbers
        assert all(cells), numbers


@pytest.mark.req("Q-5")
@pytest.mark.req("Q-6")
@pytest.mark.parametrize("name", ["run", "step"])
def test_the_added_moves_are_those_of_the_state_tables(page: tuple[str, str], name: str) -> None:
    machine: Any = {"run": RUN, "step": STEP}[name]
    drawn = {tuple(move.split()) for move in DRAWN[name].split(",")}
    moves = {(str(before), str(after)) for before, after in machine.moves()}
    assert drawn <= moves, "what is drawn is kept"
    rows = [line for line in page[1].splitlines() if line.startswith(f"| {name} |")]
    told = {move for line in rows for move in MOVE.findall(line)}
    assert told == moves - drawn
