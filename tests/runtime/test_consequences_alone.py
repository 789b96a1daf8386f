"""The consequences of a change of policies for published workflows, by themselves: also beside an unreadable one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectors.catalog import load_catalog
from core.errors import InputError
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.workflow import load_workflow
from runtime.requests import consequences
from runtime.store import documents
from tests.support.recorded import Recorded

TEXT = """
workflow: posts
version: 3
reference: r
steps:
  - {id: a, do: slack.message.post, with: {channel: C1, text: x}}
  - {id: b, do: http.request.send, with: {method: GET, url: "https://a.example/"}}
"""
POLICY = "policy: p\nversion: 1\nrules:\n  - {id: r, match: {connector: slack}, outcome: allow}\n"


async def test_a_workflow_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told, catalog = Recorded(monkeypatch), load_catalog()
    workflow = load_workflow(TEXT, "w.yaml", catalog)
    told.put(documents, newest_workflows=[SimpleNamespace(name="bad"), SimpleNamespace(name="good")])

    def compiled(stored: Any) -> Any:
        if stored.name == "bad":
            raise InputError("is too new")
        return workflow

    connection: Any = "connection"
    definitions: Any = SimpleNamespace(compiled=compiled)
    none, some = PolicySet(()), PolicySet.of(Definitions(catalog).compile_policy(POLICY, "p.yaml"))
    changed = [("posts@3", "a", "slack.message.post", "always denied", "always allowed")]
    assert await consequences._steps(connection, definitions, "acme", none, some) == changed
    back = [(*changed[0][:3], "always allowed", "always denied")]
    assert await consequences._steps(connection, definitions, "acme", some, none) == back
    assert await consequences._steps(connection, definitions, "acme", some, some) == []
    assert told.calls == ["documents.newest_workflows(connection, acme)"] * 3
