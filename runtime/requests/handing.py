"""Origins of the result of a run within, for the run above: read from its book when it is over."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from core.canonical import Json
from core.db import Connection
from runtime.definition.catalog import Definitions
from runtime.engine.facts import result_origins
from runtime.store.views import load


async def origins_of(
    connection: Connection, definitions: Definitions, ending: asyncpg.Record, *, traced: bool = False
) -> list[Json] | None:
    """The origins of a run's result, of which ``ending_of`` was read; None if nobody above has asked for them.

    ``traced`` says that the run above has, also if it does not wait yet.
    """
    if not (traced or ending["traced"]):
        return None
    view = await load(connection, UUID(int=ending["run_id"].int), definitions.graphs)
    return result_origins(view, await definitions.of_run(connection, view.definition))
