"""Runs: start, look, cancel; and their evidence bundles for auditors."""

from __future__ import annotations

import base64
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import Field

from app.access import Role
from app.http import models, problems
from app.http.dependencies import Auditor, Composer, FacesDep, Operator, Paged, Reader, Starter, Steerer, check_own
from app.shown import ENDED, attempted, effects_of, exported, fetched, fork_summary, run_row, run_state, values_exported
from approvals.model import VoteChannel
from core.canonical import JsonObject, sha256_hex
from core.changes import changes
from core.errors import ConsistencyError, InputError
from core.ids import new_id
from evidence.chain import EventType
from evidence.layout import VALUES
from runtime.engine.model.states import RunState
from runtime.engine.replay.past import PAGE_BYTES_MAX
from runtime.keep.bundling import NOT_STORED, remedy
from runtime.requests import forking, pausing, starting, steering
from runtime.requests.finding import by_values, of_person
from runtime.requests.holding import HoldRequest
from runtime.requests.starting import Started, StartRequest
from runtime.requests.steering import retry_run
from runtime.store import audit, read_models
from runtime.store.read_models import Row, RunFilter

router = APIRouter(prefix="/v1/runs", tags=["runs"])
evidence = APIRouter(prefix="/v1/runs", tags=["evidence"])

Text = Annotated[str, Query(max_length=200, pattern=models.PRINTABLE)]
Found = Annotated[str, Field(min_length=3, max_length=300, pattern=models.REFERENCE)]
Reference = Annotated[str, Query(max_length=200, pattern=models.REFERENCE)]


@router.post(
    "",
    status_code=201,
    summary="Start a run",
    responses={200: {"model": Started, "description": "This key has started it before"}},
)
async def start(
    body: models.StartRun,
    who: Starter,
    faces: FacesDep,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200, pattern=models.PRINTABLE)] = None,
) -> Started:
    """Starts a run: 201 if it is new, 200 if the same key started it before, 409 if that was with another input."""
    key = body.idempotency_key or idempotency_key or str(new_id())
    if body.idempotency_key and idempotency_key and body.idempotency_key != idempotency_key:
        raise InputError("differs from the body's idempotency_key", where="Idempotency-Key")
    request = StartRequest(
        tenant_id=who.tenant,
        workspace_id=body.workspace or faces.settings.workspace,
        trigger_type="http",
        trigger_ref=key,
        trigger=body.input,
        requested_by=who.subject,
        actor=who.actor,
        started_by=who.subject,
        open=body.open,
        until=body.until,
    )
    started = await starting.start_named(faces.database, faces.definitions, body.workflow, body.version, request)
    if not started.created:
        response.status_code = 200
        known = await faces.reader.trigger(who.tenant, started.run_id)
        # If the run's input was purged, nothing but the key can be compared.
        if known is not None and known != body.input:
            words = f"This idempotency key has started run {started.run_id} with another input."
            raise ConsistencyError(words, remedy="Use a new key.")
    response.headers["Location"] = f"/v1/runs/{started.run_id}"
    return started


@router.get("", response_model=models.Page[models.Run], summary="List runs, newest first")
async def listed(
    who: Reader,
    faces: FacesDep,
    paging: Paged,
    status: RunState | None = None,
    workflow: Text | None = None,
    reference: Reference | None = None,
    requested_by: Text | None = None,
    search: Annotated[list[Found] | None, Query(max_length=8)] = None,
) -> dict[str, Any]:
    """All runs of the token's tenant, or those with this status, workflow or business reference, or of this person.
    `search` is a NAME=VALUE by which their workflow finds them; all that are given have to fit.

    `requested_by` is a person's id, or any account or e-mail of theirs: all runs that they requested are found,
    whatever they were called then.
    """
    wanted, after = by_values(RunFilter(status, workflow, reference), search or ()), paging.after(datetime, UUID)
    wanted = await faces.ask(who.tenant, of_person, wanted, requested_by)
    rows = await faces.ask(who.tenant, read_models.runs_page, wanted, paging.limit + 1, *after)
    return paging.page(rows, "created_at", "run_id")


@router.get("/{run_id}", response_model=models.RunDetail, summary="Look at one run")
async def one(run_id: UUID, who: Composer, faces: FacesDep, response: Response) -> Row:
    """The run's state, audit chain and evidence. The `ETag` is its version, for `If-Match`."""
    seen = await faces.reader.at(who.tenant, run_id)
    row = await run_row(faces, who.tenant, run_id)
    check_own(who, row)
    response.headers["ETag"] = etag(row["version"])
    row = {**row, **run_state(row, seen)}
    return {**row, "late": seen.late, "paused": await faces.ask(who.tenant, pausing.of_run, run_id)}


@router.get("/{run_id}/steps", response_model=models.Page[models.Step], summary="The steps of a run")
async def steps(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists the steps in the order of super-steps and of the definition."""
    seen = await faces.reader.at(who.tenant, run_id)
    return paging.page_of_all(seen.steps, superstep=int, step_index=int, step_id=UUID)


@router.get("/{run_id}/checkpoints", response_model=models.Page[models.Checkpoint], summary="The checkpoints of a run")
async def checkpoints(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Every past state, from the first on."""
    (last,) = paging.after(int) or [-1]
    numbers = range(last + 1, last + paging.limit + 2)
    seen = await faces.reader.at(who.tenant, run_id, numbers, PAGE_BYTES_MAX)
    return paging.page(seen.checkpoints, "superstep")


@router.get(
    "/{run_id}/checkpoints/diff", response_model=models.CheckpointDiff, summary="What changed between two checkpoints"
)
async def diff(
    run_id: UUID,
    who: Reader,
    faces: FacesDep,
    first: Annotated[int, Query(alias="from", ge=0, lt=2**31, description="The number of one checkpoint")],
    second: Annotated[int, Query(alias="to", ge=0, lt=2**31, description="The number of another")],
) -> dict[str, Any]:
    """Shows the changes as operations of a JSON Patch, each with the value before."""
    before, after = await faces.reader.checkpoints(who.tenant, run_id, first, second)
    found = [asdict(change) for change in changes(before["state"], after["state"])]
    return {"run_id": run_id, "from_superstep": first, "to_superstep": second, "changes": found}


@router.get("/{run_id}/checkpoints/{number}", response_model=models.Checkpoint, summary="One checkpoint of a run")
async def checkpoint(run_id: UUID, number: Annotated[int, Path(ge=0, lt=2**31)], who: Reader, faces: FacesDep) -> Row:
    """The state as it was at the barrier with this number."""
    (found,) = await faces.reader.checkpoints(who.tenant, run_id, number)
    return found


@router.get("/{run_id}/ledger", response_model=models.Page[models.LedgerEntry], summary="The ledger of a run")
async def ledger(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Every write to the channels that keep one, in the order of super-steps."""
    after = paging.after(int, int)
    await run_row(faces, who.tenant, run_id)
    rows = await faces.ask(who.tenant, read_models.ledger_page, run_id, paging.limit + 1, *after)
    return paging.page(rows, "superstep", "number")


@router.get("/{run_id}/receipts", response_model=models.Page[models.Receipt], summary="The receipts of a run")
async def receipts(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists every side effect: the attempt, its result, and how to reverse it, in the order of intent."""
    seen = await faces.reader.at(who.tenant, run_id)
    rows = [{**row, "request": attempted(row)} for row in seen.receipts]
    return paging.page_of_all(rows, intended_at=datetime, receipt_id=UUID)


@router.get("/{run_id}/timeline", response_model=models.Page[models.TimelineEvent], summary="What happened in a run")
async def timeline(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """The facts of the audit chain in their order. They hold no values."""
    (last,) = paging.after(int) or [-1]
    lines = await faces.reader.lines(who.tenant, run_id)
    first = max(last, -1) + 1
    numbered = enumerate(map(orjson.loads, lines[first : first + paging.limit + 1]), first)
    return paging.page([{**line, "seq": seq, "at": line["ts"]} for seq, line in numbered], "seq")


@router.get("/{run_id}/audit", response_model=models.Page[models.AuditLine], summary="The audit chain of a run")
async def audit_lines(run_id: UUID, who: Auditor, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """The exact lines that are hashed. Reading them is an audit event of the tenant."""
    after = paging.after(int)
    await run_row(faces, who.tenant, run_id)
    rows = await faces.ask(who.tenant, read_models.audit_page, run_id, paging.limit + 1, *after)
    read: JsonObject = {"run": str(run_id), "what": "audit"}
    await faces.ask(who.tenant, audit.record, EventType.EVIDENCE_READ, who.actor, read)
    return paging.page([{**row, "line": row["line"].decode(errors="backslashreplace")} for row in rows], "seq")


@router.post("/{run_id}/cancel", response_model=models.CancelAnswer, summary="Cancel a run")
async def cancel(run_id: UUID, body: models.Cancel, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Cancels the run with its waits and open steps; an action under way ends first. 409 if the run has ended. What it
    has done stays done: `done` lists it, with what can be reversed.
    """
    async with faces.database.transaction(who.tenant) as connection:
        status = await steering.cancel_run(connection, faces.definitions, who.tenant, run_id, who.actor, body.reason)
    return {"run_id": run_id, "status": status, "done": await effects_of(faces, who.tenant, run_id)}


@router.post("/{run_id}/close", response_model=models.RunAnswer, summary="Close an open run")
async def close(run_id: UUID, body: models.Close, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Closes an open run: it ends when the steps that it has are done. 409 if it is not open."""
    async with faces.database.transaction(who.tenant) as connection:
        status = await steering.close_run(connection, faces.definitions, who.tenant, run_id, who.actor, body.reason)
    return {"run_id": run_id, "status": status}


@router.post("/{run_id}/retry", response_model=models.RunAnswer, summary="Go on with a failed run")
async def retry(run_id: UUID, body: models.Retry, who: Operator, faces: FacesDep) -> dict[str, Any]:
    """Begins the failed steps anew; completed steps stay. 409 says why this is not possible."""
    async with faces.database.transaction(who.tenant) as connection:
        status = await retry_run(connection, faces.definitions, who.tenant, run_id, who.actor, body.reason)
    return {"run_id": run_id, "status": status}


@router.post(
    "/{run_id}/fork",
    response_model=models.ForkAnswer,
    status_code=201,
    summary="Begin a run from an earlier point of one that is over",
    responses={200: {"model": models.ForkAnswer, "description": "The preview"}},
)
async def fork(run_id: UUID, body: models.Fork, who: Operator, faces: FacesDep, response: Response) -> dict[str, Any]:
    """Begins a run: what was done at that point stays done, with its values; all else is judged and asked anew. 409
    says why that is not possible.
    """
    order = forking.Order(run_id, body.at, body.reason, body.again)
    made: UUID | None = None
    async with faces.database.transaction(who.tenant) as connection:
        if body.preview:
            response.status_code = 200
            found = await forking.preview(connection, faces.definitions, who.tenant, order)
        else:
            forked = await forking.fork_run(connection, faces.definitions, who.tenant, order, who.actor)
            made, found = forked.run_id, forked.preview
    return {"run_id": made, "origin": run_id, **fork_summary(found)}


@router.post(
    "/{run_id}/steps/{step}/answer",
    response_model=models.HoldAnswer,
    summary="Say what becomes of a held step",
    responses={
        403: {"description": "You are not in the group that is asked, or have a part in the step"},
        409: {"description": "The step waits for no answer (any more), or this one is not possible"},
    },
)
async def answer(run_id: UUID, step: str, body: models.HoldIn, who: Steerer, faces: FacesDep) -> Any:
    """Tries a held step again, goes on without it, or cancels the run, as the token's subject, whose groups are read
    now. A step whose retry waits for its time is tried now by `again`.
    """
    fields = (body.answer, body.reason, VoteChannel.HTTP)
    asked = HoldRequest(who.tenant, who.person, *fields, run_id=run_id, step=step, admin=who.has(Role.ADMIN))
    reply = await faces.holding.answer(asked)
    if reply.accepted:
        return reply
    status = 409 if reply.code in ("over", "not_possible") else 403
    return problems.problem(status, reply.code, reply.sentence, run_status=reply.status)


def etag(version: int) -> str:
    """A run's version as a strong entity tag (RFC 9110, section 8.8.3)."""
    return f'"{version}"'


@evidence.get(
    "/{run_id}/evidence",
    response_class=Response,
    summary="Download a run's evidence bundle",
    responses={
        200: {"content": {"application/zip": {}}, "description": "The signed bundle"},
        409: {"description": "The run has not ended, or its bundle is being written, or was refused"},
    },
)
async def download(run_id: UUID, who: Auditor, faces: FacesDep) -> Response:
    """The stored bytes, checked against the SHA-256 in the database (`ETag`, `Content-Digest` of RFC 9530). The
    download is an audit event, committed before the first byte is sent. Its values stand in `/evidence/values`.
    """
    row = await _newest(run_id, who, faces)
    if isinstance(row, Response):
        return row
    return _file(await exported(faces, who.tenant, who.actor, row), row["name"], "application/zip")


@evidence.get(
    "/{run_id}/evidence/values",
    response_class=Response,
    summary="Download the values of a run's evidence bundle",
    responses={
        200: {
            "content": {"application/jsonl": {}},
            "description": "The sidecar of the bundle, which names its SHA-256",
        },
        409: {"description": "As for the bundle"},
        410: {"description": "The values were erased, or none was opened"},
    },
)
async def values(run_id: UUID, who: Auditor, faces: FacesDep) -> Response:
    """Cards, reasons and values of the bundle: `evidence verify` finds them beside it under the name that is sent here.
    The download is an audit event.
    """
    row = await _newest(run_id, who, faces)
    if isinstance(row, Response):
        return row
    data = await values_exported(faces, who.tenant, who.actor, row, await fetched(faces, who.tenant, row))
    if data is None:
        erased = row["purged_at"] is not None
        words = "The values of this run are erased." if erased else "The bundle opens no values."
        return problems.problem(410, "erased" if erased else "no_values", words)
    return _file(data, row["name"] + VALUES, "application/jsonl")


async def _newest(run_id: UUID, who: Auditor, faces: FacesDep) -> Row | Response:
    """The row of a run's newest bundle, or the reason why there is none."""
    run = await run_row(faces, who.tenant, run_id)
    if run["status"] not in ENDED:
        words = f"The run is {run['status']}; its evidence is written when it has ended."
        return problems.problem(409, "unfinished", words)
    row = await faces.ask(who.tenant, read_models.bundle, run_id)
    if row is None and run["evidence_problem"] is not None:
        return problems.problem(409, "not_signed", f"{NOT_STORED}: {run['evidence_problem']}", remedy=remedy(run_id))
    if row is None:
        words = "The bundle is being written; try again in a moment."
        return problems.problem(409, "being_written", words, {"Retry-After": "1"})
    return row


def _file(data: bytes, name: str, kind: str) -> Response:
    digest = sha256_hex(data)
    headers = {
        "ETag": f'"{digest}"',
        "Content-Digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-store",
    }
    return Response(data, media_type=kind, headers=headers)
