"""The demo's processes and its terminal, by themselves: with what each is started, how it ends, what is shown."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import rich.console

from app.demo import view, world
from app.demo.people import IncidentRun
from app.demo.view import View
from app.demo.world import World
from core.errors import ConfigurationError, DeadlineError, TransportError
from tests.app.test_demo_alone import INCIDENTS

# -- the processes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aws", [False, True])
async def test_a_demo_starts_the_stand_ins_then_counterseal_with_settings_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aws: bool
) -> None:
    did: list[Any] = []
    words = iter(["hook-secret", "sign-secret"])
    logs = tmp_path / "home" / "demo"

    @asynccontextmanager
    async def process(command: list[str], environment: Any, log: Path, *, talks: bool = False) -> AsyncIterator[Any]:
        did.append((command, environment.get("COUNTERSEAL_PORT"), environment.get("OF_OURS"), log, talks))
        made.append(environment)
        yield f"process {len(made)}"
        did.append(("ended", log.name))

    async def first_line(running: Any, log: Path) -> dict[str, str]:
        did.append((running, log))
        return {
            "slack_api": "http://slack/api/",
            "slack": "http://slack",
            "servicenow": "http://now",
            "model": "http://m",
        }

    async def healthy(running: Any, url: str, log: Path) -> None:
        did.append((running, url, log))

    @contextmanager
    def moto() -> Iterator[dict[str, str]]:
        yield {"COUNTERSEAL_S3_BUCKET": "b"}
        did.append("moto ended")

    made: list[Any] = []
    for name, stub in (("_process", process), ("_first_line", first_line), ("_healthy", healthy), ("_aws", moto)):
        monkeypatch.setattr(world, name, stub)
    monkeypatch.setattr(world, "free_port", lambda: 5001)
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(words))
    monkeypatch.setenv("COUNTERSEAL_PORT", "9")
    monkeypatch.setenv("OF_OURS", "kept")
    async with world.demo_world(tmp_path / "home", aws=aws) as found:
        app = "http://127.0.0.1:5001"
        environment = {
            "COUNTERSEAL_HOME": str(tmp_path / "home"),
            "COUNTERSEAL_PORT": "5001",
            "COUNTERSEAL_SLACK_BOT_TOKEN": "xoxb-sandbox",
            "COUNTERSEAL_SLACK_API_URL": "http://slack/api/",
            "COUNTERSEAL_SLACK_CHANNEL": "C0OPS",
            "COUNTERSEAL_SLACK_SIGNING_SECRET": "sign-secret",
            "COUNTERSEAL_SERVICENOW_URL": "http://now",
            "COUNTERSEAL_SERVICENOW_USERNAME": "counterseal.integration",
            "COUNTERSEAL_SERVICENOW_PASSWORD": "sandbox",
            "COUNTERSEAL_MODEL_URL": "http://m",
            "COUNTERSEAL_MODEL_API_KEY": "sk-sandbox",
            "COUNTERSEAL_WEBHOOKS": '{"demo": {"secret": "hook-secret"}}',
            **({"COUNTERSEAL_S3_BUCKET": "b"} if aws else {}),
        }
        assert found == World("http://now", "http://slack", app, environment)
        assert {name: value for name, value in made[1].items() if name in environment} == environment
        hook, slack = f"{app}/webhooks/servicenow/demo", f"{app}/slack/events"
        sandbox = [
            sys.executable, "-m", "sandbox", "--webhook-url", hook, "--webhook-secret", "hook-secret",
            "--interactivity-url", slack, "--signing-secret", "sign-secret",
        ]  # fmt: skip
        assert did == [
            (sandbox, "9", "kept", logs / "sandbox.log", True),
            ("process 1", logs / "sandbox.log"),
            ([sys.executable, "-m", "app", "up"], "5001", "kept", logs / "counterseal.log", False),
            ("process 2", app, logs / "counterseal.log"),
        ]
    assert did[4:] == [("ended", "counterseal.log"), *(["moto ended"] if aws else []), ("ended", "sandbox.log")]


def test_moto_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.server", None)
    with pytest.raises(ConfigurationError) as refused, world._aws():
        raise AssertionError
    assert refused.value.message == "The demo against AWS needs moto."
    assert refused.value.remedy == "Use `make demo AWS=moto`, which installs it."


@pytest.mark.parametrize("fails", [False, True])
def test_moto_has_a_queue_its_dead_letters_and_a_locked_bucket(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    did: list[Any] = []

    class Server:
        def __init__(self, **given: Any) -> None:
            did.append(given)

        def start(self) -> None:
            did.append("start")

        def stop(self) -> None:
            did.append("stop")

        def get_host_and_port(self) -> tuple[str, int]:
            return "127.0.0.1", 5005

    class Client:
        def __init__(self, name: str, **given: Any) -> None:
            did.append((name, given, os.environ["AWS_ACCESS_KEY_ID"]))

        def create_queue(self, **given: Any) -> dict[str, str]:
            did.append(given)
            return {"QueueUrl": f"http://{given['QueueName']}"}

        def get_queue_attributes(self, **given: Any) -> Any:
            assert given["AttributeNames"] == ["QueueArn"]
            return {"Attributes": {"QueueArn": f"arn of {given['QueueUrl']}"}}

        def create_bucket(self, **given: Any) -> None:
            did.append(given)
            if fails:
                raise ValueError("no bucket")

    monkeypatch.setitem(sys.modules, "moto", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "moto.server", SimpleNamespace(ThreadedMotoServer=Server))
    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(client=Client))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    place = "http://127.0.0.1:5005"
    session = {"endpoint_url": place, "region_name": "us-east-1"}
    redrive = '{"deadLetterTargetArn": "arn of http://counterseal-dead-letters", "maxReceiveCount": "5"}'
    began = [
        {"ip_address": "127.0.0.1", "port": 0, "verbose": False},
        "start",
        *((name, session, "demo") for name in ("sqs", "s3")),
        {"QueueName": "counterseal-dead-letters"},
        {"QueueName": "counterseal-steps", "Attributes": {"RedrivePolicy": redrive}},
        {"Bucket": "counterseal-evidence", "ObjectLockEnabledForBucket": True},
    ]
    if fails:
        with pytest.raises(ValueError, match="no bucket"), world._aws():
            raise AssertionError
    else:
        with world._aws() as found:
            assert found == {
                "AWS_ACCESS_KEY_ID": "demo",
                "AWS_SECRET_ACCESS_KEY": "demo",
                "AWS_DEFAULT_REGION": "us-east-1",
                "COUNTERSEAL_AWS_ENDPOINT_URL": place,
                "COUNTERSEAL_AWS_REGION": "us-east-1",
                "COUNTERSEAL_SQS_QUEUE_URL": "http://counterseal-steps",
                "COUNTERSEAL_SQS_DLQ_URL": "http://counterseal-dead-letters",
                "COUNTERSEAL_S3_BUCKET": "counterseal-evidence",
                "COUNTERSEAL_S3_OBJECT_LOCK_MODE": "COMPLIANCE",
                "COUNTERSEAL_S3_OBJECT_LOCK_DAYS": "1",
            }
            assert did == began
    assert did == [*began, "stop"]


class Process:
    """A child that is stood in for. ``ends`` is whether it heeds that it is to end."""

    def __init__(self, line: bytes | None = b"", *, ends: bool = True) -> None:
        self.returncode: int | None = None
        self.stdout = self
        self.did: list[str] = []
        self._line, self._ends, self._over = line, ends, asyncio.Event()

    async def readline(self) -> bytes:
        if self._line is None:
            await asyncio.Event().wait()
        return self._line or b""

    def terminate(self) -> None:
        self.did.append("terminate")
        if self._ends:
            self._over.set()

    def kill(self) -> None:
        self.did.append("kill")
        self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        self.did.append("ended")
        return 0


@pytest.mark.parametrize(
    ("line", "kind", "answer"),
    [
        (b'{"a": "b"}\n', None, {"a": "b"}),
        (b"", TransportError, None),
        (b"Traceback\n", TransportError, None),
        (None, DeadlineError, None),
    ],
)
async def test_stand_ins_that_do_not_start_are_told_with_their_log(
    monkeypatch: pytest.MonkeyPatch, line: bytes | None, kind: Any, answer: Any
) -> None:
    monkeypatch.setattr(world, "START_SECONDS", 0.005)
    running: Any = Process(line)
    if kind is None:
        assert await world._first_line(running, Path("a.log")) == answer
        return
    with pytest.raises(kind) as failed:
        await world._first_line(running, Path("a.log"))
    assert (failed.value.message, failed.value.remedy) == ("The stand-ins did not start.", "See a.log.")


@pytest.mark.parametrize(
    ("answers", "code", "refused"),
    [
        ([200], None, None),
        (["away", 503, 404, 200], None, None),
        ([503, 503], 0, (TransportError, "Counterseal ended with 0.")),
        (["away"], 3, (TransportError, "Counterseal ended with 3.")),
        ([503] * 1000, None, (DeadlineError, "Counterseal did not answer in time.")),
    ],
)
async def test_counterseal_is_waited_for_until_it_is_well_or_has_ended(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], code: int | None, refused: Any
) -> None:
    running: Any = Process()
    asked: list[str] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        found = left.pop(0)
        if not left:
            running.returncode = code
        if found == "away":
            raise httpx.ConnectError("away")
        return httpx.Response(found)

    client, sleep = httpx.AsyncClient, asyncio.sleep
    monkeypatch.setattr(httpx, "AsyncClient", lambda: client(transport=httpx.MockTransport(answer)))
    monkeypatch.setattr(asyncio, "sleep", lambda _: sleep(0))
    late = refused is not None and refused[0] is DeadlineError
    monkeypatch.setattr(world, "START_SECONDS", 0.01 if late else 60.0)
    if refused is None:
        await world._healthy(running, "http://app", Path("a.log"))
    else:
        with pytest.raises(refused[0]) as failed:
            await world._healthy(running, "http://app", Path("a.log"))
        assert (failed.value.message, failed.value.remedy) == (refused[1], "See a.log.")
    assert {*asked} == {"http://app/healthz"}
    if not late:
        assert len(asked) == len(answers)


@pytest.mark.parametrize("talks", [True, False])
@pytest.mark.parametrize(
    ("ends", "code", "did"),
    [
        (True, None, ["terminate", "ended"]),
        (False, None, ["terminate", "kill", "ended"]),
        (True, 0, []),
        (True, 7, []),
    ],
)
async def test_a_child_is_asked_to_end_before_it_is_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, talks: bool, ends: bool, code: int | None, did: list[str]
) -> None:
    running: Any = Process(ends=ends)
    begun = list[Any]()

    async def start(*command: str, **given: Any) -> Any:
        given["stderr"] = given["stderr"].name
        if not talks:
            given["stdout"] = given["stdout"].name
        begun.append((command, given))
        return running

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(world, "STOP_SECONDS", 0.001 if not ends else 20.0)
    log = tmp_path / "a.log"
    log.write_text("of the demo before\n")
    process: Any = world._process
    async with process(["a", "b"], {"A": "b"}, log, talks=talks) as found:
        assert found is running
        running.returncode = code
    out = asyncio.subprocess.PIPE if talks else str(log)
    given = {"env": {"A": "b"}, "stdout": out, "stderr": str(log), "start_new_session": True}
    assert begun == [(("a", "b"), given)]
    assert running.did == did
    assert log.read_text() == ""


# -- the terminal ----------------------------------------------------------------------------------------------------


def test_on_a_terminal_a_table_shows_what_is_so_now(monkeypatch: pytest.MonkeyPatch) -> None:
    console = rich.console.Console(width=140, force_terminal=True, color_system=None, record=True)
    monkeypatch.setattr(view, "Console", lambda **_: console)
    shown = View(auto=True)
    runs = [
        replace(IncidentRun(INCIDENTS[0]), run={"status": "waiting_approval", "error": None}),
        replace(IncidentRun(INCIDENTS[1]), run={"status": "failed_terminal", "error": {"code": "no_more"}}),
        replace(IncidentRun(INCIDENTS[2]), run={"status": "new_word", "error": {}}, bundle=Path("b"), verified=True),
        replace(IncidentRun(INCIDENTS[3]), bundle=Path("b")),
    ]
    table = view._table(runs)
    cells = [[*column.cells] for column in table.columns]
    assert cells == [
        ["INC0", "INC1", "INC2", "INC3"],
        [one.story.text for one in INCIDENTS],
        ["[bold yellow]waits for a person[/]", "[red]failed[/]: no more", "new_word", "[dim]not started[/]"],
        ["", "", "[green]verified[/]", "[bold red]does not verify[/]"],
    ]
    with shown.live():
        assert shown._live is not None
        shown.show(runs)
    assert "waits for a person" in console.export_text()
    assert shown._live is None, "what is shown later has a line of its own"
    shown.show(runs[:1])
    assert "INC0: waiting_approval\n" in console.export_text()


def test_each_change_has_one_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = View(auto=True)
    one, other = IncidentRun(INCIDENTS[0]), IncidentRun(INCIDENTS[1])
    with shown.live():
        assert shown._live is None
        for told in (
            [one, other],
            [one, other],
            [replace(one, run={"status": "running", "error": None}), other],
            [one],
        ):
            shown.show(told)
    said = capsys.readouterr().out.splitlines()
    assert said == ["INC0: not started", "INC1: not started", "INC0: running", "INC0: not started"]


def test_a_command_names_what_the_demo_was_started_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    where = World("", "", "", {"COUNTERSEAL_HOME": str(tmp_path / "a b")})
    python = sys.executable
    for started, command in (
        (str(tmp_path / "bin" / "counterseal"), "bin/counterseal"),
        ("/opt/bin/counterseal", "/opt/bin/counterseal"),
        ("/opt/bin/counterseal.py", f"{python} -m app"),
        ("/opt/app/__main__.py", f"{python} -m app"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert view._command(where) == f"COUNTERSEAL_HOME='a b' {command}"
    assert view._near(tmp_path.parent) == str(tmp_path.parent)
    assert view._near(tmp_path / "..x") in (f"{tmp_path}/..x", "..x")
    assert os.path.relpath(view._near(tmp_path / "c")) == "c"


def test_whoever_looks_further_is_shown_a_run_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    where = World("", "", "", {"COUNTERSEAL_HOME": "home"})
    begun = replace(IncidentRun(INCIDENTS[1]), run={"run_id": "r1"})
    for told, named in (
        ([IncidentRun(INCIDENTS[0])], []),
        ([IncidentRun(INCIDENTS[0]), begun, IncidentRun(INCIDENTS[3])], ["run show r1", "evidence get r1"]),
        ([begun, replace(begun, run={"run_id": "r3"})], ["run show r1", "run show r3", "evidence get r1"]),
        (
            [replace(begun, bundle=Path("/x/b.zip"))],
            ["run show r1", "run show r1", "evidence get r1", "evidence verify /x/b.zip --key /x/evidence.pub.pem"],
        ),
    ):
        View(auto=True).farewell(where, told)
        said = [line.partition(" -m app ")[2] for line in capsys.readouterr().out.splitlines() if " -m app " in line]
        assert [line.partition(" -o")[0].partition("  #")[0] for line in said] == [*named, "run list"]
