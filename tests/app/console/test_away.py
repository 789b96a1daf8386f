"""Delegations from the inbox: whoever goes away says who decides for them, and takes it back."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Role

pytestmark = pytest.mark.req("U-8")
PEOPLE = """
directory: tests
version: 7
people: [{id: ann, name: Ann}, {id: bob, name: Bob}, {id: tess, name: Tess}]
groups: {leads: [ann, bob]}
"""
DAYS = {"from": "2020-01-01", "until": "2090-01-01"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"to": "bob", "from": "soon", "until": "later"}, "Choose the first day"),
        ({"to": "ann", **DAYS}, "Nothing was changed"),
        ({"to": "nobody", **DAYS}, "Nothing was changed"),
        ({"to": "bob", "from": "2090-01-01", "until": "2020-01-01"}, "Nothing was changed"),
    ],
)
async def test_a_form_that_cannot_be_says_why(installation: Any, door: Any, fields: dict[str, str], words: str) -> None:
    await installation.publish()
    ann = await door.enter("ann", Role.APPROVER)
    await installation.people(PEOPLE)
    answer = await ann.post("/inbox/away", await ann.form("/inbox", **fields))
    assert answer.status_code == 422
    assert words in answer.text


async def test_somebody_else_decides_until_it_is_taken_back(installation: Any, door: Any) -> None:
    await installation.publish()
    ann, bob = await door.enter("ann", Role.APPROVER), await door.enter("bob", Role.APPROVER)
    asked = (await installation.asked())[1]
    await installation.people(PEOPLE)
    answer = await ann.post("/inbox/away", await ann.form("/inbox", to="tess", **DAYS))
    assert answer.status_code == 303, answer.text[-3000:]
    assert "Tess decides for you from 2020-01-01 until 2090-01-01" in (await ann.get("/inbox")).text
    assert "for Ann" in (await bob.get(f"/approvals/{asked}")).text
    assert (await ann.post("/inbox/away", await ann.form("/inbox", end="1"))).status_code == 303
    assert "Let them decide for me" in (await ann.get("/inbox")).text
