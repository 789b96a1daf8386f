"""Conversations about questions, read from the book of their run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from approvals.model import ApprovalStatus, Statement
from core.db import Connection
from core.identity import Directory, Entry
from runtime.definition.catalog import Definitions
from runtime.engine.book.contributors import barred_from
from runtime.engine.model.run import Run
from runtime.store.approvals import StoredApproval
from runtime.store.views import load


def comments_of(run: Run, approval_id: UUID, people: Directory) -> tuple[Statement, ...]:
    """The comments on a question, in order, with the names of their authors in today's directory."""

    def name(text: str) -> str:
        entry: Entry | None = people.entries.get(text)
        return entry.name if entry is not None else text.rpartition(":")[2].partition("/")[0]

    return tuple(
        Statement(one.person_id, name(one.person_id), one.said, one.text, one.at.isoformat(), one.to, name(one.to))
        for one in run.said
        if one.approval_id == approval_id
    )


async def conversation(
    connection: Connection, definitions: Definitions, stored: StoredApproval, people: Directory
) -> tuple[StoredApproval, Sequence[Statement]]:
    """An open question with all its contributors so far, and the comments on it."""
    approval = stored.approval
    if approval.status is not ApprovalStatus.REQUESTED:
        return stored, ()
    run = (await load(connection, approval.run_id, definitions.graphs, tenant=approval.tenant_id)).run
    asked = run.approvals.get(approval.id)
    if asked is None:
        return stored, ()
    whole = replace(approval, contributors=barred_from(run, asked))
    return dataclasses.replace(stored, approval=whole), comments_of(run, approval.id, people)
