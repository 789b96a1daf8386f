"""Evidence bundles for auditors (U-8)."""

from __future__ import annotations

import base64
from uuid import UUID

from fastapi import APIRouter, Response

from app.http import problems
from app.http.parts import Auditor, FacesDep
from app.http.runs import run_row
from app.wiring import Faces
from core.canonical import JsonObject
from core.errors import ConsistencyError
from evidence.blobs import StoredBlob
from evidence.chain import Actor, EventType
from runtime.engine.states import RunState
from runtime.requests.evidence import NOT_STORED, remedy
from runtime.store import audit, read_models
from runtime.store.read_models import Row

router = APIRouter(prefix="/v1/runs", tags=["evidence"])

ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED})


@router.get(
    "/{run_id}/evidence",
    response_class=Response,
    summary="Download a run's evidence bundle",
    responses={
        200: {"content": {"application/zip": {}}, "description": "The signed bundle"},
        409: {"description": "The run has not ended, or its bundle is being written, or was refused"},
    },
)
async def download(run_id: UUID, who: Auditor, faces: FacesDep) -> Response:
    """The exact bytes that were stored, checked against the SHA-256 that the database remembers (`ETag`,
    `Content-Digest` of RFC 9530). The download is an audit event, committed before the first byte is sent.
    """
    run = await run_row(faces, who.tenant, run_id)
    if run["status"] not in ENDED:
        return problems.problem(
            409, "unfinished", f"The run is {run['status']}; its evidence is written when it has ended."
        )
    row = await bundle_row(faces, who.tenant, run_id)
    if row is None and run["evidence_problem"] is not None:
        return problems.problem(409, "not_signed", f"{NOT_STORED}: {run['evidence_problem']}", remedy=remedy(run_id))
    if row is None:
        return problems.problem(
            409, "being_written", "The bundle is being written; try again in a moment.", {"Retry-After": "1"}
        )
    data = await exported(faces, who.tenant, who.actor, row)
    digest = base64.b64encode(bytes.fromhex(row["sha256"])).decode()
    headers = {
        "ETag": f'"{row["sha256"]}"',
        "Content-Digest": f"sha-256=:{digest}:",
        "Content-Disposition": f'attachment; filename="{row["name"]}"',
        "Cache-Control": "private, no-store",
    }
    return Response(data, media_type="application/zip", headers=headers)


async def bundle_row(faces: Faces, tenant: str, run_id: UUID) -> Row | None:
    """Where the bundle is; None while it is not written."""
    async with faces.database.reading(tenant) as connection:
        return await read_models.bundle(connection, tenant, run_id)


async def exported(faces: Faces, tenant: str, actor: Actor, row: Row) -> bytes:
    """The bundle's bytes, once their export is on record."""
    data = await faces.blobs.get(StoredBlob(row["uri"], row["version_id"], row["sha256"]))
    if len(data) != row["bytes"]:
        raise ConsistencyError(f"{row['uri']} does not have the length that was recorded.")
    facts: JsonObject = {"run": str(row["run_id"]), "sha256": row["sha256"]}
    async with faces.database.transaction(tenant) as connection:
        await audit.record(connection, tenant, EventType.EVIDENCE_EXPORTED, actor, facts)
    return data
