from __future__ import annotations

from typing import Any

from app.access import Role

TASKS = """
workflow: forms
version: 1
steps:
  - id: owner
    task:
      title: Who owns it?
      assign: {group: leads}
      form:
        type: object
        required: [name]
        properties:
          name: {type: string, title: Name}
          share: {type: number, title: Share}
          kind: {type: string, enum: [a, b]}
          many: {type: array, items: {type: string, enum: [x, y]}}
          ok: {type: boolean}
"""


async def test_try(installation: Any, door: Any) -> None:
    run, approval, _ = await installation.asked("INC7")
    await installation.asked("INC8")
    await installation.add(TASKS)
    await installation.parked("forms", "C1")
    ann = await door.enter("ann", Role.APPROVER)
    page = await ann.get("/inbox")
    assert page.status_code == 200, page.text
    answer = await ann.send(f"/approvals/{approval}", choice="approve")
    assert answer.status_code == 303, answer.text
    page = await ann.get("/inbox")
    print(page.text[page.text.index("<main") :])
    task = (await installation.books.wait(kind="task", open=True)).id
    page = await ann.send(f"/tasks/{task}", share="lots")
    assert page.status_code == 422
    print(page.text[page.text.index("<main") :])
    page = await ann.send(f"/tasks/{task}", name="x", share="2.5", kind="a", many=["x", "y"], ok="true")
    assert page.status_code == 303, page.text
    assert 0
