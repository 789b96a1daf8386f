"""The command `queue`: every tenant's lanes, slots and outbox, honest about what cannot be reached; sending again."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from app.cli.outcome import Exit
from app.cli.queues import age
from tests.support.trouble import Forger


@pytest.fixture
def published(command: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    shared = sys.modules[type(request.getfixturevalue("outside_world")).__module__]
    simple, asking = shared.WORKFLOWS.split("---")
    for name, text in {"simple": simple, "asking": asking, "policy": shared.POLICY, "people": shared.PEOPLE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    command("workflow", "publish", str(tmp_path / "simple.yaml"), str(tmp_path / "asking.yaml"))
    command("policy", "publish", str(tmp_path / "policy.yaml"))
    command("directory", "publish", str(tmp_path / "people.yaml"))
    return command


def test_the_queue_is_shown_by_tenant_and_lane(published: Any, outside_world: Any, work_off: Any) -> None:
    started = ("run", "start", "asking", "--input", '{"number": "INC1"}')
    published(*started)
    work_off(outside_world)
    published(*started, "--workspace", "second")
    published(*started, "--workspace", "second")
    published("tenant", "create", "other", "--max-concurrency", "3", "--max-runs-per-min", "7")
    found = published.json("queue", "status")
    assert (found["sqs"], found["problem"]) == (None, None)
    default, other = found["tenants"]
    assert (other["tenant"], other["lanes"], other["slots"], other["starts_left"]) == ("other", [], 3, 7)
    assert (default["tenant"], default["slots"], default["slots_used"]) == ("default", 16, 0)
    main, second = default["lanes"]
    assert (main["workspace"], main["pending"], main["parked"]) == ("main", 0, {"approval": 1})
    assert (second["pending"], second["running"], second["admitted"], second["parked"]) == (2, 0, 0, {})
    assert main["oldest_pending_seconds"] is None
    assert 0 <= second["oldest_pending_seconds"] < 60
    assert [one["tenant"] for one in published.json("queue", "status", "--tenant", "other")["tenants"]] == ["other"]
    shown = published("queue", "status")
    assert re.search(r"^default\tmain\t0\t-\t0\t0\t0\tapproval 1\t0/16\t-$", shown, re.MULTILINE)
    assert re.search(r"^other\t-\t-\t-\t-\t-\t-\t-\t0/3\t7/7$", shown, re.MULTILINE)


def test_a_workflow_with_a_cap_of_its_own_has_a_line(published: Any, tmp_path: Path) -> None:
    assert "cap of their own" not in published("queue", "status")
    capped = (
        (tmp_path / "simple.yaml")
        .read_text()
        .replace("workflow: simple", "workflow: capped\ncaps: {max_concurrency: 3}")
    )
    (tmp_path / "capped.yaml").write_text(capped)
    published("workflow", "publish", str(tmp_path / "capped.yaml"))
    published("run", "start", "capped", "--input", '{"number": "INC1", "sys_id": "s", "sys_mod_count": "0"}')
    (default,) = published.json("queue", "status")["tenants"]
    assert default["caps"] == [
        {"workflow": "capped", "slots": 3, "slots_used": 0, "pending": 1, "max_runs_per_min": None, "starts_left": None}
    ]
    assert re.search(r"^default\tcapped\t1\t0/3\t-$", published("queue", "status"), re.MULTILINE)


@pytest.mark.req("Q-12")
def test_a_workflow_with_a_cap_on_its_starts_says_what_is_left(
    published: Any, tmp_path: Path, outside_world: Any, work_off: Any
) -> None:
    text = (tmp_path / "simple.yaml").read_text()
    (tmp_path / "capped.yaml").write_text(
        text.replace("workflow: simple", "workflow: capped\ncaps: {max_runs_per_min: 1}")
    )
    published("workflow", "publish", str(tmp_path / "capped.yaml"))
    assert "at most 1 a minute" in published("workflow", "show", "capped")
    started = ("run", "start", "capped", "--input", '{"number": "INC1", "sys_id": "s", "sys_mod_count": "0"}')
    assert published.json(*started)["waiting_for"] is None
    work_off(outside_world)
    held = published.json(*started)
    assert held["waiting_for"] == "its start: caps.max_runs_per_min of capped is 1"
    assert held["waiting_for"] in published("run", "show", held["run_id"])
    assert re.search(r"^default\tcapped\t1\t-\t0/1$", published("queue", "status"), re.MULTILINE)


def test_a_tenant_that_is_not_there_and_a_name_that_is_none(command: Any) -> None:
    command("queue", "status", "--tenant", "nobody", exit_code=Exit.CONFLICT)
    assert "nobody" in command.said
    command("queue", "status", "--tenant", "No Body", exit_code=Exit.INPUT)
    assert "--tenant" in command.said


def test_what_has_failed_is_sent_again(published: Any, outside_world: Any, work_off: Any, database_url: str) -> None:
    published("run", "start", "asking", "--input", '{"number": "INC1"}')
    work_off(outside_world)
    assert (published("queue", "again"), published.said) == ("", "No message has failed.\n")
    published("queue", "again", "--tenant", "nobody", exit_code=Exit.CONFLICT)
    assert "nobody" in published.said
    asyncio.run(Forger(database_url).failed_message("card"))
    assert published.json("queue", "again", "--kind", "bundle") == []
    published("tenant", "create", "other")
    assert published.json("queue", "again", "--tenant", "other", "--kind", "card") == []
    (shown,) = published.json("queue", "dead", "--tenant", "default")
    assert (shown["kind"], shown["tenant"], shown["run_id"] is not None) == ("card", "default", True)
    assert published.json("queue", "dead", "--kind", "bundle") == []
    assert published.json("queue", "again", "--message", shown["run_id"]) == [], "that is no message"
    assert published.json("queue", "again", "--message", shown["message"], "--kind", "card") == [
        {"tenant": "default", "kind": "card", "count": 1}
    ]
    (default,) = published.json("queue", "status", "--tenant", "default")["tenants"]
    assert [(one["kind"], one["status"]) for one in default["messages"]] == [("card", "pending")]


def test_a_dead_message_is_given_up_once_and_evidence_never(
    published: Any, outside_world: Any, work_off: Any, database_url: str
) -> None:
    published("run", "start", "asking", "--input", '{"number": "INC1"}')
    work_off(outside_world)
    asyncio.run(Forger(database_url).failed_message("card"))
    (dead,) = published.json("queue", "dead")
    published("queue", "give-up", dead["message"], "--reason", " ", exit_code=Exit.INPUT)
    done = published.json("queue", "give-up", dead["message"], "--reason", "They have gone home.")
    assert (done["kind"], done["tenant"], done["run_id"]) == ("card", "default", dead["run_id"])
    assert published.json("queue", "dead") == []
    assert published.json("queue", "again") == [], "it is sent no more"
    for unknown in (dead["message"], str(uuid4())):
        published("queue", "give-up", unknown, "--reason", "Gone.", exit_code=Exit.CONFLICT)
    told = published("audit", "tenant", "--type", "message.given_up")
    assert told.count(dead["message"]) == 1
    assert "They have gone home." in told
    published("run", "cancel", dead["run_id"])
    asyncio.run(Forger(database_url).failed_message("bundle"))
    (evidence,) = published.json("queue", "dead", "--kind", "bundle")
    published("queue", "give-up", evidence["message"], "--reason", "Gone.", exit_code=Exit.CONFLICT)
    assert published.json("queue", "dead", "--kind", "bundle") == [evidence]


def test_a_database_that_is_away_is_said_in_a_line(command: Any, clean_environment: Any) -> None:
    clean_environment.setenv("COUNTERSEAL_DATABASE_URL", "postgresql://nobody:word@127.0.0.1:9/none")
    assert command("queue", "status", "--json", exit_code=Exit.UNAVAILABLE) == ""
    assert "PostgreSQL cannot be reached" in command.said


@pytest.fixture
def aws(clean_environment: Any) -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "COUNTERSEAL_AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "COUNTERSEAL_AWS_REGION": "us-east-1",
    }.items():
        clean_environment.setenv(name, value)
    client = boto3.client("sqs", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
    yield client
    # What moto keeps, it keeps for the whole process.
    for url in client.list_queues().get("QueueUrls", ()):
        client.delete_queue(QueueUrl=url)
    client.close()
    server.stop()


def test_sqs_is_counted_where_it_is_configured(command: Any, clean_environment: Any, aws: Any) -> None:
    command("tenant", "set", "default")
    url, dead = (aws.create_queue(QueueName=name)["QueueUrl"] for name in ("watched", "watched-dead"))
    clean_environment.setenv("COUNTERSEAL_SQS_QUEUE_URL", url)
    clean_environment.setenv("COUNTERSEAL_SQS_DLQ_URL", dead)
    for _ in range(3):
        aws.send_message(QueueUrl=url, MessageBody="x")
    aws.receive_message(QueueUrl=url)
    aws.send_message(QueueUrl=dead, MessageBody="x")
    assert command.json("queue", "status")["sqs"] == {
        "steps": {"waiting": 2, "in_flight": 1, "delayed": 0},
        "dead letters": {"waiting": 1, "in_flight": 0, "delayed": 0},
    }
    assert "dead letters\t1\t0\t0" in command("queue", "status")
    clean_environment.setenv("COUNTERSEAL_SQS_DLQ_URL", f"{dead}-gone")
    found = command.json("queue", "status", exit_code=Exit.UNAVAILABLE)
    assert (found["sqs"], "COUNTERSEAL_SQS_DLQ_URL" in found["problem"]) == ({}, True)
    assert [one["tenant"] for one in found["tenants"]] == ["default"], "what PostgreSQL knows is said all the same"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, None), (0.4, "0s"), (61, "1m 1s"), (3600, "1h 0m"), (90061, "1d 1h"), (86400 * 400, "400d 0h")],
)
def test_an_age_is_said_in_its_two_largest_units(seconds: float | None, words: str | None) -> None:
    assert age(seconds) == words
