"""Statements of the store, each with its values in their order, and what is made of the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from runtime.engine.commit import Claim
from runtime.engine.states import CommandState
from runtime.store import (
    bundles,
    claims,
    commits,
    effects,
    inbox,
    outbox,
    pauses,
    records,
    retention,
    runs,
    sweeps,
    tasks,
    tenants,
    tokens,
    unavailable,
)
from runtime.store.inbox import Found, Kept, Notice
from runtime.store.outbox import Message
from runtime.store.pauses import Change
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=UTC)
SPAN, LONGER = timedelta(seconds=30), timedelta(seconds=40)
RUN, WAIT, STEP = uid(1), uid(2), uid(3)
A, B = Claim("a", uid(4), 7), Claim("b", uid(5), 8)
FOUND = {"wait_id": WAIT, "run_id": RUN, "step_key": "a", "kind": "signal", "token": "t"}
IS_FOUND = Found(WAIT, RUN, "a", "signal", "t", waiting=True, parked=False, going=True)
MESSAGE = Message(uid(6), "acme", RUN, "card", {"n": 1}, 3, NOON.timestamp(), (uid(7), uid(8)))
CHANGE = Change("acme", 9, frozenset({"tenant"}), ("run:1", "workflow:w"), uid(6))
NOTICE = Notice({"n": 1}, {"run": "r"}, "k", False, NOON)
COMMIT: Any = SimpleNamespace(run_id=RUN, expected_version=4, lines=[b"one", b"two"])
BARE: Any = SimpleNamespace(run_id=RUN, expected_version=4, lines=[])
MESSAGE_ROW = {
    "command_id": uid(6),
    "tenant_id": "acme",
    "run_id": RUN,
    "kind": "card",
    "payload": {"n": 1},
    "attempts": 3,
}
REF: Any = SimpleNamespace(channel="C1", ts="9.1")

# A verb, what it is given, the answer to its statement, the statement with its values, and the result.
CASES: list[tuple[Any, tuple[Any, ...], Any, tuple[Any, ...], Any]] = [
    (claims.claim_step, ("me", SPAN, STEP), ["row"], (claims.CLAIM_STEP, "me", SPAN, STEP), ["row"]),
    (claims.expected, ([(RUN, "a"), (uid(9), "b")], SPAN), None,
     (claims._EXPECTED, [RUN, uid(9)], ["a", "b"], SPAN), None),
    (claims.hold, (RUN, [A, B]), [Row(lease_id=A.id, status="leased"), Row(lease_id=B.id, status="sent")],
     (claims._HOLD, RUN, ["a", "b"], [A.id, B.id], [7, 8]), {A.id: "leased", B.id: "sent"}),
    (claims.heartbeat, (SPAN, [(RUN, A), (uid(9), B)]), [Row(lease_id=B.id)],
     (claims._HEARTBEAT, SPAN, [RUN, uid(9)], ["a", "b"], [A.id, B.id]), {B.id}),
    (commits.landed, (COMMIT,), True, (commits._LANDED, RUN, 4, b"one\ntwo"), True),
    (commits.landed, (COMMIT,), None, (commits._LANDED, RUN, 4, b"one\ntwo"), False),
    (commits.landed, (BARE,), True, (), False),
    (effects.left_by, ("acme", WAIT), Row(), (effects._LEFT_BY, "acme", WAIT), True),
    (effects.left_by, ("acme", WAIT), None, (effects._LEFT_BY, "acme", WAIT), False),
    (effects.row_of, ("acme", "k"), "row", (effects._BY_KEY, "acme", "k"), "row"),
    (effects.abandon, ("acme", "k", WAIT), "UPDATE 1", (effects._ABANDON, "acme", "k", WAIT), True),
    (effects.abandon, ("acme", "k", WAIT), "UPDATE 0", (effects._ABANDON, "acme", "k", WAIT), False),
    (effects.sharing, ("acme", "k"), ["rows"], (effects._SHARING, "acme", "shared:k"), ["rows"]),
    (inbox.record, ("acme", "s", "n", {"a": 1}, "k"), Row(), (inbox._RECORD, "acme", "s", "n", {"a": 1}, "k"), True),
    (inbox.record, ("acme", "s", "n", {}), None, (inbox._RECORD, "acme", "s", "n", {}, None), False),
    (inbox.read, ("acme", "s", "n"), Row(payload={"n": 1}, result={"run": "r"}, correlation_key="k", processed=False,
     received_at=NOON), (inbox._READ, "acme", "s", "n"), NOTICE),
    (inbox.read, ("acme", "s", "n"), None, (inbox._READ, "acme", "s", "n"), None),
    (inbox.processed, ("acme", "s", "n", {"r": 1}), None, (inbox._PROCESSED, "acme", "s", "n", {"r": 1}), None),
    (inbox.empty, ("acme", "s", "n"), None, (inbox._EMPTY, "acme", "s", "n"), None),
    (inbox.meant_for, ("acme", "s", "n", {"run": "r"}), None, (inbox._MEANT_FOR, "acme", "s", "n", {"run": "r"}), None),
    (inbox.find, ("acme", "k", ("signal", "timer")), Row(**FOUND, waiting=True, parked=False, going=True),
     (inbox._FIND, "acme", "k", ["signal", "timer"], None, None), IS_FOUND),
    (inbox.find, ("acme", "k", (), NOTICE), None, (inbox._FIND, "acme", "k", [], "r", NOON), None),
    (inbox.find, ("acme", "k", (), Notice({}, None, "k", False, NOON)), None,
     (inbox._FIND, "acme", "k", [], None, None), None),
    (inbox.find_named, ("acme", "k", ("signal",), "t", 4), Row(**FOUND, waiting=True, parked=False, going=True),
     (inbox._NAMED, "acme", "k", ["signal"], "t", 4), IS_FOUND),
    (inbox.find_named, ("acme", "k", (), None, None), None, (inbox._NAMED, "acme", "k", [], None, None), None),
    (inbox.tenant_of, ("k",), "acme", (inbox._TENANT_OF, "k"), "acme"),
    (inbox.unstarted, ("acme",), [Row(workflow="w", version=2, reason="no", received_at=NOON)],
     (inbox._UNSTARTED, "acme"), [("w", 2, "no", NOON)]),
    (outbox.end_message, (MESSAGE, CommandState.FAILED, "no", SPAN), Row(),
     (outbox._END, uid(6), 3, CommandState.FAILED, "no", SPAN), True),
    (outbox.end_message, (MESSAGE, CommandState.PENDING, None, SPAN), None,
     (outbox._END, uid(6), 3, CommandState.PENDING, None, SPAN), False),
    (outbox.end_shown, (MESSAGE,), None, (outbox._END_SHOWN, [uid(7), uid(8)]), None),
    (outbox.end_shown, (Message(uid(6), "acme", RUN, "card", {}, 3, 1.0),), None, (), None),
    (outbox.send_again, ("acme", "card"), [Row(tenant="acme", kind="card", count=2, woken="")],
     (outbox._AGAIN, "acme", "card"), [{"tenant": "acme", "kind": "card", "count": 2}]),
    (outbox.lease_message, ("me", SPAN, ("acme", "card"), ["note"]),
     Row(**MESSAGE_ROW, created_at=NOON, behind=[uid(7), uid(8)]),
     (outbox._LEASE_IN_TURN, "me", SPAN, "acme", "card", ["note"]), MESSAGE),
    (outbox.lease_message, ("me", SPAN, ("", ""), []), None, (outbox._LEASE_IN_TURN, "me", SPAN, "", "", []), None),
    (outbox.lease_message, ("me", SPAN, ("", ""), []), asyncpg.UniqueViolationError("no"),
     (outbox._LEASE_IN_TURN, "me", SPAN, "", "", []), None),
    (pauses.pause, ("acme", "k", "ann", "no", ["g"]), Row(), (pauses._PAUSE, "acme", "k", "ann", "no", ["g"]), True),
    (pauses.pause, ("acme", "k", "ann", "no", []), None, (pauses._PAUSE, "acme", "k", "ann", "no", []), False),
    (pauses.resume, ("acme", "k"), Row(), (pauses._RESUME, "acme", "k"), True),
    (pauses.resume, ("acme", "k"), None, (pauses._RESUME, "acme", "k"), False),
    (pauses.of_run, ("acme", RUN), [Row(key="tenant"), Row(key="run:1")], (pauses._OF_RUN, "acme", RUN),
     ["tenant", "run:1"]),
    (pauses.parked, ("acme", ["k"], 5), [Row(run_id=RUN, step_key="a", wait_id=WAIT)],
     (pauses._PARKED, "acme", ["k"], 5), [(RUN, "a", WAIT)]),
    (pauses.change, ("acme",), Row(number=9, paused={"tenant": {}}, resumed=["run:1", "workflow:w"], after=uid(6)),
     (pauses._CHANGE, "acme"), CHANGE),
    (pauses.change, ("acme",), Row(number=9, paused=None, resumed=None, after=None), (pauses._CHANGE, "acme"),
     Change("acme", 9, frozenset(), (), None)),
    (pauses.questions, ("acme", uid(6), 5), [Row(approval_id=uid(7))], (pauses._QUESTIONS, "acme", uid(6), 5),
     [uid(7)]),
    (pauses.redraw, (CHANGE, [uid(7)]), None,
     (pauses._REDRAW, [uid(7)], ["tenant", "run:1", "workflow:w"], "9"), None),
    (pauses.open_questions, ("acme",), 4, (pauses._OPEN_QUESTIONS, "acme"), 4),
    (retention.hold, (RUN,), "acme", (retention._HOLD, RUN), "acme"),
    (runs.run_of_trigger, ("acme", "w", "type", "ref"), "row",
     (runs._RUN_OF_TRIGGER, "acme", "w", "type", "ref"), "row"),
    (runs.going_of, ("acme", "w"), [Row(run_id=RUN)], (runs._GOING_OF, "acme", "w"), [RUN]),
    (runs.proposal, ("acme", "w", "type", "about"), Row(run_id=RUN, requested_by="ann", approval=uid(6)),
     (runs._PROPOSAL, "acme", "w", "type", "about:"), (RUN, "ann", uid(6))),
    (runs.proposal, ("acme", "w", "type", "about"), None, (runs._PROPOSAL, "acme", "w", "type", "about:"), None),
    (runs.ending_of, (RUN,), "row", (runs._ENDING, RUN), "row"),
    (runs.wait, (WAIT,), "row", (runs._WAIT, WAIT), "row"),
    (sweeps.take_away, (RUN, A), "me", (sweeps._TAKE_AWAY, RUN, "a", A.id, 7), "me"),
    (sweeps.forget, (RUN, "a"), None, (sweeps._FORGET, RUN, "a"), None),
    (tasks.shown, (WAIT, REF), None, (tasks._SHOWN, WAIT, "C1", "9.1"), None),
    (tenants.create, ("acme", uid(6)), Row(), (tenants._CREATE, "acme", uid(6)), True),
    (tenants.create, ("acme", uid(6)), None, (tenants._CREATE, "acme", uid(6)), False),
    (tenants.lock, ("acme",), None, (tenants._LOCK, "acme"), None),
    (tenants.set_workflow_caps, ("acme", "w", 3, 5), None, (tenants._SET_CAP, "acme", "w", 3, 5), None),
    (tenants.set_caps, ("acme", 3, 5, 2.0), None, (tenants._SET_CAPS, "acme", 3, 5, 2.0), None),
    (tenants.directory_digest, ("acme",), "d", (tenants._DIGEST, "acme"), "d"),
    (tokens.create, ("acme", "hash", "ann", ("viewer",), SPAN), LATER,
     (tokens._CREATE, "hash", "acme", "ann", ["viewer"], SPAN), LATER),
    (tokens.owner, ("hash",), "row", (tokens._OWNER, "hash"), "row"),
    (tokens.listed, ("acme",), ["row"], (tokens._LIST, "acme"), ["row"]),
    (tokens.revoke, ("acme", "ab"), [Row(), Row()], (tokens._REVOKE, "acme", "ab"), 2),
    (unavailable.forget, ("acme", "kind", "name"), None, (unavailable._FORGET_ONE, "acme", "kind", "name"), None),
    (unavailable.listed, ("acme", "kind", "name"), [Row(kind="k", name="n", place="p", reason="r")],
     (unavailable._LIST, "acme", "kind", "name"), [unavailable.Unavailable("k", "n", "p", "r")]),
    (bundles.failures, ("acme",), [Row(run_id=RUN, last_error="no")], (bundles._FAILURES, "acme"), [(RUN, "no")]),
    (bundles.newest, ("acme", RUN), "sha", (bundles._NEWEST, "acme", RUN), "sha"),
    (bundles.state, ("acme", RUN), "row", (bundles._STATE, "acme", RUN), "row"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "given", "answer", "asked", "result"),
    CASES,
    ids=[f"{verb.__module__.rpartition('.')[2]}.{verb.__name__}-{n}" for n, (verb, *_) in enumerate(CASES)],
)
async def test_a_verb_asks_one_statement_and_says_what_it_found(
    verb: Any, given: tuple[Any, ...], answer: Any, asked: tuple[Any, ...], result: Any
) -> None:
    connection = Asked(answer)
    assert await verb(connection, *given) == result
    assert connection.told == ([asked] if asked else [])


async def test_one_message_is_leased_by_its_id() -> None:
    connection: Any = Asked(Row(**MESSAGE_ROW, created_at=NOON, behind=None))
    found = await outbox.lease_message(connection, "me", SPAN, ("acme", "card"), ["note"], only=uid(6))
    assert found == Message(uid(6), "acme", RUN, "card", {"n": 1}, 3, NOON.timestamp(), ())
    assert connection.told == [(outbox._LEASE_ONLY, "me", SPAN, uid(6))]
    assert found.lane == ("acme", "card")


@pytest.mark.parametrize(("over", "after"), [(True, None), (False, uid(6))])
async def test_how_far_a_keeper_has_come_is_noted_for_its_change(over: bool, after: Any) -> None:
    connection: Any = Asked()
    await pauses.followed(connection, CHANGE, after, over=over)
    assert connection.told == [(pauses._FOLLOWED, "acme", 9, after, over)]


@pytest.mark.req("Q-13")
@pytest.mark.parametrize(
    ("verb", "statement", "given", "asked", "column"),
    [
        (claims.claim_next, claims.CLAIM_NEXT, (3,), (3,), "step"),
        (claims.claim_next, claims.CLAIM_NEXT, (), (1,), "step"),
        (claims.claim_of_run, claims.CLAIM_OF_RUN, (RUN,), (1, RUN), "step"),
        (claims.admit, claims.ADMIT, (3,), (3,), "step_id"),
        (claims.admit, claims.ADMIT, (), (1,), "step_id"),
    ],
)
async def test_who_comes_second_at_a_tenant_looks_again_and_not_for_ever(
    verb: Any, statement: str, given: Any, asked: Any, column: str
) -> None:
    """A row without a step says that there is one, which somebody else is just taking."""
    nothing, found = [Row(**{column: None})], [Row(**{column: "it"})]
    for looks, answers, result in (
        (1, [found], found), (3, [nothing, nothing, found], found), (1, [[]], []), (2, [nothing, []], []),
        (claims.LOOKS_MAX, [nothing] * (claims.LOOKS_MAX - 1) + [found], found),
        (claims.LOOKS_MAX, [nothing] * (claims.LOOKS_MAX + 1), []),
    ):  # fmt: skip
        connection: Any = Asked(*answers)
        assert await verb(connection, "me", SPAN, *given) == result
        assert connection.told == [(statement, "me", SPAN, *asked)] * looks


async def test_everything_that_is_due_is_told_by_its_kind() -> None:
    row = Row(
        leases=[[str(RUN), "a", str(A.id), 7]], waits=[[str(uid(9)), "b", str(WAIT), 2.5]], freed=3, woken=1,
        kept=[["acme", "s", "n", str(RUN)], ["beta", "t", "m", None]], purges=[str(uid(6))], changed=["acme"],
        untold=[["acme", "k"]], long_open=[str(uid(7))],
    )  # fmt: skip
    connection: Any = Asked(row)
    assert await sweeps.due(connection, SPAN, whole=True) == sweeps.Due(
        ((RUN, A),), ((uid(9), "b", WAIT, 2.5),), 3, (Kept("acme", "s", "n", RUN), Kept("beta", "t", "m", None)),
        (uid(6),), ("acme",), (("acme", "k"),), (uid(7),),
    )  # fmt: skip
    assert connection.told == [(sweeps._DUE, SPAN, True)]
    twice = Row(**{
        name: [*value, *other] if isinstance(value := row[name], list) else value
        for name, other in {
            "leases": [[str(uid(9)), "b", str(B.id), 8]], "waits": [[str(RUN), "a", str(uid(8)), 0.0]], "freed": 0,
            "woken": 0, "kept": [["acme", "s", "n", None]], "purges": [str(uid(2))], "changed": ["aleph"],
            "untold": [["acme", "k"]], "long_open": [str(uid(3)), str(uid(7))],
        }.items()
    })  # fmt: skip
    connection = Asked(twice)
    assert await sweeps.due(connection, SPAN, whole=False) == sweeps.Due(
        ((RUN, A), (uid(9), B)), ((uid(9), "b", WAIT, 2.5), (RUN, "a", uid(8), 0.0)), 3,
        (Kept("acme", "s", "n", RUN), Kept("beta", "t", "m", None), Kept("acme", "s", "n", None)), (uid(6), uid(2)),
        ("acme", "aleph"), (("acme", "k"), ("acme", "k")), (uid(7), uid(3), uid(7)),
    )  # fmt: skip
    assert connection.told == [(sweeps._DUE, SPAN, False)]
    nothing = Row(**{name: None for name, _ in row.items() if name != "freed"}, freed=0)
    connection = Asked(nothing)
    assert await sweeps.due(connection, SPAN, whole=False) == sweeps.Due((), (), 0, (), (), (), (), ())


@pytest.mark.parametrize("found", [True, False])
async def test_a_record_is_asked_for_in_its_tenant(found: bool) -> None:
    database: Any = Asked(Row(value={"n": 1}, version=4) if found else None)
    read = await records.read(database, "acme", "get", {"collection": "c", "key": "k"})
    assert read == {"found": found, "value": {"n": 1} if found else None, "version": 4 if found else None}
    assert database.told == ["of acme", (records._GET, "acme", "c", "k")]


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, ("", None, 101)),
        ({"after": "k", "where": {"n": 1}, "limit": 2}, ("k", {"n": 1}, 3)),
        ({"after": "", "where": {}}, ("", {}, 101)),
    ],
)
@pytest.mark.parametrize("there", [2, 3])
async def test_records_are_asked_for_in_pages_of_their_collection(more: Any, asked: Any, there: int) -> None:
    rows = [Row(key=f"k{n}", value=(None, "", {"n": n})[n], version=n) for n in range(there)]
    database: Any = Asked(rows)
    read = await records.read(database, "acme", "query", {"collection": "c", **more})
    shown = rows[: more.get("limit", 100)]
    assert read == {"records": [dict(each.items()) for each in shown], "truncated": there > len(shown)}
    assert database.told == ["of acme", (records._QUERY, "acme", "c", *asked)]
