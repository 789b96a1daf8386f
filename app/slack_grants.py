"""The service behind the buttons that take a grant back in Slack. Every right is read anew from the directory."""

from __future__ import annotations

from uuid import UUID

from app.faces import Faces
from app.slack import GONE, Interactions
from approvals.model import CardView
from approvals.ports import Person
from approvals.quorum import NotCounted, RefusalCode
from approvals.slack.handlers import Answer
from approvals.slack.members import Clicker
from approvals.slack.payloads import Click, Submission
from core.errors import ConsistencyError, InputError, NotFoundError
from core.identity import Kind, principal
from evidence.chain import Actor
from runtime.requests import granting
from runtime.requests.talking import slack_of

_OTHERS = "You may not take it back: operators do, whoever may decide this request, and whoever has allowed it."
_DONE = "It is taken back. Nothing more goes out by it, and the card says so."


class GrantDesk:
    """The ``GrantService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces, self._interactions = faces, interactions
        self._tenant = interactions.tenant

    async def look(self, click: Click) -> CardView | str:
        """The card, without secret values, for a person who may take back its grant; otherwise why not."""
        found = await self._allowed(click)
        return found if isinstance(found, str) else found[1]

    async def look_at_home(self, approval_id: UUID, clicker: Clicker) -> CardView | str:
        """The same as ``look`` for a press in Home, which proves only who pressed: the window repeats the grant."""
        try:
            view, _ = await self._faces.voting.look(self._tenant, approval_id)
        except NotFoundError:
            return GONE
        pressed = Submission(approval_id, view.nonce, clicker, None, "", 0, digest=view.digest)
        found = await self._allowed(pressed)
        return found if isinstance(found, str) else found[1]

    async def take_back(self, submission: Submission) -> str:
        """Take the grant back as the person behind the account. A window that we did not open for them is refused."""
        found = await self._allowed(submission)
        if isinstance(found, str):
            return found
        named = (self._faces.definitions, submission.approval_id, Actor("person", found[0].id), submission.reason)
        try:
            # One transaction: a crash before its end leaves the grant, and the button can be pressed again.
            await self._faces.ask(self._tenant, granting.take_back, *named)
        except (ConsistencyError, InputError, NotFoundError) as error:
            return f"It was not taken back: {error.message} {error.remedy or ''}".strip()
        return _DONE

    async def note(self, click: Click, sentence: str) -> None:
        """Order an answer to the person who clicked."""
        await self._interactions.note(click, sentence)

    async def _allowed(self, asked: Click | Submission) -> tuple[Person, CardView] | str:
        view, person = await self._interactions.ask(asked), await self._interactions.person(asked.clicker)
        if isinstance(view, Answer):
            return view.sentence
        if not isinstance(person, Person):
            return self._interactions.sentence(person, asked.clicker)
        named, faces = principal(Kind.PERSON, person.id), self._faces
        directory = faces.directory(self._tenant)
        slack = await slack_of(faces.database, faces.definitions, directory, self._tenant, asked.approval_id, named)
        if await faces.ask(self._tenant, granting.may_take_back, faces.definitions, asked.approval_id, named, slack):
            return person, view
        return await self._interactions.note_attempt(NotCounted(RefusalCode.NOT_ELIGIBLE, _OTHERS), asked)
