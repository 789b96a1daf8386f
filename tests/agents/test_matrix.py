"""The matrix of docs/agents-matrix.md: each framework's real package under each fault.

Frameworks that are not installed are skipped here; `make test-agents` installs each, pinned and newest.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import agents_rows
from tools import agents_matrix

# The package of each framework that must be there.
NEEDED = {
    "callable": "counterseal_agents", "langchain": "langchain", "openai": "agents", "crewai": "crewai",
    "pydantic": "pydantic_ai", "strands": "strands", "smolagents": "smolagents",
    "llamaindex": "llama_index.core", "adk": "google.adk", "maf": "agent_framework", "claude_sdk": "claude_agent_sdk",
    "claude_sdk_program": "claude_agent_sdk",
    "claude_code": "counterseal_agents", "codex": "counterseal_agents",
}  # fmt: skip


def there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a part of a namespace that is not there
        return False


@pytest.mark.filterwarnings("default")  # frameworks warn about themselves
@pytest.mark.parametrize("fault", agents_matrix.FAULTS)
@pytest.mark.parametrize("framework", agents_matrix.FRAMEWORKS)
def test_what_becomes_of_a_call(framework: str, fault: str, tmp_path: Path) -> None:
    if not there(NEEDED[framework]):
        pytest.skip(f"{framework} is not installed here: make test-agents installs it")
    assert agents_rows.observe(framework, fault, tmp_path) == agents_matrix.cell(framework, fault).expected


def test_no_other_end_passes() -> None:
    """A cell is one of four ends, and what cannot be closed says why, and what a test sees of it."""
    ends = {agents_matrix.NOT_RUN, agents_matrix.ONCE, agents_matrix.IN_DOUBT, agents_matrix.OPEN}
    for framework in agents_matrix.FRAMEWORKS:
        for fault in agents_matrix.FAULTS:
            cell = agents_matrix.cell(framework, fault)
            assert cell.end in ends
            assert (cell.end == agents_matrix.OPEN) == bool(cell.seen)
            assert cell.remark or cell.end != agents_matrix.OPEN
    assert agents_rows.ROWS.keys() == agents_matrix.FAULTS.keys()
