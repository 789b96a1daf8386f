"""The service behind the card of a list: finds the person, passes on one vote for each question, and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from app.faces import Faces
from app.shown import may_see_all
from app.slack import GONE, Interactions, known_by, not_ours
from app.slack_talks import ABOUT_TEXT, NOT_YOURS, OUT_OF_DATE
from approvals import click_proof, talk
from approvals.lists import ListView
from approvals.model import CardView, Choice, VoteChannel
from approvals.ports import Person
from approvals.slack.payloads import ListClick, ListSubmission
from approvals.slack.talk_payloads import ListTalkClick, ListTalkSubmission
from approvals.slack.workspace import StrangerCode
from approvals.talk import Saying
from core.errors import InputError
from core.identity import Kind, principal
from runtime.requests.listing import ListVote, vote_list
from runtime.requests.talking import SayRequest
from runtime.requests.views import drawn_list
from runtime.requests.voting import AnswerTo
from runtime.store import lists
from runtime.store.approvals import StoredApproval

# The number of digits of the list's mark that a button carries.
_MARK_MIN = 32


class ListDesk:
    """The ``ListService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces, self._interactions = faces, interactions
        self._tenant = interactions.tenant

    async def vote_list(self, asked: ListClick | ListSubmission) -> str:
        """Take the votes. Their transaction also enqueues the answer to the person who clicked.

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
            return await self._interactions.note_attempt(click_proof.WINDOW, asked)
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
        found, views = await self._drawn(asked.approval_id)
        if isinstance(asked, ListClick):
            false = click_proof.wrong_message(found[0].message if found else None, asked.place)
            if false is not None:
                return await self._interactions.note_attempt(false, asked)
        listed = await self._for(person, views)
        if isinstance(asked, ListSubmission) and asked.digest != listed.mark:
            return await self._interactions.note_attempt(click_proof.WINDOW, asked)
        return listed

    async def _drawn(self, approval_id: UUID) -> tuple[list[StoredApproval], list[CardView]]:
        """The questions that share a message with this one, and their cards."""
        async with self._faces.database.transaction(self._tenant) as connection:
            found = await lists.several(connection, await lists.of_message(connection, approval_id))
            return found, await drawn_list(connection, self._faces.definitions, found)

    async def _for(self, person: Person, views: Sequence[CardView]) -> ListView:
        """The list as this person may see it, with what they may say about each question."""
        known: dict[frozenset[str], bool] = {}
        shown = []
        for view in views:
            groups = frozenset(one.group.key for one in view.progress)
            if view.content.sensitive and groups not in known:
                known[groups] = await may_see_all(self._faces, self._tenant, person.id, view)
            may = not view.content.sensitive or known[groups]
            shown.append(view if may else replace(view, content=view.content.masked()))
        open_ = ListView(tuple(shown)).open
        offers = await self._faces.talking.offers_of(self._tenant, [one.approval_id for one in open_], person.id)
        return ListView(tuple(shown), offers=offers)

    async def look_talk(self, click: ListTalkClick) -> tuple[ListView, Mapping[str, str]] | str:
        """The list for a person who may say this about one of its questions; otherwise why they may not."""
        if not await self._interactions.is_own(click.approval_id):
            return GONE
        person = await self._interactions.person(click.clicker)
        if isinstance(person, StrangerCode):
            return await self._interactions.refused(person, click)
        found, views = await self._drawn(click.approval_id)
        listed = await self._for(person, views)
        if not listed.mark.startswith(click.mark) or len(click.mark) < _MARK_MIN:
            return OUT_OF_DATE
        about = {key for key, offers in listed.offers.items() if click.saying in offers}
        if not about:
            return NOT_YOURS
        if click.saying is not Saying.HANDS_ON:
            return listed, {}
        people = await self._faces.directory(self._tenant).now()
        to = [talk.may_be_handed(one.approval, people) for one in found if one.approval.id in about]
        return listed, {key: name for each in to for key, name in each.items()}

    async def say_list(self, submission: ListTalkSubmission) -> tuple[bool, str]:
        """Record the statement about the chosen question, if the list is still the one that was shown."""
        person = await self._interactions.person(submission.clicker)
        if isinstance(person, StrangerCode):
            return False, await self._interactions.refused(person, submission)
        if not await self._interactions.is_own(submission.approval_id):
            return False, GONE
        _, views = await self._drawn(submission.approval_id)
        about = next((one for one in views if one.approval_id == submission.about), None)
        if about is None or ListView(tuple(views)).mark != submission.mark:
            return False, OUT_OF_DATE
        request = SayRequest(
            self._tenant,
            about.approval_id,
            principal(Kind.PERSON, person.id),
            submission.saying,
            submission.text,
            VoteChannel.SLACK,
            to=submission.to,
            nonce=about.nonce,
            digest=about.digest,
            identity=known_by(submission.clicker, None),
        )
        answer = await self._faces.talking.say(request)
        return answer.code in ABOUT_TEXT, answer.sentence

    async def note_list(self, click: ListClick, sentence: str) -> None:
        """Order an answer without a vote."""
        if click.channel and await self._interactions.is_own(click.approval_id):
            to = AnswerTo(click.channel, click.clicker.user)
            await self._faces.voting.note(self._tenant, click.approval_id, to, sentence)
