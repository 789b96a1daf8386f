"""A tenant's stream is verified as a whole whenever it is read; what is in force changes with its line (promise 6)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from core.errors import NotFoundError
from evidence.chain import Actor, EventType
from runtime.engine.book.recorded import Diverged
from runtime.requests import auditing, past, publishing
from runtime.requests.auditing import EventFilter
from runtime.requests.policies import publish_policy
from runtime.store import audit, streams, tenants
from tests.support.rows import read
from tests.support.runtime_stage import ALLOW_ALL

pytestmark = pytest.mark.tampers

ANN = Actor("person", "ann")
OF_THREE = "stream_id = (SELECT stream_id FROM tenants WHERE tenant_id = 'acme') AND seq"
# What somebody does behind the engine to the fourth of six lines, or to the row, and what the reader then names.
CHANGES = {
    "the text of a line": (f"UPDATE audit_events SET line = set_byte(line, 20, 65) WHERE {OF_THREE} = 3", "line 4"),
    "the type beside a line": (f"UPDATE audit_events SET type = 'pause.set' WHERE {OF_THREE} = 3", "line 4"),
    "the hash beside a line": (f"UPDATE audit_events SET hash = repeat('0', 64) WHERE {OF_THREE} = 3", "line 4"),
    "a line is gone": (f"DELETE FROM audit_events WHERE {OF_THREE} = 3", "line 4"),
    "the place of a line": (f"UPDATE audit_events SET seq = 9 WHERE {OF_THREE} = 3", "line 4"),
    "the last line is gone": (f"DELETE FROM audit_events WHERE {OF_THREE} = 5", "line 6"),
    "all lines are gone": ("DELETE FROM audit_events", "line 1"),
    "the count": ("UPDATE tenants SET audit_count = 5", "head"),
    "the head": ("UPDATE tenants SET audit_head = repeat('0', 64)", "head"),
    "the count is none": ("UPDATE tenants SET audit_count = 0", "head"),
    "another tenant's stream": ("UPDATE tenants t SET stream_id = o.stream_id FROM tenants o WHERE o <> t", "line 1"),
}  # fmt: skip


async def told(runtime: Any, tenant: str) -> None:
    await runtime.tenant(tenant)
    for subject in ("zero", "one", "two", "three", "four", "five"):
        async with runtime.database.transaction() as connection:
            await audit.record(connection, tenant, EventType.TOKEN_CREATED, ANN, {"subject": f"{tenant} {subject}"})


@pytest.mark.parametrize("what", CHANGES)
async def test_a_stream_that_was_changed_is_refused_with_its_line(runtime: Any, what: str) -> None:
    await told(runtime, "acme")
    await told(runtime, "beta")
    async with runtime.database.transaction() as connection:
        assert [event["seq"] for event in (await streams.read(connection, "acme")).events] == [*range(6)]
    statement, place = CHANGES[what]
    await runtime.execute(statement)
    async with runtime.database.transaction() as connection:
        # A filter that leaves nothing hides nothing.
        with pytest.raises(Diverged, match=rf"chain is broken: .*{place}\b"):
            await auditing.look(connection, "acme", EventFilter(type="pause.set", person="nobody"), ANN, 1)


async def test_a_directory_is_replaced_with_its_line_and_its_text_is_kept(runtime: Any) -> None:
    await runtime.tenant()
    people = "directory: d\npeople: [{id: ann, name: Ann}, {id: bob, name: Bob}, {id: eve, name: E, active: false}]\n"
    groups = ["{ops: [ann, eve]}", "{ops: [ann, bob]}", "{ops: [bob], dev: [ann]}", "{ops: [ann, bob]}"]
    texts, times = [f"{people}groups: {one}\n" for one in groups], list[datetime]()
    for text, who in zip(texts, "abcd", strict=True):
        async with runtime.database.transaction() as connection:
            published = await publishing.publish_directory(connection, "acme", text, "d.yaml", Actor("person", who))
            assert await tenants.directory_digest(connection, "acme") == published.digest
    # What was rolled back has left neither a line nor a text.
    async with runtime.database.transaction() as connection:
        await publishing.publish_directory(connection, "acme", f"{people}groups: {{}}\n", "d.yaml", ANN)
        await connection.execute("ROLLBACK; BEGIN")
    kept = await read(runtime.database, "SELECT source, published_by FROM directories")
    assert sorted(kept) == sorted([(texts[0], "a"), (texts[1], "b"), (texts[2], "c")])
    async with runtime.database.transaction() as connection:
        events = (await streams.read(connection, "acme")).events
        assert [(event["type"], event["actor"]["id"]) for event in events] == [
            ("directory.published", by) for by in "abcd"
        ]
        times = [datetime.fromisoformat(event["ts"]) for event in events]
        members = [
            [("ops", "ann", 0)], [("ops", "ann", 0), ("ops", "bob", 1)], [("dev", "ann", 2), ("ops", "bob", 1)],
            [("ops", "ann", 3), ("ops", "bob", 1)],
        ]  # fmt: skip
        for number, expected in enumerate(members):
            found = await past.directory_at(connection, "acme", times[number])
            shown = [(one.group, one.person, (one.since, one.by)) for one in found.members or ()]
            assert shown == [(group, person, (times[n], "abcd"[n])) for group, person, n in expected]
            assert (found.source, found.by, found.since) == (texts[number], "abcd"[number], times[number])
            assert found.until == (times[number + 1] if number < 3 else None)
            last = 3 if number == 1 else number
            assert (await past.directory_at(connection, "acme", None, found.digest[:12])).since == times[last]
        with pytest.raises(NotFoundError):
            await past.directory_at(connection, "acme", times[0] - timedelta(microseconds=1))
    # A directory of an older release has no text: nobody knows who was in a group under it, and who came with the next.
    await runtime.execute(f"DELETE FROM directories WHERE digest = '{events[0]['data']['digest']}'")
    async with runtime.database.transaction() as connection:
        assert (await past.directory_at(connection, "acme", times[0])).members is None
        ann, bob = (await past.directory_at(connection, "acme", times[1])).members or ()
        assert (ann.since, ann.by, bob.since) == (None, None, None)
    await runtime.execute("UPDATE directories SET source = source || ' '")
    async with runtime.database.transaction() as connection:
        with pytest.raises(Diverged, match="not the one that was published"):
            await past.directory_at(connection, "acme")


async def test_a_policy_that_is_published_again_has_one_line(runtime: Any) -> None:
    await runtime.tenant()
    for _ in range(2):
        async with runtime.faces.transaction("acme") as connection:
            await publish_policy(connection, runtime.definitions, "acme", ALLOW_ALL, "policy.yaml", runtime.actor)
    assert len(await runtime.books.tenant_events("acme", type="policy.published")) == 1
