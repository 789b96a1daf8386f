"""Waits of a run, signals that end them, and extensions of its graph."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Path, Response
from msgspec import structs
from pydantic import BaseModel, Field

from app.access import Role
from app.http import models, problems
from app.http.dependencies import Composer, Extender, FacesDep, Paged, Reader, Signaler, check_own
from app.http.runs import etag
from app.shown import run_row, signal_sentence
from core.durations import parse_duration
from core.errors import InputError
from runtime.definition.edges import EdgeKind, edges_of, nodes_of
from runtime.requests.postponing import PutOff, put_off
from runtime.requests.signaling import ID_CHARACTERS_MAX, Signal, SignalCode, Signaling
from runtime.requests.steering import Extending, VersionMoved
from runtime.store import read_models

router = APIRouter(prefix="/v1/signals", tags=["signals"])
extending = APIRouter(prefix="/v1/runs", tags=["runs"])

Key = Annotated[str, Path(description="The correlation key of the wait; `/` and other characters percent-encoded")]


class SignalError(models.In):
    """The error that happened outside: the waiting step fails with it."""

    code: Annotated[str, Field(min_length=1, max_length=100, pattern=models.PRINTABLE)]
    message: Annotated[str, Field(max_length=4000)] = ""


class SignalIn(models.In):
    """A signal: `output`, or `error`, or neither, if it only says that something happened.

    The sender chooses `id`. A second signal with the same id is a no-op. Without an id, the SHA-256 of the key and the
    body is used, so a repeated delivery is harmless; to send the same body twice on purpose, give two ids. With `token`
    or `version`, the signal is only for the wait that has this token or that the commit of this version opened.
    """

    id: Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS_MAX)] | None = None
    output: Any = None
    error: SignalError | None = None
    token: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    version: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = None


class SignalOut(BaseModel):
    """The result of a signal; `sentence` says it in words. `kept`: no wait has its key yet. `already_ended`: its wait
    or run is over, and it changes nothing. `repeated`: the signal was recorded before.
    """

    code: SignalCode
    id: str
    repeated: bool
    run_id: UUID | None
    step: str | None
    sentence: str


class PutOffIn(models.In):
    """A later deadline: the moment `until` (RFC 3339), or the duration `for` from now (ISO 8601, such as `P7D`).

    With `token`, it counts only for the wait with this token.
    """

    token: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    until: datetime | None = None
    for_: Annotated[str | None, Field(alias="for", min_length=1, max_length=50)] = None


class PutOffOut(BaseModel):
    """The wait's deadline now. `changed` is false if it was not earlier before."""

    run_id: UUID
    step: str
    due_at: datetime
    changed: bool


@router.post(
    "/{correlation_key:path}/extend",
    response_model=PutOffOut,
    summary="Say that what goes on outside takes longer",
    responses={
        404: {"description": "Nothing outside was begun with this key"},
        409: {"description": "The wait is over, the token is stale, or the operation lets nobody put its end off"},
    },
)
async def extend_wait(correlation_key: Key, body: PutOffIn, who: Signaler, faces: FacesDep) -> Any:
    """Extends the deadline of a durable operation's wait, at most to the `extend_to` of its declaration."""
    try:
        span = None if body.for_ is None else parse_duration(body.for_)
    except InputError as error:
        raise InputError(error.message, where="for", remedy=error.remedy) from None
    order = PutOff(who.tenant, correlation_key, who.actor, body.token, body.until, span)
    return await put_off(faces.database, faces.definitions, order)


@router.post(
    "/{correlation_key:path}",
    response_model=SignalOut,
    summary="Signal whoever waits for this key",
    responses={
        202: {
            "model": SignalOut,
            "description": "Nothing waits for it yet; it is kept for 30 days, and delivered when something does",
        },
        409: {"description": "Stale, because no wait has its token or version; or a duplicate. It changes nothing"},
    },
)
async def signal(correlation_key: Key, body: SignalIn, who: Signaler, faces: FacesDep, response: Response) -> Any:
    """Records a signal, then acts on it. The signal is committed before the answer. A signal ends waits for signals and
    for durable operations. It cannot complete a task, which people do, nor report the end of a child run.
    """
    fields = body.model_dump(exclude={"id"})
    if body.error is not None and body.output is not None:
        return problems.problem(422, "input", "A signal has an output or an error, not both.", where="error")
    sent = Signal(who.tenant, correlation_key, body.id, who.actor, **fields)
    answer = await Signaling(faces.database, faces.definitions).signal(sent)
    sentence = signal_sentence(answer, correlation_key)
    if answer.code not in (SignalCode.DELIVERED, SignalCode.KEPT, SignalCode.ENDED):
        more: dict[str, Any] = {"repeated": answer.repeated, "run_id": str(answer.run_id), "step": answer.step}
        return problems.problem(409, str(answer.code), sentence, **more)
    if answer.code is SignalCode.KEPT:
        response.status_code = 202
    return {**structs.asdict(answer), "sentence": sentence}


_VERSION = re.compile(r'\s*"?(?P<version>[1-9][0-9]{0,8})"?\s*\Z')

IfMatch = Annotated[
    str | None,
    Header(max_length=100, description="The run's version that was looked at: the `ETag` of `GET /v1/runs/{run_id}`"),
]


class Extension(models.In):
    """New steps, as in a workflow. Each existing step named in `before` waits for the last of them."""

    steps: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)]
    before: Annotated[list[str], Field(max_length=100)] = Field(default_factory=list)


class ExtendedOut(BaseModel):
    """The extension's number in the run, the ids that are new in the graph, and the run's version now."""

    number: int
    steps: list[str]
    version: int


class Mutation(BaseModel):
    """One extension: who added what, and when. `source` is what was sent."""

    number: int
    actor: str
    source: dict[str, Any]
    created_at: datetime


class Wait(BaseModel):
    """A wait, open or ended. `version` is the run's version after the commit that opened it. `token` is null unless the
    caller has the role operator.
    """

    wait_id: UUID
    step_key: str
    kind: str
    status: str
    correlation_key: str | None
    version: int
    token: str | None
    due_at: datetime | None
    created_at: datetime
    completed_at: datetime | None


class NodeOut(BaseModel):
    """One node; `inside` and `part` say in which condition, loop or branch it stands."""

    id: str
    operation: str
    inside: str | None
    part: str | None


class EdgeOut(BaseModel):
    """One edge, from one node to another."""

    source: str
    target: str
    kind: EdgeKind


class GraphOut(BaseModel):
    """The workflow's graph with all extensions of this run."""

    workflow: str
    version: int
    extensions: int
    nodes: list[NodeOut]
    edges: list[EdgeOut]


@extending.get("/{run_id}/graph", response_model=GraphOut, summary="The graph of a run")
async def graph(run_id: UUID, who: Composer, faces: FacesDep) -> dict[str, Any]:
    """Nodes, and edges of kind `sequence` (must end first), `data` (is read by) and `branch` (contains)."""
    row = await run_row(faces, who.tenant, run_id)
    check_own(who, row)
    *earlier, workflow = await faces.reader.editions(who.tenant, run_id)
    named = {"workflow": row["workflow"], "version": row["workflow_version"], "extensions": len(earlier)}
    return {**named, "nodes": nodes_of(workflow.graph), "edges": edges_of(workflow.graph)}


@extending.get("/{run_id}/waits", response_model=models.Page[Wait], summary="What a run waits for")
async def waits(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists the run's waits, also those that are over, oldest first. A signal to its `correlation_key` ends a wait."""
    after = paging.after(datetime, UUID)
    opened = await faces.reader.waits(who.tenant, run_id)
    rows = await faces.ask(who.tenant, read_models.waits_page, [*opened], paging.limit + 1, *after)
    hidden = {} if who.has(Role.OPERATOR) else {"token": None}
    return paging.page([{**row, "version": opened[row["wait_id"]], **hidden} for row in rows], "created_at", "wait_id")


@extending.get("/{run_id}/mutations", response_model=models.Page[Mutation], summary="What was added to a run")
async def mutations(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists the extensions of the run's graph, in their order."""
    seen = await faces.reader.at(who.tenant, run_id)
    return paging.page_of_all(seen.extensions, number=int)


@extending.post(
    "/{run_id}/steps",
    status_code=201,
    response_model=ExtendedOut,
    summary="Add steps to a run",
    responses={
        409: {"description": "The run has ended, or the steps read what cannot be read back now"},
        412: {"description": "The run has moved on since it was looked at"},
        428: {"description": "`If-Match` is missing"},
    },
)
async def extend(
    run_id: UUID, body: Extension, who: Extender, faces: FacesDep, response: Response, if_match: IfMatch = None
) -> Any:
    """Adds steps, which are checked like a definition and governed like any others. The audit names who added them. An
    author may extend only runs that were started in its own name.
    """
    check_own(who, await run_row(faces, who.tenant, run_id))
    if if_match is None:
        words = "If-Match is missing: say which version of the run you have looked at."
        return problems.problem(428, "precondition_required", words, remedy="Send the ETag of GET /v1/runs/{run_id}.")
    if (match := _VERSION.match(if_match)) is None:
        remedy = 'Send the ETag of the run, such as "12".'
        raise InputError("is not one version of a run.", where="If-Match", remedy=remedy)
    source = {"steps": body.steps, **({"before": body.before} if body.before else {})}
    service, number = Extending(faces.database, faces.definitions), int(match["version"])
    try:
        extended = await service.extend(who.tenant, run_id, who.actor, source, number)
    except VersionMoved as error:
        return problems.problem(412, "version", error.message, remedy=error.remedy)
    response.headers["ETag"] = etag(extended.version)
    response.headers["Location"] = f"/v1/runs/{run_id}/mutations"
    return extended
