"""The parts of an append that others find by their keys: queue, waits, commands, shared effects, approvals, votes.

Their statements run in the database's functions ``append`` and ``open_run``, which have locked or inserted the run's
row by then. ``_run_id`` is the run; names that begin with ``its_`` are columns of its row after the append. ``rows`` is
the commit's list with the part's name, which ``_rest`` holds.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from core.canonical import Json
from runtime.engine.model.rows import Commit

# The rows of the queue. The row of a lease that is settled is locked by the guard. A cancel also deletes the rows of
# other steps, but skips a locked one: its locker waits for the run's row, and then finds that the step is over.
UNQUEUED = """DELETE FROM queue USING (
      SELECT q.run_id, q.step_key FROM queue q WHERE q.run_id = _run_id{0} FOR UPDATE SKIP LOCKED) AS u
    WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key"""

# A step ends and the next one starts: its worker keeps the row, under the same lease and in the same slot.
HANDED = """UPDATE queue SET step_key = _next[i], step_id = _next_ids[i], epoch = _next_epochs[i], starts_run = false,
      expires_at = now() + _lease, created_at = now()
    WHERE run_id = _run_id AND step_key = _handed[i]"""

# The book: all lines of the append in one row, with the values that they commit to (promise 6). Guard and parts are one
# transaction: a crash leaves all of them or nothing, and a writer whose guard fails decides again.
JOURNAL = """INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
    VALUES (_run_id, its_version, its_tenant, its_count - _count, _lines, _vals)"""

# The last step leaves, and nobody has seen all of the others leave. The append tells its caller so, which commits the
# barrier and deletes this row with it. If the caller dies first, the row's lease runs out, and the sweeper does it.
BARRIER = """INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, owner,
      lease_id, epoch, expires_at)
    VALUES (_run_id, '', gen_random_uuid(), its_tenant, its_workspace, its_cap, false, 'leased', 'barrier',
      gen_random_uuid(), 1, now() + _lease) ON CONFLICT DO NOTHING"""

# The effect that this append is about has moved on since it was looked up: the caller looks it up again.
_MOVED_ON = "RAISE EXCEPTION 'the effect has moved on' USING ERRCODE = 'unique_violation'"

# In this order: ends come before beginnings. The keys of effects with a wider scope than a step hold neither run nor
# step, so the table makes them unique. An append that moves an effect holds its key. One that begins an effect
# finds the key free, or takes it from an attempt that certainly failed. If somebody else has taken it meanwhile, the
# insert fails and with it the append: nothing is performed. An outcome never meets that, because nobody takes a key
# from an attempt that may have had its effect. A crash leaves the row and the event that moves it, or neither; so a
# rejection that binds comes with its vote, and what became of an approved action with the end of its step. An update
# finds each row by its whole key, because the planner takes ``rows`` for a hundred, and cannot know how many rows the
# table has.
PARTS = {
    "cancels_rest": """DELETE FROM queue USING (
      SELECT q.run_id, q.step_key FROM queue q WHERE q.run_id = _run_id FOR UPDATE SKIP LOCKED) AS u
    WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key;
    UPDATE approvals SET status = 'canceled', decided_at = now() WHERE run_id = _run_id AND status = 'requested'
      AND approval_id <> ALL (ARRAY(
        SELECT (a ->> 'approval_id')::uuid FROM jsonb_array_elements(_rest -> 'approvals') a));
    UPDATE approvals SET outcome = 'canceled', why = 'canceled' WHERE run_id = _run_id AND status = 'approved'
      AND consumed_at IS NULL AND outcome IS NULL""",
    "requeued": """UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL, created_at = now()
    WHERE run_id = _run_id AND step_key = ANY (ARRAY(SELECT jsonb_array_elements_text(_rest -> 'requeued')))""",
    "waits": """UPDATE waits SET status = r.status, context = r.context, result = r.result, parked = r.parked,
      due_at = coalesce(now() + make_interval(secs => r.due_in), waits.due_at),
      completed_at = CASE WHEN r.status = 'waiting' THEN NULL ELSE now() END
    FROM rows AS r(wait_id uuid, status text, context jsonb,
      result jsonb, due_in float8, parked bool)
    WHERE waits.wait_id = r.wait_id AND (waits.run_id = _run_id) IS TRUE AND waits.status = 'waiting'""",
    "approvals": """UPDATE approvals SET status = r.status, choice = coalesce(r.choice, approvals.choice),
      reason = coalesce(r.reason, approvals.reason), escalated = approvals.escalated OR r.escalated,
      consumed_at = CASE WHEN r.consumed THEN coalesce(approvals.consumed_at, now()) ELSE approvals.consumed_at END,
      outcome = coalesce(r.outcome, approvals.outcome),
      why = CASE WHEN r.outcome IS NULL THEN coalesce(r.why, approvals.why) ELSE r.why END,
      decided_at = CASE WHEN r.status = 'requested' THEN NULL ELSE coalesce(approvals.decided_at, now()) END
    FROM rows AS r(approval_id uuid, status text, choice text,
      reason text, consumed bool, escalated bool, outcome text, why text)
    WHERE approvals.approval_id = r.approval_id AND (approvals.run_id = _run_id) IS TRUE""",
    "effects": """UPDATE effects SET run_id = _run_id, step_key = r.step_key, receipt_id = r.receipt_id,
      status = r.status, wait_id = r.wait_id, holder = CASE WHEN r.wait_id IS NOT NULL THEN _run_id END
    FROM rows AS r(key text, step_key text, receipt_id uuid, status text, was uuid, wait_id uuid)
    WHERE effects.tenant_id = its_tenant AND effects.key = r.key AND effects.receipt_id = r.was
      AND (r.was = r.receipt_id OR effects.status = 'failed');
    IF _rest @> '{"effects": [{"status": "intended"}]}' THEN
      INSERT INTO effects (tenant_id, key, run_id, step_key, receipt_id, status)
      SELECT its_tenant, r.key, _run_id, r.step_key, r.receipt_id, r.status
      FROM rows AS r(key text, step_key text, receipt_id uuid, status text)
      WHERE r.status = 'intended' AND NOT EXISTS (
        SELECT FROM effects e WHERE e.tenant_id = its_tenant AND e.key = r.key AND e.receipt_id = r.receipt_id
          AND e.status = 'intended');
    END IF""",
    "sealed": "UPDATE runs SET open_until = NULL WHERE run_id = _run_id",
    "shares": f"""UPDATE effects SET status = r.status, holder = _run_id, wait_id = r.wait_id
    FROM rows AS r(key text, receipt_id uuid, status text, wait_id uuid)
    WHERE effects.tenant_id = its_tenant AND effects.key = r.key AND effects.receipt_id = r.receipt_id
      AND CASE r.status WHEN 'begun' THEN effects.status = 'left' ELSE effects.wait_id = r.wait_id END;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met = 0 AND _rest @> '{{"shares": [{{"status": "begun"}}]}}' THEN
      {_MOVED_ON};
    END IF""",
    "joins": f"""PERFORM FROM effects e JOIN rows AS r(key text, receipt_id uuid)
      ON e.tenant_id = its_tenant AND e.key = r.key AND e.receipt_id = r.receipt_id
    WHERE e.status IN ('intended', 'in_doubt', 'begun') FOR NO KEY UPDATE OF e;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met < jsonb_array_length(_rest -> 'joins') THEN
      {_MOVED_ON};
    END IF""",
    "new_waits": """INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token, context,
      due_at, correlation_key, parked)
    SELECT r.wait_id, _run_id, its_tenant, r.step_id, r.step_key, r.kind, r.status, r.token, r.context,
      now() + make_interval(secs => r.due_in), r.correlation_key, r.parked
    FROM rows AS r(wait_id uuid, step_id uuid, step_key text, kind text, status text, token text,
      context jsonb, due_in float8, correlation_key text, parked bool)""",
    "new_approvals": """INSERT INTO approvals (approval_id, run_id, n, tenant_id, step_key, status, expires_at,
      decided_at, asker)
    SELECT r.approval_id, _run_id, its_version, its_tenant, r.step_key, r.status,
      now() + make_interval(secs => r.expires_in), CASE WHEN r.status <> 'requested' THEN now() END, r.asker
    FROM rows AS r(approval_id uuid, step_key text, status text, expires_in float8, asker text)""",
    "votes": """INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
    SELECT r.approval_id, r.person_id, its_tenant, r.choice, r.reason, r.groups, r.channel
    FROM rows AS r(approval_id uuid, person_id text, choice text,
      reason text, groups text[], channel text)
    ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
      groups = excluded.groups, channel = excluded.channel, voted_at = now()""",
    "refusals": """DELETE FROM refusals WHERE tenant_id = its_tenant AND until < now();
    INSERT INTO refusals (tenant_id, key, approval_id, run_id, groups, askers, by, reason, until)
    SELECT its_tenant, r.key, r.approval_id, _run_id, r.groups, r.askers, r.by, r.reason,
      now() + make_interval(secs => r.holds)
    FROM rows AS r(approval_id uuid, key text, groups text[], askers text[], by text, reason text, holds float8)
    ON CONFLICT DO NOTHING""",
    "commands": """INSERT INTO commands (command_id, tenant_id, run_id, kind, status, payload, ordering_key)
    SELECT r.command_id, its_tenant, _run_id, r.kind, r.status, r.payload, r.ordering_key
    FROM rows AS r(command_id uuid, kind text, status text, payload jsonb, ordering_key text)
    ON CONFLICT (command_id) DO NOTHING""",
    "records": """FOR one IN SELECT * FROM rows AS r(collection text, key text, value jsonb, absent bool,
        expects int, removes bool, shaped jsonb) LOOP
      IF one.removes THEN
        DELETE FROM records WHERE tenant_id = its_tenant AND collection = one.collection AND key = one.key
          AND (one.expects IS NULL OR version = one.expects);
      ELSIF one.expects IS NOT NULL THEN
        UPDATE records SET value = one.value, version = version + 1, run_id = _run_id, changed_at = now(),
          shaped = one.shaped
        WHERE tenant_id = its_tenant AND collection = one.collection AND key = one.key AND version = one.expects;
      ELSE
        INSERT INTO records AS o (tenant_id, collection, key, value, run_id, shaped)
        VALUES (its_tenant, one.collection, one.key, one.value, _run_id, one.shaped)
        ON CONFLICT (tenant_id, collection, key) DO UPDATE SET value = excluded.value, version = o.version + 1,
          run_id = _run_id, changed_at = now(), shaped = excluded.shaped WHERE NOT one.absent;
      END IF;
      GET DIAGNOSTICS met = ROW_COUNT;
      IF met = 0 AND (one.expects IS NOT NULL OR NOT one.removes) THEN
        RAISE EXCEPTION 'a record is not as expected' USING ERRCODE = 'CS001';
      END IF;
    END LOOP""",
    "ledger": """INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
    SELECT _run_id, its_tenant, r.superstep, r.step_key, r.channel, r.value
    FROM rows AS r(channel text, superstep int, step_key text, value jsonb)""",
}
PARTS[
    "queued"
] = """INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
    SELECT _run_id, r.key, r.step_id, its_tenant, its_workspace, its_cap, r.starts_run, 'claimable', r.epoch
    FROM rows AS r(key text, step_id uuid, epoch int, starts_run bool)"""
# Of a part's rows only the columns are sent that its first statement takes. A list that no statement takes apart is
# sent as it is.
_ROWS = re.compile(r"rows AS r\((.*?)\)", re.DOTALL)
_TAKEN = {name: _ROWS.search(sql) for name, sql in PARTS.items()}
_SENT = {name: [each.split()[0] for each in rows[1].split(",")] for name, rows in _TAKEN.items() if rows}


def statement(name: str) -> str:
    """The statement of a part."""
    return PARTS[name].replace("rows AS r(", f"jsonb_to_recordset(_rest -> '{name}') AS r(")


def sent_of(name: str, commit: Commit) -> Json:
    """The rows of a commit for one part, as they are sent: durations in seconds; None is NULL, also for jsonb."""
    rows = getattr(commit, name)
    return [{name: _plain(getattr(row, name)) for name in _SENT[name]} for row in rows] if name in _SENT else rows


def _plain(value: Any) -> Any:
    return value.total_seconds() if type(value) is timedelta else value
