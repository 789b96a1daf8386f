"""The page of one question, and the answer to it: the vote of every face, bound to the digest that was shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from app.access import Role
from app.console import questions
from app.console import sessions as sessions_of_browsers
from app.console.questions import May
from app.console.sessions import Viewer
from app.console.story import of_step
from app.console.web import HOME, Decider, FacesDep, FormFields, Page, Posted, Reader, go, identified, page
from app.faces import Faces
from app.http.approvals import REFUSED
from approvals import talk
from approvals.content import CardContent, CardState
from approvals.model import ApprovalKind, ApprovalStatus, CardView, Choice, Statement, VoteChannel, choices_of
from approvals.quorum import REASON_CHARACTERS_MAX, RefusalCode
from approvals.slack.details import SAYS
from approvals.talk import Saying
from core.canonical import JsonObject
from core.db import Connection
from core.errors import AuthenticationError, AuthorizationError, ConsistencyError, InputError
from core.identity import Directory
from core.terms import Grant
from runtime.requests import glass as broken_glass
from runtime.requests.conversing import conversation
from runtime.requests.directory import as_people
from runtime.requests.talking import SayRequest
from runtime.requests.views import drawn
from runtime.requests.voting import VoteAnswer, VoteRequest
from runtime.store import approvals, console, sessions
from runtime.store.approvals import StoredApproval

router = APIRouter(prefix="/approvals")

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SAME_STEP_MAX = 200
_CHANGED = frozenset({RefusalCode.CHANGED, RefusalCode.STALE})
TALKS = {
    Saying.ASKS: (
        "Ask for more",
        "What do you need to know?",
        "It stays open; its requester is asked to answer.",
    ),
    Saying.ANSWERS: (
        "Answer",
        "Your answer",
        "You have a part in it then, and do not decide it.",
    ),
    Saying.COMMENTS: ("Comment", "Your comment", "It stands with the question."),
    Saying.HANDS_ON: ("Hand on", "Why", "They are called. Who may decide does not change."),
}
_ANSWERS = {
    Choice.HAPPENED: ("It happened", "The run goes on with it. Nothing is sent."),
    Choice.AGAIN: ("Do it again", "The same is sent once more."),
    Choice.FAIL: ("It failed", "It is left as it is, and the step fails."),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question as one viewer sees it."""

    stored: StoredApproval
    view: CardView
    people: Directory
    may: May
    content: CardContent
    withheld: str
    offers: tuple[Saying, ...] = ()
    editable: bool = False

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements about the question, for viewers who may see its values."""
        return self.view.remarks if self.withheld != questions.NOT_YOURS else ()

    @property
    def handable(self) -> dict[str, str]:
        """The people and groups to whom the question may be handed on."""
        approval = as_people(self.stored.approval, self.people)
        return talk.may_be_handed(approval, self.people) if Saying.HANDS_ON in self.offers else {}

    @property
    def outside(self) -> list[Any]:
        """The values that nobody of ours chose."""
        return questions.outside(self.content)

    @property
    def open(self) -> bool:
        """True while answers are taken."""
        return self.view.state is CardState.PENDING and self.stored.approval.status is ApprovalStatus.REQUESTED


async def read(faces: Faces, viewer: Viewer, approval_id: UUID) -> Question:
    """The question; ``NotFoundError`` if the viewer's tenant has none of this id."""
    async with faces.database.transaction(viewer.who.tenant) as connection:
        stored = await approvals.read(connection, approval_id)
        view = await drawn(connection, faces.definitions, stored)
        people = await faces.definitions.directory(connection, viewer.who.tenant, stored.directory_digest)
        stored, _ = await conversation(connection, faces.definitions, stored, people)
        fresh = await _fresh(connection, viewer, stored)
    slack = await questions.slack_groups(faces, viewer, people, questions.groups_of(stored))
    may = questions.rights(stored, viewer, people, slack, fresh)
    shaped = viewer.who.subject in {one.person for one in as_people(stored.approval, people).contributors}
    content, withheld = questions.content_for(stored, viewer, may, shaped=shaped)
    offers = questions.offers(stored, viewer, people, slack, view.remarks)
    editable = isinstance(await faces.editing.form(viewer.who.tenant, approval_id, viewer.who.person), dict)
    return Question(stored, view, people, may, content, withheld, offers, editable)


async def _fresh(connection: Connection, viewer: Viewer, stored: StoredApproval) -> datetime | None:
    """The time at which the viewer logged in again for this question and its action; None if they have not."""
    asked = stored.approval
    if asked.terms.step_up_seconds is None:
        return None
    key = viewer.step_up(asked.id, asked.action_digest)
    found = await sessions.stepped_up(connection, viewer.who.tenant, key)
    return found.at if found is not None else None


@router.get("/{approval}")
async def look(request: Request, approval: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show the question. Whoever may not answer it now sees why in place of the form."""
    found = await read(faces, viewer, identified(approval))
    shown = await page(request, faces, viewer)
    return await _drawn(faces, shown, found, counted="answered" in request.query_params)


async def _drawn(faces: Faces, shown: Page, found: Question, status: int = 200, **values: Any) -> Response:
    stored, viewer = found.stored, shown.viewer
    word = questions.SHOWN[found.view.state]
    if found.view.state is CardState.PENDING:
        doubt = stored.approval.kind is ApprovalKind.IN_DOUBT
        word = ("in-doubt", "In doubt") if doubt else ("needs-you", "Needs you") if found.may.choices else word
    lines = await faces.reader.lines(viewer.who.tenant, stored.approval.run_id)
    given: dict[str, Any] = {
        "reason": "",
        "seen": False,
        "problem": "",
        "field": "",
        "refused": "",
        "counted": False,
        "code": "",
    }
    given |= {
        "seen": False,
        "counted": False,
        "asks": questions.asks(found.content, stored.approval.kind, open_=found.open),
        "asker": found.content.asker or questions.name_of(found.people, found.content.requester),
        "state": word,
        "kind": str(stored.approval.kind),
        "seats": questions.seats(stored, viewer, found.people),
        "counts": questions.counts(stored),
        "escalates": questions.escalates(stored),
        "answers": _ANSWERS,
        "story": of_step(map(orjson.loads, lines), stored.approval.step_key, found.people),
        "reason_max": REASON_CHARACTERS_MAX,
        "hours": _hours,
        "says": SAYS,
        "talks": TALKS,
        "talk": "",
        "provider": faces.settings.oidc_issuer is not None,
    }
    return shown.show("approval.html", at="inbox", status=status, found=found, **{**given, **values})


@router.post("/{approval}")
async def answer(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take an answer, through the same verb as every face. What was typed is kept if it does not count."""
    found = await read(faces, viewer, identified(approval))
    shown = await page(request, faces, viewer)
    named, reason, digest = fields.one("choice", 20), fields.one("reason").strip(), fields.one("digest", 100)
    typed = {"reason": reason, "seen": bool(fields.one("seen", 10)), "chosen": named}
    if not found.may.choices and found.may.code == questions.NO_ROLE_CODE:
        return await _drawn(faces, shown, found, 403, refused=found.may.why, code=found.may.code, **typed)
    choice = next((one for one in choices_of(found.view.kind, found.view.content.connector) if one == named), None)
    wrong = _incomplete(found, choice, reason, digest, seen=typed["seen"] is True)
    if choice is None or wrong is not None:
        field, words = wrong or ("choice", "Choose an answer")
        return await _drawn(faces, shown, found, 422, problem=words, field=field, **typed)
    who = (viewer.who.tenant, found.view.approval_id, viewer.who.person)
    grant = _granted(fields, agent=found.view.of_agent) if choice is Choice.APPROVE and found.view.grants else None
    session: JsonObject = {"session": viewer.named}
    key = viewer.step_up(found.view.approval_id, digest)
    proofs: dict[str, Any] = {"digest": digest, "grant": grant, "identity": session, "step_up": key}
    vote = VoteRequest(*who, choice, reason, VoteChannel.CONSOLE, **proofs)
    answer = await faces.voting.vote(vote)
    faces.metrics.of(viewer.who.tenant).vote(VoteChannel.CONSOLE, answer.code)
    if answer.counted:
        return go(f"{HOME}/approvals/{found.view.approval_id}?answered")
    return await _refused(faces, shown, found, answer, typed, digest)


@router.post("/{approval}/login")
async def log_in_anew(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Log in again by a token, for this question and the action that was shown; refused if a provider is set."""
    found = await read(faces, viewer, identified(approval))
    digest = fields.one("digest", 100)
    if faces.settings.oidc_issuer is not None or found.stored.approval.action_digest != digest:
        shown = await page(request, faces, viewer)
        words = "What it asks has changed, or a login for it goes by the provider. Look at it again"
        return await _drawn(faces, shown, found, 409, problem=words, field="login")
    try:
        token, asked = fields.one("token", 200), found.view.approval_id
        await sessions_of_browsers.step_up_by_token(faces.database, viewer, token, asked, digest)
    except AuthenticationError as error:
        shown = await page(request, faces, viewer)
        return await _drawn(faces, shown, found, 401, problem=f"{error.message} {error.remedy}", field="login")
    return go(f"{HOME}/approvals/{asked}#decide")


@router.post("/{approval}/glass")
async def break_glass(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Break the glass: let the action out alone, where policy lets the viewer. What was typed is kept."""
    found = await read(faces, viewer, identified(approval))
    shown = await page(request, faces, viewer)
    if not viewer.has(Role.APPROVER):
        return await _drawn(faces, shown, found, 403, refused=questions.NO_ROLE, code=questions.NO_ROLE_CODE)
    reason, digest = fields.one("reason").strip(), fields.one("digest", 100) or "-"
    who = (viewer.who.tenant, found.view.approval_id, viewer.who.person, Choice.APPROVE, reason, VoteChannel.CONSOLE)
    key, session = viewer.step_up(found.view.approval_id, digest), viewer.named
    vote = VoteRequest(*who, digest=digest, identity={"session": session}, step_up=key, glass=True)
    answer = await faces.voting.vote(vote)
    faces.metrics.of(viewer.who.tenant).vote(VoteChannel.CONSOLE, answer.code)
    if answer.counted:
        return go(f"{HOME}/approvals/{found.view.approval_id}?answered")
    status = REFUSED[RefusalCode(answer.code)]
    return await _drawn(faces, shown, found, status, refused=answer.sentence, code=answer.code, reason=reason)


@router.post("/{approval}/review")
async def review(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Review a use of broken glass; what was typed is kept if it is refused."""
    asked, reason = identified(approval), fields.one("reason", 1000)
    try:
        named = (faces.definitions, asked, viewer.who.person, reason)
        await faces.ask(viewer.who.tenant, broken_glass.review, *named)
    except (AuthorizationError, ConsistencyError, InputError) as error:
        shown, found = await page(request, faces, viewer), await read(faces, viewer, asked)
        return await _drawn(faces, shown, found, 409, refused=error.message, code=error.code, reason=reason)
    return go(f"{HOME}/approvals/{asked}")


@router.post("/{approval}/said")
async def say(request: Request, approval: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take a statement about the question. The typed text is kept if it is not recorded."""
    found = await read(faces, viewer, identified(approval))
    kind, text = fields.one("said", 20), fields.one("text")
    if kind not in set(Saying):
        raise InputError("is nothing that is said about a question.", where="said")
    who = (viewer.who.tenant, found.view.approval_id, viewer.who.person, Saying(kind), text, VoteChannel.CONSOLE)
    session: JsonObject = {"session": viewer.named}
    to, digest = fields.one("to", 200), fields.one("digest", 100) or "-"
    answer = await faces.talking.say(SayRequest(*who, to=to, digest=digest, identity=session))
    if answer.recorded:
        return go(f"{HOME}/approvals/{found.view.approval_id}?said={kind}#said")
    shown = await page(request, faces, viewer)
    status = REFUSED[RefusalCode(answer.code)]
    return await _drawn(faces, shown, found, status, refused=answer.sentence, code=answer.code, reason=text)


def _hours(seconds: int) -> int:
    return max(1, seconds // 3600)


def _granted(fields: FormFields, *, agent: bool) -> Grant | None:
    """Read the grant in the form; None if only this once is allowed. Text that is no number counts as too much."""
    if fields.one("grant", 10) != "more":
        return None
    uses, hours = (fields.one(name, 5) for name in ("grant_uses", "grant_hours"))
    whole = [int(text) if text.isascii() and text.isdigit() else 0 for text in (uses, hours)]
    return Grant(whole[0], whole[1] * 3600, agent and fields.one("grant_agent", 5) == "1")


def _incomplete(
    found: Question, choice: Choice | None, reason: str, digest: str, *, seen: bool
) -> tuple[str, str] | None:
    """The field that is missing or wrong, and why. A question with values from outside asks for more."""
    if not _DIGEST.match(digest):
        return "choice", "This form names no question. Load the page again"
    if choice is None:
        return "choice", "Choose an answer"
    strange = bool(found.outside) and found.may.asked
    if strange and choice is Choice.APPROVE and not seen:
        return "seen", "Tick this to approve: nobody of yours chose these values"
    if not reason and (strange or choice is Choice.REJECT or choice in _ANSWERS):
        return "reason", "Write what you saw, and where" if choice in _ANSWERS else "Write a reason"
    return None


async def _refused(
    faces: Faces, shown: Page, found: Question, answer: VoteAnswer, typed: dict[str, Any], digest: str
) -> Response:
    """Show why the answer did not count. A question that has changed is shown beside the version that was seen."""
    code = RefusalCode(answer.code)
    again = await read(faces, shown.viewer, found.view.approval_id)
    if code in _CHANGED:
        return await _changed(faces, shown, again, answer, typed, digest)
    status = REFUSED[code]
    if code is RefusalCode.REASON_TOO_LONG or code is RefusalCode.REASON_MISSING:
        return await _drawn(faces, shown, again, status, problem=answer.sentence, field="reason", **typed)
    # An answer that was counted before is no error over HTTP; here somebody sees that nothing new has happened.
    return await _drawn(
        faces, shown, again, 409 if status == 200 else status, refused=answer.sentence, code=answer.code, **typed
    )


async def _changed(
    faces: Faces, shown: Page, found: Question, answer: VoteAnswer, typed: dict[str, Any], digest: str
) -> Response:
    tenant, asked = shown.viewer.who.tenant, found.stored.approval
    every = await faces.ask(tenant, console.questions_of_run, asked.run_id, _SAME_STEP_MAX)
    newer = [
        one.stored.approval.id
        for one in every
        if one.stored.approval.step_key == asked.step_key and one.stored.approval.status is ApprovalStatus.REQUESTED
    ]
    following = await read(faces, shown.viewer, newer[-1]) if newer else None
    then = questions.differences(found.content, following.content) if following is not None else []
    values = {
        "found": found,
        "following": following,
        "differences": then,
        "sentence": answer.sentence,
        "seen_digest": digest,
        "code": answer.code,
    }
    return shown.show("changed.html", at="inbox", status=409, **values, reason=typed["reason"])
