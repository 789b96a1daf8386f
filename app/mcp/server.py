"""The methods of the protocol, for an agent: what there is, a call, and how it stands.

A call is accepted for good before anybody waits for it. Its id, its progress and its end mean nothing to the action:
who cancels, gives up or comes again ends or begins a waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.access import Principal
from app.budgeting import CHARGES
from app.faces import Faces, version
from app.http.actions import POLL_SECONDS, WAIT_SECONDS_MAX, begun
from app.http.models import PRINTABLE, REFERENCE
from app.mcp import tools
from app.mcp.wire import HANDSHAKE, MODERN, SERVER_INFO, TASKS, Code, Message, Refused
from core.budgets import OverLimit
from core.canonical import Json, JsonObject, canonical_bytes
from core.db import Connection
from core.errors import AuthorizationError, ConsistencyError, CountersealError, InputError, NotFoundError
from runtime.requests import acting
from runtime.requests.acting import ActionStatus, Standing, Wanted, standing

NEWEST = 20
# Who knows tasks is answered with one unless the call is settled so soon.
SOON_SECONDS = 1.0
_INSTRUCTIONS = (
    "Each call is judged by policy, and people may be asked first. A result with the status pending is no failure: it "
    f"is not done yet. Look again with {tools.STATUS}, or make the same call again, which attaches to it. What has "
    "isError was not done, or failed: its detail says why. Do not do in another way what was denied or rejected."
)
_WORDS: Mapping[str, str] = {
    ActionStatus.PENDING: "People are asked about this call, and it is not done yet.",
    ActionStatus.IN_DOUBT: "It was sent, and nobody knows if it was done. People find out; do not do it again.",
    ActionStatus.APPLIED: "It is done.",
    ActionStatus.FAILED: "It has failed.",
}
_AGAIN = f"Look again with {tools.STATUS} and this id, or make the same call again: it attaches."
# The errors of a call that a model can do something about; all others are answered like anywhere else.
_TOLD = (AuthorizationError, ConsistencyError, InputError, NotFoundError, OverLimit)


class CallMeta(BaseModel):
    """Words of the agent about a call, in ``_meta``. They bind it more, and allow nothing.

    ``for``: this person does not decide. ``key``: the same key is the same call. ``wait``: so many seconds at most.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    acts_for: Annotated[str | None, Field(alias="counterseal/for", min_length=1, max_length=200, pattern=PRINTABLE)] = (
        None
    )
    key: Annotated[str | None, Field(alias="counterseal/key", min_length=1, max_length=200, pattern=PRINTABLE)] = None
    session: Annotated[str, Field(alias="counterseal/session", max_length=200, pattern=REFERENCE)] = ""
    wait: Annotated[float, Field(alias="counterseal/wait", ge=0, le=WAIT_SECONDS_MAX)] = WAIT_SECONDS_MAX


class _Status(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: UUID | None = None
    wait: Annotated[float, Field(ge=0, le=WAIT_SECONDS_MAX)] = 0


class _Withdraw(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: UUID


class Held(Struct, frozen=True):
    """A call that is accepted and not settled: its answer may wait so many seconds. ``task``: it may be one."""

    run_id: UUID
    seconds: float
    task: bool = False


class Server(Struct, frozen=True):
    """The methods for one agent. ``prove`` looks again if its token is good."""

    faces: Faces
    who: Principal
    prove: Callable[[], Awaitable[Principal]]

    async def answer(self, message: Message) -> JsonObject | Held:
        """The result of a request, or what it waits for. ``Refused`` if there is no such method."""
        match message.method:
            case "initialize" if not message.modern:
                return _welcome(message)
            case "ping":
                return {}
            case "server/discover" if message.modern:
                return _discovered()
            case "tools/list":
                return await self._listed(message)
            case "tools/call":
                return await self._called(message)
            case "tasks/get" | "tasks/update" | "tasks/cancel":
                return await self._task(message)
        raise Refused(Code.METHOD_NOT_FOUND, "There is no such method.")

    async def settled(self, held: Held) -> JsonObject:
        """The result of a call that was waited for: how it stands now."""
        found = await self._standing(held.run_id)
        if held.task and not found.settled:
            return {"resultType": "task", **task_of(found)}
        return result_of(found)

    async def wait(self, held: Held) -> None:
        """Wait until the call is settled, or its time is over. Whoever ends this ends the waiting alone.

        ``AuthenticationError`` if the token has ended meanwhile.
        """
        await self.faces.waiting.ended(self.who.tenant, held.run_id, held.seconds)
        await self.prove()

    async def _listed(self, message: Message) -> JsonObject:
        cursor = message.params.get("cursor", "")
        try:
            found, following = await tools.page(self.faces, self.who, cursor if isinstance(cursor, str) else "?")
        except InputError as error:
            raise Refused(Code.INVALID_PARAMS, str(error)) from None
        more: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if message.modern else {}
        return {"tools": [*found], **more, **({"nextCursor": following} if following else {})}

    async def _called(self, message: Message) -> JsonObject | Held:
        name, arguments = message.text("name"), message.params.get("arguments")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise Refused(Code.INVALID_PARAMS, "params.arguments must be an object")
        try:
            if name == tools.STATUS:
                return await self._status(_Status.model_validate(arguments))
            if name == tools.WITHDRAW:
                return await self._withdrawn(_Withdraw.model_validate(arguments).id)
            return await self._asked(message, name, arguments)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(str(part) for part in fault["loc"])
            return _refusal(InputError(fault["msg"], where=where))
        except _TOLD as error:
            if isinstance(error, OverLimit):
                await self.faces.budgets.refusals.note(self.who.tenant, "http", error.limit)
            return _refusal(error)

    async def _asked(self, message: Message, name: str, arguments: JsonObject) -> JsonObject | Held:
        meta, faces, tenant = CallMeta.model_validate(message.meta), self.faces, self.who.tenant
        operation = (await faces.ask(tenant, tools.named, faces)).operation(name)
        if operation is None:
            raise Refused(Code.INVALID_PARAMS, f"There is no tool {name[:200]!r}.")
        faces.budgets.take(tenant, CHARGES["POST", "/v1/actions"])
        limit = faces.budgets.meter.limit
        wanted = Wanted(
            tenant_id=tenant,
            workspace_id=faces.settings.workspace,
            account=self.who.subject,
            actor=self.who.actor,
            operation=operation,
            input=arguments,
            key=meta.key or "",
            session=meta.session,
            acts_for=meta.acts_for,
            a_minute=limit("agent_actions"),
            asking=limit("agent_questions"),
        )
        # Accepted here; a crash, or a client that is gone, from now on ends the waiting alone.
        run_id = await begun(faces, wanted)
        most = min(meta.wait, SOON_SECONDS) if message.knows_tasks else meta.wait
        found = await self._standing(run_id)
        return result_of(found) if found.settled else Held(run_id, most, message.knows_tasks)

    async def _status(self, wanted: _Status) -> JsonObject | Held:
        if wanted.id is None:
            found = await self.faces.ask(self.who.tenant, self._newest)
            listed: list[Json] = [structured(one) for one in found]
            return _result({"actions": listed}, f"{len(listed)} of your actions, the newest first.", failed=False)
        one = await self._standing(wanted.id)
        return Held(wanted.id, wanted.wait) if wanted.wait and not one.settled else result_of(one)

    async def _newest(self, connection: Connection, tenant: str) -> list[Standing]:
        return await acting.page(connection, tenant, self.faces.definitions, self.who.subject, None, None, NEWEST)

    async def _withdrawn(self, run_id: UUID) -> JsonObject:
        tenant, definitions = self.who.tenant, self.faces.definitions
        async with self.faces.database.transaction(tenant) as connection:
            await acting.withdraw(connection, tenant, definitions, self.who.subject, self.who.actor, run_id)
        return result_of(await self._standing(run_id), failed=False)

    async def _task(self, message: Message) -> JsonObject:
        if not message.knows_tasks:
            data: JsonObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise Refused(Code.MISSING_CAPABILITY, f"The client has not declared {TASKS}.", data)
        try:
            found = await self._standing(UUID(message.text("taskId")))
        except (ValueError, NotFoundError):
            raise Refused(Code.INVALID_PARAMS, "There is no such task of yours.") from None
        if message.method == "tasks/update":
            raise Refused(Code.INVALID_PARAMS, "This task asks its client nothing; people decide elsewhere.")
        if message.method == "tasks/cancel":
            return {}  # it ends the client's waiting; an action is withdrawn by a tool of its own
        outcome: JsonObject = {}
        if found.settled and found.status is not ActionStatus.CANCELED:
            outcome = {"result": {"resultType": "complete", **result_of(found)}}
        return {**task_of(found), **outcome}

    async def _standing(self, run_id: UUID) -> Standing:
        return await self.faces.ask(self.who.tenant, standing, self.faces.definitions, self.who.subject, run_id)


def _welcome(message: Message) -> JsonObject:
    asked = message.params.get("protocolVersion")
    if not isinstance(asked, str):
        raise Refused(Code.INVALID_PARAMS, "params.protocolVersion must be a text")
    return {
        "protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": _info(),
        "instructions": _INSTRUCTIONS,
    }


def _discovered() -> JsonObject:
    return {
        "supportedVersions": [*MODERN],
        "capabilities": {"tools": {"listChanged": False}, "extensions": {TASKS: {}}},
        "instructions": _INSTRUCTIONS,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: _info()},
    }


def _info() -> JsonObject:
    return {"name": "counterseal", "title": "Counterseal", "version": version()}


def structured(found: Standing) -> JsonObject:
    """An action as its agent sees it, the same as over HTTP."""
    return {
        "id": str(found.id),
        "status": str(found.status),
        "settled": found.settled,
        "digest": found.digest,
        "session": found.session,
        "output": found.output,
        "detail": found.detail,
        "poll_after": None if found.settled else POLL_SECONDS,
        "url": f"/v1/actions/{found.id}",
    }


def result_of(found: Standing, *, failed: bool | None = None) -> JsonObject:
    """An action as the result of a tool. It is an error if the action is over, and was not done for sure."""
    words = _WORDS.get(found.status, f"It was not done: {found.status}." if found.settled else "It is under way.")
    words = " ".join(part for part in (words, found.detail, "" if found.settled else _AGAIN) if part)
    over = found.settled and found.status is not ActionStatus.APPLIED
    return _result(structured(found), words, failed=over if failed is None else failed)


def _result(shown: JsonObject, words: str, *, failed: bool) -> JsonObject:
    texts = (words, canonical_bytes(shown).decode())
    content: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": content, "structuredContent": shown, "isError": failed}


def _refusal(error: CountersealError) -> JsonObject:
    """An error as the result of a tool: nothing was begun."""
    shown: dict[str, Any] = {"code": error.code, "detail": str(error), "remedy": error.remedy or ""}
    if isinstance(error, OverLimit):
        shown |= {"limit": error.limit, "retry_after": error.seconds}
    return _result(shown, " ".join(part for part in (str(error), error.remedy) if part), failed=True)


def task_of(found: Standing) -> JsonObject:
    """An action as a task. Its id is the action's, so whatever process is asked knows it."""
    begun = datetime.fromtimestamp((found.id.int >> 80) / 1000, UTC).isoformat()
    over = "cancelled" if found.status is ActionStatus.CANCELED else "completed"
    return {
        "taskId": str(found.id),
        "status": over if found.settled else "working",
        "statusMessage": _WORDS.get(found.status, str(found.status)),
        "createdAt": begun,
        "lastUpdatedAt": begun,
        "ttlMs": None,
        "pollIntervalMs": POLL_SECONDS * 1000,
    }
