"""Handling of clicks in Slack: finds the person, passes on a vote or a form, and answers. The runtime checks rights."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from msgspec.structs import replace

from app.faces import Faces
from app.refusals import StrangerLog
from app.shown import may_see_all
from approvals import click_proof
from approvals.model import CardView, TaskAnswer, TaskView, VoteChannel
from approvals.ports import MessageRef, Person
from approvals.quorum import NotCounted, RefusalCode
from approvals.slack.handlers import Answer
from approvals.slack.members import Clicker
from approvals.slack.modals import EDITS
from approvals.slack.payloads import (
    Click,
    HoldClick,
    HoldSubmission,
    ListClick,
    ListSubmission,
    Submission,
    TaskClick,
    TaskSubmission,
)
from approvals.slack.talk_payloads import (
    EditClick,
    EditSubmission,
    ListTalkClick,
    ListTalkSubmission,
    TalkClick,
    TalkSubmission,
)
from approvals.slack.workspace import SENTENCES, SlackWorkspace, StrangerCode
from core.canonical import JsonObject
from core.errors import InputError, NotFoundError
from core.identity import Kind, principal
from core.terms import Grant
from evidence.chain import Actor, EventType
from runtime.requests.steering import ask_again
from runtime.requests.voting import AnswerTo, VoteRequest
from runtime.store import audit, faces, tasks, tokens

_ABOUT_REASON = frozenset({RefusalCode.REASON_MISSING, RefusalCode.REASON_TOO_LONG})
_NO_TASK = "This task is not known here (any more). Nothing was recorded."
_OF_QUESTIONS = (
    Click
    | Submission
    | ListClick
    | ListSubmission
    | TalkClick
    | TalkSubmission
    | EditClick
    | EditSubmission
    | ListTalkClick
    | ListTalkSubmission
)
GONE = "This request is not known here (any more). Nothing was counted."

Asked: TypeAlias = (
    Click
    | Submission
    | ListClick
    | ListSubmission
    | TaskClick
    | TaskSubmission
    | HoldClick
    | HoldSubmission
    | TalkClick
    | TalkSubmission
    | EditClick
    | EditSubmission
    | ListTalkClick
    | ListTalkSubmission
)


def known_by(clicker: Clicker, place: MessageRef | None) -> JsonObject:
    """The proof of a voter's identity in Slack, for the vote's line: the account, and the message that was clicked."""
    account: JsonObject = {"team": clicker.team, "user": clicker.user}
    return {"slack": account | ({} if place is None else {"channel": place.channel, "message": place.ts})}


class Interactions:
    """The ``InteractionService`` and ``TaskService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, tenant: str, workspace: SlackWorkspace) -> None:
        self._faces, self._workspace = faces, workspace
        self._tenant = self.tenant = tenant
        self._strangers = StrangerLog(faces.database)

    async def _person(self, clicker: Clicker) -> Person | StrangerCode:
        """The person behind a Slack account, or a reason: only full members of the pinned workspace count."""
        stranger, home = await self._workspace.stranger(clicker), await self._workspace.home()
        if stranger is not None or home is None:
            return stranger or StrangerCode.UNAVAILABLE
        person = await self._faces.directory(self._tenant).person_of_slack_user(home.id, clicker.user)
        return person or StrangerCode.UNLINKED

    async def person(self, clicker: Clicker) -> Person | StrangerCode:
        """The person behind a Slack account, or the reason why there is none."""
        return await self._person(clicker)

    @staticmethod
    def sentence(code: StrangerCode, clicker: Clicker) -> str:
        """The reason in words, for the person who clicked."""
        if code is StrangerCode.UNLINKED:
            # Slack shows a backtick in plain text as a code.
            who = f"Ask an administrator to add 'slack: {clicker.user}' to your entry in it."
            return f"You are not in the directory, so nothing was counted. {who}"
        return SENTENCES[code]

    async def workspace_url(self) -> str:
        """The web address of the workspace; "" if Slack does not say."""
        home = await self._workspace.home()
        return home.url if home is not None else ""

    async def refused(self, code: StrangerCode, asked: Asked) -> str:
        """Record an attempt of a stranger; return the sentence for the person."""
        return await self._refused(code, asked)

    async def note_attempt(self, refused: NotCounted, asked: Asked) -> str:
        """Record a click or window that is not genuine; return the sentence for the person."""
        await self._record(refused.code, asked)
        return refused.sentence

    async def is_own(self, approval_id: UUID) -> bool:
        """True if this tenant has the question."""
        return await self._is_own(approval_id)

    async def _refused(self, code: StrangerCode, asked: Asked) -> str:
        """Record a refused attempt; return the sentence for the person. If Slack did not answer, record nothing."""
        await self._record(code, asked, answered=code is not StrangerCode.UNAVAILABLE)
        return self.sentence(code, asked.clicker)

    async def _record(self, code: str, asked: Asked, *, answered: bool = True) -> None:
        """Count a refused attempt; with ``told``, record it too."""
        if answered:
            data: JsonObject = {"code": str(code), "channel": str(VoteChannel.SLACK)}
            if isinstance(asked, _OF_QUESTIONS):
                kind, data["approval"] = EventType.APPROVAL_VOTE_REFUSED, str(asked.approval_id)
            elif isinstance(asked, HoldClick | HoldSubmission):
                kind, data["wait"] = EventType.HOLD_REFUSED, str(asked.wait_id)
            else:
                kind, data["task"] = EventType.TASK_REFUSED, str(asked.task_id)
            actor = Actor("slack_user", f"{asked.clicker.team}:{asked.clicker.user}")
            await self._strangers.note(self._tenant, kind, actor, data)
        self._faces.metrics.of(self._tenant).vote(VoteChannel.SLACK, code)

    async def note_stranger(self, code: str, asked: Asked) -> None:
        """Record an attempt that does not count. If Slack did not say who it was, record nothing."""
        await self._record(code, asked, answered=code != StrangerCode.UNAVAILABLE)

    async def _false(self, refused: NotCounted, asked: Asked) -> Answer:
        """The answer to a click or window that is not genuine. It is recorded, and sent to the person who clicked."""
        await self._record(refused.code, asked)
        if isinstance(asked, Click):
            await self.note(asked, refused.sentence)
        elif isinstance(asked, TaskClick):
            await self.note_task(asked, refused.sentence)
        return Answer(False, refused.sentence, noted=isinstance(asked, Click | TaskClick) and bool(asked.channel))

    async def vote(self, click: Click) -> Answer:
        """Take a vote. The vote's transaction also orders the answer to the person, through the outbox.

        ``InputError`` if another installation posted the card: Slack then tells the person that it did not work.
        """
        to = _answer_to(click)
        person = await self._person(click.clicker)
        if isinstance(person, StrangerCode):
            await self._own(click.approval_id)
            sentence = await self._refused(person, click)
            if to is not None:
                await self._faces.voting.note(self._tenant, click.approval_id, to, sentence)
            return Answer(False, sentence)
        try:
            return await self._count(click, person, "actions[0].action_id", to=to, place=click.place)
        except NotFoundError:
            raise not_ours() from None

    async def submit(self, submission: Submission) -> Answer:
        """Take a vote from a modal, which shows the answer itself."""
        if not await self._is_own(submission.approval_id):
            return Answer(False, GONE)
        person = await self._person(submission.clicker)
        if isinstance(person, StrangerCode):
            return Answer(False, await self._refused(person, submission))
        if not submission.digest:
            return await self._false(click_proof.WINDOW, submission)
        return await self._count(submission, person, "view", submission.reason)

    async def _look(self, asked: Click | Submission) -> tuple[Person, CardView] | Answer:
        """The card for a person of the directory who has clicked on it, or has a window about it."""
        if not await self._is_own(asked.approval_id):
            return Answer(False, GONE)
        person = await self._person(asked.clicker)
        if isinstance(person, StrangerCode):
            return Answer(False, await self._refused(person, asked))
        view, own = await self._faces.voting.look(self._tenant, asked.approval_id)
        if isinstance(asked, Click):
            false = click_proof.wrong_message(own, asked.place)
        else:
            false = None if asked.digest == view.digest else click_proof.WINDOW
        if false is not None:
            return await self._false(false, asked)
        actor, thing = Actor("person", person.id), asked.approval_id
        await self._faces.ask(self._tenant, audit.read_by, actor, "approval", "slack", thing=thing)
        return person, view

    async def ask(self, click: Click | Submission) -> CardView | Answer:
        """The card that was clicked: a window repeats its question, and is bound to its digest. Secrets stay hidden."""
        found = await self._look(click)
        if isinstance(found, Answer):
            return found
        return replace(found[1], content=found[1].content.masked())

    async def ask_again(self, click: Click) -> Answer:
        """Go on with the run whose question has expired, for its requester: the same question is asked again."""
        found = await self._look(click)
        if isinstance(found, Answer):
            return found
        sentence = await self._faces.ask(
            self._tenant, ask_again, self._faces.definitions, click.approval_id, found[0].id
        )
        await self.note(click, sentence)
        return Answer(True, sentence, noted=bool(click.channel))

    async def review(self, asked: Click | Submission) -> CardView | Answer:
        """The whole card for a person of the directory. A card with sensitive values needs one of the asked groups."""
        found = await self._look(asked)
        if isinstance(found, Answer):
            return found
        person, view = found
        if not view.content.sensitive or await may_see_all(self._faces, self._tenant, person.id, view):
            offers = await self._faces.talking.offers(self._tenant, view.approval_id, person.id)
            named = principal(Kind.PERSON, person.id)
            editable = await self._faces.editing.form(self._tenant, view.approval_id, named)
            return replace(view, offers=(*offers, *([EDITS] if isinstance(editable, dict) else ())))
        asks = ", ".join(sorted(item.group.words for item in view.progress)) or "nobody"
        return Answer(False, f"You may not see the hidden values: this asks members of {asks}.")

    async def note(self, click: Click, sentence: str) -> None:
        """Order an answer without a vote."""
        if (to := _answer_to(click)) is not None:
            await self._own(click.approval_id)
            await self._faces.voting.note(self._tenant, click.approval_id, to, sentence)

    async def _count(
        self,
        asked: Click | Submission,
        person: Person,
        where: str,
        reason: str = "",
        to: AnswerTo | None = None,
        place: MessageRef | None = None,
    ) -> Answer:
        if asked.choice is None:
            raise InputError("is no answer", where=where)
        who = principal(Kind.PERSON, person.id)
        ballot = (self._tenant, asked.approval_id, who, asked.choice, reason, VoteChannel.SLACK)
        shown = None if isinstance(asked, Click) else asked.digest
        grant = None
        if isinstance(asked, Submission) and asked.grant is not None:
            view, _ = await self._faces.voting.look(self._tenant, asked.approval_id)
            grant = Grant(*asked.grant, agent=view.of_agent)
        request = VoteRequest(
            *ballot,
            nonce=asked.nonce,
            digest=shown,
            answer_to=to,
            place=place,
            grant=grant,
            identity=known_by(asked.clicker, place),
        )
        answer = await self._faces.voting.vote(request)
        self._faces.metrics.of(self._tenant).vote(VoteChannel.SLACK, answer.code)
        return Answer(answer.counted, answer.sentence, answer.code in _ABOUT_REASON)

    async def _is_own(self, approval_id: UUID) -> bool:
        async with self._faces.database.connection() as connection:
            return await tokens.approval_owner(connection, approval_id) == self._tenant

    async def _own(self, approval_id: UUID) -> None:
        if not await self._is_own(approval_id):
            raise not_ours()

    async def task(self, asked: TaskClick | TaskSubmission) -> TaskView | Answer:
        """The task, for a person of the directory. A click opens the form only for members of the task's group.

        For a submission the group is not checked here: ``complete`` does it, and records refusals.
        """
        person = await self._person(asked.clicker)
        try:
            async with self._faces.database.transaction(self._tenant) as connection:
                found = await tasks.read(connection, asked.task_id, person.id if isinstance(person, Person) else "")
        except NotFoundError:
            return Answer(False, _NO_TASK)
        if isinstance(person, StrangerCode):
            return Answer(False, await self._refused(person, asked))
        if isinstance(asked, TaskClick):
            false = click_proof.wrong_message(found.message, asked.place, task=True)
        else:
            false = None if asked.digest == found.view.digest else click_proof.WINDOW
        if false is not None:
            return await self._false(false, asked)
        group = found.view.group
        if isinstance(asked, TaskSubmission) or group in (found.groups or ()):
            return found.view
        return Answer(False, f"This task is for members of the group {group}, and you are none of them.")

    async def complete(self, submission: TaskSubmission, value: JsonObject) -> TaskAnswer:
        """Complete the task as the person behind the account."""
        person = await self._person(submission.clicker)
        if isinstance(person, StrangerCode):
            return TaskAnswer(False, person, await self._refused(person, submission))
        return await self._faces.tasks.complete(self._tenant, submission.task_id, person.id, value, VoteChannel.SLACK)

    async def note_task(self, click: TaskClick, sentence: str) -> None:
        """Order an answer in the channel, if Slack has named it. ``NotFoundError`` if there is no such task here."""
        if not click.channel:
            return
        async with self._faces.database.transaction(self._tenant) as connection:
            found = await tasks.read(connection, click.task_id)
            fields = {
                "task": str(click.task_id),
                "channel": click.channel,
                "user": click.clicker.user,
                "text": sentence,
            }
            await faces.order_message(connection, self._tenant, found.run_id, "note", {**fields})


def _answer_to(click: Click) -> AnswerTo | None:
    return AnswerTo(click.channel, click.clicker.user) if click.channel else None


def not_ours() -> InputError:
    """The fault of a click on a card that another installation has posted."""
    return InputError("names no request of this installation", where="value.a")
