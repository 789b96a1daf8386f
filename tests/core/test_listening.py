"""Connections that listen: every channel is heard, and whoever waits is told of the end once."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from core.db import Database
from tests.core.test_database_told_whole import CODECS, Told


class Listens(Told):
    """A connection that listens; ``ends`` is told when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: Any = None
        self.hears: dict[str, Any] = {}

    def add_termination_listener(self, ended: Any) -> None:
        self.ends = ended

    async def add_listener(self, channel: str, heard: Any) -> None:
        self.hears[channel] = heard


@pytest.mark.parametrize("ended", [True, False])
async def test_who_listens_hears_every_channel_and_is_told_of_the_end(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    made, said = Listens(), list[Any]()

    async def connect(*_: Any, **__: Any) -> Listens:
        return made

    monkeypatch.setattr(asyncpg, "connect", connect)
    database = Database("postgresql://a:b@c/d", "counterseal_engine")
    async with database.listening(("steps", "messages"), lambda *given: said.append(given)) as lost:
        assert [*made.hears] == ["steps", "messages"]
        made.hears["steps"](made, 7, "steps", "")
        made.hears["messages"](made, 7, "messages", "it")
        assert (said, lost.done()) == ([("steps", ""), ("messages", "it")], False)
        if ended:
            made.ended = True
            made.ends(made)
            made.ends(made)  # whoever hears of it twice has heard of it
            assert lost.done()
    # the first is its role and its limits
    assert made.heard[len(CODECS) + 1 :] == (["terminated"] if ended else ["closed"])


async def test_an_end_before_every_channel_is_heard_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends(Listens):
        async def add_listener(self, channel: str, heard: Any) -> None:
            await super().add_listener(channel, heard)
            self.ended = True
            self.ends(self)

    made = Ends()

    async def connect(*_: Any, **__: Any) -> Ends:
        return made

    monkeypatch.setattr(asyncpg, "connect", connect)
    async with Database("postgresql://a:b@c/d", "r").listening(("steps", "messages"), lambda *_: None) as lost:
        assert lost.done()
    assert made.heard[len(CODECS) + 1 :] == ["terminated"]
