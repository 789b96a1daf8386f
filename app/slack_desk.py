"""The service behind Slack's Home and the operators' button. Every right is read anew from the directory."""

from __future__ import annotations

import json
from datetime import datetime
from uuid import UUID

from app.faces import Faces
from app.slack import GONE, Interactions
from approvals.model import ApprovalKind, ApprovalStatus, Choice, VoteChannel
from approvals.notices import Word
from approvals.ports import Membership
from approvals.quorum import Counted, RefusalCode, consider
from approvals.slack.blocks import Block
from approvals.slack.cards import button_value
from approvals.slack.home import Grant, Request, Waiting, home, refused
from approvals.slack.members import Clicker
from approvals.slack.workspace import StrangerCode
from core.db import Connection
from core.errors import ConsistencyError, InputError, NotFoundError
from core.identity import Directory, Entry
from core.terms import GroupSource
from evidence.chain import Actor
from runtime.engine.model.states import RunState
from runtime.keep.outcomes import WORDS
from runtime.keep.telling import OPERATORS
from runtime.requests import granting, steering
from runtime.requests.conversing import conversation
from runtime.requests.directory import NO_GROUPS, as_people, voter_of
from runtime.requests.steering import retry_run
from runtime.requests.views import drawn
from runtime.store import approvals, console, read_models
from runtime.store.approvals import StoredApproval
from runtime.store.read_models import RunFilter

# The number of open questions that are searched, the oldest first, and the number of requests that are listed.
QUESTIONS_MAX = 200
REQUESTS_MAX, LOOKED_MAX, GRANTS_LOOKED_MAX = 5, 50, 10
_NO_OPERATOR = "Only members of the group operators go on with failed runs, and you are not one. Nothing was done."
_STATES = {
    RunState.SUCCEEDED: "Done",
    RunState.CANCELED: "Canceled",
    RunState.WAITING_APPROVAL: "Waiting for people",
    RunState.WAITING: "Waiting",
}


class Desk:
    """The ``DeskService`` of one tenant, in the workspace of its own Slack app."""

    def __init__(self, faces: Faces, interactions: Interactions) -> None:
        self._faces = faces
        self._interactions = interactions
        self._tenant = interactions.tenant

    async def _entry(self, clicker: Clicker) -> tuple[Entry, Directory] | str:
        """The person behind an account, with the directory; otherwise the reason why there is none."""
        person = await self._interactions.person(clicker)
        if isinstance(person, StrangerCode):
            return self._interactions.sentence(person, clicker)
        people = await self._faces.directory(self._tenant).now()
        entry = people.entries.get(person.id)
        return (entry, people) if entry is not None else self._interactions.sentence(StrangerCode.UNLINKED, clicker)

    async def home(self, clicker: Clicker) -> Block:
        """The Home of the person behind the account."""
        found = await self._entry(clicker)
        if isinstance(found, str):
            return refused(found)
        entry, people = found
        waiting, requests = await self._waiting(entry, people), await self._requests(entry, people)
        return home(waiting, requests, self._faces.settings.pages, await self._grants(entry))

    async def _grants(self, entry: Entry) -> list[Grant]:
        """The grants that this person has given with their newest votes, and that can still be taken back."""
        async with self._faces.database.transaction(self._tenant) as connection:
            voted = await console.answered(connection, self._tenant, entry.id, LOOKED_MAX)
            of_rule = [one.stored for one in voted if one.stored.approval.terms.grants and one.answer == Choice.APPROVE]
            found = []
            for stored in of_rule[:GRANTS_LOOKED_MAX]:
                if await granting.gave(connection, self._tenant, self._faces.definitions, stored.approval, entry.id):
                    view = await drawn(connection, self._faces.definitions, stored)
                    if view.granted is not None and view.granted.open:
                        title = view.content.question.removesuffix("?") or view.content.title
                        found.append(Grant(title, view.granted, button_value(view)))
        return found[:REQUESTS_MAX]

    async def _waiting(self, entry: Entry, people: Directory) -> list[Waiting]:
        """The open questions for which this person's answer would count."""
        directory = self._faces.directory(self._tenant)
        async with self._faces.database.transaction(self._tenant) as connection:
            asked = await approvals.open_questions(connection, self._tenant, QUESTIONS_MAX)
            stored = [await approvals.read(connection, one.approval_id) for one in asked]
            # People who shaped an action after the question was asked are only in the run's book, so it is read for
            # these questions.
            for at, one in enumerate(stored):
                if _counts(one, entry, NO_GROUPS, people):
                    stored[at], _ = await conversation(connection, self._faces.definitions, one, people)
        groups = {group.key: group for one in stored for group in one.approval.terms.approvers}
        slack = await directory.slack_membership(
            entry, [one for one in groups.values() if one.source is GroupSource.SLACK_GROUP]
        )
        url = await self._interactions.workspace_url()
        together: dict[tuple[UUID, str], list[StoredApproval]] = {}
        for one in stored:
            if _counts(one, entry, slack, people):
                together.setdefault((one.approval.run_id, one.listed or str(one.approval.id)), []).append(one)
        return [_waiting_line(some[0], url, len(some)) for some in together.values()]

    async def _requests(self, entry: Entry, people: Directory) -> list[Request]:
        """The newest requests of this person; requests of machines that they own do not count."""
        wanted = RunFilter(requester=entry.id)
        rows = await self._faces.ask(self._tenant, read_models.runs_page, wanted, LOOKED_MAX)
        own = [row for row in rows if people.entry(row["requested_by"]) == entry]
        return [_request(row, await self._expired(row)) for row in own[:REQUESTS_MAX]]

    async def _expired(self, row: read_models.Row) -> str:
        """The value of a button that asks the expired question of this run again; "" if no question expired."""
        if RunState(row["status"]) is not RunState.FAILED_TERMINAL or _word(row) is not Word.EXPIRED:
            return ""
        every = await self._faces.ask(self._tenant, console.questions_of_run, row["run_id"], LOOKED_MAX)
        over = [one.stored.approval for one in every if one.stored.approval.status is ApprovalStatus.EXPIRED]
        return json.dumps({"a": str(over[-1].id), "n": over[-1].nonce}) if over else ""

    async def ask_again(self, approval_id: UUID, clicker: Clicker) -> str:
        """Go on with the run whose question has expired, as the person behind the account."""
        found = await self._entry(clicker)
        if isinstance(found, str):
            return found
        try:
            return await self._faces.ask(
                self._tenant, steering.ask_again, self._faces.definitions, approval_id, found[0].id
            )
        except NotFoundError:
            return GONE

    async def may_retry(self, clicker: Clicker) -> str:
        """The reason why this account may not go on with failed runs; "" for an operator."""
        found = await self._entry(clicker)
        if isinstance(found, str):
            return found
        entry, _ = found
        return "" if entry.active and entry.owner is None and OPERATORS in entry.groups else _NO_OPERATOR

    async def retry(self, clicker: Clicker, run_id: UUID, reason: str) -> str:
        """Go on with a failed run as the person behind the account, as ``POST /v1/runs/{id}/retry`` does."""
        refusal, found = await self.may_retry(clicker), await self._entry(clicker)
        if refusal or isinstance(found, str):
            return refusal or str(found)
        actor = Actor("person", found[0].id)
        try:
            # One transaction: a crash before its end leaves the run as it ended, and the button can be pressed again.
            await self._faces.ask(self._tenant, _retried, self._faces, run_id, actor, reason)
        except (ConsistencyError, InputError, NotFoundError) as error:
            return f"It was not tried again: {error.message} {error.remedy or ''}".strip()
        return "The failed steps begin anew."


async def _retried(connection: Connection, tenant: str, faces: Faces, run_id: UUID, actor: Actor, reason: str) -> None:
    await retry_run(connection, faces.definitions, tenant, run_id, actor, reason)


def _counts(stored: StoredApproval, entry: Entry, slack: Membership, people: Directory) -> bool:
    approval = as_people(stored.approval, people)
    choice = Choice.HAPPENED if approval.kind is ApprovalKind.IN_DOUBT else Choice.APPROVE
    voter = voter_of(entry.id, entry, slack, approval, people)
    judged = consider(approval, voter, choice, "looked at", at=stored.now, channel=VoteChannel.SLACK)
    return isinstance(judged, Counted) or judged.code is RefusalCode.STEP_UP  # it waits for them, in the browser


def _waiting_line(stored: StoredApproval, url: str, many: int = 1) -> Waiting:
    """The question as Home lists it; ``many`` is the number of questions on its card."""
    card, place = stored.card, stored.message
    about = " · ".join(str(card[name]) for name in ("reference", "workflow") if card.get(name))
    link = f"{url}archives/{place.channel}/p{place.ts.replace('.', '')}" if url and place is not None else ""
    doubt = stored.approval.kind is ApprovalKind.IN_DOUBT
    weight = "In doubt" if doubt else str(card.get("tier") or card.get("risk") or "")
    together = f"{many} together: " if many > 1 else ""
    return Waiting(f"{together}{card.get('title') or about}", about, weight, str(card.get("expires_at") or ""), link)


def _word(row: read_models.Row) -> Word | None:
    return WORDS.get(str((row["error"] or {}).get("code")))


def _request(row: read_models.Row, again: str) -> Request:
    about = f"{row['workflow']} for {row['reference']}" if row["reference"] else str(row["workflow"])
    status = RunState(row["status"])
    word = str(_word(row) or "Failed") if status is RunState.FAILED_TERMINAL else ""
    since: datetime = row["finished_at"] or row["created_at"]
    return Request(word or _STATES.get(status, "Running"), about, since.isoformat(timespec="seconds"), again)
