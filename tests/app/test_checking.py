"""The check of a workflow against the installation: addresses that it may not call, tables that are not there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.access import Role
from app.checking import check_connectors
from app.cli.outcome import Exit
from runtime.definition.workflow import load_workflow
from tests.support.databases import Databases

CUSTOMERS = Path(__file__).resolve().parents[2] / "examples" / "customers"
SCHEMA = """
CREATE SCHEMA crm;
CREATE TABLE crm.customers ({});
CREATE TABLE crm.counterseal_keys (key text PRIMARY KEY, result jsonb);
"""
CALLS = """
workflow: calls
version: 1
steps:
  - {id: literal, do: http.request.send, with: {method: GET, url: "https://api.example.com/v1?x=1"}}
  - {id: constant, do: http.request.send, with: {method: GET, url: "${{ raw('https://other.example.com/') }}"}}
  - {id: rendered, do: http.request.send, with: {method: GET, url: "https://${{ trigger.host }}/"}}
  - if: ${{ trigger.x == '1' }}
    then:
      - {id: inner, do: http.request.send, with: {method: GET, url: "https://third.example.com/"}}
"""


@pytest.fixture
def calls(tmp_path: Path) -> str:
    path = tmp_path / "calls.yaml"
    path.write_text(CALLS)
    return str(path)


@pytest.mark.req("X-3")
def test_a_literal_host_that_no_setting_allows_is_a_warning_with_the_remedy(
    command: Any, calls: str, clean_environment: Any
) -> None:
    clean_environment.setenv("COUNTERSEAL_HTTP_HOSTS", "third.example.com")
    command("workflow", "check", calls)
    lines = [line for line in command.said.splitlines() if "warning: step '" in line]
    assert [line.split("'")[1] for line in lines] == ["literal", "constant"]
    assert all("COUNTERSEAL_HTTP_HOSTS" in line for line in lines)
    assert ["api.example.com" in lines[0], "other.example.com" in lines[1]] == [True, True]
    (told,) = command.json("workflow", "check", calls)
    assert (told["ok"], len(told["warnings"])) == (True, 2)
    clean_environment.setenv("COUNTERSEAL_HTTP_HOSTS", "third.example.com,api.example.com,other.example.com")
    assert command.json("workflow", "check", calls)[0]["warnings"] == []


@pytest.fixture
def outside(databases: Databases) -> Iterator[Any]:
    """Another database, with a table of customers that has these columns."""
    with databases.made("crm") as url:

        async def make(columns: str) -> str:
            database = await asyncpg.connect(url)
            await database.execute("DROP SCHEMA IF EXISTS crm CASCADE")
            await database.execute(SCHEMA.format(columns))
            await database.close()
            return url

        yield lambda columns: asyncio.run(make(columns))


@pytest.mark.req("V-2")
def test_tables_of_declarations_are_looked_up_when_a_workflow_is_checked(
    command: Any, clean_environment: Any, outside: Any, postgres_url: str
) -> None:
    workflow = str(CUSTOMERS / "workflows" / "customer-status.yaml")
    clean_environment.setenv("COUNTERSEAL_DEFINITIONS_DIR", str(CUSTOMERS))
    assert "'sql' is not configured" in command.json("workflow", "check", workflow)[0]["warnings"][0]
    clean_environment.setenv("COUNTERSEAL_SQL_URL", outside("id int PRIMARY KEY, statsu text"))
    (told,) = command.json("workflow", "check", workflow, exit_code=Exit.INPUT)
    assert "crm.customers has no column 'status'" in told["problem"]
    clean_environment.setenv("COUNTERSEAL_SQL_URL", outside("id int, status text"))
    (told,) = command.json("workflow", "check", workflow, exit_code=Exit.INPUT)
    assert "is no key of crm.customers" in told["problem"]
    clean_environment.setenv("COUNTERSEAL_SQL_URL", "postgresql://nobody:word@127.0.0.1:9/none")
    (told,) = command.json("workflow", "check", workflow)
    assert "were not compared with their database" in told["warnings"][0]
    assert "word" not in told["warnings"][0], "the password is not shown"


@pytest.mark.req("V-2")
def test_declarations_that_fit_their_table_are_no_warning(command: Any, clean_environment: Any, outside: Any) -> None:
    workflow = str(CUSTOMERS / "workflows" / "customer-status.yaml")
    clean_environment.setenv("COUNTERSEAL_DEFINITIONS_DIR", str(CUSTOMERS))
    clean_environment.setenv("COUNTERSEAL_SQL_URL", outside("id int PRIMARY KEY, status text, owner text"))
    (told,) = command.json("workflow", "check", workflow)
    assert (told["warnings"], told["connectors"]["sql"]) == ([], "configured")


AGENT = """
workflow: looks
version: 1
steps:
  - id: look
    agent:
      model: gpt-4o-mini
      instructions: Look.
      input: Now.
      tools:
        - {do: http.request.send, name: status, with: {method: GET, url: "https://status.example.com/"}}
        - {do: http.request.send, name: other, with: {method: GET}}
"""


@pytest.mark.req("X-3")
async def test_the_check_over_http_says_what_the_command_says(installation: Any) -> None:
    client = await installation.client(Role.AUTHOR)
    told = (await client.post("/v1/workflows/check", json={"source": CALLS, "file": "calls.yaml"})).json()
    warnings = [words for words in told["warnings"] if words.startswith("step '")]
    assert [words.split("'")[1] for words in warnings] == ["literal", "constant", "inner"]
    assert all("COUNTERSEAL_HTTP_HOSTS" in words for words in warnings)
    workflow = load_workflow(CALLS, "calls.yaml", installation.app.faces.definitions.catalog)
    here = await check_connectors(installation.app.faces.settings, workflow, "x")
    assert (told["warnings"], told["connectors"]) == (here.warnings, here.connectors)


@pytest.mark.req("P-14")
async def test_an_address_that_an_agents_tool_is_fixed_to_is_looked_at(installation: Any) -> None:
    client = await installation.client(Role.AUTHOR)
    told = (await client.post("/v1/workflows/check", json={"source": AGENT})).json()
    found = [words for words in told["warnings"] if "status.example.com" in words]
    assert [words.partition(": ")[0] for words in found] == ["step 'look', tool 'status'"]
