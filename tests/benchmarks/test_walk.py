"""The walk of an allowed effect through our code: it only gets shorter."""

from __future__ import annotations

from benchmarks.world import new_server, new_world
from tools.count_walk import count

# Whoever shortens the way lowers these numbers. They rose once, when each effect got its canonical form, its secrets
# masked, its answer compared, its writers kept and its requester looked up; then, when people could edit a proposal and
# facts got lines in the log; then, when what is heavy to decide went to a thread, away from the loop; then, when
# connections came by the turns of tenants.
FILES_MAX = 34
FUNCTIONS_MAX = 149


async def test_an_allowed_effect_walks_no_further_than_it_did() -> None:
    async with new_server() as (url, folder), new_world(url, folder) as world:
        walk = await count(world)
    functions = sum(map(len, walk.values()))
    assert {"runtime/engine/life/step.py", "runtime/work/calling.py", "evidence/chain.py"} <= set(walk), (
        "not the whole way"
    )
    assert len(walk) <= FILES_MAX
    assert functions <= FUNCTIONS_MAX
