"""Ordering a run's evidence again, after what contradicted it was put right."""

from __future__ import annotations

from uuid import UUID

from core.db import Connection
from core.errors import ConsistencyError, NotFoundError
from runtime.store import bundles, faces

NOT_STORED = "The evidence of this run was not signed or not stored"


def remedy(run_id: UUID) -> str:
    """Words for whoever looks after the installation."""
    return (
        "Find out who changed what: compare the run's rows with its audit and with a backup. "
        f"Once they are as they were, `counterseal evidence again {run_id}` writes it."
    )


async def write_again(connection: Connection, tenant: str, run_id: UUID) -> None:
    """Order a bundle that was refused, or could not be stored, once more, inside the caller's transaction.

    ``NotFoundError`` if there is no such run, ``ConsistencyError`` if there is nothing to order. Ordering it twice
    writes it once.
    """
    found = await bundles.state(connection, tenant, run_id)
    if found is None:
        raise NotFoundError(f"There is no run {run_id}.", remedy="See `counterseal run list`.")
    if found["bundled"]:
        raise ConsistencyError("The evidence of this run is stored.", remedy="`counterseal evidence get` hands it out.")
    if not found["failed"]:
        raise ConsistencyError("The evidence of this run is being written, or the run has not ended.")
    await faces.order_message(connection, tenant, run_id, "bundle", {})
