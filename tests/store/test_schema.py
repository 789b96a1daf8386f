"""The schema as PostgreSQL knows it after the migrations, whole: tables, rules, rights, functions, triggers."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.support.golden import matches_golden
from tests.support.schema import QUESTIONS

pytestmark = pytest.mark.req("V-14")


def lines(value: str | None) -> Any:
    """A definition of several lines as a list of them."""
    return value.split("\n") if value is not None and "\n" in value else value


@pytest.mark.golden
async def test_the_schema_and_its_rights_are_those_of_the_golden_file(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        found = {
            name: {row[0]: lines(row[1]) for row in await connection.fetch(question)}
            for name, question in QUESTIONS.items()
        }
    finally:
        await connection.close()
    matches_golden("schema", found)
