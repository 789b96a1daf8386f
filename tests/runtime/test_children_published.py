"""A workflow is published only if it reads what the published workflows that it runs give."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import DefinitionError
from evidence.chain import Actor
from runtime.requests.publishing import publish_workflow

CHILD = "workflow: inner\nversion: %s\nresult: {%s: 1}\nsteps: [{reference: r}]\n"
PARENT = (
    "workflow: outer\nversion: %s\nsteps:\n  - {id: c, run: %s}\n  - {reference: '${{ string(steps.c.output.%s) }}'}\n"
)


async def publish(runtime: Any, text: str) -> None:
    async with runtime.faces.transaction("acme") as connection:
        await publish_workflow(connection, runtime.definitions, "acme", text, "w.yaml", Actor("test", "ann"))


async def test_what_is_read_of_a_child_is_looked_up_in_the_version_that_would_run(runtime: Any) -> None:
    await runtime.tenant()
    await publish(runtime, PARENT % (1, "inner", "ticket"))  # nothing is published by that name, so nothing is known
    await publish(runtime, CHILD % (1, "ticket"))
    await publish(runtime, CHILD % (2, "number"))
    await publish(runtime, PARENT % (2, "inner@1", "ticket"))
    await publish(runtime, PARENT % (3, "inner", "number"))
    for version, child, read in ((4, "inner@1", "number"), (4, "inner@2", "ticket"), (4, "inner", "tiket")):
        with pytest.raises(DefinitionError, match=f"There is no steps.c.output.{read}"):
            await publish(runtime, PARENT % (version, child, read))
    await publish(runtime, PARENT % (1, "inner", "ticket"))  # what was published goes on
