"""The page of a list: a box for each question, the odd ones first; each is bound to the digest that was shown."""

from __future__ import annotations

import re
from typing import Any

from app.access import Role

LOOP = """
workflow: wave
version: 1
reference: ${{ trigger.number }}
channels: {lost: {}}
steps:
  - id: each
    foreach: ${{ ['web1', 'web2', 'db<2>'] }}
    max_parallel: 10
    steps:
      - id: danger
        do: probe.danger.apply
        with: {name: "${{ item }}"}
        on_rejected: [{set: {lost: "${{ item }}"}}]
"""


async def test_a_page_takes_some_of_a_list_and_names_what_did_not_count(installation: Any, door: Any) -> None:
    await installation.publish()
    await installation.add(LOOP)
    run = await installation.parked("wave", "CHG1")
    ann, bob = await door.enter("ann", Role.APPROVER), await door.enter("bob", Role.APPROVER)
    asked = {one.id: one.action_digest for one in await installation.books.approvals(run=run)}
    path = f"/approvals/{next(iter(asked))}/list"
    inbox = (await ann.get("/inbox")).text
    assert "3 together: " in inbox
    assert len(re.findall(r'href="/console/approvals/[^"]*/list"', inbox)) == 2
    text = (await ann.get(path)).text
    items = re.findall(r'name="item" value="([^"]+)"', text)
    shown = re.findall(r'name="shown" value="([^"]+)"', text)
    assert {one.split("=")[0]: one.split("=")[1] for one in shown} == {str(key): value for key, value in asked.items()}
    some = {"choice": "approve", "shown": shown, "item": items[1:]}
    strange = [f"{one}={'0' * 64}" for one in items]
    cases = {
        "no reason for the others": (422, some, "Write a reason"),
        "nothing chosen": (422, {**some, "item": []}, "Choose at least one"),
        "none that was shown": (400, {**some, "item": [str(run)]}, "cannot be read"),
        "no digest": (400, {**some, "shown": [f"{items[0]}=x"]}, "cannot be read"),
        "other digests": (
            409,
            {**some, "item": items, "shown": strange},
            "3 could not be",
        ),
    }
    for name, (status, fields, words) in cases.items():
        answer = await ann.send(path, **fields)
        assert (name, answer.status_code, words in answer.text) == (name, status, True)
    assert await installation.books.votes() == []
    operator = await door.enter("ann", Role.OPERATOR)
    assert (await operator.send(path, **some, reason="No.")).status_code == 403
    other, _, _ = await installation.asked("INC9")
    [alone] = await installation.books.approvals(run=other)
    foreign = {"shown": [*shown, f"{alone.id}={alone.action_digest}"], "item": [*items, str(alone.id)]}
    assert (await ann.send(path, **{**some, **foreign})).status_code == 400
    eve = await door.enter("eve", Role.APPROVER)
    assert 'name="item"' not in (await eve.get(path)).text
    refused = await eve.send(path, **some, reason="No.")
    assert (refused.status_code, "3 could not be" in refused.text) == (409, True)
    answer = await ann.send(path, **some, reason="Ask its owner.")
    assert answer.headers["location"] == f"/console{path}?answered"
    said = sorted((str(one.choice), one.reason) for one in await installation.books.votes())
    assert said == [("approve", ""), ("approve", ""), ("reject", "Ask its owner.")]
    late = await bob.send(path, **some, reason="Too late.")
    assert late.status_code == 409
    assert "Nothing of this list waits" in (await bob.get(path)).text
