"""The service behind the card of a list: finds the person, passes on one vote for each question, and answers."""

from __future__ import annotations

from msgspec.structs import replace

from app.faces import Faces
from app.shown import may_see_all
from app.slack import GONE, Interactions, known_by, not_ours
from approvals import seen
from approvals.lists import ListView
from approvals.model import Choice, VoteChannel
from approvals.slack.payloads import ListClick, ListSubmission
from approvals.slack.workspace import StrangerCode
from core.errors import InputError
from core.identity import Kind, principal
from runtime.requests.listing import ListVote, vote_list
from runtime.requests.views import drawn_list
from runtime.requests.voting import AnswerTo
from runtime.store import lists


class ListDesk:
    """The ``ListService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces, self._interactions = faces, interactions
        self._tenant = interactions.tenant

    async def vote_list(self, asked: ListClick | ListSubmission) -> str:
        """Take the votes. Their transaction also orders the answer to whoever clicked, through the outbox.

        ``InputError`` if another installation posted the card: Slack then tells the person that it did not work.
        """
        click = isinstance(asked, ListClick)
        if not await self._interactions.is_own(asked.approval_id):
            if click:
                raise not_ours()
            return GONE
        to = AnswerTo(asked.channel, asked.clicker.user) if isinstance(asked, ListClick) and asked.channel else None
        person = await self._interactions.person(asked.clicker)
        if isinstance(person, StrangerCode):
            sentence = await self._interactions.refused(person, asked)
            if to is not None:
                await self._faces.voting.note(self._tenant, asked.approval_id, to, sentence)
            return sentence
        if isinstance(asked, ListSubmission) and not asked.digest:
            return await self._interactions.note_attempt(seen.WINDOW, asked)
        if asked.choice is None:
            raise InputError("is no answer", where="view")
        some = isinstance(asked, ListSubmission) and asked.choice is Choice.APPROVE
        request = ListVote(
            tenant_id=self._tenant,
            first=asked.approval_id,
            person_id=principal(Kind.PERSON, person.id),
            choice=asked.choice,
            reason="" if isinstance(asked, ListClick) else asked.reason,
            channel=VoteChannel.SLACK,
            chosen=asked.chosen if isinstance(asked, ListSubmission) and some else None,
            mark=asked.mark if isinstance(asked, ListClick) else asked.digest,
            place=asked.place if isinstance(asked, ListClick) else None,
            answer_to=to,
            identity=known_by(asked.clicker, asked.place if isinstance(asked, ListClick) else None),
        )
        answer = await vote_list(self._faces.voting, request)
        for code in ["counted"] * (answer.approved + answer.rejected) + [one.code for one in answer.refused]:
            self._faces.metrics.of(self._tenant).vote(VoteChannel.SLACK, code)
        return answer.sentence

    async def look_list(self, asked: ListClick | ListSubmission) -> ListView | str:
        """The list for a person of the directory; values that they may not see are hidden in it."""
        if not await self._interactions.is_own(asked.approval_id):
            return GONE
        person = await self._interactions.person(asked.clicker)
        if isinstance(person, StrangerCode):
            return await self._interactions.refused(person, asked)
        async with self._faces.database.transaction(self._tenant) as connection:
            found = await lists.several(connection, await lists.of_message(connection, asked.approval_id))
            views = await drawn_list(connection, self._faces.definitions, found)
        if isinstance(asked, ListClick):
            false = seen.elsewhere(found[0].message if found else None, asked.place)
            if false is not None:
                return await self._interactions.note_attempt(false, asked)
        known: dict[frozenset[str], bool] = {}
        shown = []
        for view in views:
            groups = frozenset(one.group.key for one in view.progress)
            if view.content.sensitive and groups not in known:
                known[groups] = await may_see_all(self._faces, self._tenant, person.id, view)
            may = not view.content.sensitive or known[groups]
            shown.append(view if may else replace(view, content=view.content.masked()))
        listed = ListView(tuple(shown))
        if isinstance(asked, ListSubmission) and asked.digest != listed.mark:
            return await self._interactions.note_attempt(seen.WINDOW, asked)
        return listed

    async def note_list(self, click: ListClick, sentence: str) -> None:
        """Order an answer without a vote."""
        if click.channel and await self._interactions.is_own(click.approval_id):
            to = AnswerTo(click.channel, click.clicker.user)
            await self._faces.voting.note(self._tenant, click.approval_id, to, sentence)
