from __future__ import annotations

from typing import Any

from app.access import Role


async def test_try(installation: Any, door: Any) -> None:
    run, approval, _ = await installation.asked("INC7")
    ann = await door.enter("ann", Role.APPROVER)
    page = await ann.get(f"/approvals/{approval}")
    print(page.text)
    assert page.status_code == 200
    answer = await ann.send(f"/approvals/{approval}", choice="approve")
    assert answer.status_code == 303, answer.text
    page = await ann.get(f"/approvals/{approval}?answered")
    assert "Your answer was counted" in page.text
    assert 0
