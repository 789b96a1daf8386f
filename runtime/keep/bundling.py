"""Makes a run's evidence bundle, stores it, remembers where it is, and orders it once more if asked."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace

from approvals.model import ApprovalKind
from core.canonical import Json, JsonObject
from core.db import Connection
from core.documents import load_document
from core.errors import ConsistencyError, CountersealError, DefinitionError, InputError, NotFoundError, TransportError
from evidence import bundle
from evidence.blobs import BlobStore
from evidence.bundle import ContradictionError, build_bundle
from evidence.chain import timestamp
from evidence.commitments import blind, commit, commit_fields, disclosure, path_of, reason_path
from evidence.events import EventType
from evidence.history import ATTEMPTED
from evidence.origins import counts
from evidence.signing import Signer
from runtime.definition.catalog import Definitions
from runtime.engine.book.draft import ENGINE
from runtime.engine.book.recorded import Diverged, RecordedEvent, shown_values
from runtime.engine.life.ask import approval_path, asked, card_path
from runtime.engine.model.events import ActionIntended, ApprovalVoted, DecisionMade, RunClosed
from runtime.engine.model.rows import ApprovalRow
from runtime.engine.model.run import Run
from runtime.engine.replay.past import Past
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Later, Result, Undeliverable, saying
from runtime.keep.judged_by import judged_by
from runtime.requests.views import folded
from runtime.store import audit, books, bundles, documents, faces
from runtime.store.books import Book
from runtime.store.outbox import Message
from runtime.store.rows import check_rows

NOT_STORED = "The evidence of this run was not signed or not stored"
# Errors of stored data that is not as it was written. A closed run does not change, so a retry would not help.
_UNSIGNED = (ConsistencyError, InputError, NotFoundError, LookupError, TypeError, ValueError)


class Material(Struct, frozen=True):
    """Everything about a run that its bundle says, folded from its book, and the texts by which it was judged."""

    book: Book
    past: Past
    workflow: bundle.DocumentText
    policies: tuple[bundle.DocumentText, ...]
    judged_by: bundle.JudgedBy


class Bundling(Struct, frozen=True):
    """Delivers messages of the kind ``bundle``. ``producer`` is the version of Counterseal that signs."""

    blobs: BlobStore
    signer: Signer
    producer: str
    definitions: Definitions

    def handlers(self) -> dict[str, Handler]:
        """The handler by kind of message."""
        return {"bundle": self.bundle}

    async def bundle(self, connection: Connection, message: Message) -> Deliver:
        """Build, verify, sign, store. A crash between storing and remembering makes and stores the same bytes again."""
        assert message.run_id is not None, "every bundle is a run's"
        try:
            material = await self.material(connection, message.tenant_id, message.run_id)
        except _UNSIGNED as problem:
            return partial(saying, _refused(message, problem))
        return partial(self._make, message, material)

    async def material(self, connection: Connection, tenant: str, run_id: UUID) -> Material:
        """Read the material of the bundle of a run that is over.

        ``Diverged`` if the book is not what was recorded, or says otherwise what people were shown and answered.
        """
        book = await books.read(connection, tenant, run_id)
        past = await folded(connection, self.definitions, book)
        await check_rows(connection, past.run)
        workflow, policies = await bundles.texts(connection, book, past.policies)
        if workflow.digest != book.row["workflow_digest"]:
            # It was published with secrets in its text, and its digest is that of the text without them.
            version = (tenant, workflow.name, book.row["workflow_version"])
            stored = await documents.workflow(connection, *version)
            assert stored is not None, "versions are never deleted"
            workflow = bundle.DocumentText(workflow.name, workflow.version, self.definitions.evident(stored))
        plain = tuple(replace(policy, plain=_plain(policy)) for policy in policies)
        editions = await self.definitions.editions(connection, book)
        return Material(book, past, workflow, plain, await judged_by(connection, book, editions))

    async def _make(self, message: Message, material: Material) -> Result:
        try:
            made = await asyncio.to_thread(lambda: build_bundle(content_of(material, self.producer), self.signer))
        except _UNSIGNED as problem:
            return _refused(message, problem)
        key = f"{message.tenant_id}/{message.run_id}/{made.sha256[:16]}-{made.name}"
        try:
            stored = await self.blobs.put(key, made.bytes, made.sha256)
        except TransportError as error:
            return Later(str(error))
        except CountersealError as error:
            return Undeliverable(str(error))
        facts = (material.book, made, stored, self.signer.public_key.key_id)
        return Delivered(lambda connection: bundles.remember(connection, *facts))


def _plain(policy: bundle.DocumentText) -> Json:
    """The policy as JSON; None if it is no document, so that all it judged was denied."""
    try:
        return load_document(policy.text, policy.name).value
    except DefinitionError:
        return None


def _refused(message: Message, problem: Exception) -> Undeliverable:
    """Refuse to sign this evidence: the command keeps the reason, and the tenant's audit records that it happened.

    A crash before the record leaves the message to its lease, and it is refused again.
    """
    why, checks = f"it cannot be made of what is stored: {type(problem).__name__}: {problem}", list[Json]()
    if isinstance(problem, Diverged):
        why, checks = f"{problem.check}: {problem.message}", [problem.check]
    elif isinstance(problem, ContradictionError):
        why, checks = str(problem), [*problem.checks]
    facts: JsonObject = {"run": str(message.run_id), "checks": checks}
    recorded = (message.tenant_id, EventType.EVIDENCE_FAILED, ENGINE, facts)
    return Undeliverable(why, lambda connection: audit.record(connection, *recorded))


def content_of(material: Material, producer: str) -> bundle.BundleContent:
    """The content of the bundle: metadata in clear, values as commitments, cards as they were shown."""
    book, past, row, key = material.book, material.past, material.book.row, material.book.row["run_key"]
    run, tenant, run_id = past.run, row["tenant_id"], book.run_id
    closings = [
        recorded for recorded in reversed(book.events) if isinstance(recorded.event, RunClosed)
    ]  # late answers may follow
    return bundle.BundleContent(
        run=bundle.RunRecord(
            tenant_id=tenant,
            workspace_id=row["workspace_id"],
            run_id=str(run_id),
            trigger_type=row["trigger_type"],
            status=str(run.status),
            opened_at=timestamp(book.events[0].at),
            closed_at=next((timestamp(one.at) for one in closings), None),
            inputs=commit_fields(key, path_of("trigger"), book.opened.inputs or {}),
            outputs=_outputs(past, key),
            state=commit_fields(key, path_of("state"), run.state.channels) if key else (),
            attempts=_attempts(book, key) if key else None,
            origins=_origins(book, key) if key else None,
            canceled=_canceled(run, key),
        ),
        workflow=material.workflow,
        policies=material.policies,
        appends=[append.lines for append in book.appends],
        head=book.head,
        approvals=tuple(_approval(past, question, key) for _, question in sorted(run.approvals.items())),
        receipts=tuple(receipt.to_evidence(key) for _, receipt in sorted(run.receipts.items())),
        producer=producer,
        judged_by=material.judged_by,
    )


def _outputs(past: Past, key: bytes) -> list[Json]:
    outputs = sorted((step.index, step.key, step.output) for step in past.steps() if step.output is not None)
    return [
        [path, commit(key, path, output)] for _, step, output in outputs for path in [path_of("step", step, "output")]
    ]


def _attempts(book: Book, key: bytes) -> list[Json]:
    """Every intent of an action, with the commitments to what was attempted."""
    lines = [line for append in book.appends for line in append.lines]
    found: list[Json] = []
    for recorded, line in zip(book.events, lines, strict=True):
        if isinstance(recorded.event, ActionIntended):
            read = orjson.loads(line)
            facts: JsonObject = {name: read["data"].get(name) for name in ATTEMPTED}
            facts |= {"seq": recorded.seq, "step": read["step"], "ts": read["ts"]}
            found.append({**facts, "values": shown_values(recorded, line, key)})
    return found


def _origins(book: Book, key: bytes) -> list[Json] | None:
    """The events that origins come from, with the commitments to their values; None if nobody has asked for origins."""
    if not any(isinstance(recorded.event, DecisionMade) and recorded.event.origins for recorded in book.events):
        return None
    lines, found = [line for append in book.appends for line in append.lines], list[Json]()
    for recorded, line in zip(book.events, lines, strict=True):
        decided = isinstance(recorded.event, DecisionMade) and bool(recorded.event.origins)
        if decided or counts(str(recorded.event.TYPE), recorded.step):
            listed: JsonObject = {"seq": recorded.seq, "type": str(recorded.event.TYPE), "step": recorded.step}
            found.append({**listed, "values": shown_values(recorded, line, key)})
    return found


def _canceled(run: Run, key: bytes) -> bundle.CancelRecord | None:
    """The first cancel of the run: who it was, and the reason, which is the one that the event binds."""
    if run.canceling is None:
        return None
    recorded = run.canceling["reason"]
    reason = disclosure(key, path_of("cancel", "reason"), recorded) if recorded else None
    return bundle.CancelRecord(str(run.canceling["by"]), reason)


def _approval(past: Past, row: ApprovalRow, key: bytes) -> bundle.ApprovalRecord:
    """One question with its answer. The last of a person's votes on it stands, and its reason is shown."""
    path, answer = card_path(row.approval_id), past.run.answers[row.approval_id]
    place, put = approval_path(row.approval_id), asked(row.kind, row.requester, row.terms, row.contributors)
    own = [vote for vote in past.votes if _vote_of(vote).approval == row.approval_id]
    standing = {vote.actor.id: vote.seq for vote in own}
    in_doubt = row.kind == ApprovalKind.IN_DOUBT and answer.choice is not None
    return bundle.ApprovalRecord(
        approval_id=str(row.approval_id),
        action=None if row.kind == ApprovalKind.GATE else blind(key, row.action_digest),
        status=str(answer.choice if in_doubt else answer.status),
        card_commitment=commit(key, path, row.card),
        # A card with secret values is committed to and withheld: a bundle's holder need not be one who approved.
        card_disclosure=None if row.card.get("sensitive") else disclosure(key, path, row.card),
        votes=tuple(_vote(row, vote, key, stands=standing[vote.actor.id] == vote.seq) for vote in own),
        asked=disclosure(key, place + path_of("asked"), put),
    )


def _vote(row: ApprovalRow, recorded: RecordedEvent, key: bytes, *, stands: bool) -> bundle.VoteRecord:
    vote, reason = _vote_of(recorded), None
    if stands and vote.reason:
        path = reason_path(str(row.approval_id), recorded.actor.id, timestamp(recorded.at))
        reason = disclosure(key, path, vote.reason)
    return bundle.VoteRecord(recorded.actor.id, vote.choice, vote.channel, timestamp(recorded.at), reason)


def _vote_of(recorded: RecordedEvent) -> ApprovalVoted:
    assert isinstance(recorded.event, ApprovalVoted), "votes are nothing else"
    return recorded.event


def remedy(run_id: UUID) -> str:
    """The remedy, in words for the operators of the installation."""
    return (
        "If the store refused it, mend that; otherwise find out who changed what: compare the run's rows with its "
        f"audit and with a backup. Then `counterseal evidence again {run_id}` writes it."
    )


async def write_again(connection: Connection, tenant: str, run_id: UUID) -> None:
    """Order a bundle that was refused, or could not be stored, once more, inside the caller's transaction.

    ``NotFoundError`` if there is no such run, ``ConsistencyError`` if there is nothing to order. Ordering it twice
    writes it once.
    """
    found = await bundles.state(connection, tenant, run_id)
    if found is None:
        raise NotFoundError(f"There is no run {run_id}.", remedy="See `counterseal run list`.")
    if found["bundled"]:
        raise ConsistencyError("The evidence of this run is stored.", remedy="`counterseal evidence get` hands it out.")
    if not found["failed"]:
        raise ConsistencyError("The evidence of this run is being written, or the run has not ended.")
    await faces.order_message(connection, tenant, run_id, "bundle", {})
