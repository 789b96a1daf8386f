"""Statements of the store with the other values: several rows in an order of their own, nothing, zero and "".

``test_statements_asked`` has every verb once. A value that is zero or empty is not the one that was left out.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from core.errors import NotFoundError
from evidence.chain import Actor, ChainHead, Event, EventType, append
from runtime.engine.states import CommandState
from runtime.store import (
    approvals,
    audit,
    books,
    bundles,
    claims,
    documents,
    effects,
    faces,
    inbox,
    journal,
    outbox,
    pauses,
    read_models,
    runs,
    tenants,
    tokens,
    unavailable,
)
from runtime.store.documents import Edition, Past, PublishedVersion, StoredWorkflow
from runtime.store.outbox import Message
from runtime.store.pauses import Change
from runtime.store.unavailable import Unavailable
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOON, LATER = datetime(2026, 1, 1, 12, 0, 0, 7, UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
RUN = uid(1)
NO_CHANGE = Change("acme", 9, frozenset(), (), None)
MESSAGE = Message(uid(6), "acme", None, "card", {}, 1, 0.0, (uid(8), uid(7)))


def published(version: int, name: str = "w") -> dict[str, Any]:
    return {"name": name, "version": version, "digest": f"d{version}", "published_by": "ann", "published_at": NOON,
            "retired_at": None, "operations": ["b", "a"], "connectors": ["d", "c"]}  # fmt: skip


def stored(version: int, name: str = "w") -> dict[str, Any]:
    return {"name": name, "version": version, "digest": "d", "source": "text", "operations": {}}


# A verb, what it is given, the answer to its statement, the statement with its values, and the result.
CASES: list[tuple[Any, tuple[Any, ...], Any, tuple[Any, ...], Any]] = [
    (claims.expected, ([(RUN, "a")], timedelta(0)), None, (claims._EXPECTED, [RUN], ["a"], timedelta(0)), None),
    (claims.expected, ([(uid(9), "b"), (RUN, "a"), (uid(9), "a")], timedelta(1)), None,
     (claims._EXPECTED, [uid(9), RUN, uid(9)], ["b", "a", "a"], timedelta(1)), None),
    (claims.heartbeat, (timedelta(0), []), [], (claims._HEARTBEAT, timedelta(0), [], [], []), set()),
    (claims.hold, (RUN, []), [], (claims._HOLD, RUN, [], [], []), {}),
    (effects.sharing, ("acme", "K k"), ["b", "a"], (effects._SHARING, "acme", "shared:K k"), ["b", "a"]),
    (bundles.failures, ("acme",), [Row(run_id=uid(9), last_error="b"), Row(run_id=RUN, last_error="")],
     (bundles._FAILURES, "acme"), [(uid(9), "b"), (RUN, "")]),
    (bundles.newest, ("acme", RUN), None, (bundles._NEWEST, "acme", RUN), None),
    (bundles.state, ("acme", RUN), None, (bundles._STATE, "acme", RUN), None),
    (documents.publish_workflow, ("acme", StoredWorkflow("w", 0, "d", " text\n", {}), ""), Row(version=0),
     (documents._PUBLISH_WORKFLOW, "acme", "w", 0, "d", " text\n", {}, ""), True),
    (documents.newest_workflows, ("acme", "w", 4), [stored(4)], (documents._NEWEST, "acme", "w", 4),
     [StoredWorkflow("w", 4, "d", "text", {})]),
    (documents.newest_workflows, ("acme",), [stored(4, "w"), stored(2, "v")], (documents._NEWEST, "acme", None, None),
     [StoredWorkflow("w", 4, "d", "text", {}), StoredWorkflow("v", 2, "d", "text", {})]),
    (documents.workflow_versions, ("acme",), [Row(**published(3)), Row(**published(2, "v"))],
     (documents._VERSIONS, "acme", None),
     [PublishedVersion("w", 3, "d3", "ann", NOON, None, ("b", "a"), ("d", "c")),
      PublishedVersion("v", 2, "d2", "ann", NOON, None, ("b", "a"), ("d", "c"))]),
    (documents.workflow_versions, ("acme", ""), [], (documents._VERSIONS, "acme", ""), []),
    (documents.newest_workflows, ("acme", "", 0), [], (documents._NEWEST, "acme", "", 0), []),
    (documents.retire_workflow, ("acme", "w", 4), Row(version=4), (documents._RETIRE, "acme", "w", 4), True),
    (documents.retire_workflow, ("acme", "w", 4), None, (documents._RETIRE, "acme", "w", 4), False),
    (documents.put_in_force, ("acme", ("b", "a")), Row(tenant_id="acme"),
     (documents._PUT_IN_FORCE, "acme", ["b", "a"]), True),
    (documents.put_in_force, ("acme", ()), None, (documents._PUT_IN_FORCE, "acme", []), False),
    (documents.in_force, ("acme",), ["b", "a"], (documents._IN_FORCE, "acme"), ("b", "a")),
    (documents.in_force, ("acme",), None, (documents._IN_FORCE, "acme"), ()),
    (documents.policy, ("acme", "d"), Row(name="p", version=7, source="text"), (documents._POLICY, "acme", "d"),
     ("p", 7, "text")),
    (documents.policy, ("acme", "d"), None, (documents._POLICY, "acme", "d"), None),
    (documents.directory_since, ("acme",), orjson.dumps({"ts": "2026-01-01T12:00:00.000007Z"}),
     (f"{documents._DIRECTORIES} LIMIT 1", "acme"), NOON),
    (documents.directory_since, ("acme",), None, (f"{documents._DIRECTORIES} LIMIT 1", "acme"), None),
    (inbox.record, ("acme", "s", "n", {}, ""), Row(), (inbox._RECORD, "acme", "s", "n", {}, ""), True),
    (inbox.processed, ("acme", "s", "N n", {}), None, (inbox._PROCESSED, "acme", "s", "N n", {}), None),
    (inbox.empty, ("acme", "S s", "N n"), None, (inbox._EMPTY, "acme", "S s", "N n"), None),
    (inbox.tenant_of, (" Key of ITS own ",), None, (inbox._TENANT_OF, " Key of ITS own "), None),
    (inbox.find_named, ("acme", "K k", ("b", "a"), "", 0), None,
     (inbox._NAMED, "acme", "K k", ["b", "a"], "", 0), None),
    (inbox.unstarted, ("acme",), [Row(workflow="w", version=2, reason="", received_at=LATER),
     Row(workflow="v", version=1, reason="no", received_at=NOON)], (inbox._UNSTARTED, "acme"),
     [("w", 2, "", LATER), ("v", 1, "no", NOON)]),
    (inbox.times_of, (uid(2),), Row(a=NOON, b=LATER, c=LATER),
     ("SELECT created_at, due_at, now() FROM waits WHERE wait_id = $1", uid(2)), (NOON, LATER, LATER)),
    (journal.lines, (RUN,), [Row(lines=b"b\na\nb"), Row(lines=b"a")], (journal._LINES, RUN), [b"b", b"a", b"b", b"a"]),
    (outbox.end_message, (MESSAGE, CommandState.DISPATCHED, None, timedelta(0)), Row(),
     (outbox._END, uid(6), 1, CommandState.DISPATCHED, None, timedelta(0)), True),
    (outbox.end_shown, (MESSAGE,), None, (outbox._END_SHOWN, [uid(8), uid(7)]), None),
    (outbox.lease_message, ("me", timedelta(0), ("", ""), []),
     Row(command_id=uid(6), tenant_id="acme", run_id=None, kind="note", payload={}, attempts=1, created_at=NOON,
         behind=None), (outbox._LEASE_IN_TURN, "me", timedelta(0), "", "", []),
     Message(uid(6), "acme", None, "note", {}, 1, NOON.timestamp())),
    (outbox.lease_message, ("me", timedelta(0), ("", "Card"), ["note", "acme:card"]), None,
     (outbox._LEASE_IN_TURN, "me", timedelta(0), "", "Card", ["note", "acme:card"]), None),
    (outbox.send_again, (None, "card"), [], (outbox._AGAIN, None, "card"), []),
    (outbox.send_again, ("acme", None), [Row(tenant="acme", kind="note", count=2, woken=""),
     Row(tenant="acme", kind="card", count=1, woken="")], (outbox._AGAIN, "acme", None),
     [{"tenant": "acme", "kind": "note", "count": 2}, {"tenant": "acme", "kind": "card", "count": 1}]),
    (pauses.pause, ("acme", "K", "ann", "", ["h", "g"]), Row(),
     (pauses._PAUSE, "acme", "K", "ann", "", ["h", "g"]), True),
    (pauses.change, ("acme",), Row(number=0, paused={"b": {}, "a": {}}, resumed=["w:2", "run:1"], after=uid(0)),
     (pauses._CHANGE, "acme"), Change("acme", 0, frozenset({"a", "b"}), ("w:2", "run:1"), uid(0))),
    (pauses.questions, ("acme", uid(0), 5), [Row(approval_id=uid(9)), Row(approval_id=uid(7))],
     (pauses._QUESTIONS, "acme", uid(0), 5), [uid(9), uid(7)]),
    (pauses.open_questions, ("acme",), 2000, (pauses._OPEN_QUESTIONS, "acme"), 2000),
    (pauses.open_questions, ("acme",), 0, (pauses._OPEN_QUESTIONS, "acme"), 0),
    (pauses.parked, ("acme", ["l", "k"], 1), [Row(run_id=uid(9), step_key="b", wait_id=uid(4)),
     Row(run_id=RUN, step_key="a", wait_id=uid(3))], (pauses._PARKED, "acme", ["l", "k"], 1),
     [(uid(9), "b", uid(4)), (RUN, "a", uid(3))]),
    (pauses.redraw, (NO_CHANGE, [uid(9), uid(7)]), None, (pauses._REDRAW, [uid(9), uid(7)], [], "9"), None),
    (pauses.in_force, ("acme",), [Row(key="b", value={}, over=True), Row(key="a", value={"by": "ann"}, over=False)],
     (pauses._IN_FORCE, "acme"),
     [{"key": "b", "value": {}, "over": True}, {"key": "a", "value": {"by": "ann"}, "over": False}]),
    (read_models.run_counts, ("acme", 1), [Row(status="waiting", count=9), Row(status="canceled", count=1)],
     (read_models._COUNTS.sql, *({"tenant": "acme", "most": 1}[name] for name in read_models._COUNTS.names)),
     [("waiting", 9), ("canceled", 1)]),
    (read_models.start_held, ("acme", RUN), [Row(held=None)],
     (read_models._HELD.sql, *({"tenant": "acme", "run": RUN}[name] for name in read_models._HELD.names)), None),
    (runs.going_of, ("acme", "w"), [Row(run_id=uid(9)), Row(run_id=uid(2))], (runs._GOING_OF, "acme", "w"),
     [uid(9), uid(2)]),
    (runs.proposal, ("acme", "w", "type", ""), Row(run_id=RUN, requested_by="", approval=None),
     (runs._PROPOSAL, "acme", "w", "type", ":"), (RUN, "", None)),
    (tenants.set_workflow_caps, ("acme", "w", 0, None), None, (tenants._SET_CAP, "acme", "w", 0, None), None),
    (tenants.set_workflow_caps, ("acme", "w", None, 0), None, (tenants._SET_CAP, "acme", "w", None, 0), None),
    (tenants.set_caps, ("acme", 0, 0, 0.0), None, (tenants._SET_CAPS, "acme", 0, 0, 0.0), None),
    (tenants.set_caps, ("acme", -1, None, None), None, (tenants._SET_CAPS, "acme", -1, None, None), None),
    (tenants.set_caps, ("acme", None, -1, None), None, (tenants._SET_CAPS, "acme", None, -1, None), None),
    (tenants.lock, ("Acme X",), None, (tenants._LOCK, "Acme X"), None),
    (tenants.directory_digest, ("acme",), None, (tenants._DIGEST, "acme"), None),
    (tokens.create, ("acme", "Hash", "ann", ("viewer", "admin"), timedelta(0)), NOON,
     (tokens._CREATE, "Hash", "acme", "ann", ["viewer", "admin"], timedelta(0)), NOON),
    (tokens.revoke, ("acme", "Ab"), [], (tokens._REVOKE, "acme", "Ab"), 0),
    (unavailable.listed, ("acme",), [Row(kind="w", name="", place="q", reason=""),
     Row(kind="p", name="n", place="p", reason="r")], (unavailable._LIST, "acme", None, None),
     [Unavailable("w", "", "q", ""), Unavailable("p", "n", "p", "r")]),
    (unavailable.listed, ("acme", "policy", ""), [], (unavailable._LIST, "acme", "policy", ""), []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "given", "answer", "asked", "result"),
    CASES,
    ids=[f"{verb.__module__.rpartition('.')[2]}.{verb.__name__}-{n}" for n, (verb, *_) in enumerate(CASES)],
)
async def test_every_value_is_passed_on_and_every_row_is_told_as_it_is(
    verb: Any, given: tuple[Any, ...], answer: Any, asked: tuple[Any, ...], result: Any
) -> None:
    connection = Asked(answer)
    found = await verb(connection, *given)
    assert (found, type(found)) == (result, type(result))
    assert connection.told == [asked]


@pytest.mark.parametrize(("over", "after"), [(False, None), (True, uid(6))])
async def test_all_questions_may_be_looked_at_while_steps_are_still_to_be_resumed(over: bool, after: Any) -> None:
    connection: Any = Asked()
    await pauses.followed(connection, NO_CHANGE, after, over=over)
    assert connection.told == [(pauses._FOLLOWED, "acme", 9, after, over)]


async def test_ids_are_those_of_the_language_not_of_the_driver() -> None:
    """The driver's ids compare as equal, but no JSON holds them."""

    class Driven(type(RUN)):  # type: ignore[misc]
        """Stands in for the driver's kind of id."""

    driven = Driven(int=5)
    book: Any = SimpleNamespace(row={"run_id": driven})
    connection: Any = Asked(Row(run_id=driven), [Row(id=driven, n=4)])
    found = [
        books.Book.run_id.fget(book),  # type: ignore[attr-defined]
        await approvals.run_of(connection, uid(2)),
        *await journal.opened(connection, RUN, [driven]),
    ]
    assert [(each, type(each)) for each in found] == [(uid(5), type(RUN))] * 3


@pytest.mark.req("P-6")
@pytest.mark.parametrize("count", [0, 1, 5])
async def test_a_fact_of_a_tenant_follows_its_last_one(count: int) -> None:
    stream = "tenant:Acme"
    before = ChainHead(stream, count, "7" * 64) if count else ChainHead.of(stream)
    event = Event(EventType.POLICY_PROPOSED, Actor("person", "ann"), NOON,
                  {"name": "p", "version": 2, "digest": "d", "by": "ann"})  # fmt: skip
    (line,), after = append(before, [event])
    row = Row(stream_id=uid(3), audit_count=count, audit_head=before.hash if count else None, now=NOON)
    connection: Any = Asked(row)
    await audit.record(connection, "Acme", event.type, event.actor, event.data)
    wanted = (audit._LINE, "Acme", uid(3), count, "policy.proposed", line, after.hash)
    assert connection.told == [(audit._HEAD, "Acme"), wanted]


@pytest.mark.parametrize(("lines", "apart"), [(0, False), (1, False), (300, False), (301, True)])
async def test_only_work_on_many_lines_is_done_in_another_thread(lines: int, apart: bool) -> None:
    assert (await books.aside(lines, threading.get_ident) != threading.get_ident()) is apart


async def test_several_policies_judge_at_once_and_only_the_last_directory_is_in_use() -> None:
    rows = [
        Row(name=name, version=n, digest=f"d{n}", active=active)
        for name, n, active in (("p", 1, True), ("q", 4, False), ("r", 2, True), ("pq", 3, True))
    ]
    editions = [Edition(row["name"], row["version"], row["digest"]) for row in rows]
    past = await documents.past_policies(Asked(rows), "acme")  # type: ignore[arg-type]
    assert past == Past(tuple(editions), (editions[0], editions[2], editions[3]))
    assert [past.used(name) for name in ("p", "pq", "q", "")] == [editions[0], editions[3], None, None]
    lines = [orjson.dumps({"data": {"name": "d", "version": n, "digest": f"d{n}", "by": "ann"}}) for n in (3, 2)]
    connection: Any = Asked([Row(line=line) for line in lines])
    newest, older = Edition("d", 3, "d3"), Edition("d", 2, "d2")
    assert await documents.past_directories(connection, "acme") == Past((newest, older), (newest,))
    assert connection.told == [(documents._DIRECTORIES, "acme")]
    assert await documents.past_directories(Asked([]), "acme") == Past((), ())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([("pay", 2), ("pay", 30)], "There is no policy pay@3. Did you mean 'pay@30'?"),
        ([("ship", 1), ("ban", 12)], "There is no policy pay@3. Published: ban@12, ship@1."),
        ([], "There is no policy pay@3. Publish it: `counterseal policy publish FILE`."),
    ],
)
async def test_a_policy_that_is_not_there_is_told_with_those_that_are(known: list[Any], said: str) -> None:
    rows = [Row(name=name, version=version, digest="d", active=False) for name, version in known]
    connection: Any = Asked(None, rows)
    with pytest.raises(NotFoundError) as caught:
        await documents.policy_of(connection, "acme", "pay", 3)
    assert str(caught.value) == said


async def test_each_message_that_is_ordered_has_an_id_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    async def called(connection: Any, given: Any) -> Any:
        calls.extend(given)
        return [None]

    monkeypatch.setattr(faces, "called", called)
    connection: Any = Asked()
    for kind in ("note", "bundle"):
        await faces.order_message(connection, "acme", RUN, kind, {"to": kind})
    assert [(call.function, *call.parameters[1:], call.order) for call in calls] == [
        ("order_message", RUN, kind, {"to": kind}, "acme", None) for kind in ("note", "bundle")
    ]
    assert len({RUN, *(call.parameters[0] for call in calls)}) == 3


async def test_lines_that_were_altered_are_shown_as_they_are_and_as_unreadable() -> None:
    unreadable = (b"", b"{}", b"5", b"null", b'"type"', b"\xff", b"[]", b"\r", b"a\r\x0b\x1cb")
    kinds = dict.fromkeys(unreadable, "unreadable") | {b'{"type":null}': "None", b'{"type":"a","type":"b"}': "b"}
    connection: Any = Asked([Row(n=4, first_seq=7, lines=b"\n".join(kinds))])
    found = await read_models.audit_page(connection, "acme", RUN, 20, 6)
    assert found == [
        {"seq": 7 + number, "append": 4, "type": kind, "line": line}
        for number, (line, kind) in enumerate(kinds.items())
    ]
