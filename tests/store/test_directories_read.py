"""The directory as one statement gives it: its digest with people and without, each of their columns in its place."""

from __future__ import annotations

from typing import Any

import pytest

from core.identity import Directory, Entry
from runtime.store import tenants

NOBODY: dict[str, Any] = dict.fromkeys(("person_id", "name", "active", "groups", "principals", "owner"))
ANN = {"person_id": "ann", "name": "Ann", "active": True, "groups": ["g"], "principals": ["slack:U1"], "owner": None}
OLD = {"person_id": "old", "name": "Old", "active": False, "groups": None, "principals": [], "owner": None}
BOT = {"person_id": "bot", "name": "Bot", "active": True, "groups": [], "principals": [], "owner": "ann"}
PEOPLE = [
    Entry("ann", "Ann", True, frozenset({"g"}), ("slack:U1",)), Entry("old", "Old", False),
    Entry("bot", "Bot", True, frozenset(), (), "ann"),
]  # fmt: skip


class Rows:
    """A connection that answers with these rows, and keeps what it was asked."""

    def __init__(self, *rows: dict[str, Any], value: Any = None) -> None:
        self.asked: list[Any] = []
        self._rows, self._value = rows, value

    async def fetch(self, sql: str, *given: Any) -> Any:
        self.asked.append(given)
        return self._rows

    async def fetchval(self, sql: str, *given: Any) -> Any:
        self.asked.append(given)
        return self._value


@pytest.mark.req("P-12")
@pytest.mark.parametrize("digest", ["d1", "", None])
@pytest.mark.parametrize(
    ("rows", "people"), [([], []), ([NOBODY], []), ([ANN, OLD, BOT], PEOPLE), ([OLD], PEOPLE[1:2])]
)
async def test_a_directory_has_the_digest_of_its_tenant_with_people_and_without(
    digest: str | None, rows: list[dict[str, Any]], people: list[Entry]
) -> None:
    connection: Any = Rows(*({**row, "directory_digest": digest} for row in rows))
    wanted = Directory.of((digest or "") if rows else "", people)
    assert await tenants.directory(connection, "acme") == wanted
    assert connection.asked == [("acme",)]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    ("rows", "groups"),
    [([], {}), ([("g", ["ann", "bob"]), ("h", ["ann"])], {"g": frozenset({"ann", "bob"}), "h": frozenset({"ann"})})],
)
async def test_groups_without_anybody_are_others_than_no_directory(rows: Any, groups: Any, there: bool) -> None:
    connection: Any = Rows(*({"group_name": name, "members": members} for name, members in rows), value=there)
    assert await tenants.groups(connection, "acme") == (groups if there else None)
    assert connection.asked == [("acme",)] * (1 + there)
