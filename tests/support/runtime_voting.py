"""Helpers of tests/runtime that several test files share: from test_voting."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from approvals.model import CardView, Choice, TaskView, VoteChannel
from approvals.ports import Absent, FindOutcome, MessageRef, Posted, PostInDoubt, PostOutcome
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling
from runtime.keep.dispatcher import Dispatcher
from runtime.keep.messages import Messages
from runtime.keep.sweeper import Sweeper
from runtime.requests.voting import VoteRequest, Voting
from tests.support.telling import UNTOLD

RAISE = """
workflow: raise
version: 1
reference: ${{ trigger.name }}
steps:
  - id: read
    do: probe.value.read
    with: {name: "${{ trigger.name }}"}
  - id: raise
    do: probe.record.update
    with: {name: "${{ trigger.name }}", fields: {priority: "1"}}
"""


ASK = """
policy: ask
version: 1
rules:
  - {id: reads, match: {operation: probe.value.read}, outcome: allow}
  - id: raising
    match: {operation: probe.record.update}
    outcome: needs_approval
    tier: high
    unresolved: ask
    approvers: [{group: owners, of: OF}]
    expires: PT8H
    remind: [PT1H]
    escalate: {after: PT6H, to: {group: managers}}
    because: It wakes people up.
"""


class Board:
    """A strict messenger: refuses what Slack would, and can lose or land a post."""

    def __init__(self) -> None:
        self.cards: dict[str, Any] = {}
        self.keys: dict[str, str] = {}
        self.threads: list[str] = []
        self.notes: list[tuple[str, str]] = []
        self.posts = 0
        self.updates = 0
        self.fault: str | None = None

    async def post_card(self, channel: str, view: CardView, key: str) -> PostOutcome:
        fault, self.fault = self.fault, None
        if fault == "lost":
            return PostInDoubt("the line went dead")
        self.posts += 1
        ts = f"{self.posts}.0"
        self.cards[ts], self.keys[key] = view, ts
        if fault == "landed":
            return PostInDoubt("the line went dead")
        return Posted(MessageRef(channel, ts))

    async def update_card(self, ref: MessageRef, view: CardView) -> PostOutcome:
        self.updates += 1
        assert ref.ts in self.cards, "message_not_found"
        self.cards[ref.ts] = view
        return Posted(ref)

    async def post_list(self, channel: str, view: Any, key: str) -> PostOutcome:
        return await self.post_card(channel, view, key)

    async def update_list(self, ref: MessageRef, view: Any) -> PostOutcome:
        return await self.update_card(ref, view)

    async def find_card(self, channel: str, key: str, *, since: float) -> FindOutcome:
        return Posted(MessageRef(channel, self.keys[key])) if key in self.keys else Absent()

    async def post_task(self, channel: str, view: TaskView, key: str) -> PostOutcome:
        raise AssertionError("there are no tasks here")

    async def update_task(self, ref: MessageRef, view: TaskView) -> PostOutcome:
        raise AssertionError("there are no tasks here")

    async def post_thread(self, ref: MessageRef, text: str, key: str) -> PostOutcome:
        self.threads.append(text)
        return Posted(ref)

    async def post_ephemeral(self, channel: str, user: str, text: str) -> PostOutcome:
        self.notes.append((user, text))
        return Posted(MessageRef(channel, "0.0"))

    def states(self) -> list[str]:
        return [str(view.state) for view in self.cards.values()]


class Office:
    """The runtime with people, a board and a bundler."""

    def __init__(self, runtime: Any, folder: Path) -> None:
        self.runtime, self.board, self.folder = runtime, Board(), folder
        self.signer = FileSigner.load_or_create(folder / "key.pem")
        self.blobs = FileBlobStore(folder / "blobs")
        bundling = Bundling(self.blobs, self.signer, "test", runtime.definitions)
        self.dispatcher = Dispatcher(runtime.database, {**self.messages(self.board), **bundling.handlers()}, "d1")
        self.sweeper = Sweeper(runtime.database, runtime.definitions)
        self.voting = Voting(runtime.faces, runtime.definitions)

    def messages(self, board: Board) -> Any:
        return {**Messages(board, "C1", self.runtime.definitions).handlers(), **UNTOLD}

    async def open(self, of: int = 1) -> Any:
        await self.runtime.tenant()
        await self.runtime.policy(ASK.replace("OF", str(of)))
        await self.runtime.publish(RAISE)
        for person in ("ana", "ben", "requester"):
            await self.runtime.person(person, ("owners",))
        await self.runtime.person("cara", ("managers",))
        started = await self.runtime.start("raise", {"name": "INC1"})
        await self.runtime.worker().work_off()
        assert await self.runtime.status(started.run_id) == "waiting_approval"
        await self.dispatcher.work_off()
        return started.run_id

    async def approval(self, status: str = "requested") -> Any:
        return (await self.runtime.books.approvals(status=status))[-1]

    async def vote(self, person: str, choice: str = "approve", reason: str = "", **more: Any) -> Any:
        approval = more.pop("approval", None) or (await self.approval()).id
        tenant = more.pop("tenant", "acme")
        request = VoteRequest(tenant, approval, person, Choice(choice), reason, VoteChannel.SLACK, **more)
        return await self.voting.vote(request)

    async def later(self, **time: float) -> None:
        """Move every due time of the waits towards us: time passes for the database without a clock of ours."""
        await self.runtime.trouble.bring_waits_nearer(timedelta(**time))

    async def finish(self) -> None:
        await self.runtime.worker().work_off()
        await self.dispatcher.work_off()

    async def verified(self, run_id: Any) -> Any:
        bundle = await self.runtime.books.bundle(run=run_id)
        path = self.folder / "bundle.zip"
        path.write_bytes((self.folder / "blobs" / bundle.uri.removeprefix("file:")).read_bytes())
        key = self.folder / "public.pem"
        key.write_bytes(self.signer.public_key.pem)
        return verify_bundle(path, public_key=key)


@pytest.fixture
async def office(runtime: Any, tmp_path: Path) -> Office:
    return Office(runtime, tmp_path)
