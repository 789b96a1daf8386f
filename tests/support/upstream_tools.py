"""A tool as it was frozen, and a call of it."""

from __future__ import annotations

import json
from typing import Any

from connectors.catalog import Source, load_catalog
from connectors.frozen import declared, tool_of
from connectors.mcp.connector import McpConnector
from connectors.operation import Operation
from connectors.port import Call, Outcome


def frozen(tool: Any, url: str = "http://127.0.0.1/mcp", **changed: Any) -> Operation:
    made = {**declared("crm", url, tool_of(tool)), **changed}
    return load_catalog([Source("crm.yaml", json.dumps({"operations": [made]}))]).get(str(made["name"]))


async def performed(connector: McpConnector, operation: Operation, seconds: float = 20.0, **more: Any) -> Outcome:
    given = {"title": "Printer", **operation.params, **more}
    return await connector.perform(Call(operation.name, given, "key", seconds, declared=operation))
