"""Counts the walk of one allowed effect: the files and functions of our packages between two outcomes.

A warm worker drives a workflow of ten allowed effects under a policy of fifty rules, in the world of `make bench`.
Counting begins when the outside system answers one effect and ends when it is asked for the next but one: settle,
decide, intend, append, call, settle. Comprehensions and lambdas count as part of their function; generated methods do
not count. `--list` names the functions. `PYTHONPATH=. .venv/bin/python tools/count_walk.py`
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

from benchmarks.world import World, new_server, new_world
from connectors.port import Call
from runtime.store import claims
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("app", "approvals", "connectors", "core", "evidence", "policy", "runtime")
WARM_UP = 5
FIRST, LAST = 6, 8

# The functions that were called, by file.
Walk = dict[str, list[str]]


class _Tracer:
    """Records the code objects that are called between the effects ``FIRST`` and ``LAST`` of a run."""

    def __init__(self) -> None:
        self.effects = 0
        self._entered: set[CodeType] = set()

    async def on_effect(self, _: Call) -> None:
        self.effects += 1
        if self.effects == FIRST:
            sys.setprofile(self._note)
        elif self.effects == LAST:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._entered.add(frame.f_code)

    def walk(self) -> Walk:
        """The functions of our packages that were called."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for code in self._entered:
            path = Path(code.co_filename)
            ours = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            if ours and not code.co_name.startswith("<"):
                found[str(path.relative_to(ROOT))].add(f"{code.co_qualname}:{code.co_firstlineno}")
        return {path: sorted(name.rpartition(":")[0] for name in names) for path, names in sorted(found.items())}


async def count(world: World) -> Walk:
    """The walk of one allowed effect, in a run after some warm-up runs."""
    tools = world.tools
    for _ in range(WARM_UP):
        await _run(world, tools)
    tracer = _Tracer()
    world.outside.on_effect = tracer.on_effect
    await _run(world, tools)
    assert tracer.effects == LAST + 2, "the run did not make its ten effects"
    return tracer.walk()


async def _run(world: World, tools: Tools) -> None:
    await world.start("w2")
    began = Lease.now()
    async with world.engine.connection() as connection:
        records = await claims.claim_next(connection, tools.owner, tools.lease)
    for record in records:
        await Drive(tools).run(record, began)


async def _main(list_functions: bool) -> None:
    async with new_server() as (url, folder), new_world(url, folder) as world:
        walk = await count(world)
    lines = [f"{len(walk)} files, {sum(map(len, walk.values()))} functions"]
    for path, names in walk.items() if list_functions else ():
        lines += [f"{len(names):4} {path}", *(f"       {name}" for name in names)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the functions, by file")
    asyncio.run(_main(parser.parse_args().list))
