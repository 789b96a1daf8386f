"""Actions of agents over HTTP: each is a run of our own with one step, which does what the agent asks for.

It is judged, shown, approved, performed and receipted like any other action. The agent's values have its account as
their origin, its owner counts as the requester, and the person for whom it says that it acts does not decide.

A call is an operation with its input. The same key, or the same call while one is pending, is attached to the run that
there is. A call that was denied, rejected or left unanswered is not asked about again for an hour, unless the policies
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

from msgspec import Struct, to_builtins

from approvals.content import CardState
from approvals.model import ApprovalKind, ApprovalStatus
from connectors.catalog import Catalog
from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.proposal import build_action
from core.budgets import LIMITS, Limit, OverLimit
from core.canonical import Json, JsonObject, digest
from core.db import Connection
from core.errors import ConsistencyError, DefinitionError, InputError, NotFoundError
from core.identity import Role
from core.ids import new_id
from core.terms import Stopped
from evidence.chain import Actor
from evidence.receipts import ReceiptStatus
from runtime.definition import tools
from runtime.definition.catalog import Definitions
from runtime.definition.one_step import is_plain, of_input, one_step
from runtime.definition.reserved import ACTION
from runtime.engine.book import contributors
from runtime.engine.book.ends import end_of
from runtime.engine.book.instructions import open_wait
from runtime.engine.book.refusals import INACTIVE
from runtime.engine.life.outside import GATE
from runtime.engine.life.pausing import Pause, account_key, key_of
from runtime.engine.model.errors import ErrorClass
from runtime.engine.model.run import AGENT, Run
from runtime.engine.model.states import RunState, WaitKind
from runtime.requests.starting import StartRequest, start_run
from runtime.requests.steering import cancel_run
from runtime.requests.views import folded
from runtime.store import actions, books, documents
from runtime.store.actions import AskedAction, Counted, Earlier
from runtime.store.books import Book
from runtime.store.documents import StoredWorkflow

# A call that was refused is not asked about again for so long.
REFUSED_FOR = timedelta(hours=1)
STEP = "action"
# An operation whose declaration names no inputs has so many workflows, one for each set of names that is given.
SHAPES_MAX = 100


class ActionStatus(StrEnum):
    """The status of an action, as agents see it."""

    JUDGING = "judging"
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    EXECUTING = "executing"
    APPLIED = "applied"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    CANCELED = "canceled"


REFUSED = (ActionStatus.DENIED, ActionStatus.REJECTED, ActionStatus.EXPIRED)
_ENDS: Mapping[CardState, ActionStatus] = {
    CardState.REJECTED: ActionStatus.REJECTED,
    CardState.EXPIRED: ActionStatus.EXPIRED,
    CardState.SUPERSEDED: ActionStatus.SUPERSEDED,
}


class Wanted(Struct, frozen=True):
    """An action that an agent asks for. ``account`` is its authenticated service account, ``acts_for`` its claim.

    ``key`` is "" if the agent has sent none. With ``tool`` the agent carries it out itself, and ``input`` are the
    arguments. ``a_minute`` and ``asking`` are the limits of one agent.
    """

    tenant_id: str
    workspace_id: str
    account: str
    actor: Actor
    operation: str
    input: JsonObject
    key: str
    session: str = ""
    acts_for: str | None = None
    tool: str | None = None
    a_minute: Limit = LIMITS["agent_actions"]
    asking: Limit = LIMITS["agent_questions"]

    @property
    def call(self) -> str:
        """The digest of the call, which its agent can compute as well: SHA-256 of the RFC 8785 form of this object."""
        if self.tool is not None:
            return digest({"mode": "gate", "tool": self.tool, "arguments": self.input})
        return digest({"operation": self.operation, "input": self.input})


class Standing(Struct, frozen=True):
    """An action now. ``settled``: nothing of it changes any more. ``detail`` says why it ended so, in words."""

    id: UUID
    status: ActionStatus
    digest: str
    session: str
    settled: bool
    output: Json = None
    detail: str = ""


async def act(connection: Connection, tenant: str, definitions: Definitions, wanted: Wanted) -> UUID:
    """Begin an action, or find the one that it attaches to, in the caller's transaction; return its id.

    ``ConsistencyError`` for a key of another call or a paused agent, ``OverLimit`` for more than one agent may have,
    ``InputError`` for what the declaration does not take. What one agent begins is begun one after the other, so no
    burst passes its limits. A crash before the commit leaves nothing, and lets the next one go on; after it, the run
    goes on by itself.
    """
    place = (connection, tenant, wanted.account)
    if (run_id := await _of_key(connection, definitions, wanted)) is not None:
        return run_id
    await actions.take_turn(*place)
    # Only now it is known what those before have begun: the same key, or the same call.
    if (run_id := await _of_key(connection, definitions, wanted)) is not None:
        return run_id
    earlier = await actions.newest(*place, wanted.call, REFUSED_FOR)
    policies = digest([*await documents.in_force(connection, tenant)])
    if earlier is not None and await _stands(connection, definitions, wanted, earlier, policies):
        run_id = await _same_person(connection, definitions, wanted, earlier.run_id)
        if wanted.key and not await actions.keep(
            *place, wanted.key, AskedAction(run_id, wanted.call, wanted.session, policies)
        ):
            words = f"{actions.KEYS_MAX} keys stand for the action {run_id} already."
            raise ConsistencyError(words, remedy="Ask again with one of them, or with none.")
        return run_id
    counted = await _check_limits(connection, wanted)
    run_id = await _start(connection, definitions, wanted, counted)
    await actions.begin(*place, wanted.key or str(run_id), AskedAction(run_id, wanted.call, wanted.session, policies))
    return run_id


async def _of_key(connection: Connection, definitions: Definitions, wanted: Wanted) -> UUID | None:
    """The action that the key of this request stands for; None if there is none, or no key."""
    known = await actions.of_key(connection, wanted.tenant_id, wanted.account, wanted.key) if wanted.key else None
    return None if known is None else await _same_person(connection, definitions, wanted, _same(wanted, *known))


async def _stands(
    connection: Connection, definitions: Definitions, wanted: Wanted, earlier: Earlier, policies: str
) -> bool:
    """True if an earlier action of the same call answers this request: it goes on, or was refused just now.

    What was refused because the agent was switched off then is asked for anew.
    """
    if earlier.going or not earlier.lately or earlier.policies != policies or earlier.code == INACTIVE:
        return earlier.going
    found = await standing(connection, wanted.tenant_id, definitions, wanted.account, earlier.run_id)
    return found.status in REFUSED


def _same(wanted: Wanted, run_id: UUID, call: str) -> UUID:
    if call != wanted.call:
        words = f"This idempotency key stands for the action {run_id}, which is another call."
        raise ConsistencyError(words, remedy="Use a key of its own for each call.")
    return run_id


async def _same_person(connection: Connection, definitions: Definitions, wanted: Wanted, run_id: UUID) -> UUID:
    """The action to attach to. ``ConsistencyError`` if it is under way and does not bar the person of this request."""
    if wanted.acts_for is None:
        return run_id
    book = await books.read(connection, wanted.tenant_id, run_id)
    if book.purged:
        return run_id
    run = (await folded(connection, definitions, book)).run
    if run.status not in _OVER and run.trigger.get("for") != wanted.acts_for:
        words = f"The action {run_id} is the same call, and it is not for {wanted.acts_for}, who could decide on it."
        raise ConsistencyError(words, remedy="Wait until it is over, or withdraw it.")
    return run_id


async def _check_limits(connection: Connection, wanted: Wanted) -> Counted:
    """Refuse what exceeds the agent's limits, or anything of a paused agent; return what policies may count of it."""
    used = await actions.used(connection, wanted.tenant_id, wanted.account, wanted.call)
    if used.paused is not None:
        what = Pause.of(key_of(Stopped.AGENT, account_key(wanted.account)), used.paused)
        raise ConsistencyError(f"{what}", remedy=f"`counterseal agent resume {wanted.account}` ends that.")
    for limit, amount in ((wanted.a_minute, used.lately), (wanted.asking, used.asking)):
        if amount >= limit.most:
            raise OverLimit(limit, wanted.a_minute.seconds)
    return used.counted


async def _start(connection: Connection, definitions: Definitions, wanted: Wanted, counted: Counted) -> UUID:
    """Start the run. Nobody else starts one for this agent meanwhile, so it may be named by its own id."""
    names = [wanted.operation] if wanted.tool is None else None  # a tool may be declared under any name
    catalog = await definitions.published(connection, wanted.tenant_id, names)
    if names is not None and wanted.operation not in catalog.operations:
        catalog = await definitions.published(connection, wanted.tenant_id)  # the error tells the nearest name
    given = wanted.input
    if wanted.tool is None:
        operation = tools.performed(catalog, wanted.operation)
    else:
        operation, given = tools.called(catalog, wanted.tool, given)
    if fixed := sorted(given.keys() & operation.params.keys()):
        raise InputError(
            f"is set by the declaration of {operation.name}", where=f"input.{fixed[0]}", remedy="Leave it out."
        )
    if secret := secret_names(operation.input_schema, given):
        words = f"{operation.name} takes it as a secret, which no run's input may hold"
        raise InputError(words, where=f"input.{secret[0]}", remedy="Have a person run a workflow that holds it.")
    build_action(operation, given)
    stored = _workflow(operation, given, catalog)
    if await documents.publish_workflow(connection, wanted.tenant_id, stored, AGENT):
        shapes = await actions.shapes(connection, wanted.tenant_id, stored)
        if shapes > SHAPES_MAX:
            words = f"{SHAPES_MAX} sets of names of its input were asked for already, and its declaration names none"
            raise InputError(words, where="input", remedy="Name its inputs in its declaration.")
    trigger: JsonObject = {"reference": wanted.session or operation.name, "input": given, "for": wanted.acts_for}
    trigger["counted"] = to_builtins(counted)
    trigger |= {} if wanted.tool is None else {GATE: wanted.call}
    shaped = () if wanted.acts_for is None else (contributors.mark(Role.SOURCE_REQUESTER, wanted.acts_for),)
    run_id = new_id()
    request = StartRequest(
        wanted.tenant_id, wanted.workspace_id, AGENT, f"{wanted.account}:{run_id}", trigger, wanted.account,
        wanted.actor, run_id=run_id, shaped=shaped, started_by=wanted.account,
    )  # fmt: skip
    return (await start_run(connection, definitions.compiled(stored), request, definitions)).run_id


def _workflow(operation: Operation, given: JsonObject, catalog: Catalog) -> StoredWorkflow:
    """The workflow that does the operation with what a run is given of its inputs.

    It is the same for all that the declaration names: an input that was not given is left out.
    """
    declared = operation.input_schema.get("properties")
    names = declared if isinstance(declared, dict) else {}
    known: JsonObject = {name: None for name in names if is_plain(name)}
    taken = known.keys() - operation.params.keys() - {*secret_names(operation.input_schema, known)}
    title = "An action of an agent"
    try:
        inputs = {name: of_input(name) for name in sorted(taken | given.keys())}
        return one_step(ACTION, title, STEP, operation, inputs, catalog)
    except DefinitionError:  # an input of it takes no expression
        return one_step(ACTION, title, STEP, operation, {name: of_input(name) for name in sorted(given)}, catalog)


async def standing(
    connection: Connection, tenant: str, definitions: Definitions, account: str, run_id: UUID
) -> Standing:
    """An action of this account now; ``NotFoundError`` if it has none of this id, whoever else may have one."""
    action = await actions.one(connection, tenant, account, run_id)
    if action is None:
        raise NotFoundError(f"There is no action {run_id} of this agent.")
    return await _standing(connection, definitions, action, await books.read(connection, tenant, run_id))


async def withdraw(
    connection: Connection, tenant: str, definitions: Definitions, account: str, actor: Actor, run_id: UUID
) -> None:
    """Withdraw an action of this account: its question is void. ``ConsistencyError`` if it is over, or in doubt.

    A crash before the commit leaves it as it was, and the agent withdraws it again.
    """
    found = await standing(connection, tenant, definitions, account, run_id)
    if found.status is ActionStatus.IN_DOUBT:
        words = "Nobody knows if this was done, and people find that out; its agent does not call it off."
        raise ConsistencyError(words, remedy="Look again later.")
    await cancel_run(connection, definitions, tenant, run_id, actor, "Withdrawn by its agent.")


async def page(
    connection: Connection,
    tenant: str,
    definitions: Definitions,
    account: str,
    session: str | None,
    before: UUID | None,
    limit: int,
) -> list[Standing]:
    """The actions of an account, or of one session, the newest first: two reads, however many there are."""
    found = await actions.of_session(connection, tenant, account, session, before, limit)
    read = await books.several(connection, tenant, [one.run_id for one in found])
    there = [(one, read[one.run_id]) for one in found if one.run_id in read and not read[one.run_id].purged]
    return [await _standing(connection, definitions, one, book) for one, book in there]


async def _standing(connection: Connection, definitions: Definitions, action: AskedAction, book: Book) -> Standing:
    if book.purged:
        raise NotFoundError(f"What the action {action.run_id} held was removed when its retention ended.")
    run = (await folded(connection, definitions, book)).run
    status, detail = _status(run)
    step = run.steps.get(STEP) or run.past.get(STEP)
    output = step.output if step is not None and status is ActionStatus.APPLIED else None
    return Standing(action.run_id, status, action.call, action.session, run.status in _OVER, output, detail)


_OVER = (RunState.SUCCEEDED, RunState.FAILED_TERMINAL, RunState.CANCELED)


def _status(run: Run) -> tuple[ActionStatus, str]:
    """The status of the run's one action, and why it is so, from the fold alone."""
    asked = next(reversed(run.approvals), None)
    kind = None if asked is None else run.approvals[asked].kind
    last = max(run.receipts.values(), key=lambda row: (row.intended_at, row.receipt_id), default=None)
    if run.status in _OVER:
        return _ended(run, asked)
    if asked is not None and ApprovalStatus(run.answers[asked].status) is ApprovalStatus.REQUESTED:
        return (ActionStatus.IN_DOUBT if kind == ApprovalKind.IN_DOUBT else ActionStatus.PENDING), ""
    if last is not None and last.status == ReceiptStatus.IN_DOUBT:
        return ActionStatus.IN_DOUBT, ""
    wait = open_wait(run, STEP)
    if wait is not None and wait.kind is WaitKind.PERMIT and last is None:
        return ActionStatus.APPROVED, ""
    return (ActionStatus.EXECUTING if last is not None else ActionStatus.JUDGING), ""


def _ended(run: Run, asked: UUID | None) -> tuple[ActionStatus, str]:
    """The status of an action whose run is over. What became of the effect comes before how the run has ended: nobody
    is told that something was not done, if it was, or may have been.
    """
    words = str((run.error or {}).get("message") or "")
    became = {row.status for row in run.receipts.values()}
    if run.status is RunState.SUCCEEDED or ReceiptStatus.SUCCEEDED in became:
        return ActionStatus.APPLIED, words
    if not became.isdisjoint((ReceiptStatus.INTENDED, ReceiptStatus.IN_DOUBT)):
        return ActionStatus.IN_DOUBT, words
    if run.status is RunState.CANCELED:
        return ActionStatus.CANCELED, ""
    end = None if asked is None or run.approvals[asked].kind == ApprovalKind.IN_DOUBT else end_of(run, asked)
    if end is not None and end.state in _ENDS:
        return _ENDS[end.state], end.detail or words
    if (run.error or {}).get("class") == ErrorClass.AUTHORIZATION and not became:
        return ActionStatus.DENIED, words
    return ActionStatus.FAILED, words
