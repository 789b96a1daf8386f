"""The agents of a run over HTTP: what each agent's model asked for in each turn, and the results."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from app.http import models
from app.http.dependencies import FacesDep, Paged, Reader

router = APIRouter(prefix="/v1/runs", tags=["runs"])


class AgentCall(BaseModel):
    """One call by a model. ``asked`` is the text that it wrote, ``came`` the call's one result (``open``: none yet).

    ``by`` is the person who rejected the call.
    """

    step_key: str
    tool: str
    source: str
    asked: str
    came: str
    reason: str
    by: str
    status: str


class AgentTurn(BaseModel):
    """One turn: what the model said, what it called, and the agent's result if this turn ended it."""

    turn: int
    step_key: str
    status: str
    came: str
    reason: str
    tokens: int
    says: str
    result: Any
    calls: list[AgentCall]


class AgentStory(BaseModel):
    """One agent. ``limit`` is the limit that ended it; ``cost_usd`` is null if a price is unknown."""

    step_key: str
    model: str
    tools: list[str]
    status: str
    limit: str
    calls: int
    refusals: int
    tokens: int
    cost_usd: str | None
    turns: list[AgentTurn]


@router.get("/{run_id}/agents", response_model=models.Page[AgentStory], summary="The agents of a run, turn by turn")
async def agents(run_id: UUID, who: Reader, faces: FacesDep, paging: Paged) -> dict[str, Any]:
    """Lists the agents by their steps. Texts are quoted from models and tools."""
    seen = await faces.reader.at(who.tenant, run_id)
    return paging.page_of_all(seen.agents, step_key=str)
