"""Edits a proposed action: one request for every face. Policy judges the action anew, and people are asked anew.

The edit makes the old question void: votes on it and late clicks on its card do not count any more. The editor has
shaped the new action, so they do not decide on it (promises 3 and 12). Operation and record stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from msgspec import Struct

from approvals import click_proof, editing
from approvals.forms import FormProblem, check_value
from approvals.model import VoteChannel
from approvals.ports import Membership, MessageRef
from approvals.quorum import NotCounted, RefusalCode
from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.port import Before
from connectors.proposal import build_action, rebuilt_action
from core.canonical import JsonObject
from core.db import Connection, Database
from core.errors import InputError
from core.identity import Entry
from evidence.chain import Actor, EventType
from runtime.definition.catalog import Definitions
from runtime.definition.reserved import PREFIX
from runtime.engine.book import edits
from runtime.engine.life import editing as moves
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalEdited
from runtime.engine.model.keys import StepKey
from runtime.engine.model.run import RunView
from runtime.requests.directory import DatabaseDirectory, actor_of, as_people, voter_of
from runtime.requests.signaling import Moved, persistently
from runtime.requests.talking import slack_of
from runtime.store import approvals, audit, faces
from runtime.store.approvals import StoredApproval

_AGENTS = "A model has written this call. Reject it, and say what it should be: the model reads your reason."
_OWN = "Counterseal itself has made this, so it is not edited: reject it, or let it expire."
_SAME = "No value is another one, so nothing was edited."
_ELSEWHERE = "This would be another record. Reject it, and have that one asked for."
_DONE = "Edited. The question is void, and what you have written is judged anew. If people are asked, others decide."


class EditRequest(Struct, frozen=True):
    """A person's edited values, as a face received them. ``nonce`` and ``digest`` must match if they are given."""

    tenant_id: str
    approval_id: UUID
    person_id: str
    values: JsonObject
    channel: VoteChannel
    nonce: str | None = None
    digest: str | None = None
    place: MessageRef | None = None
    identity: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class EditAnswer:
    """The answer to an edit. ``code`` is ``edited`` or why it was refused; ``problems`` are faults of the values."""

    edited: bool
    code: str
    sentence: str
    run_id: UUID
    problems: tuple[FormProblem, ...] = ()


class _Question(Struct, frozen=True):
    """A question to be edited, with all that decides if it may be. ``form`` is None if ``refused`` is the reason."""

    stored: StoredApproval
    view: RunView
    entry: Entry | None
    transition: Transition
    operation: Operation | None
    action: dict[str, Any]
    form: JsonObject | None
    refused: NotCounted | None


class Editing(Struct, frozen=True):
    """Edits proposed actions of any tenant, under the faces' role."""

    database: Database
    definitions: Definitions
    directory: DatabaseDirectory | None = None

    async def form(self, tenant: str, approval_id: UUID, person: str) -> JsonObject | NotCounted:
        """The form with the present values for a person who may edit them; otherwise the reason why they may not."""
        slack = await slack_of(self.database, self.definitions, self.directory, tenant, approval_id, person)
        request = EditRequest(tenant, approval_id, person, {}, VoteChannel.HTTP)
        async with self.database.transaction(tenant) as connection:
            found = await self._read(connection, request, slack, lock=False)
        if found.refused is not None:
            return found.refused
        return found.form or NotCounted(RefusalCode.UNEDITABLE, editing.NOTHING)

    async def edit(self, asked: EditRequest) -> EditAnswer:
        """Judge and record an edit. ``NotFoundError`` if the tenant has no such question."""
        named = (asked.tenant_id, asked.approval_id, asked.person_id)
        slack = await slack_of(self.database, self.definitions, self.directory, *named)

        async def attempt(lock: bool) -> EditAnswer:
            async with self.database.transaction(asked.tenant_id) as connection:
                return await self._edit(connection, asked, slack, lock=lock)

        return await persistently(attempt)

    async def _read(self, connection: Connection, asked: EditRequest, slack: Membership, *, lock: bool) -> _Question:
        named = (asked.tenant_id, asked.approval_id)
        stored, view = await approvals.read_to_decide(connection, *named, self.definitions.graphs, lock=lock)
        people = await self.definitions.directory(connection, asked.tenant_id, stored.directory_digest)
        entry, approval = people.entry(asked.person_id), as_people(stored.approval, people)
        voter = voter_of(asked.person_id, entry, slack, approval, people)
        refused = None if asked.place is None else click_proof.wrong_message(stored.message, asked.place)
        refused = refused or editing.refused(approval, voter, stored.now, asked.nonce, asked.digest)
        workflow = await self.definitions.of_run(connection, view.definition)
        transition, known = Transition(view, workflow.graph), view.run.approvals.get(approval.id)
        action: dict[str, Any] = (known.action if known is not None else None) or {}
        step = view.run.steps.get(approval.step_key)
        operation = workflow.operations.get(step.operation) if step is not None else None
        if StepKey.of(approval.step_key).is_inner:
            refused = refused or NotCounted(RefusalCode.UNEDITABLE, _AGENTS)
        elif workflow.name.startswith(PREFIX):
            refused = refused or NotCounted(RefusalCode.UNEDITABLE, _OWN)
        elif operation is None or not action:
            refused = refused or NotCounted(RefusalCode.UNEDITABLE, editing.NOTHING)
        form = None if refused is not None or operation is None else _form(operation, action)
        return _Question(stored, view, entry, transition, operation, action, form, refused)

    async def _edit(self, connection: Connection, asked: EditRequest, slack: Membership, *, lock: bool) -> EditAnswer:
        found = await self._read(connection, asked, slack, lock=lock)
        approval = found.stored.approval
        if found.refused is None and found.form is None:
            return await _refuse(connection, asked, found, NotCounted(RefusalCode.UNEDITABLE, editing.NOTHING))
        if found.refused is not None or found.form is None:
            return await _refuse(connection, asked, found, found.refused or NotCounted(RefusalCode.UNEDITABLE, _OWN))
        assert found.operation is not None, "a form is made of one"
        current = edits.editable(found.operation, found.action["input"])
        changed: JsonObject = {name: one for name, one in asked.values.items() if current.get(name) != one}
        problems = tuple(check_value(found.form, {name: current[name] for name in _fields(found)} | asked.values))
        if not problems and changed:
            problems = _unbuilt(found.operation, found.action, changed)
        if problems or not changed:
            code = RefusalCode.INVALID if problems else RefusalCode.UNCHANGED
            sentence = " ".join(one.sentence for one in problems) or _SAME
            return EditAnswer(False, str(code), sentence, approval.run_id, problems)
        assert found.entry is not None, "nobody else may edit anything"
        actor, transition = Actor("person", found.entry.id), found.transition
        both: JsonObject = {name: {"was": current[name], "now": changed[name]} for name in sorted(changed)}
        known = (str(asked.channel), found.stored.directory_digest, asked.identity or {"named": asked.person_id})
        event = ApprovalEdited(approval.id, [*both], *known, both)
        moves.edit(transition, approval.step_key, event, actor)
        # A crash before the append leaves nothing, and the person edits again; after it, the step is judged anew.
        if not await faces.append(connection, transition.commit(), answers=approval.step_key):
            raise Moved
        return EditAnswer(True, "edited", _DONE, approval.run_id)


def _fields(found: _Question) -> list[str]:
    properties = (found.form or {}).get("properties")
    return [*properties] if isinstance(properties, dict) else []


def _form(operation: Operation, action: dict[str, Any]) -> JsonObject | None:
    values = edits.editable(operation, action["input"])
    schemas = {name: edits.schema_of(operation, name) for name in values}
    hidden = {one.rpartition(".")[2] for one in secret_names(operation.input_schema, action["input"])}
    return editing.form_of(values, schemas, hidden)


def _unbuilt(operation: Operation, action: dict[str, Any], changed: JsonObject) -> tuple[FormProblem, ...]:
    """The problems if these values give no action, or one on another record; empty if all is well."""
    before = None if action.get("before") is None else Before.of_kept(action["before"])
    given = {name: value for name, value in action["input"].items() if name not in operation.params}
    try:
        made = build_action(operation, edits.edited(operation, given, changed), before)
    except InputError as error:
        return (FormProblem((), f"{error.where or 'It'} {error.message}".strip(), error.remedy or ""),)
    same = made.target == rebuilt_action(operation, action["input"], before).target
    return () if same else (FormProblem((), _ELSEWHERE),)


async def _refuse(connection: Connection, asked: EditRequest, found: _Question, refused: NotCounted) -> EditAnswer:
    """Record the refused edit, and answer. After a crash before the commit the person gets no answer."""
    approval = found.stored.approval
    facts: JsonObject = {"approval": str(approval.id), "run": str(approval.run_id), "code": str(refused.code)}
    facts |= {"channel": str(asked.channel), "said": "edits"}
    actor = actor_of(asked.person_id, found.entry)
    await audit.record(connection, asked.tenant_id, EventType.APPROVAL_VOTE_REFUSED, actor, facts)
    return EditAnswer(False, str(refused.code), refused.sentence, approval.run_id)
