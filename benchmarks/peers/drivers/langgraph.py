"""LangGraph: graphs whose state is checkpointed after every super-step. https://docs.langchain.com/oss/python/langgraph

Two settings matter.

``durability="sync"``: a checkpoint is stored before the next node starts. The default ("async") stores it while the
next node already runs, and "exit" only at the end, so effects could be repeated. Every engine here must be durable.

A saver holds one lock around each use of its connection or of its pool (langgraph#7259), so a pool behind one saver
does not help. So there are several savers, each with its own connection and its own compiled graph.
"""

# These imports exist only in this driver's own environment, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from benchmarks.peers.drivers.harness import ASK_AFTER, EFFECTS, Decision, Effects, Order, main, release_of

SAVERS = 8


class State(TypedDict, total=False):
    """The state that a graph carries from node to node."""

    applied: int
    approved: bool


class LangGraph:
    """A driver's view of LangGraph."""

    configuration = (
        f'one process with uvloop, durability="sync", {SAVERS} savers with a connection each, '
        "resumed in process; psycopg[binary]"
    )

    def __init__(self, savers: list[AsyncPostgresSaver]) -> None:
        self.effects = Effects()
        self.release = release_of("langgraph", "langgraph-checkpoint-postgres")
        self._graphs = {name: [self._graph(name, saver) for saver in savers] for name in EFFECTS}

    def _graph(self, workflow: str, saver: AsyncPostgresSaver) -> Any:
        """Compile a node per effect. The one after the decision begins with the interrupt, which saves a checkpoint."""

        async def effect(_: State) -> State:
            return {"applied": self.effects.perform()["applied"]}

        async def decided_effect(_: State) -> State:
            approved = bool(interrupt({"question": "approve?"}))
            return {"applied": self.effects.perform()["applied"], "approved": approved}

        graph, before = StateGraph(State), START
        for place in range(EFFECTS[workflow]):
            name = f"effect-{place}"
            graph.add_node(name, decided_effect if workflow == "w1" and place == ASK_AFTER else effect)
            graph.add_edge(before, name)
            before = name
        graph.add_edge(before, END)
        return graph.compile(checkpointer=saver)

    async def run(self, workflow: str, number: int) -> float:
        graphs = self._graphs[workflow]
        graph, decision = graphs[number % len(graphs)], Decision()
        thread = {"configurable": {"thread_id": f"{workflow}-{number}"}}
        state = await graph.ainvoke({}, thread, durability="sync")
        if workflow == "w1":
            if "__interrupt__" not in state:
                raise RuntimeError(f"run {number} did not wait")
            decision.give()
            state = await graph.ainvoke(Command(resume=True), thread, durability="sync")
            if not state.get("approved"):
                raise RuntimeError(f"run {number} was not approved")
        return decision.taken()


@asynccontextmanager
async def started(order: Order) -> AsyncIterator[LangGraph]:
    """Create the tables and the savers."""
    async with AsyncExitStack() as stack:
        savers = [
            await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(order.url)) for _ in range(SAVERS)
        ]
        await savers[0].setup()
        yield LangGraph(savers)


if __name__ == "__main__":
    main(started)
