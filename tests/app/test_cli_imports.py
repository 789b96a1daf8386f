"""A command imports what it needs and no more: modules are counted, because time depends on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# What serving, sending, evaluating and migrating need, and looking does not.
HEAVY = {
    *("fastapi", "starlette", "uvicorn", "slack_bolt", "slack_sdk", "aiohttp", "httpx", "boto3", "botocore"),
    *("sqlalchemy", "alembic", "ruamel.yaml", "cel_expr_python", "prometheus_client", "app.http", "app.wiring"),
    *("runtime.work", "runtime.keep", "connectors.servicenow", "evidence.verify"),
}
LOOK = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = ["counterseal", *sys.argv[1:]]
from app.cli import main
main()
"""


def modules(database_url: str, *command: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    environment = {**os.environ, "COUNTERSEAL_DATABASE_URL": database_url}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "most"),
    [
        (["--help"], 320),
        (["run", "list", "--help"], 450),
        (["run", "list"], 624),
        (["token", "list"], 624),
        (["tenant", "list"], 624),
        (["queue", "status"], 650),
    ],
)
def test_a_command_starts_with_few_modules(database_url: str, command: list[str], most: int) -> None:
    found = modules(database_url, *command)
    assert sorted(found & HEAVY) == []
    assert len(found) <= most
    if "--help" in command:
        assert sorted(found & {"asyncpg", "pydantic_settings", "app.storage"}) == []


@pytest.mark.parametrize("command", [["approval", "list"], ["task", "list"], ["policy", "list"], ["workflow", "list"]])
def test_no_command_that_lists_imports_a_server_or_a_client(database_url: str, command: list[str]) -> None:
    assert sorted(modules(database_url, *command) & (HEAVY - {"ruamel.yaml", "cel_expr_python"})) == []
