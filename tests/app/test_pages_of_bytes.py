"""A page is as large as its bytes allow: a run with large states costs a reader no more than one with small ones."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.access import Role

STEPS = 12
WORKFLOW = """
workflow: large
version: 1
reference: ${{ trigger.number }}
channels: {kept: {reduce: append, initial: []}, last: {}}
steps:
  - {id: s0, set: {kept: "${{ trigger.text }}"}}
""" + "".join(f"  - {{id: s{n}, set: {{last: '${{{{ {n} }}}}'}}, needs: [s{n - 1}]}}\n" for n in range(1, STEPS))


async def test_every_page_of_large_checkpoints_is_bounded_and_all_pages_together_are_whole(installation: Any) -> None:
    await installation.add(WORKFLOW)
    starter, client = await installation.client(Role.OPERATOR), await installation.client(Role.AUDITOR)
    body = {"workflow": "large", "input": {"number": "L1", "text": "x" * 200_000}}
    run_id = UUID((await starter.post("/v1/runs", json=body)).json()["run_id"])
    await installation.work()
    numbers: list[int] = []
    sizes: list[int] = []
    after: str | None = ""
    while after is not None:
        answer = await client.get(f"/v1/runs/{run_id}/checkpoints", params={"cursor": after, "limit": 200})
        page = answer.json()
        numbers += [item["superstep"] for item in page["items"]]
        sizes.append(len(answer.content))
        after = page["next"]
    assert numbers == [*range(len(numbers))]
    assert len(numbers) > STEPS
    assert len(sizes) > 2
    assert max(sizes) < 1_200_000
