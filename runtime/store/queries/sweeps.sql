-- name: due
-- Everything that is due: at most 100 of each kind (20 purges: a run may have thousands of rows), shared equally among
-- tenants. No worker's lease ends later than $1 from now. $2: all kept signals are compared with all waits.
WITH
silent AS (
  SELECT c.command_id FROM commands c WHERE c.status = 'leased' AND c.lease_expires_at < now()
  ORDER BY c.command_id FOR UPDATE SKIP LOCKED),
-- A step that was sent, and not claimed in time, gives its place back and may be sent again: the message was lost, or
-- the scheduler died before it could note that the queue has it. If the message does come later, the row decides.
unclaimed AS (
  SELECT q.run_id, q.step_key FROM queue q WHERE q.status <> 'claimable' AND q.status = 'sent' AND q.expires_at < now()
  ORDER BY q.run_id, q.step_key FOR UPDATE SKIP LOCKED),
-- A lease that ends later than one that is taken now was taken before the clock went back: cap it to that. No step is
-- on its way to a worker for longer than 10 minutes.
ahead AS (
  SELECT q.run_id, q.step_key, l.ends FROM queue q
  CROSS JOIN LATERAL (SELECT now() + CASE q.status WHEN 'leased' THEN $1 ELSE interval '10 minutes' END AS ends) l
  WHERE q.status <> 'claimable' AND q.expires_at > l.ends + interval '1 s'
  ORDER BY q.run_id, q.step_key FOR UPDATE OF q SKIP LOCKED),
capped AS (
  UPDATE queue q SET expires_at = a.ends FROM ahead a WHERE q.run_id = a.run_id AND q.step_key = a.step_key),
returned AS (
  UPDATE commands SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL
  FROM silent WHERE commands.command_id = silent.command_id RETURNING 'counterseal_messages' AS channel),
freed AS (
  UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL
  FROM unclaimed u WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key
  RETURNING 'counterseal_steps' AS channel),
found AS (SELECT channel FROM returned UNION ALL SELECT channel FROM freed),
woken AS (SELECT pg_notify(channel, '') FROM (SELECT DISTINCT channel FROM found) channels),
-- Every tenant's first row comes before any tenant's second row. One look into an index finds if a tenant has any, and
-- no backlog is read further than the tenant's share. If there are more tenants than the bound, they are drawn at
-- random: in the order of waiting time, the longest backlog would always win.
due_waits_of AS MATERIALIZED (
  SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (
    SELECT FROM waits r WHERE r.tenant_id = t.tenant_id AND r.status = 'waiting' AND r.due_at <= now()
    ORDER BY r.due_at LIMIT 1) r),
due_waits AS (
  SELECT r.run_id, r.step_key, r.wait_id, r.created_at FROM due_waits_of t CROSS JOIN LATERAL (
    SELECT r.*, row_number() OVER (ORDER BY r.due_at) AS number FROM waits r
    WHERE r.tenant_id = t.tenant_id AND r.status = 'waiting' AND r.due_at <= now()
    ORDER BY r.due_at LIMIT (SELECT least(100, 1 + 10 * 100 / count(*)) FROM due_waits_of)) r
  ORDER BY r.number, random() LIMIT 100),
-- In the same way, the runs whose retention is over. retention.sql says what each condition is for (hold).
due_purges_of AS MATERIALIZED (
  SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (
    SELECT FROM runs r WHERE r.tenant_id = t.tenant_id AND r.purge_at <= now()
      AND EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
      AND r.run_id NOT IN (
        SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'pending')
      AND r.run_id NOT IN (
        SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'leased')
      AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0)
    ORDER BY r.purge_at LIMIT 1) r),
due_purges AS (
  SELECT r.run_id FROM due_purges_of t CROSS JOIN LATERAL (
    SELECT r.*, row_number() OVER (ORDER BY r.purge_at) AS number FROM runs r
    WHERE r.tenant_id = t.tenant_id AND r.purge_at <= now()
      AND EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
      AND r.run_id NOT IN (
        SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'pending')
      AND r.run_id NOT IN (
        SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'leased')
      AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0)
    ORDER BY r.purge_at LIMIT (SELECT least(20, 1 + 10 * 20 / count(*)) FROM due_purges_of)) r
  ORDER BY r.number, random() LIMIT 20),
-- A run that holds inherited values is purged after the run above, whatever its own retention.
copies AS (
  SELECT r.run_id FROM runs r WHERE r.inherits AND r.purged_at IS NULL AND r.finished_at IS NOT NULL
    AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL)
    AND EXISTS (SELECT FROM bundles b WHERE b.run_id = r.run_id AND b.lines = r.audit_count OFFSET 0)
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'pending')
    AND r.run_id NOT IN (
      SELECT c.run_id FROM commands c WHERE c.created_at > now() - interval '30 days' AND c.status = 'leased')
    AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.finished_at IS NULL OFFSET 0)
  LIMIT 20),
long_open AS (
  SELECT r.run_id FROM runs r WHERE r.open_until IS NOT NULL AND r.open_until <= now() AND r.finished_at IS NULL
    AND r.status <> 'queued'
  LIMIT 100),
-- Windows of triggers whose time is over, every tenant's first one before any tenant's second one.
windows_of AS MATERIALIZED (
  SELECT t.tenant_id FROM tenants t CROSS JOIN LATERAL (
    SELECT FROM triggered r WHERE r.tenant_id = t.tenant_id AND r.outcome = 'waiting' AND r.due_at <= now()
    ORDER BY r.due_at LIMIT 1) r),
windows AS (
  SELECT r.tenant_id, r.workflow, r.reference FROM windows_of t CROSS JOIN LATERAL (
    SELECT r.*, row_number() OVER (ORDER BY r.due_at) AS number FROM triggered r
    WHERE r.tenant_id = t.tenant_id AND r.outcome = 'waiting' AND r.due_at <= now()
    ORDER BY r.due_at LIMIT (SELECT least(100, 1 + 1000 / count(*)) FROM windows_of)) r
  ORDER BY r.number, random() LIMIT 100),
-- Schedules whose moment has come, or whose workflow has another version; shared among tenants in the same way.
schedules_due AS (
  SELECT tenant_id, workflow, next_at FROM schedules WHERE next_at IS NOT NULL AND next_at <= now()
  UNION
  SELECT w.tenant_id, w.name, NULL FROM workflows w
  LEFT JOIN schedules s ON s.tenant_id = w.tenant_id AND s.workflow = w.name
  WHERE w.schedule IS NOT NULL AND w.retired_at IS NULL AND w.waits_for IS NULL
    AND (s.version IS DISTINCT FROM w.version OR s.next_at IS NULL)
    AND NOT EXISTS (SELECT FROM workflows n WHERE n.tenant_id = w.tenant_id AND n.name = w.name AND n.version > w.version
      AND n.retired_at IS NULL AND n.waits_for IS NULL)),
moments AS (
  SELECT tenant_id, workflow FROM schedules_due
  ORDER BY row_number() OVER (PARTITION BY tenant_id ORDER BY next_at), random() LIMIT 100),
-- Shared effects that are over, while a step still waits for their end because nobody woke it. Looked for now and then.
untold AS (
  SELECT DISTINCT e.tenant_id, e.key FROM waits w
  JOIN effects e ON $2 AND e.tenant_id = w.tenant_id AND e.key = w.context ->> 'shared'
  WHERE w.kind = 'shared' AND w.status = 'waiting' AND (e.status IN ('succeeded', 'failed', 'left')
    OR e.status <> 'begun' AND EXISTS (SELECT FROM runs r WHERE r.run_id = e.run_id AND r.finished_at IS NOT NULL))
  LIMIT 100),
-- Open questions of agents whose last token has ended. A sweep looks at those that ended just now, and now and then at
-- all of them.
ended AS (
  SELECT a.approval_id FROM (
    SELECT t.tenant_id, lower(t.subject) AS account FROM tokens t WHERE 'agent' = ANY (t.roles) GROUP BY 1, 2
    HAVING max(least(t.revoked_at, t.expires_at)) <= now()
      AND ($2 OR max(least(t.revoked_at, t.expires_at)) > now() - interval '10 s')) o
  JOIN runs r ON r.tenant_id = o.tenant_id AND lower(r.requested_by) = o.account AND r.trigger_type = 'agent'
    AND r.finished_at IS NULL
  JOIN approvals a ON a.run_id = r.run_id AND a.status = 'requested'
  ORDER BY random() LIMIT 100),
-- Kept signals whose wait exists by now, because they came before it or at the same moment; and signals that were kept
-- for too long. There may be many, and most never find a wait: a sweep looks at the newest only, and now and then at
-- all of them.
keys AS (
  (SELECT i.tenant_id, i.correlation_key FROM inbox i WHERE i.processed_at IS NULL AND i.correlation_key IS NOT NULL
   ORDER BY i.received_at DESC LIMIT 1000)
  UNION
  (SELECT i.tenant_id, i.correlation_key FROM inbox i
   WHERE $2 AND i.processed_at IS NULL AND i.correlation_key IS NOT NULL)),
awaited AS (
  SELECT DISTINCT ON (i.tenant_id, i.source, i.notification_id) i.*, w.run_id FROM keys k
  JOIN waits w ON w.tenant_id = k.tenant_id AND w.correlation_key = k.correlation_key AND w.status = 'waiting'
    AND w.parked
  JOIN runs r ON r.run_id = w.run_id
  CROSS JOIN LATERAL (
    SELECT i.tenant_id, i.source, i.notification_id, i.received_at FROM inbox i
    WHERE i.tenant_id = k.tenant_id AND i.correlation_key = k.correlation_key
      AND i.processed_at IS NULL AND i.correlation_key IS NOT NULL
      AND (i.source = 'run') = (w.kind = 'child')
      -- A signal is for this run, or else for a run that began before the signal came; for any run if neither is known.
      AND coalesce(w.run_id = (i.result->>'run')::uuid,
        r.created_at <= CASE WHEN i.result IS NOT NULL THEN i.received_at END, true)
    ORDER BY i.received_at LIMIT 1) i),
outlived AS (
  SELECT i.tenant_id, i.source, i.notification_id, i.received_at, NULL::uuid FROM inbox i
  WHERE i.processed_at IS NULL AND i.correlation_key IS NOT NULL AND i.source <> 'run'
    AND i.received_at < now() - interval '30 days'
  ORDER BY i.received_at LIMIT 100),
kept AS (
  SELECT * FROM (SELECT * FROM awaited UNION ALL SELECT * FROM outlived) i
  ORDER BY row_number() OVER (PARTITION BY i.tenant_id ORDER BY i.received_at), i.received_at LIMIT 100)
SELECT now() AS now, (SELECT count(*) FROM found) AS freed, (SELECT count(*) FROM woken) AS woken,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, lease_id, epoch)) FROM (
    SELECT run_id, step_key, lease_id, epoch FROM queue
    WHERE status <> 'claimable' AND status = 'leased' AND expires_at < now()
    ORDER BY row_number() OVER (PARTITION BY tenant_id ORDER BY expires_at), expires_at LIMIT 100) s) AS leases,
  (SELECT jsonb_agg(jsonb_build_array(run_id, step_key, wait_id, extract(epoch FROM now() - created_at)))
    FROM due_waits) AS waits,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, source, notification_id, run_id)) FROM kept) AS kept,
  (SELECT jsonb_agg(run_id) FROM (SELECT run_id FROM due_purges UNION SELECT run_id FROM copies) p) AS purges,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, key)) FROM untold) AS untold,
  (SELECT jsonb_agg(run_id) FROM long_open) AS long_open,
  (SELECT jsonb_agg(approval_id) FROM ended) AS ended,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, workflow, reference)) FROM windows) AS windows,
  (SELECT jsonb_agg(jsonb_build_array(tenant_id, workflow)) FROM moments) AS schedules,
  (SELECT array_agg(tenant_id) FROM tenants WHERE resumed IS NOT NULL OR judge_after IS NOT NULL) AS changed,
  (SELECT array_agg(tenant_id) FROM tenants t WHERE EXISTS (
    SELECT FROM log_leaves l WHERE l.tenant_id = t.tenant_id AND l.place IS NULL)) AS unordered;

-- name: take_away
SELECT owner FROM queue
WHERE run_id = $1 AND step_key = $2 AND lease_id = $3 AND epoch = $4 AND status = 'leased' AND expires_at < now()
FOR NO KEY UPDATE;

-- name: forget
DELETE FROM queue WHERE run_id = $1 AND step_key = $2;

-- name: waits_begin
-- A wait that begins later than now was opened before the clock went back: it begins now, and lasts as long as it was
-- to last. A wait that begins earlier than now ends late by less than its whole length.
UPDATE waits SET due_at = due_at - (created_at - now()), created_at = now()
WHERE status = 'waiting' AND created_at > now() + interval '1 s';

-- name: messages_begin
UPDATE commands SET created_at = least(created_at, now()), next_attempt_at = NULL
WHERE status = 'pending' AND coalesce(next_attempt_at, created_at) > now() AND ($1 OR created_at > now());

-- name: leases_end
UPDATE commands SET lease_expires_at = now() + interval '1 minute'
WHERE status = 'leased' AND lease_expires_at > now() + interval '1 minute';
