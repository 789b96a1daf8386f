"""Words of the command line, whole: each command as people read it and as programs do, with its exit code.

``whole_cli_*.json`` hold what is expected; ids, times and digests are told apart by the order in which they appear.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli.outcome import Exit
from connectors.port import NotSent, Refused
from core.db import ENGINE_ROLE, FACES_ROLE, Database
from runtime.store import unavailable
from runtime.store.unavailable import Unavailable
from tests.app.test_http_whole import BUSY, FORM
from tests.support.books import Books
from tests.support.whole import Named, as_it_was

HERE = Path(__file__).parent
PAIR = """
workflow: pair
version: 1
reference: ${{ trigger.number }}
steps:
  - {id: one, do: probe.effect.apply, with: {name: one}}
  - {id: two, do: probe.effect.apply, with: {name: two}}
"""
MORE = "steps:\n  - {id: more, do: probe.effect.apply, with: {name: more}}\n"
STRICT = """
policy: tests
version: 2
rules:
  - {id: effects, match: {operation: probe.effect.apply}, outcome: allow, because: It is another test.}
  - {id: dangers, match: {operation: probe.danger.apply}, outcome: deny, because: Danger is over.}
"""
WRONG = "workflow: wrong\nversion: 0\nsteps:\n  - {id: a, do: probe.nothing.apply}\n  - {id: a, do: probe.case.open}\n"
_KINDS = {
    "token": r"cst_[\w-]{43}",
    "server": r"postgresql://\S+",
}


class Told:
    """Runs commands, and keeps what each printed under its own words."""

    def __init__(self, command: Any, database_url: str) -> None:
        self._command = command
        self._database_url = database_url
        self._named = Named(_KINDS)
        self.found: dict[str, Any] = {}

    def words(self, *arguments: str, code: int = Exit.OK) -> str:
        """Run a command for people."""
        out: str = self._command(*arguments, exit_code=code)
        self._keep(arguments, [int(code), out.splitlines(), self._command.said.splitlines()])
        return out

    def data(self, *arguments: str, code: int = Exit.OK) -> Any:
        """Run a command for a program."""
        out = self._command.json(*arguments, exit_code=code)
        self._keep((*arguments, "--json"), [int(code), out, self._command.said.splitlines()])
        return out

    def both(self, *arguments: str, code: int = Exit.OK) -> Any:
        """Run a command that changes nothing for people, then for a program."""
        self.words(*arguments, code=code)
        return self.data(*arguments, code=code)

    def compare(self, part: str) -> None:
        """Compare with what is expected of this part, and the tenant's own chain with it."""
        asyncio.run(self._audit())
        as_it_was(HERE / f"whole_cli_{part}.json", self.found)

    async def _audit(self) -> None:
        async with Database(self._database_url, ENGINE_ROLE) as database:
            lines = [json.loads(one.line) for one in await Books(database).tenant_events("default")]
        told = [[one["type"], f"{one['actor']['kind']}:{one['actor']['id']}", one["data"]] for one in lines]
        self.found["audit"] = self._named(told)

    def _keep(self, arguments: tuple[str, ...], said: list[Any]) -> None:
        name = self._named(" ".join(arguments))
        while name in self.found:
            name += " (again)"
        self.found[name] = self._named(said)


@pytest.fixture
def told(
    command: Any,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clean_environment: pytest.MonkeyPatch,
    database_url: str,
) -> Told:
    """The command line of an empty installation, in a folder that holds the documents of these tests."""
    monkeypatch.chdir(tmp_path)
    clean_environment.setenv("COUNTERSEAL_HOME", "home")
    clean_environment.setenv("COUNTERSEAL_DEFINITIONS_DIR", "definitions")
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    simple, asking = shared.WORKFLOWS.split("---")
    texts = {"simple": simple, "asking": asking, "policy": shared.POLICY, "people": shared.PEOPLE, "busy": BUSY}
    for name, text in {**texts, "form": FORM, "pair": PAIR, "more": MORE, "strict": STRICT, "wrong": WRONG}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return Told(command, database_url)


async def unusable(database_url: str) -> None:
    """Leave what a start leaves that could not read a workflow and a policy."""
    found = [Unavailable(kind, "bad", f"{kind}.yaml", f"{kind}.yaml:1:1: no") for kind in ("workflow", "policy")]
    async with Database(database_url, FACES_ROLE) as database, database.transaction("default") as connection:
        await unavailable.replace(connection, "default", found)


@pytest.mark.req("U-8")
def test_commands_for_documents_say_what_they_said(told: Told, tmp_path: Path, database_url: str) -> None:
    told.both("workflow", "check", "asking.yaml", "busy.yaml", "--policy", "policy.yaml")
    told.both("workflow", "check", "wrong.yaml", "missing.yaml", code=Exit.INPUT)
    told.words("workflow", "list")
    told.words("policy", "list")
    told.both("policy", "check", "policy.yaml", "strict.yaml", "--directory", "people.yaml")
    told.words("directory", "publish", "people.yaml")
    told.data("directory", "publish", "people.yaml")
    told.words("policy", "publish", "policy.yaml", "--dry-run")
    told.data("policy", "publish", "policy.yaml")
    told.words("policy", "publish", "policy.yaml")
    told.words("workflow", "publish", "asking.yaml", "simple.yaml")
    told.data("workflow", "publish", "asking.yaml")
    told.both("policy", "publish", "strict.yaml", "--dry-run")
    told.words("policy", "publish", "strict.yaml", "--stage", "--dry-run")
    told.words("policy", "publish", "strict.yaml", "--stage")
    told.both("policy", "list")
    told.words("policy", "activate", "tests@2")
    told.words("policy", "activate", "tests@1", "--dry-run")
    told.data("policy", "activate", "tests@1")
    told.words("policy", "activate", "tests", code=Exit.INPUT)
    told.words("policy", "retire", "tests", "--dry-run")
    action = {"operation": "probe.danger.apply", "input": {"name": "x", "pin": "1"}, "run": {"writes_in_run": 3}}
    (tmp_path / "action.json").write_text(json.dumps(action))
    told.both("policy", "explain", "action.json")
    asyncio.run(unusable(database_url))
    told.both("workflow", "list")
    told.both("workflow", "show", "asking")
    told.words("workflow", "show", "asking@1", "--source")
    told.words("workflow", "retire", "simple@1")
    told.data("workflow", "retire", "simple@1")
    told.words("workflow", "retire", "simple", code=Exit.INPUT)
    told.words("schema", "nothing", code=Exit.CONFLICT)
    told.compare("documents")


@pytest.mark.req("U-8")
def test_commands_for_the_service_say_what_they_said(told: Told, clean_environment: pytest.MonkeyPatch) -> None:
    told.both("token", "list")
    told.words("token", "create", "--subject", "ann", "--role", "approver", code=Exit.INPUT)
    told.words("directory", "publish", "people.yaml")
    made = told.data(
        "token", "create", "--subject", "ann", "--role", "approver", "--role", "admin", "--expires", "PT8H"
    )
    told.words("token", "create", "--subject", "bob", "--role", "auditor", "--expires", "P365D")
    told.words("token", "create", "--subject", "bob", "--role", "auditor", "--expires", "P365DT1S", code=Exit.INPUT)
    told.both("token", "list")
    told.words("token", "revoke", made["token"])
    told.words("token", "revoke", made["token"], code=Exit.CONFLICT)
    told.both("token", "list")
    caps = ("--max-concurrency", "3", "--max-runs-per-min", "7", "--max-writes-per-run", "5", "--weight", "0.5")
    told.words("tenant", "create", "other", *caps)
    told.words("tenant", "create", "other", code=Exit.CONFLICT)
    told.data("tenant", "set", "other", "--max-writes-per-run", "0", "--weight", "2")
    told.words("tenant", "set", "--max-concurrency", "9")
    told.both("tenant", "list")
    told.both("db", "upgrade")
    told.both("queue", "status")
    told.both("queue", "again")
    told.both("pause")
    told.words("pause", "connector", code=Exit.INPUT)
    told.words("pause", "connector", "probe", "--reason", "It is mended.")
    told.data("pause", "connector", "probe", "--reason", "Twice.")
    told.words("pause", "tenant", "--reason", "All stops.")
    told.both("pause")
    told.both("doctor")
    told.words("resume", "tenant")
    told.data("resume", "connector", "probe", "--reason", "Mended.")
    told.words("resume", "connector", "probe")
    clean_environment.setenv("COUNTERSEAL_SLACK_TOKEN", "typo")
    clean_environment.setenv("COUNTERSEAL_WEBHOOKS", json.dumps({"b": {"secret": "x" * 16}, "a": {"secret": "y" * 16}}))
    told.words("doctor")
    told.compare("service")


@pytest.mark.req("U-8", "X-16")
def test_commands_for_runs_say_what_they_said(told: Told, outside_world: Any, work_off: Any) -> None:
    for kind, *names in (("workflow", "busy", "pair"), ("policy", "policy"), ("directory", "people")):
        told.words(kind, "publish", *(f"{name}.yaml" for name in names))
    told.words("run", "list")
    outside_world.script["two"] = [Refused("no", "not today")]
    begun = []
    for name, number, *more in (("busy", "B1"), ("pair", "P1"), ("pair", "P2", "--open", "--workspace", "side")):
        given = json.dumps({"number": number})
        begun.append(told.data("run", "start", name, "--input", given, "--key", number, *more)["run_id"])
        work_off(outside_world)
    told.words("run", "start", "pair", "--input", '{"number": "P1"}', "--key", "P1")
    busy, failing, open_ = begun
    told.both("run", "show", busy)
    told.both("run", "show", failing)
    (wait,) = told.both("run", "waits", busy)
    key = wait["correlation_key"]
    told.words("signal", "send", key, "--token", "guessed", code=Exit.CONFLICT)
    told.data("signal", "send", "said:none", "--error", "lost", "--message", "Gone.", "--id", "i1", code=Exit.KEPT)
    told.words("signal", "send", key, "--output", '{"a": 1}', "--id", "i2")
    told.data("signal", "send", key, "--output", '{"a": 1}', "--id", "i2")
    told.words("signal", "send", key, "--output", "1", "--error", "x", code=Exit.INPUT)
    told.words("signal", "send", key, "--message", "x", code=Exit.INPUT)
    told.both("run", "waits", busy, "--all")
    version = told.data("run", "show", open_)["run"]["version"]
    told.words("run", "extend", open_, "more.yaml", "--if-version", str(version + 1), code=Exit.CONFLICT)
    told.words("run", "extend", open_, "more.yaml", "--if-version", str(version))
    told.words("run", "close", open_, "--reason", "Enough.")
    work_off(outside_world)
    told.both("run", "show", open_)
    told.both("run", "show", open_, "--at", "1")
    told.both("run", "diff", open_, "0", "1")
    told.both("run", "diff", open_, "1", "1")
    told.both("run", "replay", open_)
    told.words("run", "cancel", busy, "--reason", "No more.")
    told.both("run", "list")
    told.both("run", "list", "--status", "canceled", "--workflow", "busy", "--reference", "B1", "--limit", "1")
    told.words("run", "list", "--workflow", "nothing")
    told.words("evidence", "get", busy, "-o", "b.zip", code=Exit.CONFLICT)
    told.words("run", "retry", failing, "--reason", "It is mended.")
    told.words("run", "retry", failing, "--reason", "It is mended.", code=Exit.CONFLICT)
    told.words("run", "start", "pair", "--until", "2030-01-01T00:00:00Z", code=Exit.INPUT)
    told.words("run", "start", "pair", "--open", "--until", "soon", code=Exit.INPUT)
    outside_world.script["one"] = [NotSent("busy now")]
    waits = told.data("run", "start", "pair", "--input", '{"number": "P3"}')["run_id"]
    work_off(outside_world)
    told.both("run", "show", waits)
    told.compare("runs")


@pytest.mark.req("U-8", "P-12")
def test_commands_for_people_say_what_they_said(told: Told, outside_world: Any, work_off: Any) -> None:
    for kind, *names in (("workflow", "asking", "form"), ("policy", "policy"), ("directory", "people")):
        told.words(kind, "publish", *(f"{name}.yaml" for name in names))
    told.words("approval", "list")
    told.words("task", "list")
    for name, number in (("asking", "A1"), ("asking", "A2"), ("form", "F1")):
        told.words("run", "start", name, "--input", json.dumps({"number": number}))
    work_off(outside_world)
    asked = told.both("approval", "list")
    first, second = (one["approval_id"] for one in reversed(asked))
    told.both("approval", "show", first)
    told.both("approval", "show", first, "--as", "ann")
    told.words("approval", "approve", first, code=Exit.CONFLICT)
    told.data("approval", "approve", first, "--as", "eve", code=Exit.CONFLICT)
    told.words("approval", "resolve", first, "happened", "--as", "ann", "--reason", "seen", code=Exit.CONFLICT)
    told.words("approval", "approve", first, "--as", "ann", "--reason", "It is fine.")
    told.data("approval", "reject", second, "--as", "bob", "--reason", "It is not.")
    told.words("approval", "reject", second, "--as", "ann", "--reason", "Nor now.", code=Exit.CONFLICT)
    (task,) = told.both("task", "list", "--group", "leads")
    told.words("task", "list", "--group", "others")
    told.both("task", "show", task["task_id"])
    complete = ("task", "complete", task["task_id"])
    told.words(*complete, "--as", "ann", code=Exit.INPUT)
    told.data(*complete, "--as", "ann", "--value", '{"nme": 1}', code=Exit.INPUT)
    told.words(*complete, "--as", "eve", "-f", "name=Eve", code=Exit.CONFLICT)
    told.words(*complete, "--as", "ann", "--value", "{}", "-f", "name=Eve", code=Exit.INPUT)
    told.words(*complete, "--as", "ann", "-f", "name=Ann")
    told.data(*complete, "--as", "bob", "-f", "name=Bob", code=Exit.CONFLICT)
    work_off(outside_world)
    told.both("task", "list", "--state", "all")
    told.both("task", "show", task["task_id"])
    told.both("approval", "list", "--status", "all")
    told.both("approval", "list", "--status", "approved", "--limit", "1")
    told.both("approval", "show", first)
    told.both("approval", "show", second, "--as", "bob")
    told.both("run", "show", asked[1]["run_id"])
    told.words("evidence", "key", "-o", "key.pem")
    told.data("evidence", "get", asked[1]["run_id"], "-o", "b.zip")
    told.both("evidence", "verify", "b.zip", "--key", "key.pem")
    told.words("evidence", "verify", "b.zip")
    told.words("evidence", "again", asked[1]["run_id"], code=Exit.CONFLICT)
    told.both("run", "show", asked[0]["run_id"])
    told.compare("people")
