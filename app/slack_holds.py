"""The service behind the buttons of held steps in Slack. Every right is read anew from the directory."""

from __future__ import annotations

from app.faces import Faces
from app.slack import Interactions
from approvals import click_proof
from approvals.model import VoteChannel
from approvals.slack.members import Clicker
from approvals.slack.payloads import HoldClick, HoldSubmission
from approvals.slack.workspace import StrangerCode
from core.errors import NotFoundError
from core.identity import Kind, principal
from runtime.engine.life.holding import Answer
from runtime.requests.holding import HoldRequest
from runtime.store import holds
from runtime.store.holds import StoredHold

_GONE = "This step is not known here (any more). Nothing was recorded."


class HeldSteps:
    """The ``HoldService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces = faces
        self._interactions = interactions
        self._tenant = interactions.tenant

    async def look(self, click: HoldClick) -> tuple[str, str]:
        """The step in words for a member of its group; otherwise the reason why this person may not answer."""
        person = await self._interactions.person(click.clicker)
        try:
            stored = await self._stored(click)
        except NotFoundError:
            return "", _GONE
        if isinstance(person, StrangerCode):
            return "", await self._stranger(person, click, click.clicker)
        if (false := click_proof.wrong_message(stored.message, click.place, held=True)) is not None:
            return "", await self._stranger(false.code, click, click.clicker, false.sentence)
        if not stored.open:
            by = f" {stored.by} has answered it." if stored.by else ""
            return "", f"This step waits for no answer any more.{by}"
        entry = (await self._faces.directory(self._tenant).now()).entries.get(person.id)
        if entry is None or stored.group not in entry.groups:
            return "", f"This is for members of the group {stored.group}, and you are none of them."
        return f"{stored.step} of {stored.workflow} for {stored.reference}".removesuffix(" for "), ""

    async def answer(self, submission: HoldSubmission) -> str:
        """Take the answer as the person behind the account."""
        person = await self._interactions.person(submission.clicker)
        if isinstance(person, StrangerCode):
            return await self._stranger(person, submission, submission.clicker)
        who, choice = principal(Kind.PERSON, person.id), Answer(submission.choice)
        fields = (submission.reason, VoteChannel.SLACK)
        try:
            reply = await self._faces.holding.answer(
                HoldRequest(self._tenant, who, choice, *fields, wait_id=submission.wait_id)
            )
        except NotFoundError:
            return _GONE
        return reply.sentence

    async def _stored(self, click: HoldClick) -> StoredHold:
        async with self._faces.database.transaction(self._tenant) as connection:
            return await holds.read(connection, click.wait_id)

    async def _stranger(self, code: str, asked: HoldClick | HoldSubmission, clicker: Clicker, words: str = "") -> str:
        """Record an attempt that does not count; return the sentence for the person."""
        await self._interactions.note_stranger(code, asked)
        return words or self._interactions.sentence(StrangerCode(code), clicker)
