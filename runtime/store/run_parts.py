"""The parts of a commit that move a run: steps, queue, waits, commands, the book, and the end of the rest."""

from __future__ import annotations

from runtime.store.commit_part import Part, columns, records, runs, texts

_NEW_STEPS = Part(
    "new_steps",
    """INSERT INTO steps (step_id, run_id, tenant_id, step_key, step_index, operation, superstep, status, lease_epoch,
        idempotency_key, attempt, output, writes, usage, last_error, finished_at)
      SELECT s.step_id, g.run_id, g.tenant_id, s.key, s.index, s.operation, s.superstep, s.status, s.lease_epoch,
        s.idempotency_key, s.attempt, s.output, s.writes, s.usage, s.last_error,
        CASE WHEN s.status IN ('succeeded', 'failed_terminal') THEN now() END
      FROM json_to_recordset({0}) AS s(run uuid, step_id uuid, key text, index int, operation text, superstep int,
        status text, lease_epoch int, idempotency_key text, attempt int, output jsonb, writes jsonb, usage jsonb,
        last_error jsonb) JOIN guard g ON g.run_id = s.run""",
    lambda cs: [
        records(cs, "new_steps",
            "step_id", "key", "index", "operation", "superstep", "status", "lease_epoch", "idempotency_key", "attempt",
            "output", "writes", "usage", "last_error",
        ),
    ],
    lambda c: bool(c.new_steps),
)  # fmt: skip

# ``IS TRUE`` keeps the planner from looking for a row among all rows of its run, or of its tenant: the key comes first.
_STEPS = Part(
    "steps",
    """UPDATE steps SET status = s.status, superstep = s.superstep, attempt = s.attempt, lease_epoch = s.epoch,
        output = s.output::jsonb, writes = s.writes::jsonb, usage = s.usage::jsonb, last_error = s.error::jsonb,
        idempotency_key = s.idempotency, next_eligible_at = now() + s.eligible,
        finished_at = CASE WHEN s.status IN ('succeeded', 'failed_terminal', 'canceled') THEN now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::int[], {3}::int[], {4}::int[], {5}::text[], {6}::text[],
        {7}::text[], {8}::text[], {9}::text[], {10}::interval[])
        AS s(step_id, status, superstep, attempt, epoch, idempotency, output, writes, usage, error, eligible)
      WHERE steps.step_id = s.step_id AND (steps.run_id = g.run_id) IS TRUE""",
    lambda cs: [
        *columns(cs, "steps", "step_id", "status", "superstep", "attempt", "lease_epoch", "idempotency_key"),
        *texts(cs, "steps", "output", "writes", "usage", "last_error"),
        *columns(cs, "steps", "eligible_in"),
    ],
    lambda c: bool(c.steps),
)

# The rows of the queue. What the holder of a lease settles is locked by the guard. A row of another step, as a cancel
# meets it, is left to whoever has it locked just now: that one waits for the run's row, and then finds its step over.
_QUEUED = Part(
    "queued",
    """INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
      SELECT g.run_id, q.key, q.step_id, g.tenant_id, g.workspace_id, g.cap, q.starts_run, 'claimable', q.epoch
      FROM unnest({0}::uuid[], {1}::text[], {2}::uuid[], {3}::int[], {4}::bool[])
        AS q(run, key, step_id, epoch, starts_run) JOIN guard g ON g.run_id = q.run""",
    lambda cs: [runs(cs, "queued"), *columns(cs, "queued", "key", "step_id", "epoch", "starts_run")],
    lambda c: bool(c.queued),
)

_REQUEUED = Part(
    "requeued",
    """UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL, created_at = now()
      FROM guard g, unnest({0}::text[]) AS r(key) WHERE queue.run_id = g.run_id AND queue.step_key = r.key""",
    lambda cs: [cs[0].requeued],
    lambda c: bool(c.requeued),
    alone=True,
)

_UNQUEUED = Part(
    "unqueued",
    """DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM unnest({0}::uuid[], {1}::text[]) AS u(run, key)
          JOIN guard g ON g.run_id = u.run JOIN queue q ON q.run_id = u.run AND q.step_key = u.key
        FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key""",
    lambda cs: [runs(cs, "unqueued"), [key for c in cs for key in c.unqueued]],
    lambda c: bool(c.unqueued),
)

# One step's end is the next one's start: the row goes on with its worker, under the same lease and in the same slot.
_HANDED = Part(
    "handed",
    """UPDATE queue SET step_key = h.next, step_id = h.step_id, epoch = h.epoch, starts_run = false,
        expires_at = now() + {5}, created_at = now()
      FROM unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::uuid[], {4}::int[]) AS h(run, key, next, step_id, epoch)
      JOIN guard g ON g.run_id = h.run
      WHERE queue.run_id = h.run AND queue.step_key = h.key""",
    lambda cs: [
        runs(cs, "handed"),
        [key for c in cs for key, _ in c.handed],
        *([getattr(step, name) for c in cs for _, step in c.handed] for name in ("key", "step_id", "lease_epoch")),
        cs[0].lease,
    ],
    lambda c: bool(c.handed),
)

_NEW_WAITS = Part(
    "new_waits",
    """INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token, context, due_at,
        correlation_key)
      SELECT w.wait_id, g.run_id, g.tenant_id, w.step_id, w.step_key, w.kind, w.status, w.token, w.context,
        now() + make_interval(secs => w.due_in), w.correlation_key
      FROM json_to_recordset({0}) AS w(run uuid, wait_id uuid, step_id uuid, step_key text, kind text, status text,
        token text, context jsonb, due_in float8, correlation_key text) JOIN guard g ON g.run_id = w.run""",
    lambda cs: [
        records(cs, "new_waits", "wait_id", "step_id", "step_key", "kind", "status", "token", "context", "due_in",
            "correlation_key",
        )
    ],
    lambda c: bool(c.new_waits),
)  # fmt: skip

_WAITS = Part(
    "waits",
    """UPDATE waits SET status = w.status, context = w.context::jsonb, result = w.result::jsonb,
        due_at = CASE WHEN w.due IS NULL THEN waits.due_at ELSE now() + w.due END,
        completed_at = CASE WHEN w.status = 'waiting' THEN NULL ELSE now() END
      FROM guard g, unnest({0}::uuid[], {1}::text[], {2}::text[], {3}::text[], {4}::interval[])
        AS w(wait_id, status, context, result, due)
      WHERE waits.wait_id = w.wait_id AND (waits.run_id = g.run_id) IS TRUE AND waits.status = 'waiting'""",
    lambda cs: [
        *columns(cs, "waits", "wait_id", "status"),
        *texts(cs, "waits", "context", "result"),
        *columns(cs, "waits", "due_in"),
    ],
    lambda c: bool(c.waits),
)

_COMMANDS = Part(
    "commands",
    """INSERT INTO commands (command_id, tenant_id, run_id, kind, dedupe_key, status, payload, ordering_key)
      SELECT c.command_id, g.tenant_id, g.run_id, c.kind, c.dedupe_key, c.status, c.payload, c.ordering_key
      FROM json_to_recordset({0}) AS c(run uuid, command_id uuid, kind text, dedupe_key text, status text,
        payload jsonb, ordering_key text) JOIN guard g ON g.run_id = c.run
      ON CONFLICT (dedupe_key) DO NOTHING""",
    lambda cs: [records(cs, "commands", "command_id", "kind", "dedupe_key", "status", "payload", "ordering_key")],
    lambda c: bool(c.commands),
)

_LEDGER = Part(
    "ledger",
    """INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
      SELECT g.run_id, g.tenant_id, l.superstep, l.step_key, l.channel, l.value
      FROM json_to_recordset({0}) AS l(run uuid, superstep int, step_key text, channel text, value jsonb)
      JOIN guard g ON g.run_id = l.run""",
    lambda cs: [records(cs, "ledger", "superstep", "step_key", "channel", "value")],
    lambda c: bool(c.ledger),
    alone=True,
)

# The book: all lines of the append in one row, with the values that they commit to (promise 6). A crash leaves
# all of it or nothing, as of every part: it is one statement with its guard, and whoever lost it decides again.
_JOURNAL = Part(
    "journal",
    """INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
      SELECT g.run_id, g.version, g.tenant_id, j.first_seq, j.lines, j.vals
      FROM unnest({0}::uuid[], {1}::int[], {2}::bytea[], {3}::bytea[]) AS j(run, first_seq, lines, vals)
      JOIN guard g ON g.run_id = j.run""",
    lambda cs: [
        [c.run_id for c in cs if c.lines],
        [c.lines[0].seq for c in cs if c.lines],
        [b"\n".join(line.bytes for line in c.lines) for c in cs if c.lines],
        [c.values for c in cs if c.lines],
    ],
    lambda c: bool(c.lines),
)

# Set-based, because a run may have thousands of open steps; what this commit itself moves is left to its own part.
_CANCEL_STEPS = Part(
    "cancel_steps",
    """UPDATE steps SET status = 'canceled', finished_at = now() FROM guard g
      WHERE steps.run_id = g.run_id AND steps.step_id <> ALL ({0}::uuid[])
        AND steps.status IN ('ready', 'waiting_approval', 'waiting', 'failed_retryable')""",
    lambda cs: [[row.step_id for row in [*cs[0].steps, *cs[0].new_steps]]],
    lambda c: c.cancels_rest,
    alone=True,
)

_CANCEL_WAITS = Part(
    "cancel_waits",
    """UPDATE waits SET status = 'canceled', completed_at = now() FROM guard g
      WHERE waits.run_id = g.run_id AND waits.status = 'waiting' AND waits.wait_id <> ALL ({0}::uuid[])""",
    lambda cs: [[row.wait_id for row in cs[0].waits]],
    lambda c: c.cancels_rest,
    alone=True,
)

_CANCEL_QUEUE = Part(
    "cancel_queue",
    """DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM queue q JOIN guard g ON g.run_id = q.run_id FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key""",
    lambda cs: [],
    lambda c: c.cancels_rest,
    alone=True,
)

RUN_PARTS: tuple[Part, ...] = (
    _NEW_STEPS, _STEPS, _QUEUED, _REQUEUED, _UNQUEUED, _HANDED, _NEW_WAITS, _WAITS, _COMMANDS,
    _LEDGER, _JOURNAL, _CANCEL_STEPS, _CANCEL_WAITS, _CANCEL_QUEUE,
)  # fmt: skip
