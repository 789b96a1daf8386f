"""Interactions in Slack, whole: each account, verb and question; what is asked, recorded, counted and answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest
from msgspec import structs, to_builtins
from starlette.responses import Response

from app.http import problems
from app.http.signed import events
from app.slack import Interactions
from approvals.content import CardState, InputField
from approvals.model import ApprovalKind, CardView, Choice, GroupProgress, TaskAnswer
from approvals.ports import Person
from approvals.slack.handlers import Answer
from approvals.slack.payloads import Click, Clicker, Submission, TaskClick, TaskSubmission
from approvals.slack.workspace import StrangerCode
from core.canonical import JsonObject
from core.errors import CountersealError, NotFoundError
from core.terms import GroupQuorum
from evidence.chain import Actor, EventType
from runtime.requests.voting import VoteAnswer, VoteRequest
from runtime.store import audit, faces, tasks, tokens
from tests.app.test_shown_alone import CARD, SECRET, TASK
from tests.support.whole import as_it_was

EXPECTED = Path(__file__).with_name("whole_slack_alone.json")
OURS, THEIRS = UUID(int=1), UUID(int=2)
RUN = UUID(int=9)
LEADS = (GroupProgress(GroupQuorum("leads"), ()), GroupProgress(GroupQuorum("chiefs"), ()))
ACCOUNTS = {
    "U0ANN": None,
    "U0EVE": None,
    "U0WHO": None,
    "U0ELSE": StrangerCode.FOREIGN,
    "U0BOT": StrangerCode.NO_MEMBER,
    "U0AWAY": StrangerCode.UNAVAILABLE,
}


class Hall:
    """An installation of one tenant, which keeps whatever is asked of it."""

    settings = SimpleNamespace(tenant="acme")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[Any] = []
        self.content = CARD
        self.asks: Any = LEADS
        self.code = "counted"
        self.workspace: Any = SimpleNamespace(stranger=self._stranger, home=self._home)
        self.home_known = True
        self.database = self.voting = self.tasks = self.metrics = self
        monkeypatch.setattr(tokens, "approval_owner", self._owner)
        monkeypatch.setattr(tasks, "read", self._read)
        monkeypatch.setattr(faces, "order_message", self._order)
        monkeypatch.setattr(audit, "record", self._record)

    def _keep(self, *said: Any) -> None:
        self.did.append([to_builtins(one, enc_hook=str) for one in said])

    async def _stranger(self, clicker: Clicker) -> StrangerCode | None:
        return ACCOUNTS[clicker.user]

    async def _home(self) -> Any:
        return SimpleNamespace(id="T0HOME") if self.home_known else None

    def directory(self, tenant: str) -> Any:
        async def person(home: str, user: str) -> Person | None:
            known = {"U0ANN": Person("ann", "Ann"), "U0EVE": Person("eve", "Eve")}
            return known.get(user) if (tenant, home) == ("acme", "T0HOME") else None

        async def membership(who: str, wanted: Any) -> Any:
            self._keep("membership", tenant, who, [one.group for one in wanted])
            return SimpleNamespace(groups={"leads"} if who == "ann" else set())

        return SimpleNamespace(person_of_slack_user=person, membership=membership)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        yield "any tenant"

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[str]:
        yield tenant

    async def _owner(self, connection: str, approval: UUID) -> str | None:
        assert connection == "any tenant"
        return {OURS: "acme", THEIRS: "other"}.get(approval)

    async def _read(self, connection: str, task: UUID, person: str | None = None) -> Any:
        self._keep("read", connection, task, person)
        if task != OURS:
            raise NotFoundError("There is none.")
        groups = {"ann": frozenset({"leads", "more"}), "eve": frozenset({"more"})}.get(person or "")
        return SimpleNamespace(view=TASK, groups=groups, run_id=RUN)

    async def _order(self, *said: Any) -> None:
        self._keep("order", *said)

    async def _record(self, connection: str, tenant: str, kind: EventType, actor: Actor, data: JsonObject) -> None:
        self._keep("record", connection, tenant, kind, f"{actor.kind}:{actor.id}", data)

    async def note(self, *said: Any) -> None:
        self._keep("note", *said)

    async def view(self, tenant: str, approval: UUID) -> CardView:
        self._keep("view", tenant, approval)
        return CardView(approval, "n", ApprovalKind.ACTION, self.content, CardState.PENDING, progress=self.asks)

    async def complete(self, *said: Any) -> TaskAnswer:
        self._keep("complete", *said)
        return TaskAnswer(True, "completed", "Done.")

    async def _vote(self, request: VoteRequest) -> VoteAnswer:
        self._keep("vote", structs.asdict(request))
        if request.approval_id != OURS:
            raise NotFoundError("There is none.")
        return VoteAnswer(self.code == "counted", self.code, f"It is {self.code}.", "requested", RUN)

    def vote(self, *said: Any) -> Any:
        """Take a vote, or count one: both have this name."""
        return self._vote(*said) if len(said) == 1 else self._keep("counted", *said)


def clicker(user: str) -> Clicker:
    """An account of the workspace."""
    return Clicker("T0HOME", user, frozenset({"T0HOME"}))


def click(user: str, which: UUID = OURS, choice: Choice | None = Choice.APPROVE, channel: str = "C1") -> Click:
    """A press of a button of a card."""
    return Click(choice, which, "nonce", clicker(user), channel, "t")


def submission(user: str, which: UUID = OURS, choice: Choice | None = Choice.REJECT) -> Submission:
    """A reason that was sent."""
    return Submission(which, "nonce", clicker(user), choice, "Because.", 0)


async def _told(hall: Hall, interactions: Interactions, verb: str, *given: Any) -> list[Any]:
    hall.did.clear()
    try:
        answer = await getattr(interactions, verb)(*given)
    except CountersealError as error:
        return [*hall.did, ["raises", type(error).__name__, str(error)]]
    kind = type(answer).__name__
    short = isinstance(answer, Answer | TaskAnswer)
    return [*hall.did, [kind, to_builtins(answer, enc_hook=str)] if short else [kind]]


@pytest.mark.req("Q-5", "P-12")
async def test_each_account_is_answered_at_each_verb_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    hall, found = Hall(monkeypatch), dict[str, Any]()
    doors: Any = hall
    for user in ACCOUNTS:
        for which, name in ((OURS, "our"), (THEIRS, "another's")):
            pressed, task = TaskClick(which, clicker(user), "C1", "t"), TaskSubmission(which, clicker(user), {})
            for verb, *given in (
                ("vote", click(user, which)),
                ("submit", submission(user, which)),
                ("review", click(user, which, None)),
                ("review", submission(user, which, None)),
                ("note", click(user, which), "Words."),
                ("task", pressed),
                ("task", task),
                ("complete", task, {"name": "x"}),
                ("note_task", pressed, "Words."),
            ):
                words = f"{user} {verb} {name} {type(given[0]).__name__}"
                found[words] = await _told(hall, Interactions(doors), verb, *given)
    as_it_was(EXPECTED, found)


async def test_whoever_cannot_be_looked_up_is_refused_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(monkeypatch)
    doors: Any = hall
    sentence = "Slack could not be asked who you are, so nothing was counted. Please try again."
    counted: Any = ["counted", "slack", "slack_unavailable"]
    refused: Any = ["Answer", {"counted": False, "sentence": sentence, "about_reason": False}]
    for known, workspace in ((False, hall.workspace), (True, None)):
        hall.home_known, hall.workspace = known, workspace
        for verb, given in (("submit", submission("U0ANN")), ("review", click("U0ANN"))):
            assert await _told(hall, Interactions(doors), verb, given) == [counted, refused]
        noted: Any = ["note", "acme", str(OURS), {"channel": "C1", "user": "U0ANN"}, sentence]
        assert await _told(hall, Interactions(doors), "vote", click("U0ANN")) == [counted, noted, refused]


@pytest.mark.req("Q-20")
@pytest.mark.parametrize("user", ["U0ANN", "U0EVE"])
@pytest.mark.parametrize("sensitive", [False, True])
@pytest.mark.parametrize("asks", [LEADS, ()])
async def test_a_hidden_value_is_shown_to_those_who_are_asked_alone(
    monkeypatch: pytest.MonkeyPatch, user: str, sensitive: bool, asks: Any
) -> None:
    hall = Hall(monkeypatch)
    hall.content = SECRET if sensitive else CARD
    hall.asks = asks
    doors: Any = hall
    found = await Interactions(doors).review(click(user, choice=None))
    asked = [one for one in hall.did if one[0] == "membership"]
    who = {"U0ANN": "ann", "U0EVE": "eve"}[user]
    groups = [one.group.group for one in asks]
    assert asked == ([["membership", "acme", who, groups]] if sensitive else [])
    if sensitive and user != "U0ANN":
        whom = "chiefs, leads" if asks else "nobody"
        assert found == Answer(False, f"You may not see the hidden values: this asks members of {whom}.")
    else:
        assert isinstance(found, CardView)
        assert found.content.inputs[0] == InputField("pin", "4711")


@pytest.mark.parametrize(
    ("code", "about_reason"),
    [
        ("counted", False),
        ("reason_missing", True),
        ("reason_too_long", True),
        ("stale", False),
        ("wrong_choice", False),
    ],
)
async def test_a_refused_reason_is_told_where_it_was_written(
    monkeypatch: pytest.MonkeyPatch, code: str, about_reason: bool
) -> None:
    hall = Hall(monkeypatch)
    hall.code = code
    doors: Any = hall
    wanted = Answer(code == "counted", f"It is {code}.", about_reason)
    assert await Interactions(doors).submit(submission("U0ANN")) == wanted
    assert await Interactions(doors).vote(click("U0ANN")) == wanted
    assert hall.did.count(["counted", "slack", code]) == 2


async def test_what_comes_from_no_channel_is_answered_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall(monkeypatch)
    doors: Any = hall
    for user in ("U0ANN", "U0WHO"):
        await Interactions(doors).vote(click(user, channel=""))
        await Interactions(doors).note(click(user, channel=""), "Words.")
        await Interactions(doors).note_task(TaskClick(OURS, clicker(user), "", "t"), "Words.")
    assert [one[0] for one in hall.did] == ["vote", "counted", "record", "counted"]
    assert hall.did[0][1]["answer_to"] is None
    for verb in ("vote", "submit"):
        asked = click("U0ANN", choice=None) if verb == "vote" else submission("U0ANN", choice=None)
        (raised,) = await _told(hall, Interactions(doors), verb, asked)
        where = "actions[0].action_id" if verb == "vote" else "view"
        assert raised == ["raises", "InputError", f"{where}: is no answer"]


def _problem(status: int, code: str) -> Response:
    return problems.problem(status, code, "No.")


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        *((Response(status_code=status), None) for status in (200, 204, 302, 399, 500, 503)),
        *((_problem(status, "transport"), None) for status in (500, 503)),
        (Response(status_code=404), "unhandled"),
        *((Response(status_code=status), "malformed") for status in (400, 401, 403, 405, 499)),
        *((_problem(status, "signature"), "signature") for status in (400, 401, 404, 413)),
        (Response(b"{}", 404, media_type=problems.MEDIA_TYPE), "malformed"),
        (Response(orjson.dumps({"code": "x"}), 401, media_type="application/json"), "malformed"),
    ],
)
async def test_a_request_of_slack_that_was_refused_is_counted_and_on_record(answer: Response, code: str | None) -> None:
    counted: list[Any] = []

    async def note(*said: str) -> None:
        counted.append(("note", *said))

    async def endpoint(request: Any) -> Response:
        assert request.app.state.slack is endpoint
        return answer

    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(slack=endpoint)))
    doors: Any = SimpleNamespace(
        settings=SimpleNamespace(tenant="acme"),
        metrics=SimpleNamespace(refusal=lambda *said: counted.append(("refusal", *said))),
        refusals=SimpleNamespace(note=note),
    )
    assert await events(request, doors) is answer
    assert counted == ([] if code is None else [("refusal", "slack", code), ("note", "acme", "slack", code)])
    request.app.state.slack = None
    with pytest.raises(NotFoundError) as lacking:
        await events(request, doors)
    assert str(lacking.value) == (
        "Slack is not configured here. Set COUNTERSEAL_SLACK_BOT_TOKEN and COUNTERSEAL_SLACK_SIGNING_SECRET."
    )
