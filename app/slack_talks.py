"""The service behind what people say about a question in Slack. Every right is read anew from the directory."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from app.faces import Faces
from app.slack import GONE, Interactions, known_by
from approvals import talk
from approvals.fields import FormProblem
from approvals.model import CardView, VoteChannel
from approvals.quorum import NotCounted, RefusalCode
from approvals.slack.talk_payloads import EditClick, EditSubmission, TalkClick, TalkSubmission
from approvals.slack.workspace import StrangerCode
from approvals.talk import Saying
from core.canonical import JsonObject
from core.errors import NotFoundError
from core.identity import Kind, principal
from runtime.requests.editing import EditRequest
from runtime.requests.talking import SayRequest
from runtime.store import approvals

ABOUT_TEXT = frozenset({RefusalCode.REASON_MISSING, RefusalCode.REASON_TOO_LONG})
OUT_OF_DATE = "This is out of date. Open it again from the newest card of this request."
NOT_YOURS = "You cannot do this now: look at the request's card for what has become of it."


class Talks:
    """The ``TalkService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces = faces
        self._interactions = interactions
        self._tenant = interactions.tenant

    async def look(self, click: TalkClick) -> tuple[CardView, Mapping[str, str]] | str:
        """The question, without secret values, for a person who may say this now; otherwise why they may not."""
        person = await self._interactions.person(click.clicker)
        if not await self._interactions.is_own(click.approval_id):
            return GONE
        if isinstance(person, StrangerCode):
            await self._interactions.note_stranger(person, click)
            return self._interactions.sentence(person, click.clicker)
        view = await self._faces.voting.view(self._tenant, click.approval_id)
        if view.nonce != click.nonce:
            return OUT_OF_DATE
        if click.saying not in await self._faces.talking.offers(self._tenant, click.approval_id, person.id):
            return NOT_YOURS
        shown = replace(view, content=view.content.masked())
        return shown, await self._choices(click) if click.saying is Saying.HANDS_ON else {}

    async def _choices(self, click: TalkClick) -> Mapping[str, str]:
        people = await self._faces.directory(self._tenant).now()
        async with self._faces.database.transaction(self._tenant) as connection:
            stored = await approvals.read(connection, click.approval_id)
        return talk.may_be_handed(stored.approval, people)

    async def say(self, submission: TalkSubmission) -> tuple[bool, str]:
        """Record the statement of the person behind the account."""
        person = await self._interactions.person(submission.clicker)
        if isinstance(person, StrangerCode):
            await self._interactions.note_stranger(person, submission)
            return False, self._interactions.sentence(person, submission.clicker)
        request = SayRequest(
            self._tenant,
            submission.approval_id,
            principal(Kind.PERSON, person.id),
            submission.saying,
            submission.text,
            VoteChannel.SLACK,
            to=submission.to,
            nonce=submission.nonce,
            digest=submission.digest,
            identity=known_by(submission.clicker, None),
        )
        try:
            answer = await self._faces.talking.say(request)
        except NotFoundError:
            return False, GONE
        return answer.code in ABOUT_TEXT, answer.sentence

    async def form(self, asked: EditClick | EditSubmission) -> tuple[CardView, JsonObject] | str:
        """The question with the form for the person behind the account; or why they may not edit it."""
        person = await self._interactions.person(asked.clicker)
        if not await self._interactions.is_own(asked.approval_id):
            return GONE
        if isinstance(person, StrangerCode):
            await self._interactions.note_stranger(person, asked)
            return self._interactions.sentence(person, asked.clicker)
        view = await self._faces.voting.view(self._tenant, asked.approval_id)
        if view.nonce != asked.nonce:
            return OUT_OF_DATE
        found = await self._faces.editing.form(self._tenant, asked.approval_id, principal(Kind.PERSON, person.id))
        if isinstance(found, NotCounted):
            return found.sentence
        return replace(view, content=view.content.masked()), found

    async def edit(self, submission: EditSubmission, values: JsonObject) -> tuple[tuple[FormProblem, ...], str]:
        """Record the edit as the person behind the account."""
        person = await self._interactions.person(submission.clicker)
        if isinstance(person, StrangerCode):
            await self._interactions.note_stranger(person, submission)
            return (), self._interactions.sentence(person, submission.clicker)
        who = (self._tenant, submission.approval_id, principal(Kind.PERSON, person.id), values, VoteChannel.SLACK)
        known = known_by(submission.clicker, None)
        request = EditRequest(*who, nonce=submission.nonce, digest=submission.digest, identity=known)
        answer = await self._faces.editing.edit(request)
        return answer.problems, answer.sentence
