"""Takes people's answers to held steps, for every face. The right to answer is read when the answer arrives.

Members of the group that the workflow names may answer, and the tenant's admins; never a machine. People who shaped the
step, or whom it is about, may not decide to go on without it.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from approvals.model import VoteChannel
from core.canonical import JsonObject, check_text
from core.db import Connection, Database
from core.errors import ConsistencyError, InputError, NotFoundError
from core.identity import Entry, Standing
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.engine.book.instructions import open_wait
from runtime.engine.life import holding
from runtime.engine.life.holding import Answer
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import StepRow, WaitRow
from runtime.engine.model.run import RunView
from runtime.engine.model.states import WaitKind
from runtime.requests.directory import actor_of
from runtime.requests.signaling import Moved, persistently
from runtime.store import audit, faces, holds
from runtime.store.views import load

_DONE = {
    Answer.AGAIN: "Recorded. The step is tried again.",
    Answer.WITHOUT: "Recorded. The run goes on without this step.",
    Answer.CANCEL: "Recorded. The run is canceled.",
}
_WHO = {
    Standing.UNKNOWN: "You are not in the directory",
    Standing.DEACTIVATED: "Your entry in the directory is deactivated",
    Standing.MACHINE: "You are a service account, and those never decide",
}


class HoldRequest(Struct, frozen=True):
    """A person's answer to a hold, which is named by its ``wait_id``, or by ``step``, a step's key or id in the run.

    ``admin``: the person's login has the role admin.
    """

    tenant_id: str
    person: str
    choice: Answer
    reason: str
    channel: VoteChannel
    run_id: UUID | None = None
    step: str = ""
    wait_id: UUID | None = None
    admin: bool = False


class HoldReply(Struct, frozen=True):
    """The reply to an answer. ``code`` is stable, ``sentence`` is for people; ``status`` is the run's, afterwards."""

    accepted: bool
    code: str
    sentence: str
    run_id: UUID
    status: str


class Holding(Struct, frozen=True):
    """Answers held steps of any tenant, under the faces' role. A face calls it after it has identified the person."""

    database: Database
    definitions: Definitions

    async def answer(self, asked: HoldRequest) -> HoldReply:
        """Check the right, then the state; record the answer, and wake the run. Refused answers are recorded as well.

        ``NotFoundError`` if there is no such hold or run, ``InputError`` without a reason.
        """
        check_text(asked.reason, "reason")
        if not asked.reason.strip():
            raise InputError("is empty", where="reason", remedy="Say why: it is kept in the audit.")

        async def attempt(lock: bool) -> HoldReply:
            async with self.database.transaction(asked.tenant_id) as connection:
                return await self._answer(connection, asked, lock=lock)

        return await persistently(attempt)

    async def _answer(self, connection: Connection, asked: HoldRequest, *, lock: bool) -> HoldReply:
        stored = None if asked.wait_id is None else await holds.read(connection, asked.wait_id)
        run_id = asked.run_id if stored is None else stored.run_id
        assert run_id is not None, "a hold or a run is named"
        view = await load(connection, run_id, self.definitions.graphs, lock=lock, tenant=asked.tenant_id)
        found = _waiting(view, asked.step if stored is None else stored.step, asked.wait_id)
        if found is None:
            answered = f" {stored.by} has answered it." if stored is not None and stored.by else ""
            return _reply(view, "over", f"This step waits for no answer (any more).{answered}")
        step, wait = found
        workflow = await self.definitions.of_run(connection, view.definition)
        people = await self.definitions.directory(connection, asked.tenant_id, view.directory_digest)
        transition = Transition(replace(view, directory=people), workflow.graph)
        entry = people.entry(asked.person)
        if (refused := _refused(transition, step, wait, asked, entry)) is not None:
            code, sentence = refused
            facts: JsonObject = {"wait": str(wait.wait_id), "run": str(run_id), "code": code}
            facts["channel"] = str(asked.channel)
            actor = actor_of(asked.person, entry)
            await audit.record(connection, asked.tenant_id, EventType.HOLD_REFUSED, actor, facts)
            return _reply(view, code, sentence)
        assert entry is not None, "nobody else may answer"
        try:
            given = (Actor("person", entry.id), asked.reason, str(asked.channel))
            holding.answer(transition, step, wait, asked.choice, *given)
        except ConsistencyError as problem:
            return _reply(view, "not_possible", str(problem))
        if not await faces.append(connection, transition.commit(), answers=step.key):
            raise Moved
        return HoldReply(True, str(asked.choice), _DONE[asked.choice], view.run_id, str(transition.run.status))


def _reply(view: RunView, code: str, sentence: str) -> HoldReply:
    return HoldReply(False, code, sentence, view.run_id, str(view.run.status))


def _waiting(view: RunView, named: str, wait_id: UUID | None) -> tuple[StepRow, WaitRow] | None:
    """The named step that is held or waits for its retry, with its wait; None if there is none."""
    keys = [*holding.steps_named(view.run, named)]
    if not keys and wait_id is None and not view.run.finished:
        raise NotFoundError(f"The run has no open step {named!r}.", remedy="`counterseal run show RUN` lists them.")
    if len(keys) > 1:
        words = f"names {len(keys)} steps: {', '.join(sorted(keys)[:5])}"
        raise InputError(words, where="step", remedy="Name one of them by its whole key.")
    wait = open_wait(view.run, keys[0]) if keys else None
    if wait is None or wait.kind not in (WaitKind.HOLD, WaitKind.RETRY) or wait_id not in (None, wait.wait_id):
        return None
    return view.run.steps[keys[0]], wait


def _refused(
    transition: Transition, step: StepRow, wait: WaitRow, asked: HoldRequest, entry: Entry | None
) -> tuple[str, str] | None:
    """The code and the reason why this person may not give this answer; None if they may."""
    standing = Standing.UNKNOWN if entry is None else entry.standing
    if entry is None or standing is not Standing.PERSON:
        return str(standing), f"{_WHO[standing]}, so nothing was recorded."
    groups = holding.groups_for(transition, step, wait)
    if groups.isdisjoint(entry.groups) and not asked.admin:
        who = " or ".join(sorted(groups))
        return "not_assigned", f"You are not in the group {who}, whose members say what becomes of this step."
    if asked.choice is Answer.WITHOUT and entry.id in holding.shaped_by(transition, step):
        words = "You have a part in this step, or it is about you: somebody else has to decide to go on without it."
        return "contributor", words
    return None
