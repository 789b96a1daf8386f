-- name: lease_in_turn
-- The lanes that have a pending message, in the order of their names, each found by one step through the index: first
-- those behind the lane ($3, $4) that had the last turn, then the others, then that one. The first with a due message
-- is taken, unless its kind or its lane is in $5, or its tenant is suspended. One at a time per ordering key: the partial unique index decides
-- between dispatchers that look at once.
UPDATE commands SET status = 'leased', lease_owner = $1, lease_expires_at = now() + $2, attempts = attempts + 1
WHERE command_id = (
  WITH RECURSIVE lanes AS (
    SELECT $3::text AS tenant_id, $4::text AS kind, 0 AS round
    UNION ALL
    SELECT n.* FROM lanes l CROSS JOIN LATERAL (
      (SELECT c.tenant_id, c.kind, greatest(l.round, 1) FROM commands c
       WHERE c.status = 'pending' AND (c.tenant_id, c.kind) > (l.tenant_id, l.kind)
         AND (l.round < 2 OR (c.tenant_id, c.kind) <= ($3, $4))
       ORDER BY c.tenant_id, c.kind LIMIT 1)
      UNION ALL
      (SELECT '', '', 2 WHERE l.round < 2)
      LIMIT 1) n)
  SELECT d.command_id FROM lanes l CROSS JOIN LATERAL (
    SELECT c.command_id FROM commands c
    WHERE c.tenant_id = l.tenant_id AND c.kind = l.kind
      AND c.status = 'pending' AND coalesce(c.next_attempt_at, c.created_at) <= now()
      AND NOT EXISTS (SELECT FROM commands o WHERE o.ordering_key = c.ordering_key AND o.status = 'leased')
    ORDER BY coalesce(c.next_attempt_at, c.created_at) LIMIT 1 FOR UPDATE SKIP LOCKED) d
  WHERE l.round > 0 AND NOT ARRAY[l.kind, l.tenant_id || ':' || l.kind] && $5
    AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant_id = l.tenant_id AND t.paused ? 'suspended')
  LIMIT 1)
RETURNING command_id, tenant_id, run_id, kind, payload, attempts, created_at,
  (SELECT array_agg(o.command_id ORDER BY o.command_id) FROM commands o WHERE o.ordering_key = commands.ordering_key
    AND o.kind = commands.kind AND o.status = 'pending' AND o.command_id <> commands.command_id) AS behind;

-- name: lease_only
-- The message $3, if it is due.
UPDATE commands SET status = 'leased', lease_owner = $1, lease_expires_at = now() + $2, attempts = attempts + 1
WHERE command_id = (
  SELECT c.command_id FROM commands c
  WHERE c.command_id = $3 AND c.status = 'pending' AND coalesce(c.next_attempt_at, c.created_at) <= now()
    AND NOT EXISTS (SELECT FROM commands o WHERE o.ordering_key = c.ordering_key AND o.status = 'leased')
  FOR UPDATE SKIP LOCKED)
RETURNING command_id, tenant_id, run_id, kind, payload, attempts, created_at,
  (SELECT array_agg(o.command_id ORDER BY o.command_id) FROM commands o WHERE o.ordering_key = commands.ordering_key
    AND o.kind = commands.kind AND o.status = 'pending' AND o.command_id <> commands.command_id) AS behind;

-- name: end_shown
UPDATE commands SET status = 'dispatched' WHERE command_id = ANY ($1::uuid[]) AND status = 'pending'
  AND (CAST($2 AS text[]) IS NULL OR payload ->> 'approval' = ANY ($2));

-- name: end
UPDATE commands SET status = $3, last_error = $4, next_attempt_at = now() + $5, lease_owner = NULL,
  lease_expires_at = NULL
WHERE command_id = $1 AND attempts = $2 AND status = 'leased' RETURNING command_id;

-- name: again
WITH again AS (
  UPDATE commands SET status = 'pending', attempts = 0, next_attempt_at = NULL
  WHERE status = 'failed' AND ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR kind = $2)
    AND ($3::uuid IS NULL OR command_id = $3)
  RETURNING tenant_id AS tenant, kind)
SELECT tenant, kind, count(*) AS count, pg_notify('counterseal_messages', '') AS woken FROM again
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: give_up
-- It is pending only within the transaction: from failed, no other move leads on.
UPDATE commands SET status = 'pending' WHERE command_id = $1 AND status = 'failed' AND kind <> ALL ($2::text[])
RETURNING tenant_id AS tenant, kind, run_id;

-- name: given_up
UPDATE commands SET status = 'rejected' WHERE command_id = $1 AND status = 'pending';

-- name: dead
SELECT command_id AS message, tenant_id AS tenant, kind, run_id, attempts, created_at, last_error FROM commands
WHERE status = 'failed' AND coalesce(tenant_id = $1::text, true) AND coalesce(kind = $2::text, true)
ORDER BY created_at, command_id LIMIT $3;

-- name: order
WITH ordered AS (
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  VALUES ($1, $2, $3, $4, $5, 'pending', $6) ON CONFLICT (command_id) DO NOTHING RETURNING 1)
SELECT pg_notify('counterseal_messages', '') FROM ordered;

-- name: payload
SELECT payload FROM commands WHERE command_id = ANY ($1) ORDER BY created_at DESC, command_id DESC LIMIT 1;

-- name: eldest
SELECT min((payload ->> 'at')::timestamptz) AS since, now() AS now FROM commands WHERE command_id = ANY ($1);

-- name: notice
SELECT channel, message_ts, began_at, count FROM notices
WHERE tenant_id = $1 AND person_id = $2 AND topic = $3 AND began_at > now() - $4::interval;

-- name: noticed
INSERT INTO notices (tenant_id, person_id, topic, began_at, channel, message_ts, count)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant_id, person_id, topic) DO UPDATE SET began_at = excluded.began_at, channel = excluded.channel,
  message_ts = excluded.message_ts, count = excluded.count;
