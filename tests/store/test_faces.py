"""A stolen login of the faces can say what faces say of a run, and nothing else (promises 1 and 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest
from msgspec import structs
from sqlalchemy.engine import make_url

from core.db import ENGINE_ROLE, FACES_ROLE, Database
from core.errors import ConsistencyError
from evidence.chain import Actor
from evidence.events import EventType
from runtime.engine.book.instructions import open_wait
from runtime.engine.book.snapshot import pack, unpack
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalDecided, ApprovalVoted
from runtime.store import approvals, faces
from runtime.store.views import load
from tests.support.store_faces import ONE, asked

pytestmark = pytest.mark.tampers

GATE = """
workflow: one
version: 1
reference: r
steps:
  - {id: a, approve: {summary: "Go on?", approvers: {group: owners}, quorum: 2}}
  - {id: b, needs: [a], do: probe.effect.apply, with: {name: b}}
"""
THIEF = Actor("person", "mallory")
# What people and the outside say, and what follows from it. A doubt that people end as failed is another test's.
ADMITTED = {
    "approval.said", "approval.reassigned", "approval.edited",
    "approval.voted", "approval.vote_refused", "approval.decided", "approval.superseded", "wait.completed",
    "hold.answered", "grant.revoked",
    "wait.canceled", "wait.postponed", "run.canceled", "run.extended", "run.migrated", "run.paused", "run.resumed",
    "run.reopened", "run.sealed", "step.resumed", "step.failed", "step.canceled", "run.reference_set",
    "checkpoint.committed", "run.started", "run.closed", "action.late",
}  # fmt: skip


@pytest.fixture
async def thief(runtime: Any, database_url: str) -> AsyncIterator[Any]:
    """A thief of the faces' login: a user that may be this role, and no other."""
    name, word = f"thief_{uuid4().hex}", uuid4().hex
    owner = await asyncpg.connect(database_url)
    await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{word}' IN ROLE {FACES_ROLE}")
    url = make_url(database_url).set(username=name, password=word).render_as_string(hide_password=False)
    async with Database(url, FACES_ROLE) as database:
        yield database
    await owner.execute(f"DROP ROLE {name}")
    await owner.close()


async def prepared(runtime: Any, database: Database, run_id: UUID, tenant: str = "acme") -> Transition:
    """A transition of the run as a face would begin it."""
    async with database.connection() as connection:
        view = await load(connection, run_id, runtime.definitions.graphs, tenant=tenant)
        return Transition(view, (await runtime.definitions.of_run(connection, view.definition)).graph)


async def test_the_owner_of_the_functions_is_nobody(runtime: Any) -> None:
    async with runtime.database.connection() as connection:
        query = "SELECT rolcanlogin, rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = $1"
        for nobody in ("counterseal_appender", "counterseal_finder"):
            assert not any(await connection.fetchrow(query, nobody))
            for role in (ENGINE_ROLE, FACES_ROLE):
                assert not await connection.fetchval("SELECT pg_has_role($1, $2, 'member')", role, nobody)


@pytest.mark.parametrize(
    "statement",
    [
        *(f"SET ROLE {role}" for role in (ENGINE_ROLE, "counterseal_appender", "postgres")),
        "SELECT state FROM runs",
        "SELECT purge_records(gen_random_uuid())",
        f"SELECT append({', '.join(['NULL'] * 29)})",
        "CREATE FUNCTION queue() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER FUNCTION read_run(uuid, bool, text, bool) SECURITY INVOKER",
        "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
    ],
)
async def test_a_thief_becomes_nobody_else_and_changes_no_rule(thief: Any, statement: str) -> None:
    """Try roles and rules; ``test_database_rules`` tries what a thief may write, for every table."""
    async with thief.connection() as connection:
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.InvalidParameterValueError)):
            await connection.execute(statement)


@pytest.mark.parametrize("kind", EventType)
async def test_a_face_appends_only_what_faces_say(runtime: Any, thief: Any, kind: EventType) -> None:
    """Promise 1: neither an allow, nor an intent, nor an outcome of a connector comes from a face."""
    run_id = await asked(runtime)
    transition = await prepared(runtime, thief, run_id)
    transition.cancel(THIEF, "")
    commit = transition.commit()
    admitted = kind in ADMITTED
    told = [line for line in commit.lines if b'"type":"run.canceled"' in line]
    commit.lines = [line.replace(b"run.canceled", kind.encode()) for line in told]
    async with thief.connection() as connection:
        if admitted:
            assert await faces.append(connection, commit)
            return
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may append this"):
            await faces.append(connection, commit)
    assert await runtime.status(run_id) == "waiting_approval"


@pytest.mark.parametrize(("resolution", "admitted"), [("failed", True), ("applied", False), ("not_applied", False)])
async def test_a_face_ends_a_doubt_as_a_failure_alone(
    runtime: Any, thief: Any, resolution: str, admitted: bool
) -> None:
    run_id = await asked(runtime)
    transition = await prepared(runtime, thief, run_id)
    transition.cancel(THIEF, "")
    commit = transition.commit()
    line = {**orjson.loads(commit.lines[0]), "type": "action.doubt_resolved", "data": {"resolution": resolution}}
    commit.lines = [orjson.dumps(line)]
    async with thief.connection() as connection:
        if admitted:
            assert await faces.append(connection, commit)
        else:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may append this"):
                await faces.append(connection, commit)


async def test_no_line_of_a_face_is_of_a_time_that_is_still_to_come(runtime: Any, thief: Any) -> None:
    """Look at the time of each line, whatever the append says of its time."""
    transition = await prepared(runtime, thief, await asked(runtime))
    transition.cancel(THIEF, "")
    commit = transition.commit()
    commit.lines = [orjson.dumps({**orjson.loads(commit.lines[0]), "ts": "2999-01-01T00:00:00.000000Z"})]
    async with thief.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may append this"):
            await faces.append(connection, commit)


async def test_a_name_that_is_there_twice_admits_nothing(runtime: Any, thief: Any) -> None:
    transition = await prepared(runtime, thief, await asked(runtime))
    transition.cancel(THIEF, "")
    commit = transition.commit()
    twice = (
        commit.lines[0]
        .replace(b'"type":', b'"type":"run.canceled","type":')
        .replace(b'"type":"run.canceled","type":"run.canceled"', b'"type":"run.canceled","type":"decision.made"')
    )
    commit.lines = [twice]
    async with thief.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may append this"):
            await faces.append(connection, commit)


async def test_another_tenant_s_run_is_neither_read_nor_appended_to(runtime: Any, thief: Any) -> None:
    """Promise 8: the function sees the rows of the tenant that it was told, whatever run is named."""
    run_id = await asked(runtime, tenant="beta")
    await runtime.tenant("acme")
    transition = await prepared(runtime, thief, run_id, "beta")
    transition.cancel(THIEF, "")
    async with thief.connection() as connection:
        assert not await faces.append(connection, structs.replace(transition.commit(), tenant_id="acme"))
        assert await connection.fetch("SELECT * FROM read_run($1, false, 'acme', true)", run_id) == []
        question = (await runtime.books.approval(tenant="beta")).id
        assert await connection.fetch("SELECT * FROM read_question($1, 'acme', false)", question) == []
        await faces.order_message(connection, "acme", run_id, "note", {})
        assert await connection.fetch("SELECT current_setting('counterseal.tenant', true)") in ([("",)], [(None,)])
    assert await runtime.status(run_id) == "waiting_approval"
    assert [order.kind for order in await runtime.books.commands(tenant="beta")] == ["card"]


async def test_a_face_orders_no_message_but_a_note_or_a_bundle(runtime: Any, thief: Any) -> None:
    run_id = await asked(runtime)
    async with thief.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may order cancel"):
            await faces.order_message(connection, "acme", run_id, "cancel", {"run": str(run_id)})


async def test_a_face_keeps_no_state_beside_the_book(runtime: Any, thief: Any) -> None:
    run_id = await asked(runtime)
    transition = await prepared(runtime, thief, run_id)
    transition.cancel(THIEF, "")
    commit = transition.commit()
    commit.finished, commit.state = False, b'{"status": "running"}'
    async with thief.connection() as connection:
        assert await faces.append(connection, commit)
    async with runtime.database.connection() as connection:
        assert await connection.fetchval("SELECT state FROM runs WHERE run_id = $1", run_id) is None


@pytest.mark.req("Q-6")
@pytest.mark.parametrize("text", [ONE, GATE])
@pytest.mark.parametrize("votes", [0, 1])
async def test_a_decision_that_no_votes_carry_lets_nothing_out(runtime: Any, thief: Any, text: str, votes: int) -> None:
    """Promise 1: the engine counts the votes that the book holds, and trusts nobody's word for the decision."""
    run_id = await asked(runtime, text)
    if votes:
        assert (await runtime.vote("olga", "approve")).counted
    await told_to_be_approved(runtime, thief, run_id)
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"
    error = (await runtime.books.run(run_id)).error
    assert (error["class"], error["code"]) == ("authorization", "not_approved")
    assert "votes in the run's book do not meet" in error["message"]
    assert [approval.status for approval in await runtime.books.approvals()] == ["superseded"]


async def test_votes_of_the_requester_or_of_strangers_carry_nothing(runtime: Any, thief: Any) -> None:
    run_id = await asked(runtime)
    question = UUID(str(await runtime.question()))
    transition = await prepared(runtime, thief, run_id)
    for person, groups in (("requester", ["group:owners"]), ("olga", ["group:owners"]), ("mallory", ["group:guests"])):
        voted = ApprovalVoted(question, "approve", "cli", False, groups=groups)
        transition.tell(voted, step="a", actor=Actor("person", person))
    await told_to_be_approved(runtime, thief, run_id, transition)
    await runtime.worker().work_off()
    assert runtime.outside.effects == []
    assert await runtime.status(run_id) == "failed_terminal"


async def test_the_votes_that_were_told_carry_it(runtime: Any) -> None:
    run_id = await asked(runtime)
    for person in ("olga", "otto"):
        assert (await runtime.vote(person, "approve")).counted
    restarted = runtime.restarted()
    await restarted.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert len(runtime.outside.effects) == 1


async def told_to_be_approved(runtime: Any, thief: Any, run_id: UUID, transition: Transition | None = None) -> None:
    """The lie: that the open question was answered with yes."""
    transition = transition or await prepared(runtime, thief, run_id)
    transition.tell(ApprovalDecided(await runtime.question(), "approved", "approve", "so I say"), step="a", actor=THIEF)
    wait = open_wait(transition.run, "a")
    assert wait is not None
    transition.resume(transition.run.steps["a"], wait)
    async with thief.connection() as connection:
        assert await faces.append(connection, transition.commit())


async def test_a_face_answers_no_question_of_another_run(runtime: Any, thief: Any) -> None:
    """Neither the question nor the wait, also of the same tenant: the lines stand in another book."""
    run_id = await asked(runtime)
    other = (await runtime.start("one", ref="other")).run_id
    await runtime.worker().work_off()
    (question,), (wait,) = [await read(run=other) for read in (runtime.books.approvals, runtime.books.waits)]
    own = (await runtime.books.approval(run=run_id)).id
    transition = await prepared(runtime, thief, run_id)
    transition.tell(ApprovalDecided(own, "approved", "approve", "so I say"), step="a", actor=THIEF)
    met = open_wait(transition.run, "a")
    assert met is not None
    transition.resume(transition.run.steps["a"], met)
    commit = transition.commit()
    assert (len(commit.approvals), len(commit.waits)) == (1, 1)
    commit.approvals = [structs.replace(row, approval_id=UUID(str(question.id))) for row in commit.approvals]
    commit.waits = [structs.replace(row, wait_id=UUID(str(wait.id))) for row in commit.waits]
    async with thief.connection() as connection:
        await faces.append(connection, commit)
    assert [found.status for found in await runtime.books.approvals(run=other)] == ["requested"]
    assert [found.kind for found in await runtime.books.waits(run=other, open=True)] == [wait.kind]


async def test_a_start_checks_that_the_version_is_the_one_to_start_with(runtime: Any) -> None:
    """Check at the opening of a run what a process remembers of a name."""
    await runtime.tenant()
    await runtime.publish(ONE)
    assert (await runtime.start("one", ref="1")).created
    await runtime.publish(ONE.replace("version: 1", "version: 2"))
    second = await runtime.start("one", ref="2")
    assert (await runtime.books.run(second.run_id)).workflow_version == 2
    assert not (await runtime.start("one", ref="1")).created


async def test_what_no_face_may_write_is_refused_before_it_is_sent(runtime: Any, thief: Any) -> None:
    """The function has no parameter for it: without this, the row would be left out in silence."""
    transition = await prepared(runtime, thief, await asked(runtime))
    transition.cancel(THIEF, "")
    commit = transition.commit()
    commit.requeued = ["a"]
    async with thief.connection() as connection:
        with pytest.raises(ConsistencyError, match="No face may write this of a run: requeued"):
            await faces.append(connection, commit)


async def test_a_face_takes_no_lease(runtime: Any, thief: Any) -> None:
    """Not even that of the barrier, whose row the owner of the functions could write."""
    transition = await prepared(runtime, thief, await asked(runtime))
    transition.cancel(THIEF, "")
    commit = transition.commit()
    commit.moves_gate, commit.executing = False, -1
    before = await runtime.fingerprint()
    async with thief.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="no face may append this"):
            await faces.append(connection, commit)
    assert await runtime.fingerprint() == before


@pytest.mark.req("Q-6")
async def test_sixteen_clicks_share_one_connection_and_make_one_decision(runtime: Any, database_url: str) -> None:
    """Vote sixteen times on one connection: nobody waits for another one, also if the run's row has to be locked."""
    run_id = await asked(runtime)
    question = await runtime.question()
    async with Database(database_url, FACES_ROLE, connections=1) as one:
        world = replace(runtime, faces=one)
        clicks = [world.vote(person, "approve", on=question) for person in ("olga", "otto") * 8]
        answers = await asyncio.wait_for(asyncio.gather(*clicks), 60)
    assert sum(answer.counted for answer in answers) == 2
    await runtime.worker().work_off()
    assert await runtime.status(run_id) == "succeeded"
    assert len(runtime.outside.effects) == 1


async def test_votes_are_kept_with_the_run_that_is_kept_beside_its_book(runtime: Any, thief: Any) -> None:
    run_id = await asked(runtime)
    assert (await runtime.vote("olga", "approve")).counted
    transition = await prepared(runtime, thief, run_id)
    run = transition.run
    kept, _ = unpack(pack(run, transition.view.head), run.run_id, run.run_key)
    assert kept.votes == run.votes != []


async def test_a_vote_that_loses_every_race_locks_the_run_and_wins(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asked(runtime)
    read, locked = approvals.read_to_decide, []

    async def overtaken(*named: Any, lock: bool) -> Any:
        found = await read(*named, lock=lock)
        locked.append(lock)
        if not lock:
            async with runtime.database.connection() as connection:
                await connection.execute("UPDATE runs SET version = version + 1, gate = gate + 1")
        return found

    monkeypatch.setattr(approvals, "read_to_decide", overtaken)
    assert (await runtime.vote("olga", "approve")).counted
    assert locked == [False, False, True]
