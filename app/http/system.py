"""Whether the process lives, whether it can work, and its figures."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import text
from starlette.responses import Response

from app.http.parts import FacesDep, principal
from runtime.store import queue_reads, read_models

router = APIRouter(tags=["system"])

_PING = text("SELECT 1")


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    """The only route that needs no token; it says nothing about anything else."""
    return {"status": "ok"}


@router.get("/readyz", summary="Whether requests can be served")
async def readyz(request: Request, faces: FacesDep) -> dict[str, str]:
    """200 when the database answers; 503 otherwise. Any valid token."""
    async with faces.database.reading(principal(request).tenant) as connection:
        await connection.execute(_PING)
    return {"status": "ready", "database": "ok"}


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(request: Request, faces: FacesDep) -> Response:
    """This process's counters, and the counts of the token's own tenant. Any valid token."""
    tenant = principal(request).tenant
    async with faces.database.reading(tenant) as connection:
        counted = await read_models.run_counts(connection, tenant)
    async with faces.database.transaction(tenant) as reading:
        queues = await queue_reads.queues(reading, tenant)
    return Response(faces.metrics.text(counted, queues), media_type=CONTENT_TYPE_LATEST)
