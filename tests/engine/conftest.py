"""A run in memory: the engine's commits applied as the database would, nothing remembered that it would not keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from connectors.catalog import Catalog, Source, load_catalog
from core.canonical import derived_id
from runtime.definition.workflow import load_workflow
from runtime.engine.book.recorded import read_line
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import RunStarted
from runtime.engine.model.graph import Graph
from runtime.engine.model.states import (
    RunState,
)
from runtime.engine.replay.replay import Replay, Writes, unopened
from tests.support.engine_stage import KEY, OPERATIONS, RUN_ID, Simulation


@pytest.fixture(scope="session")
def engine_catalog() -> Catalog:
    return load_catalog([Source("probe.yaml", OPERATIONS)])


@pytest.fixture
def simulate(engine_catalog: Catalog) -> Callable[..., Simulation]:
    """A run of a workflow given as text, opened."""

    def start(text: str, trigger: dict[str, Any] | None = None) -> Simulation:
        return Simulation(load_workflow(text, "test.yaml", engine_catalog), trigger or {}).open()

    return start


@pytest.fixture
def step_id() -> Callable[[str], UUID]:
    return lambda key: derived_id(RUN_ID, f"step:{key}")


@pytest.fixture(scope="session")
def simulate_any(engine_catalog: Catalog) -> Callable[[str], Simulation]:
    """A simulation for properties, as ``simulate``: it keeps nothing between the runs that it makes."""
    return lambda text: Simulation(load_workflow(text, "test.yaml", engine_catalog), {}).open()


@dataclass(frozen=True)
class Definition:
    """The parts of a workflow that a simulation needs, for graphs that no text was compiled to."""

    graph: Graph
    name: str = "w"
    digest: str = "0" * 64


@pytest.fixture(scope="session")
def simulate_graph() -> Callable[[Graph], Simulation]:
    """A run of a graph, opened; one in which there is nothing to do is ended at once, as by the runtime."""

    def start(graph: Graph) -> Simulation:
        run = Simulation(Definition(graph), {}).open()
        if not run.rows:
            transition = Transition(run.view(), graph)
            transition.tell(RunStarted())
            run.apply(transition)
            transition = Transition(run.view(), graph)
            if run.error:
                transition.close(RunState.FAILED_TERMINAL, run.error)
            else:
                transition.conclude()
            run.apply(transition)
        return run

    return start


@pytest.fixture(scope="session")
def book_of() -> Callable[[Simulation, Writes], Replay]:
    """A simulated run as its book tells it, with nothing of what the engine had derived."""

    def read(run: Simulation, writes: Writes) -> Replay:
        return Replay(
            first=unopened(RUN_ID, KEY, run.workflow.graph),
            events=[read_line(line, run.values.get(seq, {}), KEY, seq) for seq, line in enumerate(run.lines)],
            graphs=[run.workflow.graph],
            constants=run.view().constants,
            writes=writes,
        )

    return read
