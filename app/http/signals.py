"""Signals: what the outside says to a run that waits, such as the end of a durable operation (V-10, X-16, X-17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from app.http import models, problems
from app.http.parts import FacesDep, Signaler
from runtime.requests.signaling import ID_CHARACTERS_MAX, Signal, SignalAnswer, SignalCode, default_id

router = APIRouter(prefix="/v1/signals", tags=["signals"])

# Why a signal that is on record changes nothing.
SENTENCES: Mapping[SignalCode, str] = {
    SignalCode.LATE: "What this signal would have ended is over. It was recorded, and changes nothing.",
    SignalCode.STALE: "The token is not that of the wait which is open now. It was recorded, and changes nothing.",
    SignalCode.VERSION: "The run is at another version than the signal expects. It was recorded, and changes nothing.",
}

Key = Annotated[str, Path(description="The correlation key of the wait; `/` and other characters percent-encoded")]


class SignalError(models.In):
    """What went wrong outside: the waiting step fails with it."""

    code: Annotated[str, Field(min_length=1, max_length=100, pattern=models.PRINTABLE)]
    message: Annotated[str, Field(max_length=4000)] = ""


class SignalIn(models.In):
    """What is said: `output`, or `error`, or nothing but that it happened.

    `id` is the sender's own: the same one said again is the same signal, and changes nothing. Without it, the SHA-256
    of the key and the body stands for it, so a repeated delivery is harmless; who means to say the same thing twice
    gives ids. With `token` or `version`, it counts only for the wait with this token, or the run at this version.
    """

    id: Annotated[str, Field(min_length=1, max_length=ID_CHARACTERS_MAX)] | None = None
    output: Any = None
    error: SignalError | None = None
    token: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    version: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = None


class SignalOut(BaseModel):
    """What became of it. `kept`: nothing waits for it yet. `repeated`: it was known before."""

    code: SignalCode
    id: str
    repeated: bool
    run_id: UUID | None
    step: str | None


@router.post(
    "/{correlation_key:path}",
    response_model=SignalOut,
    summary="Signal whoever waits for this key",
    responses={
        202: {
            "model": SignalOut,
            "description": "Nothing waits for it yet; it is kept, and delivered when something does",
        },
        409: {"description": "Late, stale, or for another version of the run; it is on record and changes nothing"},
    },
)
async def signal(correlation_key: Key, body: SignalIn, who: Signaler, faces: FacesDep, response: Response) -> Any:
    """It is recorded before it is acted on, and committed when this answers. A signal ends waits for signals and for
    durable operations; tasks are completed by people, and the end of a run within is nobody's to announce.
    """
    said = body.model_dump(exclude={"id"})
    if body.error is not None and body.output is not None:
        return problems.problem(422, "input", "A signal has an output or an error, not both.", where="error")
    sent = Signal(
        tenant_id=who.tenant,
        correlation_key=correlation_key,
        id=body.id or default_id(correlation_key, said),
        actor=who.actor,
        output=body.output,
        error=None if body.error is None else body.error.model_dump(),
        token=body.token,
        version=body.version,
    )
    answer = await faces.signaling.signal(sent)
    if sentence := SENTENCES.get(answer.code):
        more: dict[str, Any] = {"repeated": answer.repeated, "run_id": str(answer.run_id), "step": answer.step}
        return problems.problem(409, str(answer.code), sentence, **more)
    if answer.code is SignalCode.KEPT:
        response.status_code = 202
    return outcome(sent, answer)


def outcome(sent: Signal, answer: SignalAnswer) -> dict[str, Any]:
    """What became of a signal, for its sender."""
    return {
        "code": answer.code,
        "id": sent.id,
        "repeated": answer.repeated,
        "run_id": answer.run_id,
        "step": answer.step,
    }
