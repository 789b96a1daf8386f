"""Making a run's evidence bundle, storing it, and remembering where it is (Q-21, U-7)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg

from core.canonical import Json
from core.db import Connection
from core.errors import CountersealError
from evidence.blobs import BlobStore
from evidence.bundle import (
    ApprovalRecord,
    BundleContent,
    DocumentText,
    RunRecord,
    VoteRecord,
    build_bundle,
)
from evidence.chain import ChainHead
from evidence.commitments import blind, commit, commit_fields, disclosure, path_of
from evidence.events import timestamp
from evidence.receipts import Receipt, ReceiptStatus, Reverse
from evidence.signing import Signer
from runtime.dispatcher import Deliver, Delivered, Handler, Later, Result
from runtime.governance.asking import card_path
from runtime.store import bundles
from runtime.store.bundles import RunRows
from runtime.store.outbox import Message

_UNBOUND = ("gate",)


@dataclass(frozen=True)
class Bundling:
    """Delivers messages of the kind ``bundle``. ``producer`` is the version of Counterseal that signs."""

    blobs: BlobStore
    signer: Signer
    producer: str

    def handlers(self) -> dict[str, Handler]:
        """The handler by kind of message."""
        return {"bundle": self.bundle}

    async def bundle(self, connection: Connection, message: Message) -> Deliver:
        """Build, sign and store. A crash between storing and remembering builds and stores the same bytes again."""
        assert message.run_id is not None, "every bundle is a run's"
        return partial(self._make, message, await bundles.read_run(connection, message.run_id))

    async def _make(self, message: Message, rows: RunRows) -> Result:
        try:
            made = await asyncio.to_thread(build_bundle, content_of(rows, self.producer), self.signer)
            key = f"{message.tenant_id}/{message.run_id}/{made.sha256[:16]}-{made.name}"
            stored = await self.blobs.put(key, made.bytes, made.sha256)
        except CountersealError as error:
            return Later(str(error))
        key_id = self.signer.public_key.key_id

        async def record(connection: Connection) -> None:
            await bundles.remember(connection, message.tenant_id, rows.run["run_id"], made, stored, key_id)

        return Delivered(record)


def content_of(rows: RunRows, producer: str) -> BundleContent:
    """What the bundle says: metadata in clear, values as commitments, cards as they were shown."""
    run, key = rows.run, rows.run_key
    return BundleContent(
        run=RunRecord(
            tenant_id=run["tenant_id"],
            workspace_id=run["workspace_id"],
            run_id=str(run["run_id"]),
            trigger_type=run["trigger_type"],
            status=run["status"],
            opened_at=timestamp(run["created_at"]),
            closed_at=timestamp(run["finished_at"]) if run["finished_at"] else None,
            inputs=commit_fields(key, path_of("trigger"), rows.trigger),
            outputs=_outputs(rows),
        ),
        workflow=DocumentText(run["workflow"], run["workflow_version"], rows.workflow_source),
        policies=tuple(DocumentText(p["name"], p["version"], p["source"]) for p in rows.policies),
        lines=rows.lines,
        head=ChainHead(f"run:{run['run_id']}", run["audit_count"], run["audit_head"]),
        approvals=tuple(_approval(row, rows.votes, key) for row in rows.approvals),
        receipts=tuple(_receipt(row).to_evidence(key) for row in rows.receipts),
        redaction="metadata",
        producer=producer,
    )


def _outputs(rows: RunRows) -> list[Json]:
    return [
        [path, commit(rows.run_key, path, step["output"])]
        for step in rows.steps
        if step["output"] is not None
        for path in [path_of("step", step["step_key"], "output")]
    ]


def _approval(row: asyncpg.Record, votes: Sequence[Mapping[str, Any]], key: bytes) -> ApprovalRecord:
    path = card_path(row["approval_id"])
    in_doubt = row["kind"] == "in_doubt" and row["choice"] is not None
    return ApprovalRecord(
        approval_id=str(row["approval_id"]),
        action=None if row["kind"] in _UNBOUND else blind(key, row["action_digest"]),
        status=row["choice"] if in_doubt else row["status"],
        card_commitment=commit(key, path, row["card"]),
        # A card with secret values is committed to and withheld: who holds a bundle may not have been who approved.
        card_disclosure=None if row["card"].get("sensitive") else disclosure(key, path, row["card"]),
        votes=tuple(
            VoteRecord(vote["voter"], vote["choice"], vote["channel"], vote["at"])
            for vote in votes
            if vote["approval"] == str(row["approval_id"])
        ),
    )


def _receipt(row: asyncpg.Record) -> Receipt:
    reverse = row["reverse"]
    error = row["error"]
    return Receipt(
        receipt_id=str(row["receipt_id"]),
        tenant_id=row["tenant_id"],
        run_id=str(row["run_id"]),
        step_key=row["step_key"],
        operation=row["operation"],
        target=row["target"],
        idempotency_key=row["idempotency_key"],
        action_digest=row["action_digest"],
        status=ReceiptStatus(row["status"]),
        attempt=row["attempt"],
        lease_epoch=row["lease_epoch"],
        reversible=row["reversible"],
        reverse=Reverse(reverse["operation"], reverse["input"]) if reverse else None,
        external_id=row["external_id"],
        resolution=row["resolution"],
        error=error["message"] if error else None,
        intended_at=row["intended_at"],
        settled_at=row["settled_at"],
    )
