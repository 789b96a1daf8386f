"""Actions of agents: one governed call of an operation each."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field, model_validator

from app.access import Principal
from app.faces import Faces
from app.http import models
from app.http.dependencies import Agent, FacesDep, Paged, wait_until_over
from runtime.requests import acting
from runtime.requests.acting import ActionStatus, Standing, Wanted, act, page, standing

router = APIRouter(prefix="/v1/actions", tags=["actions"])

WAIT_SECONDS_MAX = 50
# An agent that gets no answer within its time asks again after so many seconds.
POLL_SECONDS = 5
# A page folds the book of each action on it.
PAGE_MAX = 50
Wait = Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX, description="Seconds to wait for the action to be settled")]


class AskAction(models.In):
    """An action that an agent asks for. ``for`` names the person for whom it says that it acts: they do not decide.

    ``perform`` has an operation and its input. ``gate`` has a tool and its arguments: the agent carries it out itself.
    """

    mode: Literal["perform", "gate"] = "perform"
    operation: Annotated[str | None, Field(max_length=200, pattern=models.PRINTABLE)] = None
    input: dict[str, Any] | None = None
    tool: Annotated[str | None, Field(min_length=1, max_length=200, pattern=models.PRINTABLE)] = None
    arguments: dict[str, Any] | None = None
    session: Annotated[str, Field(max_length=200, pattern=models.REFERENCE)] = ""
    acts_for: Annotated[str | None, Field(alias="for", min_length=1, max_length=200, pattern=models.PRINTABLE)] = None
    wait: Annotated[float, Field(ge=0, le=50)] = 0

    @model_validator(mode="after")
    def _of_its_mode(self) -> AskAction:
        perform, gate = (self.operation, self.input), (self.tool, self.arguments)
        its, other = (perform, gate) if self.mode == "perform" else (gate, perform)
        if None in its or other != (None, None):
            raise ValueError("`perform` has `operation` and `input`, `gate` has `tool` and `arguments`, and no others")
        return self


class Action(BaseModel):
    """An action of an agent. ``digest`` is the SHA-256 of the RFC 8785 form of ``{"input": …, "operation": …}``, or of
    ``{"arguments": …, "mode": "gate", "tool": …}``.

    ``settled``: nothing of it changes any more. Until then look again after ``poll_after`` seconds. ``detail`` says why
    it was refused or has failed.
    """

    id: UUID
    status: ActionStatus
    settled: bool
    digest: str
    session: str
    output: Any
    detail: str
    poll_after: int | None
    url: str


_PENDING: dict[int | str, dict[str, Any]] = {202: {"model": Action, "description": "It is not settled yet"}}


@router.post("", response_model=Action, summary="Ask for an action", responses=_PENDING)
async def ask(
    body: AskAction,
    who: Agent,
    faces: FacesDep,
    request: Request,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=200, pattern=models.PRINTABLE)] = None,
) -> dict[str, Any]:
    """Asks for one call of an operation, or of a tool that the agent carries out itself (`gate`): 200 if it is settled,
    else 202; then look again after `poll_after` seconds.

    The same key, or the same call while one is pending, is attached to the action that there is. 409: the key stands
    for another call.
    """
    limit, gate = faces.budgets.meter.limit, body.mode == "gate"
    wanted = Wanted(
        tenant_id=who.tenant,
        workspace_id=faces.settings.workspace,
        account=who.subject,
        actor=who.actor,
        operation=body.operation or "",
        input=(body.arguments if gate else body.input) or {},
        tool=body.tool,
        key=idempotency_key or "",
        session=body.session,
        acts_for=body.acts_for,
        a_minute=limit("agent_actions"),
        asking=limit("agent_questions"),
    )

    run_id = await begun(faces, wanted)
    response.headers["Location"] = f"/v1/actions/{run_id}"
    return await answered(request, faces, who, run_id, body.wait, response)


@router.get("", response_model=models.Page[Action], summary="List your actions, newest first")
async def listed(
    who: Agent,
    faces: FacesDep,
    paging: Paged,
    session: Annotated[str | None, Query(max_length=200, pattern=models.REFERENCE)] = None,
) -> dict[str, Any]:
    """The actions that the token's account has asked for, or those of one session."""
    (before,) = paging.after(UUID) or [None]
    limit = min(paging.limit, PAGE_MAX)
    found = await faces.ask(who.tenant, page, faces.definitions, who.subject, session, before, limit + 1)
    return replace(paging, limit=limit).page([_shown(one) for one in found], "id")


@router.get("/{action_id}", response_model=Action, summary="Look at one of your actions", responses=_PENDING)
async def one(
    action_id: UUID, who: Agent, faces: FacesDep, request: Request, response: Response, wait: Wait = 0
) -> dict[str, Any]:
    """The action now: 200 if it is settled, else 202. With `wait`, the answer comes when it is settled, or then."""
    return await answered(request, faces, who, action_id, wait, response)


@router.delete("/{action_id}", response_model=Action, summary="Withdraw an action", responses=_PENDING)
async def withdraw(
    action_id: UUID, who: Agent, faces: FacesDep, request: Request, response: Response
) -> dict[str, Any]:
    """Withdraws an action that is not settled: its question is void. What is on its way already is not called back. 409
    if it is settled, or in doubt: people find that out.
    """
    async with faces.database.transaction(who.tenant) as connection:
        await acting.withdraw(connection, who.tenant, faces.definitions, who.subject, who.actor, action_id)
    return await answered(request, faces, who, action_id, 0, response)


async def begun(faces: Faces, wanted: Wanted) -> UUID:
    """Begin an action, or find the one that it attaches to. What one agent asks for at once holds one connection."""

    async def make() -> UUID:
        async with faces.serial.of(wanted.tenant_id, wanted.account):
            return await faces.ask(wanted.tenant_id, act, faces.definitions, wanted)

    same = (wanted.tenant_id, wanted.account, wanted.call, wanted.acts_for, wanted.session)
    return await make() if wanted.key else await faces.serial.once(same, make)


async def answered(
    request: Request, faces: Faces, who: Principal, run_id: UUID, wait: float, response: Response
) -> dict[str, Any]:
    """The action now, or once it is settled, or after so many seconds."""
    found = await faces.ask(who.tenant, standing, faces.definitions, who.subject, run_id)
    if not found.settled and wait > 0:
        await wait_until_over(request, faces, run_id, wait)
        found = await faces.ask(who.tenant, standing, faces.definitions, who.subject, run_id)
    if not found.settled:
        response.status_code = 202
        response.headers["Retry-After"] = str(POLL_SECONDS)
    return _shown(found)


def _shown(found: Standing) -> dict[str, Any]:
    return {
        "id": found.id,
        "status": found.status,
        "settled": found.settled,
        "digest": found.digest,
        "session": found.session,
        "output": found.output,
        "detail": found.detail,
        "poll_after": None if found.settled else POLL_SECONDS,
        "url": f"/v1/actions/{found.id}",
    }
