"""The measured engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spec:
    """One engine: its key, its name for people, the module of its driver, and its requirements.

    ``by_hand`` marks an engine whose driver adds by hand what Counterseal does; the others govern nothing.
    """

    key: str
    name: str
    module: str
    on_postgres: bool = True
    needs_server: bool = False
    by_hand: bool = False


OURS = Spec("counterseal", "Counterseal, governing everything", "benchmarks.peers.ours")
PEERS = (
    Spec("restate", "Restate", "benchmarks.peers.drivers.restate", on_postgres=False, needs_server=True),
    Spec("absurd", "Absurd", "benchmarks.peers.drivers.absurd"),
    Spec("langgraph", "LangGraph", "benchmarks.peers.drivers.langgraph"),
    Spec("dbos", "DBOS", "benchmarks.peers.drivers.dbos"),
    Spec(
        "restate-governed",
        "Restate, governed by hand",
        "benchmarks.peers.drivers.restate_governed",
        needs_server=True,
        by_hand=True,
    ),
    Spec("absurd-governed", "Absurd, governed by hand", "benchmarks.peers.drivers.absurd_governed", by_hand=True),
)


class UnknownEngineError(ValueError):
    """A name that is no engine; the text lists the engines."""


def chosen(names: Sequence[str] | None) -> tuple[Spec, ...]:
    """The peers with these keys, in the order of ``PEERS``; all of them if ``names`` is None."""
    if names is None:
        return PEERS
    known = [peer.key for peer in PEERS]
    if strange := [name for name in names if name not in known]:
        raise UnknownEngineError(f"{', '.join(map(repr, strange))}: no such engine. There are {', '.join(known)}.")
    return tuple(peer for peer in PEERS if peer.key in names)
