"""Policies as the database has them: what is missing or altered denies, and is looked up anew until it is put right."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.canonical import sha256_hex
from runtime.definition import catalog
from runtime.definition.catalog import Definitions

TEXT = "policy: p\nversion: 1\nrules:\n  - {id: r, match: {connector: slack}, outcome: allow}\n"
DIGEST = sha256_hex(TEXT.encode())


@pytest.mark.req("U-4")
async def test_a_policy_that_was_missing_or_altered_judges_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[str, tuple[str, int, str]] = {}

    async def policy(connection: Any, tenant: str, digest: str) -> tuple[str, int, str] | None:
        return held.get(digest)

    monkeypatch.setattr(catalog.documents, "policy", policy)
    definitions, nobody = Definitions(load_catalog()), Any

    async def broken() -> list[str]:
        found = await definitions.policies(nobody, "t", [DIGEST])
        assert len(found.members) == 1
        return [one.message for one in found.broken]

    assert await broken() == ["It is not in the database."]
    held[DIGEST] = ("p", 1, TEXT.replace("allow", "deny"))
    assert await broken() == ["Its text is not the one that was published."]
    held[DIGEST] = ("p", 1, TEXT)
    assert await broken() == []
    held.clear()
    assert await broken() == [], "what was read once is immutable"
