"""Named ways to stage trouble in the real database: time that passes, processes that died, records that were forged.

``Trouble`` does what the engine's own role may do. ``Forger`` is somebody with full access to the database, whom no
rule of it stops.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import orjson

from evidence.chain import ChainHead
from runtime.engine.book.recorded import pack_values, unpack_values
from tests.support.asking import Source, owning

# The lines of each append of a run, each with its values if it has any.
Appends: TypeAlias = "list[list[tuple[bytes, Any]]]"

_SECOND = timedelta(seconds=1)
_REFUSE = """
CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom'; END $$;
CREATE TRIGGER boom BEFORE INSERT ON journal FOR EACH ROW
WHEN (convert_from(NEW.lines, 'UTF8') ~ '"step":"{step}",[^\n]*"type":"{told}"') EXECUTE FUNCTION boom();
"""
_NO_ROOM = """
CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{sqlstate}', DETAIL = 'a secret'; END $$;
CREATE TRIGGER no_room BEFORE INSERT ON journal FOR EACH STATEMENT EXECUTE FUNCTION no_room();
CREATE TRIGGER no_room BEFORE INSERT ON inbox FOR EACH STATEMENT EXECUTE FUNCTION no_room();
CREATE TRIGGER no_room BEFORE INSERT ON tokens FOR EACH STATEMENT EXECUTE FUNCTION no_room();
"""


def _type_of(line: bytes) -> str:
    return str(orjson.loads(line)["type"])


def _earlier(line: bytes, by: timedelta) -> bytes:
    ts: str = orjson.loads(line)["ts"]
    before = (datetime.fromisoformat(ts) - by).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return line.replace(ts.encode(), before.encode())


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])


class Trouble:
    """Moves time and leases about, as the database's owner. Each way tells how many rows it met."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def _do(self, sql: str, *parameters: object) -> int:
        async with owning(self._source) as connection:
            return _count(await connection.execute(sql, *parameters))

    async def _do_behind(self, sql: str, *parameters: object) -> int:
        """The same, behind the triggers."""
        async with owning(self._source) as connection:
            await connection.execute("SET LOCAL session_replication_role = replica")
            return _count(await connection.execute(sql, *parameters))

    async def forget_refusals(self) -> None:
        """Let what people have refused bind nobody any more."""
        await self._do("DELETE FROM refusals")

    # -- leases of steps ----------------------------------------------------------------------------------------------

    async def expire_leases(self, tenant: str | None = None, *, step: str | None = None) -> int:
        """The workers of all steps that are leased have been silent for too long; ``step`` names one, '' a barrier."""
        sql = "UPDATE queue SET expires_at = now() - $2::interval WHERE status = 'leased' AND "
        of = "($1::text IS NULL OR tenant_id = $1) AND ($3::text IS NULL OR step_key = $3)"
        return await self._do(sql + of, tenant, _SECOND, step)

    async def expire_some_lease(self, tenant: str) -> int:
        """One worker of this tenant, by chance, has been silent for too long."""
        return await self._do(
            "UPDATE queue SET expires_at = now() - interval '1 s' WHERE (run_id, step_key) IN (SELECT run_id, step_key "
            "FROM queue WHERE status = 'leased' AND tenant_id = $1 ORDER BY random() LIMIT 1) AND status = 'leased'",
            tenant,
        )

    async def steal_leases(self, owner: str, *, step: str | None = None) -> int:
        """Another worker has every step by now, or this one, and the one before does not know."""
        sql = "UPDATE queue SET owner = $1, lease_id = gen_random_uuid(), epoch = epoch + 1 "
        return await self._do(sql + "WHERE $2::text IS NULL OR step_key = $2", owner, step)

    async def hand_steps_to(self, owner: str) -> int:
        """A worker has claimed every step."""
        return await self._do(
            "UPDATE queue SET status = 'leased', owner = $1, lease_id = gen_random_uuid(), epoch = epoch + 1, "
            "expires_at = now() + interval '1 hour'",
            owner,
        )

    async def lose_claims(self) -> int:
        """Every step stands in line again and is nobody's, as after crashes that a sweeper has found."""
        return await self._do("UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL")

    async def forget_claims(self, owner: str | None = None) -> int:
        """PostgreSQL has crashed before the newest claims, or those of this worker, were on the disk."""
        return await self._do(
            "UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL, lease_id = NULL, "
            "epoch = epoch - 1 WHERE status = 'leased' AND ($1::text IS NULL OR owner = $1)",
            owner,
        )

    async def send_steps(self, owner: str) -> int:
        """Every step is on its way to a worker."""
        return await self._do(
            "UPDATE queue SET status = 'sent', owner = $1, expires_at = now() + interval '1 hour'", owner
        )

    async def expire_sent(self, *, older_than: timedelta | None = None) -> int:
        """Expire what is on its way and unclaimed; ``older_than`` spares what has been sent since."""
        return await self._do(
            "UPDATE queue SET expires_at = now() - interval '1 s' WHERE status = 'sent' "
            "AND ($1::interval IS NULL OR expires_at < now() + interval '60 s' - $1)",
            older_than,
        )

    async def forget_steps_were_sent(self) -> int:
        """Every step is sent under another key: more time has passed than FIFO queues remember."""
        return await self._do("UPDATE queue SET epoch = epoch + 1")

    # -- slots --------------------------------------------------------------------------------------------------------

    async def set_slots(self, tenant: str, count: int) -> int:
        return await self._do("UPDATE tenants SET max_concurrency = $2 WHERE tenant_id = $1", tenant, count)

    async def end_tokens(self, subject: str) -> int:
        """The time of every token of somebody is over."""
        return await self._do("UPDATE tokens SET expires_at = now() WHERE subject = $1", subject)

    async def starts_wait(self, seconds: int) -> int:
        """So many seconds pass for the starts that workflows have left of a minute's."""
        passed = "UPDATE caps SET starts_left_at = starts_left_at - make_interval(secs => $1)"
        return await self._do(passed, seconds)

    async def steps_stand_in_line(self, by: timedelta) -> int:
        """Steps that could run have stood in line for so much longer."""
        return await self._do("UPDATE queue SET created_at = created_at - $1::interval", by)

    async def questions_are_older(self, by: timedelta) -> int:
        """Open questions were asked so much earlier; they expire when they would."""
        return await self._do(
            "UPDATE approvals SET created_at = created_at - $1::interval WHERE status = 'requested'", by
        )

    async def leaves_are_older(self, by: timedelta) -> int:
        """The leaves of the logs that nobody has signed were written so much earlier."""
        signed = "(SELECT max(size) FROM log_checkpoints c WHERE c.tenant_id = log_leaves.tenant_id)"
        new = f"place IS NULL OR place >= coalesce({signed}, 0)"
        return await self._do_behind(f"UPDATE log_leaves SET at = at - $1::interval WHERE {new}", by)

    async def free_slots(self) -> int:
        """Let the holders of slots leave, and take their steps along."""
        return await self._do("DELETE FROM queue WHERE status <> 'claimable'")

    async def free_a_slot_of(self, workflow: str) -> int:
        """One step of this workflow gives its slots back, and is never heard of again."""
        return await self._do(
            "DELETE FROM queue WHERE (run_id, step_key) IN (SELECT q.run_id, q.step_key FROM queue q "
            "JOIN runs r ON r.run_id = q.run_id WHERE r.workflow = $1 AND q.status <> 'claimable' LIMIT 1)",
            workflow,
        )

    # -- what was kept -----------------------------------------------------------------------------------------------

    async def age_notices(self, by: timedelta, amount: int) -> int:
        """The signals of this amount came so long ago."""
        return await self._do(
            "UPDATE inbox SET received_at = received_at - $1::interval WHERE (payload->'output'->>'amount')::int = $2",
            by,
            amount,
        )

    async def unreadable_signals(self, tenant: str) -> int:
        """Make what this tenant's kept signals said unreadable."""
        return await self._do("UPDATE inbox SET payload = '{}' WHERE tenant_id = $1 AND processed_at IS NULL", tenant)

    # -- waits --------------------------------------------------------------------------------------------------------

    async def make_waits_due(
        self, *kinds: str, run: UUID | None = None, step: str | None = None, tenant: str | None = None
    ) -> int:
        """The time of open waits has come: of all, or of these kinds, this run, this step, this tenant."""
        return await self._do(
            "UPDATE waits SET due_at = now() WHERE status = 'waiting' AND ($1::text[] IS NULL OR kind = ANY ($1)) "
            "AND ($2::uuid IS NULL OR run_id = $2) AND ($3::text IS NULL OR tenant_id = $3) "
            "AND ($4::text IS NULL OR step_key = $4)",
            list(kinds) or None,
            run,
            tenant,
            step,
        )

    async def make_windows_due(self) -> int:
        """The time of all windows of triggers is over."""
        return await self._do("UPDATE triggered SET due_at = now() WHERE outcome = 'waiting'")

    async def let_turns_pass(self, by: timedelta) -> int:
        """Time passes for the turns at targets with a rate."""
        return await self._do("UPDATE turns SET at = at - $1::interval", by)

    async def let_busy_pass(self, by: timedelta) -> int:
        """Time passes for the targets that want no calls for a while."""
        return await self._do(
            "UPDATE tenants SET busy = (SELECT jsonb_object_agg(key, value::timestamptz - $1::interval)"
            " FROM jsonb_each_text(busy)) WHERE busy IS NOT NULL",
            by,
        )

    async def turns_used(self) -> int:
        """The number of calls that were let out in the last minute at targets with a rate."""
        lately = "at > clock_timestamp() - interval '1 minute'"
        return await self._do(f"UPDATE turns SET used = used WHERE used AND {lately}")

    async def make_waits_due_first(self, run: UUID) -> int:
        """The time of every wait has come, and that of this run's a second earlier."""
        return await self._do(
            "UPDATE waits SET due_at = now() - CASE WHEN run_id = $1 THEN interval '1 s' ELSE interval '0' END", run
        )

    async def bring_waits_nearer(self, by: timedelta) -> int:
        """Time passes for the due times of open waits."""
        return await self._do("UPDATE waits SET due_at = due_at - $1::interval WHERE status = 'waiting'", by)

    async def begin_waits_earlier(self, by: timedelta) -> int:
        """Time passes for open waits as if they had begun so much earlier."""
        return await self._do(
            "UPDATE waits SET due_at = due_at - $1::interval, created_at = created_at - $1::interval"
            " WHERE status = 'waiting'",
            by,
        )

    async def put_all_waits_in_the_past(self, by: timedelta) -> int:
        """The due time of every wait, open or not, is so long ago."""
        return await self._do("UPDATE waits SET due_at = now() - $1::interval", by)

    async def leave_questions_alone(self, by: timedelta) -> int:
        """So much time passes for open questions and their waits, and no keeper is there."""
        earlier = "created_at = created_at - $1::interval, {0} = {0} - $1::interval"
        await self._do(f"UPDATE approvals SET {earlier.format('expires_at')} WHERE status = 'requested'", by)
        return await self._do(f"UPDATE waits SET {earlier.format('due_at')} WHERE status = 'waiting'", by)

    async def declare(self, like: str, name: str, count: int) -> int:
        """So many declarations like one that there is, under names with their numbers in the place of ``{n}``."""
        return await self._do(
            """
            INSERT INTO operations (tenant_id, name, version, digest, source, published_by)
            SELECT tenant_id, named, 1, encode(sha256(convert_to(text, 'UTF8')), 'hex'), text, published_by
            FROM operations, generate_series(0, $3 - 1) AS number, replace($2, '{n}', number::text) AS named,
              replace(source, format('"name":"%s"', $1::text), format('"name":"%s"', named)) AS text
            WHERE name = $1
            """,
            like,
            name,
            count,
        )

    # -- messages -----------------------------------------------------------------------------------------------------

    async def retry_messages_now(self, *kinds: str, tenant: str | None = None) -> int:
        """No open order waits for its next attempt any more: all, or of these kinds, this tenant."""
        return await self._do(
            "UPDATE commands SET next_attempt_at = NULL WHERE status = 'pending' AND next_attempt_at IS NOT NULL "
            "AND ($1::text[] IS NULL OR kind = ANY ($1)) AND ($2::text IS NULL OR tenant_id = $2)",
            list(kinds) or None,
            tenant,
        )

    async def pass_time_of_messages(self, by: timedelta) -> int:
        """So much time passes for the open orders, and for what was told last."""
        await self._do("UPDATE notices SET began_at = began_at - $1::interval", by)
        return await self._do(
            "UPDATE commands SET created_at = created_at - $1::interval, "
            "next_attempt_at = next_attempt_at - $1::interval "
            "WHERE status = 'pending'",
            by,
        )

    async def messages_were_tried(self, times: int) -> int:
        """Open orders were tried so often, and are to be tried now."""
        return await self._do(
            "UPDATE commands SET attempts = $1, next_attempt_at = NULL WHERE status = 'pending'", times
        )

    async def hurry_messages(self) -> int:
        """Messages whose next attempt lies ahead are tried now."""
        return await self._do(
            "UPDATE commands SET next_attempt_at = now() WHERE status = 'pending' AND next_attempt_at > now()"
        )

    async def expire_message_leases(self, *, older_than: timedelta | None = None) -> int:
        """Expire the leases of messages; ``older_than`` spares those that were taken since."""
        return await self._do(
            "UPDATE commands SET lease_expires_at = now() - interval '1 s' WHERE lease_expires_at IS NOT NULL "
            "AND ($1::interval IS NULL OR status = 'leased' AND lease_expires_at < now() + interval '60 s' - $1)",
            older_than,
        )

    async def drop_messages(self, *kinds: str) -> int:
        """Open orders of these kinds are given up."""
        return await self._do(
            "UPDATE commands SET status = 'rejected' WHERE status = 'pending' AND kind = ANY ($1)", list(kinds)
        )

    async def drop_messages_except(self, *kinds: str) -> int:
        """Open orders of all kinds but these are given up."""
        return await self._do(
            "UPDATE commands SET status = 'rejected' WHERE status = 'pending' AND kind <> ALL ($1)", list(kinds)
        )

    async def stores_bundles(self, tenant: str, *, but: int) -> None:
        """The evidence of every run of a tenant is stored, but for this many of them."""
        await self._do(
            "INSERT INTO bundles (run_id, tenant_id, lines, name, uri, sha256, bytes, key_id) SELECT run_id, tenant_id,"
            " audit_count, 'n', 'u', repeat('0', 64), 1, 'k' FROM runs WHERE tenant_id = $1 ORDER BY run_id OFFSET $2",
            tenant,
            but,
        )

    async def send_again(self, kind: str) -> int:
        """Orders of this kind that were carried out stand open once more."""
        return await self._do("UPDATE commands SET status = 'pending' WHERE kind = $1 AND status = 'dispatched'", kind)

    # -- time -----------------------------------------------------------------------------------------------------

    async def make_open_runs_due(self) -> int:
        """Open runs have waited for more steps as long as they were to."""
        return await self._do("UPDATE runs SET open_until = now() WHERE open_until IS NOT NULL")

    async def make_purge_due(self, run: UUID | None = None, *, after: timedelta = timedelta()) -> int:
        """The retention of this run, or of all, is over so much from now."""
        return await self._do_behind(
            "UPDATE runs SET purge_at = now() + $2::interval WHERE $1::uuid IS NULL OR run_id = $1", run, after
        )

    async def bring_purges_nearer(self, by: timedelta) -> int:
        return await self._do_behind("UPDATE runs SET purge_at = purge_at - $1::interval", by)

    async def begin_runs_earlier(self, at: str, *, before_reference: str) -> int:
        """Runs whose reference sorts before this one were started at that moment."""
        return await self._do(
            "UPDATE runs SET created_at = $1::text::timestamptz WHERE reference < $2", at, before_reference
        )

    # -- what cannot be read any more -------------------------------------------------------------------------------

    async def lose_run_keys(self, tenant: str) -> int:
        """The keys of the commitments of this tenant's runs are gone."""
        return await self._do("UPDATE runs SET run_key = NULL WHERE tenant_id = $1", tenant)


class Forger:
    """Changes records behind the engine, as the database's owner and with its triggers off."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+asyncpg", "postgresql")

    @asynccontextmanager
    async def _owner(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        connection = await asyncpg.connect(self._url)
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def windows_that_do_not_end(self) -> AsyncIterator[None]:
        """The keeper dies after it has started the run of a window, before its transaction ends."""
        async with self._owner() as connection:
            await connection.execute("ALTER TABLE triggered ADD CONSTRAINT boom CHECK (outcome <> 'started') NOT VALID")
            yield
            await connection.execute("ALTER TABLE triggered DROP CONSTRAINT boom")

    async def _forge(self, sql: str, *parameters: object) -> int:
        async with self._owner() as connection:
            await connection.execute("SET session_replication_role = replica")
            met = _count(await connection.execute(sql, *parameters))
        assert met > 0, "there is nothing of this to forge"
        return met

    async def age_logins_anew(self, by: timedelta) -> int:
        """Those who logged in anew for a question did so earlier."""
        earlier = "created_at = created_at - $1::interval"
        return await self._forge(f"UPDATE sessions SET {earlier} WHERE kind = 'step_up'", by)

    async def kept_text(self, run: UUID, told: str, other: str) -> None:
        """A text in what is kept of a run."""
        kept = "convert_to(replace(convert_from(state, 'UTF8'), $2, $3), 'UTF8')"
        await self._forge(f"UPDATE runs SET state = {kept} WHERE run_id = $1 AND state <> {kept}", run, told, other)

    async def foreign_bundle(self, run: UUID, other: UUID) -> None:
        """The newest bundle of a run names the file of another run, as the engine's login may write it."""
        columns = "name, uri, version_id, sha256, bytes, key_id"
        await self._forge(
            f"INSERT INTO bundles (run_id, tenant_id, lines, {columns}) SELECT $1, tenant_id, lines + 1, {columns} "
            "FROM bundles WHERE run_id = $2",
            run,
            other,
        )
        # A row that names as many lines as the run has is looked at no less.
        await self._forge("UPDATE runs SET audit_count = audit_count + 1 WHERE run_id = $1", run)

    async def failed_message(self, kind: str) -> None:
        """The messages of this kind have failed for good."""
        await self._forge("UPDATE commands SET status = 'failed' WHERE kind = $1", kind)

    async def kept_nothing(self, run: UUID) -> None:
        """The run is not kept, and its row says that it is."""
        await self._forge("UPDATE runs SET state = NULL WHERE run_id = $1 AND state IS NOT NULL", run)

    async def journal_text(self, run: UUID, told: str, other: str, *, column: str) -> None:
        """A text in ``lines`` or ``vals`` of the book of a run."""
        async with self._owner() as connection:
            rows = await connection.fetch(f"SELECT n, {column} AS told FROM journal WHERE run_id = $1", run)
        for row in rows:
            deflated = column == "vals" and row["told"] is not None and not row["told"].startswith(b"{")
            before = zlib.decompress(row["told"]) if deflated else row["told"]
            after = before and before.replace(told.encode(), other.encode())
            if after != before:
                kept = zlib.compress(after) if deflated else after
                await self._forge(f"UPDATE journal SET {column} = $3 WHERE run_id = $1 AND n = $2", run, row["n"], kept)

    async def lost_append(self, run: UUID) -> None:
        """The last append of a run."""
        last = "(SELECT max(n) FROM journal WHERE run_id = $1)"
        await self._forge(f"DELETE FROM journal WHERE run_id = $1 AND n = {last}", run)

    async def lost_appends(self, run: UUID, until: int) -> None:
        """The first appends of a run, up to this one."""
        await self._forge("DELETE FROM journal WHERE run_id = $1 AND n <= $2", run, until)

    async def lost_values_of(self, run: UUID) -> None:
        """No value stands beside the lines of a run any more."""
        await self._forge("UPDATE journal SET vals = NULL WHERE run_id = $1", run)

    async def audit_line(self, seq: int) -> None:
        """One byte of the line of this number."""
        await self._forge(
            "UPDATE journal SET lines = set_byte(lines, 40 + length((SELECT coalesce(string_agg(l.line || '\n'::bytea, "
            "''::bytea ORDER BY l.seq), '') FROM run_lines l WHERE l.run_id = journal.run_id AND l.n = journal.n "
            "AND l.seq < $1)), 65) WHERE (run_id, n) IN (SELECT run_id, n FROM run_lines WHERE seq = $1)",
            seq,
        )

    async def broken_line(self, seq: int) -> None:
        """The line of this number begins with a byte that no text has."""
        async with self._owner() as connection:
            row = await connection.fetchrow(
                "SELECT run_id, n, first_seq, lines FROM journal WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1",
                seq,
            )
        assert row is not None, "there is no such line"
        lines = row["lines"].split(b"\n")
        lines[seq - row["first_seq"]] = b"\xff" + lines[seq - row["first_seq"]][1:]
        sql = "UPDATE journal SET lines = $3 WHERE run_id = $1 AND n = $2"
        await self._forge(sql, row["run_id"], row["n"], b"\n".join(lines))

    async def told_earlier(self, kind: str, by: timedelta) -> None:
        """The lines of this type say that it was so much earlier; no other byte of them is changed."""
        async with self._owner() as connection:
            rows = await connection.fetch("SELECT run_id, n, lines FROM journal")
        changed = 0
        for row in rows:
            lines = [_earlier(line, by) if _type_of(line) == kind else line for line in row["lines"].split(b"\n")]
            if (told := b"\n".join(lines)) != row["lines"]:
                sql = "UPDATE journal SET lines = $3 WHERE run_id = $1 AND n = $2"
                changed += await self._forge(sql, row["run_id"], row["n"], told)
        assert changed, f"nothing of the type {kind} is told"

    async def lost_audit(self, kind: str) -> None:
        """The lines of this type are gone."""
        await self._forge(
            "UPDATE journal SET lines = k.lines FROM (SELECT run_id, n, "
            "coalesce(string_agg(line, '\n'::bytea ORDER BY seq) FILTER (WHERE type <> $1), '') AS lines "
            "FROM run_lines GROUP BY run_id, n) AS k "
            "WHERE journal.run_id = k.run_id AND journal.n = k.n AND journal.lines <> k.lines",
            kind,
        )

    async def appends(self, run: UUID) -> Appends:
        """Read a run's appends, as they are stored."""
        async with self._owner() as connection:
            rows = await connection.fetch("SELECT lines, vals FROM journal WHERE run_id = $1 ORDER BY n", run)
        told = [(row["lines"].split(b"\n"), unpack_values(row["vals"])) for row in rows]
        return [[(line, vals.get(n)) for n, line in enumerate(lines)] for lines, vals in told]

    async def retold(self, run: UUID, after: Appends) -> None:
        """The appends of a run are these instead; everything but the head agrees to them."""
        assert after != await self.appends(run), "nothing is changed"
        await self._forge("DELETE FROM journal WHERE run_id = $1", run)
        first = 0
        for n, append in enumerate(after, 1):
            vals = pack_values([each or {} for _, each in append])
            lines = b"\n".join(line for line, _ in append)
            sql = (
                "INSERT INTO journal (run_id, tenant_id, n, first_seq, lines, vals) "
                "SELECT run_id, tenant_id, $2, $3, $4, $5 FROM runs WHERE run_id = $1"
            )
            await self._forge(sql, run, n, first, lines, vals)
            first += len(append)

    async def reheaded(self, run: UUID, after: Appends) -> None:
        """The appends of a run are these instead, and so is its head: whoever did it had the whole database."""
        await self.retold(run, after)
        head = ChainHead.of(f"run:{run}")
        for append in after:
            head = head.after([line for line, _ in append])
        sql = "UPDATE runs SET audit_count = $2, audit_head = $3 WHERE run_id = $1"
        await self._forge(sql, run, head.count, head.hash)

    async def book_of_another(self, run: UUID, other: UUID) -> None:
        """The whole book of another run, with its key, its head and its length, is shown as that of this one."""
        await self._forge("DELETE FROM journal WHERE run_id = $1", run)
        await self._forge(
            "INSERT INTO journal (run_id, tenant_id, n, first_seq, lines, vals) "
            "SELECT $1, tenant_id, n, first_seq, lines, vals FROM journal WHERE run_id = $2",
            run,
            other,
        )
        await self._forge(
            "UPDATE runs SET audit_count = o.audit_count, audit_head = o.audit_head, run_key = o.run_key, "
            "version = o.version FROM runs o WHERE runs.run_id = $1 AND o.run_id = $2",
            run,
            other,
        )

    async def no_tenants(self) -> None:
        """No tenant has been made yet."""
        async with self._owner() as connection:
            await connection.execute("DELETE FROM tenants")

    async def told_value(self, field: str, value: Any) -> None:
        """The value of this field, in the first append that tells one."""
        async with self._owner() as connection:
            rows = await connection.fetch(
                "SELECT run_id, n, vals FROM journal WHERE vals IS NOT NULL ORDER BY run_id, n"
            )
        for row in rows:
            told = unpack_values(row["vals"])
            for values in told.values():
                if field in values:
                    values[field] = value
                    changed = pack_values([told.get(number, {}) for number in range(max(told) + 1)])
                    sql = "UPDATE journal SET vals = $3 WHERE run_id = $1 AND n = $2"
                    await self._forge(sql, row["run_id"], row["n"], changed)
                    return
        raise AssertionError(f"nothing tells a {field}")

    async def unreadable_values(self) -> None:
        """Put something that is no value in the place of values."""
        await self._forge("UPDATE journal SET vals = '[1, 2' WHERE vals IS NOT NULL")

    async def lost_values(self) -> None:
        await self._forge("UPDATE journal SET vals = NULL")

    async def lost_key(self) -> None:
        """The key of the commitments is gone."""
        await self._forge("UPDATE runs SET run_key = NULL")

    async def purged(self) -> None:
        """All runs count as purged."""
        await self._forge("UPDATE runs SET purged_at = now()")
        await self._forge("INSERT INTO remains SELECT run_id, tenant_id, '[]', '[]', '[]', '{}' FROM runs")

    async def refuse_intents(self, step: str) -> None:
        """The database never takes the intent of this step: as a constraint that we forgot would."""
        await self._refuse(step, "action.intended")

    async def refuse_outcomes(self, step: str) -> None:
        """The database never takes that the action of this step succeeded."""
        await self._refuse(step, "action.(succeeded|doubt_resolved)")

    async def _refuse(self, step: str, told: str) -> None:
        async with self._owner() as connection:
            await connection.execute(_REFUSE.format(step=step, told=told))

    async def no_room(self, sqlstate: str) -> None:
        """Nothing can be written any more, for this reason."""
        async with self._owner() as connection:
            await connection.execute(_NO_ROOM.format(sqlstate=sqlstate))

    async def refuse_audit(self) -> None:
        """The faces may not add lines to the audit any more."""
        async with self._owner() as connection:
            await connection.execute("REVOKE INSERT ON audit_events FROM counterseal_appender")
