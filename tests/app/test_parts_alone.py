"""The parts of a runtime, by themselves: each is made of what belongs to it, with the settings that say how."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from app import adapters, faces, wiring
from app.settings import load_settings
from app.wiring import App
from core.db import FACES_ROLE
from runtime.keep.dispatcher import Delivered

SHOWN = ("card", "remind", "escalate", "voided", "proposal", "note", "task")


class Polled:
    """A connector whose system cannot call us back."""

    async def completions(self, *, wait_seconds: float) -> Any:
        raise AssertionError("nobody asks it here")

    async def acknowledge(self, completion: Any) -> None:
        raise AssertionError("nobody asks it here")


class Handling:
    """A part that handles messages, and what it was made of."""

    def __init__(self, name: str, *given: Any) -> None:
        self.name, self.given = name, given

    def handlers(self) -> dict[str, Any]:
        return {self.name: self.given}


def app_of(**given: Any) -> App:
    """A runtime of parts that are only named."""
    settings = load_settings(lease_seconds=77, worker_concurrency=5, slack_channel=given.pop("channel", None))
    faces: Any = SimpleNamespace(settings=settings, definitions="definitions", slack_groups="groups", blobs="blobs")
    parts: dict[str, Any] = {name: name for name in ("database", "queue", "signer")}
    parts |= {"connectors": {}, "messenger": None, "owner": "me"}
    return App(faces, **{**parts, **given})


@pytest.fixture(autouse=True)
def made(clean_environment: pytest.MonkeyPatch) -> None:
    """Parts that tell what they are made of."""
    for name in ("Tools", "Worker", "Dispatcher", "Completing", "Scheduler", "Reconciler", "Sweeper"):
        clean_environment.setattr(wiring, name, lambda *given, name=name, **named: (name, *given, named))
    for name in ("Bundling", "Errands", "Messages"):
        clean_environment.setattr(wiring, name, lambda *given, name=name: Handling(name, *given))
    clean_environment.setattr(wiring, "version", lambda: "7.8")


def test_a_worker_and_its_keepers_have_the_database_of_the_engine_and_their_lease() -> None:
    app: Any = app_of()
    lease = timedelta(seconds=77)
    tools: Any = ("Tools", "database", "definitions", {}, "me", lease, "groups", {})
    assert app.worker() == ("Worker", tools, "queue", {"concurrency": 5})
    assert app.sweeper() == ("Sweeper", "database", "definitions", {"lease": lease})
    assert app.scheduler() == ("Scheduler", "database", "queue", "me", {})
    assert app.reconciler() is None
    letters: Any = app_of(dead_letters="letters")
    assert letters.reconciler() == ("Reconciler", "database", "definitions", "letters", "me", {})


def test_only_systems_that_cannot_call_back_are_polled() -> None:
    one, two = Polled(), Polled()
    app: Any = app_of(connectors={"a": object(), "b": one, "c": SimpleNamespace(completions=None), "d": two})
    assert app.completing() == ("Completing", "database", "definitions", {"b": one, "d": two}, {})


@pytest.mark.parametrize("messenger", [None, "messenger"])
@pytest.mark.parametrize("channel", [None, "C1"])
async def test_cards_are_shown_where_there_is_a_messenger_and_a_channel(
    messenger: str | None, channel: str | None
) -> None:
    app: Any = app_of(messenger=messenger, channel=channel)
    name, database, handlers, owner, _ = app.dispatcher()
    assert (name, database, owner) == ("Dispatcher", "database", "me")
    assert handlers.pop("Bundling") == ("blobs", "signer", "counterseal 7.8", "definitions")
    assert handlers.pop("Errands") == ("database", "definitions", {})
    if messenger and channel:
        assert handlers == {"Messages": ("messenger", "C1", "definitions")}
        return
    assert sorted(handlers) == sorted(SHOWN)
    for kind, handler in handlers.items():
        with structlog.testing.capture_logs() as captured:
            deliver = await handler("connection", SimpleNamespace(kind=kind))
        assert [(line["log_level"], line["kind"]) for line in captured] == [("info", kind)]
        assert await deliver() == Delivered()


@pytest.mark.parametrize("token", [None, "xoxb-1"])
@pytest.mark.parametrize("blobs", [None, "elsewhere"])
async def test_faces_have_their_database_and_the_slack_that_the_settings_name(
    monkeypatch: pytest.MonkeyPatch, token: str | None, blobs: Any
) -> None:
    did: list[Any] = []

    @asynccontextmanager
    async def opened(*given: Any) -> AsyncIterator[Any]:
        did.append(given)
        yield f"opened {len(did)}"
        did.append(("closed", given))

    monkeypatch.setattr(faces, "Database", lambda *given: opened("database", *given))
    monkeypatch.setattr(adapters, "slack_client_of", lambda name, url: opened(name.get_secret_value(), url))
    settings = load_settings(slack_bot_token=token, slack_api_url="https://slack.example/api/")
    async with AsyncExitStack() as stack:
        made: Any = await faces.faces_of(stack, settings, "the address", blobs)
    database = ("database", "the address", FACES_ROLE)
    client = ("xoxb-1", "https://slack.example/api/")
    assert (made.settings, made.database, made.given_blobs) == (settings, "opened 1", blobs)
    if token is None:
        assert (made.slack, did) == (None, [database, ("closed", database)])
    else:
        assert made.slack == "opened 2"
        assert did == [database, client, ("closed", client), ("closed", database)]
