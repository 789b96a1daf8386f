"""Findings of `counterseal doctor`, each in its words: a schema of another release, policies, evidence, Slack."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from app import doctor, storage
from app.doctor import Check, State
from app.settings import load_settings
from policy.scope import EVERYTHING


@pytest.mark.parametrize(("migrates", "state"), [(True, State.WARNING), (False, State.BROKEN)])
async def test_an_older_schema_is_a_fault_where_nobody_upgrades_it(
    clean_environment: pytest.MonkeyPatch, database_url: str, migrates: bool, state: State
) -> None:
    async def older(url: str) -> str:
        return "0001"

    clean_environment.setattr(storage, "schema_revision", older)
    settings = load_settings(database_url=database_url, auto_migrate=migrates)
    found = {check.what: check for check in await doctor.examine(settings)}
    assert found["schema"].state is state
    assert found["schema"].detail == f"at 0001, needed is {storage.head_revision()}; run `counterseal db upgrade`"


@pytest.mark.parametrize(("refused", "shown", "more"), [(0, 0, 0), (1, 1, 0), (20, 20, 0), (21, 20, 1), (23, 20, 3)])
def test_of_runs_without_evidence_twenty_are_named(refused: int, shown: int, more: int) -> None:
    found = [*doctor._evidence([(UUID(int=number), f"why {number}") for number in range(refused)])]
    words = [
        f"run {UUID(int=number)}: {doctor.NOT_STORED}: why {number}. {doctor.remedy(UUID(int=number))}"
        for number in range(shown)
    ]
    wanted = [Check("evidence", State.BROKEN, each) for each in words]
    wanted += [Check("evidence", State.BROKEN, f"and {more} more runs")] if more else []
    assert found == (wanted or [Check("evidence", State.OK, "no run has ended without it")])


def test_each_policy_is_told_as_it_stands() -> None:
    none: Any = SimpleNamespace(members=(), broken=(), policies=())
    assert [*doctor._policies(none)] == [
        Check("policy", State.MISSING, "none is in force, so every action is denied"),
    ]
    broken = [SimpleNamespace(scope=EVERYTHING, message="m1."), SimpleNamespace(scope="other", message="m2.")]
    well = [SimpleNamespace(name="a", version=1), SimpleNamespace(name="b", version=2)]
    some: Any = SimpleNamespace(members=(1,), broken=broken, policies=well)
    assert [*doctor._policies(some)] == [
        Check("policy", State.BROKEN, "every action is denied: m1."),
        Check("policy", State.BROKEN, "every action that it applies to is denied: m2."),
        Check("policy", State.OK, "a version 1 is active"),
        Check("policy", State.OK, "b version 2 is active"),
    ]


NO_CHANNEL = Check("slack channel", State.WARNING, "COUNTERSEAL_SLACK_CHANNEL is not set, so no card is shown")
NO_SECRET = Check("slack clicks", State.WARNING, "COUNTERSEAL_SLACK_SIGNING_SECRET is not set, so clicks are refused")
AUTH = {"ok": True, "user": "bot", "team": "Acme", "team_id": "T1", "enterprise_id": "E1", "user_id": "UBOT"}
SIGNED_IN = Check("slack cards", State.OK, "signed in as bot of Acme (T1)")
ALL = {"slack_channel": "C1", "slack_signing_secret": "s"}


@pytest.mark.parametrize(
    ("auth", "user", "given", "wanted"),
    [
        (AUTH, {"ok": True}, ALL, [SIGNED_IN]),
        (AUTH, {"ok": True}, {}, [SIGNED_IN, NO_CHANNEL, NO_SECRET]),
        (
            {**AUTH, "is_enterprise_install": True},
            {"ok": True},
            {"slack_channel": "C1"},
            [Check("slack cards", State.OK, "signed in as bot of the organisation E1"), NO_SECRET],
        ),
        (
            AUTH,
            "not-json",
            ALL,
            [SIGNED_IN, Check("slack clicks", State.BROKEN, "every click is refused: the answer was not Slack's")],
        ),
        ("not-json", {"ok": True}, {}, [Check("slack cards", State.BROKEN, "the answer was not Slack's")]),
    ],
)
async def test_slack_is_told_as_it_answers(
    clean_environment: pytest.MonkeyPatch, auth: Any, user: Any, given: dict[str, str], wanted: list[Check]
) -> None:
    async def auth_test() -> Any:
        return SimpleNamespace(data=auth)

    async def users_info(user: str) -> Any:
        assert user == "UBOT"
        return SimpleNamespace(data=told)

    told = user

    @asynccontextmanager
    async def client_of(token: Any, url: str) -> AsyncIterator[Any]:
        assert (token.get_secret_value(), url) == ("xoxb", "https://slack.example/")
        yield SimpleNamespace(auth_test=auth_test, users_info=users_info)

    clean_environment.setattr(doctor.adapters, "slack_client_of", client_of)
    settings = load_settings(slack_bot_token="xoxb", slack_api_url="https://slack.example/", **given)
    assert [check async for check in doctor._slack(settings)] == wanted


async def test_what_does_not_answer_in_time_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> AsyncIterator[Check]:
        yield Check("x", State.OK, "at first")
        await asyncio.Event().wait()

    monkeypatch.setattr(doctor, "SECONDS_MAX", 0.01)
    assert await doctor._bounded("x", never()) == [Check("x", State.BROKEN, "no answer within 0 seconds")]


async def test_queues_and_places_are_told_as_they_are_set(
    clean_environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def depths(settings: Any) -> None:
        return None

    async def bucket(settings: Any) -> None:
        return None

    clean_environment.setattr(doctor.adapters, "queue_depths", depths)
    clean_environment.setattr(doctor.adapters, "check_bucket", bucket)
    queue, letters = "https://sqs.example/q", "https://sqs.example/d"
    steps = Check("queue", State.OK, f"{queue} answers")
    unset = "COUNTERSEAL_SQS_DLQ_URL is not set, so nobody looks after the dead letters"
    for given, wanted in (
        ({}, [Check("queue", State.OK, "PostgreSQL (COUNTERSEAL_SQS_QUEUE_URL names none)")]),
        ({"sqs_queue_url": queue}, [steps, Check("dead letters", State.WARNING, unset)]),
        (
            {"sqs_queue_url": queue, "sqs_dlq_url": letters},
            [steps, Check("dead letters", State.OK, f"{letters} answers")],
        ),
    ):
        assert [check async for check in doctor._queue(load_settings(**given))] == wanted
    (tmp_path / "file").touch()
    place, blocked = tmp_path / "new" / "home", tmp_path / "file"
    for given, state, words in (
        ({"s3_bucket": "b"}, State.OK, "s3://b answers"),
        ({"home": place}, State.OK, f"{place}/evidence (COUNTERSEAL_S3_BUCKET names no bucket)"),
        ({"home": blocked}, State.BROKEN, f"{blocked}/evidence cannot be written to"),
    ):
        found = [check async for check in doctor._blobs(load_settings(**given))]
        assert found == [Check("evidence store", state, words)]


@pytest.mark.parametrize(("may", "well"), [(os.W_OK | os.X_OK, True), (os.W_OK, False), (os.X_OK, False), (0, False)])
async def test_evidence_is_stored_in_a_folder_that_can_be_written_and_entered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, may: int, well: bool
) -> None:
    """Ask the nearest folder that is there, which would have to take the new ones."""
    asked: list[Path] = []

    def access(path: Path, mode: int) -> bool:
        asked.append(path)
        return mode & may == mode

    monkeypatch.setattr(os, "access", access)
    there, new = tmp_path / "evidence", tmp_path / "new" / "home"
    there.mkdir()
    file = tmp_path / "file"
    file.touch()
    for folder, nearest in ((there, there), (new / "evidence", tmp_path)):
        asked.clear()
        settings: Any = SimpleNamespace(s3_bucket=None, evidence_path=folder, home=new)
        words = f"{folder} (COUNTERSEAL_S3_BUCKET names no bucket)" if well else f"{folder} cannot be written to"
        state = State.OK if well else State.BROKEN
        assert [check async for check in doctor._blobs(settings)] == [Check("evidence store", state, words)]
        assert asked == [nearest]
    for folder in (file, file / "evidence"):
        assert not doctor._writable(folder)
    monkeypatch.chdir(tmp_path)
    assert doctor._writable(Path("any")) is well
