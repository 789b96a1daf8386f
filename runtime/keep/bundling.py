"""Makes a run's evidence bundle, stores it, remembers where it is, and orders it once more if asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from core.canonical import Json, JsonObject, sha256_hex
from core.db import Connection
from core.documents import load_document
from core.errors import ConsistencyError, CountersealError, DefinitionError, InputError, NotFoundError, TransportError
from evidence import layout
from evidence.blobs import BlobStore
from evidence.bundle import BundleContent, ContradictionError, DocumentText, JudgedBy, build_bundle
from evidence.chain import timestamp
from evidence.commitments import Opening, opening, path_of, reason_path
from evidence.events import EventType
from evidence.opened import Opened
from evidence.origins import counts
from evidence.signing import Signer
from runtime.definition.catalog import Definitions
from runtime.engine.book.draft import ENGINE
from runtime.engine.book.recorded import Diverged, RecordedEvent, listed_values
from runtime.engine.life.ask import approval_path, asked, card_path
from runtime.engine.model.events import (
    ActionDoubtResolved,
    ActionIntended,
    ActionSucceeded,
    ActionUnneeded,
    ApprovalRequested,
    ApprovalVoted,
    DecisionMade,
    RunCanceled,
    RunMigrated,
    RunOpened,
    StepSucceeded,
)
from runtime.engine.model.rows import ApprovalRow
from runtime.keep.dispatcher import Deliver, Delivered, Handler, Later, Result, Undeliverable, saying
from runtime.keep.judged_by import judged_by
from runtime.requests.views import folded
from runtime.store import audit, books, bundles, documents, faces
from runtime.store.books import Book
from runtime.store.journal import Append
from runtime.store.offload import COMPILING, offload
from runtime.store.outbox import Message
from runtime.store.rows import check_rows

NOT_STORED = "The evidence of this run was not signed or not stored"
# Errors of stored data that is not as it was written. A closed run does not change, so a retry would not help.
_UNSIGNED = (ConsistencyError, InputError, NotFoundError, LookupError, TypeError, ValueError)


# The events whose values a bundle lists by their paths and commitments: inputs, attempts, outcomes, outputs, state.
_LISTED = (RunOpened, ActionIntended, ActionSucceeded, ActionUnneeded, ActionDoubtResolved, StepSucceeded)
# The bundle of a run with more of them lists none, or it would be twice as long: their lines bind them all the same.
LISTED_MAX = 2000


class Material(Struct, frozen=True):
    """Everything about a run that its bundle says: its book, what was asked, and the texts by which it was judged."""

    book: Book
    approvals: Mapping[UUID, ApprovalRow]
    workflow: DocumentText
    policies: tuple[DocumentText, ...]
    judged_by: JudgedBy
    moved_to: tuple[DocumentText, ...] = ()


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
            long = material.book.weight
            content = await offload(long, lambda: content_of(material, self.producer), connection)
        except _UNSIGNED as problem:
            return partial(saying, _refused(message, problem))
        return partial(self._make, message, content)

    async def material(self, connection: Connection, tenant: str, run_id: UUID) -> Material:
        """Read the material of the bundle of a run that is over.

        ``Diverged`` if the book is not what was recorded, or says otherwise what people were shown and answered.
        """
        book = await books.paged(connection, tenant, run_id)
        approvals, judged = await self._folded(connection, book)
        workflow, policies = await bundles.texts(connection, book, judged)
        if workflow.digest != book.row["workflow_digest"]:
            workflow = await self._text(connection, tenant, workflow.name, book.row["workflow_version"])
        plain = await offload(COMPILING, lambda: tuple(replace(one, plain=_plain(one)) for one in policies), connection)
        editions = await self.definitions.editions(connection, book)
        named: list[Any] = [change.workflow for change in book.changes if isinstance(change, RunMigrated)]
        moved = [await self._text(connection, tenant, one["name"], one["version"]) for one in named]
        return Material(book, approvals, workflow, plain, await judged_by(connection, book, editions), tuple(moved))

    async def _folded(self, connection: Connection, book: Book) -> tuple[Mapping[UUID, ApprovalRow], set[str]]:
        """The run's approvals, and the digests of the policies that judged it. The rest of the run is let go.

        ``Diverged`` if a row is not what the run's book folds to.
        """
        past = await folded(connection, self.definitions, book)
        await check_rows(connection, past.run)
        return past.run.approvals, past.policies

    async def _text(self, connection: Connection, tenant: str, name: str, version: int) -> DocumentText:
        """The text of a version whose digest events name: each secret in it stands as a mark."""
        stored = await documents.workflow(connection, tenant, name, version)
        assert stored is not None, "versions are never deleted"
        found = DocumentText(name, version, stored.source)
        return found if found.digest == stored.digest else DocumentText(name, version, self.definitions.evident(stored))

    async def _make(self, message: Message, content: BundleContent) -> Result:
        try:
            made = await offload(COMPILING, partial(build_bundle, content, self.signer))
        except _UNSIGNED as problem:
            return _refused(message, problem)
        key = f"{message.tenant_id}/{message.run_id}/{made.sha256[:16]}-{made.name}"
        try:
            # The values come first: a crash in between leaves a sidecar that no bundle names. The message is delivered
            # again and puts the same bytes, or others under another name; retention deletes each that lies there.
            if made.sidecar is not None:
                await self.blobs.put(key + layout.VALUES, made.sidecar, sha256_hex(made.sidecar), erasable=True)
            stored = await self.blobs.put(key, made.bytes, made.sha256)
        except TransportError as error:
            return Later(str(error))
        except CountersealError as error:
            return Undeliverable(str(error))
        facts = (content.run, content.tenant, content.head.count, made, stored, self.signer.public_key.key_id)
        return Delivered(lambda connection: bundles.remember(connection, *facts))


def _plain(policy: DocumentText) -> Json:
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


def content_of(material: Material, producer: str) -> BundleContent:
    """The content of the bundle: lines, texts, and the values that it shows: cards as they were shown, and reasons."""
    book = material.book
    return BundleContent(
        tenant=book.row["tenant_id"],
        workflow=material.workflow,
        policies=material.policies,
        appends=_Lines(book.appends),
        head=book.head,
        judged_by=material.judged_by,
        opened=[*_opened(material, book.row["run_key"])],
        producer=producer,
        moved_to=material.moved_to,
    )


class _Lines(Collection[Sequence[bytes]]):
    """The lines of each append, split when they are asked for."""

    def __init__(self, appends: Sequence[Append]) -> None:
        self._appends = appends

    def __len__(self) -> int:
        return len(self._appends)

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        return (append.lines for append in self._appends)

    def __contains__(self, lines: object) -> bool:
        return any(lines == each for each in self)


def _opened(material: Material, key: bytes) -> Iterator[Opened]:
    """Yield what is opened of each event, and the commitments to its values, by their paths."""
    book, lines = material.book, (line for append in material.book.appends for line in append.lines)
    of_origins, listed_count, standing, canceled = False, 0, dict[tuple[UUID, str], int | None](), False
    for one in book.events:
        of_origins = of_origins or (isinstance(one.event, DecisionMade) and bool(one.event.origins))
        listed_count += isinstance(one.event, _LISTED)
        if isinstance(one.event, ApprovalVoted):
            standing[one.event.approval, one.actor.id] = one.seq
    lists = listed_count <= LISTED_MAX
    for recorded, line in zip(book.events, lines, strict=True):
        shown: Sequence[Opening] = ()
        assert recorded.seq is not None, "it is in the book"
        match recorded.event:
            case ApprovalRequested(approval=approval):
                shown = _question(material.approvals[approval], key)
            case ApprovalVoted(reason=str(reason)) as vote if reason:
                if standing[vote.approval, recorded.actor.id] == recorded.seq:
                    path = reason_path(str(vote.approval), recorded.actor.id, timestamp(recorded.at))
                    shown = (opening(key, path, reason),)
            case RunCanceled(reason=str(reason), committed=committed):
                if committed and not canceled:
                    shown = (opening(key, path_of("cancel", "reason"), reason),)
                canceled = True
            case RunMigrated(reason=str(reason), number=number) if reason:
                shown = (opening(key, path_of("migrated", str(number), "reason"), reason),)
        wanted = (lists and isinstance(recorded.event, _LISTED)) or (of_origins and _of_origins(recorded))
        listed = listed_values(recorded, line, key) if wanted else None
        if shown or listed:
            yield Opened(recorded.seq, shown, listed)


def _of_origins(recorded: RecordedEvent) -> bool:
    decided = isinstance(recorded.event, DecisionMade) and bool(recorded.event.origins)
    return decided or counts(str(recorded.event.TYPE), recorded.step)


def _question(row: ApprovalRow, key: bytes) -> Sequence[Opening]:
    """The card, and for whom and of whom it was asked.

    A card with secret values is committed to and withheld: a bundle's holder need not be one who approved.
    """
    put = asked(row.kind, row.requester, row.terms, row.contributors)
    of_asked = opening(key, approval_path(row.approval_id) + path_of("asked"), put)
    return (of_asked,) if row.card.get("sensitive") else (of_asked, opening(key, card_path(row.approval_id), row.card))


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
