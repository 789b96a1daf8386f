"""Reads conversations of agents from the book. A worker that has read one before reads only what was told since."""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from core.db import Connection
from runtime.engine.agent_chat import Chat, chat_of
from runtime.engine.agent_heard import KEPT_MAX, Listeners
from runtime.engine.agent_memory import wanted
from runtime.engine.told import Told
from runtime.store import journal


class Chats:
    """A cache of the conversations that this worker read last. It stays valid, because a book only grows."""

    def __init__(self) -> None:
        self._listeners = Listeners()
        self._read: OrderedDict[tuple[UUID, str], tuple[int, tuple[Told, ...]]] = OrderedDict()

    async def read(self, connection: Connection, run_id: UUID, run_key: bytes, agent: str) -> Chat:
        """Read what the model of an agent has said and was told so far. Only the book holds it."""
        last, before = self._read.pop((run_id, agent), (0, ()))
        last, since = await journal.of_step(connection, run_id, run_key, agent, after=last)
        told = (*before, *since)
        self._read[run_id, agent] = (last, told)
        while len(self._read) > KEPT_MAX:
            self._read.popitem(last=False)
        others = await journal.of_others(connection, run_id, wanted(told, agent))
        return chat_of(told, agent, others, self._listeners)
