"""Every message to people by itself: what is read for it, where it is said, and in which words. Every event too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from approvals.model import ApprovalStatus
from approvals.ports import Absent, MessageRef, NotPosted, Posted, PostInDoubt, PostRefused
from core.errors import ExpressionError, InputError
from core.identity import Directory, Entry
from core.terms import Escalation, GroupQuorum
from runtime.keep import messages
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.keep.messages import Messages
from runtime.requests import triggers
from runtime.requests.starting import Started
from runtime.store.outbox import Message
from tests.support.recorded import Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
AT = datetime(2026, 11, 1, 2, 3, 4, 567_890, tzinfo=UTC)
THERE = MessageRef("C9", "17.5")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def handlers(asked: Recorded) -> Messages:
    posts = ("post_card", "update_card", "post_task", "update_task", "post_thread", "post_ephemeral")
    verbs = {name: asked.verb(name, Posted(THERE)) for name in posts} | {"find_card": asked.verb("find_card", Absent())}
    slack: Any = SimpleNamespace(name="messenger", **verbs)
    definitions: Any = SimpleNamespace(name="definitions")
    return Messages(slack, "C1", definitions)


def message(kind: str, attempts: int = 1, **payload: Any) -> Message:
    return Message(uid(3), "acme", uid(1), kind, payload, attempts, AT.timestamp())


def stored(**more: Any) -> Any:
    """A question as it is stored; ``posted`` says where its card is."""
    given: dict[str, Any] = {"status": ApprovalStatus.REQUESTED, "escalate": None, "posted": THERE} | more
    terms = SimpleNamespace(escalate=given["escalate"])
    approval = SimpleNamespace(id=uid(4), tenant_id="acme", terms=terms, status=given["status"], requester="ann")
    approval.votes = ()
    return SimpleNamespace(name="stored", approval=approval, message=given["posted"], created_at=AT, reason=None)


@pytest.mark.req("O-3")
async def test_what_is_said_to_people_and_where(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    asked.put(messages, receipt_of="the receipt")
    asked.put_at_once(messages.approvals, card_view="the card")
    people = Directory.of("d", [Entry("ann", "Ann A.")])
    asked.put(messages.tenants, directory=people)
    task = SimpleNamespace(message=None, created_at=AT, view=SimpleNamespace(name="the task", task_id=uid(6)))
    posted = SimpleNamespace(message=THERE, created_at=AT, view=task.view)
    escalates = Escalation(60, GroupQuorum("managers"))
    over = {"status": ApprovalStatus.APPROVED}
    for kind, ways in {
        "card": ({"posted": None}, {}),
        "task": ({}, {"posted": None}),
        "remind": ({}, {"posted": None}, over),
        "escalate": ({}, {"escalate": escalates}, {"posted": None}, over),
        "voided": ({}, {"posted": None}, over),
        "proposal": ({}, over, {"posted": None}),
    }.items():
        for number, more in enumerate(ways):
            asked.put(messages.approvals, read=stored(**more))
            asked.put(messages.tasks, read=task if number else posted)
            asked.calls.clear()
            order = message(kind, approval=str(uid(4)), task=str(uid(6)))
            deliver = await handlers(asked).handlers()[kind](HERE, order)
            read = [*asked.calls, "and when it is sent:"]
            found[f"{kind} {number}"] = read + (await asked.of(deliver()))
    asked.put(messages.approvals, read=stored(posted=None))
    asked.put(messages.tasks, read=task)
    for kind in ("card", "task"):
        order = message(kind, 2, approval=str(uid(4)), task=str(uid(6)))
        deliver = await handlers(asked).handlers()[kind](HERE, order)
        found[f"{kind}, for the second time"] = await asked.of(deliver())
    asked.calls.clear()
    deliver = await handlers(asked).handlers()["note"](HERE, message("note", user="U1", text="No.", channel="C7"))
    found["note"] = [*asked.calls, *await asked.of(deliver())]
    as_it_was(PLACE / "every_message.json", found)


async def test_a_post_is_remembered_where_it_is(asked: Recorded) -> None:
    """A question's in the approvals, a task's in the tasks."""
    asked.put(messages, receipt_of=None)
    asked.put_at_once(messages.approvals, card_view="the card")
    task = SimpleNamespace(message=None, created_at=AT, view=SimpleNamespace(name="the task", task_id=uid(6)))
    asked.put(messages.approvals, read=stored(posted=None), shown=None)
    asked.put(messages.tasks, read=task, shown=None)
    for kind, number, owner in (("card", 4, "approvals"), ("task", 6, "tasks")):
        order = message(kind, approval=str(uid(4)), task=str(uid(6)))
        done: Any = await (await handlers(asked).handlers()[kind](HERE, order))()
        asked.calls.clear()
        await done.record(HERE)
        assert asked.calls == [f"{owner}.shown(transaction, #{number}, {{'channel': 'C9', 'ts': '17.5'}})"]


def test_there_is_a_handler_for_each_kind(asked: Recorded) -> None:
    every = handlers(asked)
    assert every.handlers() == {
        "card": every.card,
        "remind": every.remind,
        "escalate": every.escalate,
        "voided": every.voided,
        "proposal": every.proposal,
        "note": every.note,
        "task": every.task,
    }


@pytest.mark.parametrize(
    ("requester", "who"), [("ann", "Ann A."), ("person:ann", "Ann A."), ("zoe", "zoe"), ("person:zoe", "person:zoe")]
)
async def test_a_proposer_whom_nobody_knows_is_named_as_they_were(asked: Recorded, requester: str, who: str) -> None:
    one = stored(status=ApprovalStatus.REJECTED)
    one.approval.requester = requester
    asked.put(messages.approvals, read=one)
    asked.put(messages.tenants, directory=Directory.of("d", [Entry("ann", "Ann A.")]))
    asked.put(Messages, _below=Delivered())
    deliver = await handlers(asked).proposal(HERE, message("proposal", approval=str(uid(4))))
    assert await deliver() == Delivered()
    assert asked.calls[-1].endswith(f", {who}, the change of policy that you proposed was rejected by : .)")


@pytest.mark.parametrize(
    ("person", "account", "name"), [("ann", "U1", "Ann A."), ("bob", "", "Bob"), ("zoe", "", ""), ("cid", "U7", "Cid")]
)
async def test_whoever_proposed_what_nobody_is_asked_about_hears_it_in_private(
    asked: Recorded, person: str, account: str, name: str
) -> None:
    people = [Entry("ann", "Ann A.", principals=("slack:T1/U1", "slack:T1/U2")), Entry("bob", "Bob")]
    people.append(Entry("cid", "Cid", principals=("email:cid@example.com", "slack:U7")))
    asked.put(messages.tenants, directory=Directory.of("d", people))
    order = message("proposal", person=person, text="nobody can be asked.")
    deliver = await handlers(asked).proposal(HERE, order)
    assert await deliver() == Delivered()
    said = [f"post_ephemeral(C1, {account}, {name}, nobody can be asked.)"] if account else []
    assert asked.calls == ["tenants.directory(transaction, acme)", *said]


@pytest.mark.parametrize("status", [one for one in ApprovalStatus if one is not ApprovalStatus.REQUESTED])
async def test_nobody_is_reminded_of_a_question_that_waits_for_nobody(asked: Recorded, status: ApprovalStatus) -> None:
    every = handlers(asked)
    for kind in ("remind", "escalate"):
        asked.put(messages.approvals, read=stored(status=status))
        deliver = await every.handlers()[kind](HERE, message(kind, approval=str(uid(4))))
        assert await deliver() == Delivered()
    assert [call for call in asked.calls if call.startswith("post")] == []


@pytest.mark.parametrize(
    ("outcome", "below", "told"),
    [
        (Posted(THERE), Delivered(), Delivered()),
        (NotPosted("It is busy.", 7.5), Later("It is busy.", 7.5), Later("It is busy.", 7.5)),
        (PostInDoubt("No answer."), Later("No answer."), Delivered()),
        (
            PostRefused("gone", "No such user."),
            Undeliverable("gone: No such user."),
            Undeliverable("gone: No such user."),
        ),
    ],
)
async def test_only_an_answer_to_one_person_is_never_said_twice(
    asked: Recorded, outcome: Any, below: Any, told: Any
) -> None:
    """An answer that may have arrived is not repeated; what is said below a card has a key, and is."""
    slack: Any = SimpleNamespace(
        post_thread=asked.verb("post_thread", outcome), post_ephemeral=asked.verb("post_ephemeral", outcome)
    )
    every = Messages(slack, "C1", NOTHING)
    assert await every._below(stored(), message("remind"), "words") == below
    assert await every._note(("U1", "words")) == told
    assert await every._note(("U1", "words"), "C7") == told
    assert asked.calls == [
        "post_thread({'channel': 'C9', 'ts': '17.5'}, words, #3)",
        "post_ephemeral(C1, U1, words)",
        "post_ephemeral(C7, U1, words)",
    ]


async def test_nothing_is_said_below_a_card_that_is_not_there(asked: Recorded) -> None:
    every = handlers(asked)
    assert await every._below(stored(posted=None), message("remind"), "words") == Later("The card is not posted yet.")
    assert asked.calls == []


def workflow(name: str, **more: Any) -> Any:
    """A workflow that listens to new incidents."""
    given: dict[str, Any] = {"table": "incident", "events": ("insert",), "when": None, "dedupe": name} | more
    return SimpleNamespace(name=name, version=3, servicenow=SimpleNamespace(**given) if given["table"] else None)


def template(value: Any) -> Any:
    def render(_: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return SimpleNamespace(render=render)


EVENT = {"table": "incident", "event": "insert", "number": "INC1"}


@pytest.mark.req("Q-1", "P-11")
async def test_an_event_is_kept_then_matched_and_what_became_of_it_is_noted(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    fails = ExpressionError("there is no sys_id")
    every = [
        workflow("plain", dedupe=template("d1")),
        workflow("silent", table=None),
        workflow("elsewhere", table="problem", dedupe=template("d")),
        workflow("updates", events=("update",), dedupe=template("d")),
        workflow("true", when=template(True), dedupe=template(2)),
        workflow("false", when=template(False), dedupe=template("d")),
        workflow("one", when=template(1), dedupe=template("d")),
        workflow("odd", when=template(fails), dedupe=template("d")),
        workflow("nameless", dedupe=template(fails)),
        workflow("long", dedupe=template("x" * 500)),
        workflow("unreadable"),
        workflow("older"),
    ]
    events: dict[str, Any] = {
        "by a name": EVENT | {"opened_by_user_name": "ann", "opened_by": "0" * 32},
        "by an id": EVENT | {"opened_by": "0" * 32},
        "by nobody": EVENT | {"opened_by_user_name": "", "opened_by": ""},
        "by no text": EVENT | {"opened_by_user_name": 7},
        "changed by another": EVENT | {"opened_by": "ann", "sys_updated_by": "Bob"},
        "of another kind": EVENT | {"event": "update"},
    }
    asked.put(triggers.inbox, record=False, processed=None)
    asked.put(triggers.documents, newest_workflows=every)
    asked.put(triggers.audit, record=None)
    asked.put(triggers, start_run=lambda _, one, request: Started(uid(len(one.name)), True, request.trigger_ref))

    def compiled(one: Any) -> Any:
        if one.name == "unreadable":
            raise InputError("cannot be read", where="steps")
        if one.name == "older":
            raise InputError("was published with a declaration of another release")
        return one

    definitions: Any = SimpleNamespace(compiled=compiled)
    for name, event in events.items():
        with capture_logs() as logs:
            start = triggers.start_from_servicenow(HERE, definitions, "acme", "side", "sn", event)
            found[name] = await asked.of(start)
        found[name] += [f"{one['log_level']}: {one['event']}: {one['name']}@{one['version']}" for one in logs]
        if name != "by a name":
            found[name] = [call for call in found[name] if "inbox" not in call][:3]
    as_it_was(PLACE / "every_event.json", found)


@pytest.mark.parametrize(
    ("changed", "where", "words", "remedy"),
    [
        ({"table": ""}, "table", "is missing or not a text", "Send the name of the record's table."),
        ({"table": 7}, "table", "is missing or not a text", "Send the name of the record's table."),
        ({"table": None}, "table", "is missing or not a text", "Send the name of the record's table."),
        ({"event": "delete"}, "event", "is neither insert nor update", "Send what happened to the record."),
        ({"event": None}, "event", "is neither insert nor update", "Send what happened to the record."),
    ],
)
def test_an_event_names_its_table_and_what_happened(changed: Any, where: str, words: str, remedy: str) -> None:
    with pytest.raises(InputError) as refused:
        triggers._read(EVENT | changed)
    assert (refused.value.where, refused.value.message, refused.value.remedy) == (where, words, remedy)
    assert triggers._read(EVENT) == ("incident", "insert")
    assert triggers._read(EVENT | {"event": "update"}) == ("incident", "update")


@pytest.mark.parametrize(
    ("key", "words", "remedy"),
    [
        ("when", "the condition of workflow w cannot be evaluated on this event: no", "Send the fields that it reads."),
        (
            "dedupe",
            "the dedupe text of workflow w cannot be made from this event: no",
            "Send sys_id and sys_mod_count, or whatever it reads.",
        ),
    ],
)
def test_what_cannot_be_made_of_an_event_says_what_to_send(key: str, words: str, remedy: str) -> None:
    with pytest.raises(InputError) as refused:
        triggers._rendered(template(ExpressionError("no")), key, "w", {})
    shown = (refused.value.message, refused.value.where, refused.value.remedy)
    assert shown == (words, f"triggers.servicenow.{key}", remedy)
