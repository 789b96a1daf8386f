CREATE FUNCTION append_to_run(uuid, int, text, int, int, int, int, int, bytea, jsonb, jsonb, bool, bool, text, text, jsonb, int, int, bytea, int, int, int, timestamptz, uuid[], text[], uuid[], int[], uuid[], text[], uuid[], int[], bool[], uuid[], text[], uuid[], text[], text[], text[], interval[], bool[], json, json, uuid[], int[], bytea[], bytea[], bool, text[], text[], uuid[], text[], uuid[], uuid[], text[], text[], text[], bool[], bool[], json, uuid[], bool, text, int, bool, bool, bool, text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE landed uuid;
BEGIN
PERFORM set_config('counterseal.tenant', $67, true);
  IF EXISTS (
    SELECT FROM unnest($45) AS j(lines)
    CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{action.doubt_resolved,approval.decided,approval.superseded,approval.vote_refused,approval.voted,checkpoint.committed,run.canceled,run.closed,run.extended,run.reference_set,run.started,step.canceled,step.failed,step.resumed,wait.canceled,wait.completed}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= clock_timestamp() + interval '10 seconds') IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE) THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF $62 IS NOT NULL THEN
    PERFORM FROM runs WHERE run_id = $1 FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM journal j
    CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\n') AS l(line)
    WHERE j.run_id = $1 AND j.n > $63 AND l.line::jsonb ->> 'step' = $62) THEN
      RETURN false;
    END IF;
  END IF;
  WITH 
held AS MATERIALIZED (
  SELECT q.step_key
  FROM unnest($24::uuid[], $25::text[], $26::uuid[], $27::int[]) AS l(run_id, step_key, lease_id, epoch)
  JOIN queue q ON q.run_id = l.run_id AND q.step_key = l.step_key AND q.lease_id = l.lease_id AND q.epoch = l.epoch
  ORDER BY q.run_id, q.step_key FOR NO KEY UPDATE OF q),
guard AS (
  UPDATE runs SET version = version + 1, gate = gate + $22, status = $3, superstep = $4,
    executing = executing + $5, width = $6, writes = writes + $7, audit_count = audit_count + $8,
    audit_head = coalesce(encode(sha256(decode(audit_head, 'hex') || $9::bytea), 'hex'), audit_head),
    error = $10, canceling = $11, reference = coalesce($15, reference), result = $16, extensions = extensions + $17,
    state = CASE WHEN $12 THEN NULL ELSE coalesce(NULL::bytea, state) END,
    state_n = CASE WHEN $12 THEN 0 WHEN NULL::bytea IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN $3 IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN $12 THEN now() ELSE finished_at END,
    purge_at = CASE WHEN $12 THEN now() + retention ELSE purge_at END
  WHERE run_id = $1 AND gate = $20 AND ($2::int IS NULL OR version = $2)
    AND coalesce($23::timestamptz <= clock_timestamp() + interval '10 seconds', true)
    AND (SELECT count(*) FROM held) = $18 AND ($21::int IS NULL OR writes + $7 <= $21)
    AND (NOT $13 OR (SELECT t.policy_digest FROM tenants t WHERE t.tenant_id = runs.tenant_id) IS NOT DISTINCT FROM $14)
  RETURNING run_id, tenant_id, workspace_id, cap, version, executing, audit_count),
do_queued AS (INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
      SELECT g.run_id, q.key, q.step_id, g.tenant_id, g.workspace_id, g.cap, q.starts_run, 'claimable', q.epoch
      FROM unnest($28::uuid[], $29::text[], $30::uuid[], $31::int[], $32::bool[])
        AS q(run, key, step_id, epoch, starts_run) JOIN guard g ON g.run_id = q.run),
do_unqueued AS (DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM unnest($33::uuid[], $34::text[]) AS u(run, key)
          JOIN guard g ON g.run_id = u.run JOIN queue q ON q.run_id = u.run AND q.step_key = u.key
        FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key),
do_waits AS (UPDATE waits SET status = w.status, context = w.context::jsonb, result = w.result::jsonb, parked = w.parked,
        due_at = CASE WHEN w.due IS NULL THEN waits.due_at ELSE now() + w.due END,
        completed_at = CASE WHEN w.status = 'waiting' THEN NULL ELSE now() END
      FROM guard g, unnest($35::uuid[], $36::text[], $37::text[], $38::text[], $39::interval[],
        $40::bool[]) AS w(wait_id, status, context, result, due, parked)
      WHERE waits.wait_id = w.wait_id AND (waits.run_id = g.run_id) IS TRUE AND waits.status = 'waiting'),
do_commands AS (INSERT INTO commands (command_id, tenant_id, run_id, kind, status, payload, ordering_key)
      SELECT c.command_id, g.tenant_id, g.run_id, c.kind, c.status, c.payload, c.ordering_key
      FROM json_to_recordset($41) AS c(run uuid, command_id uuid, kind text, status text, payload jsonb,
        ordering_key text) JOIN guard g ON g.run_id = c.run
      ON CONFLICT (command_id) DO NOTHING),
do_ledger AS (INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
      SELECT g.run_id, g.tenant_id, l.superstep, l.step_key, l.channel, l.value
      FROM json_to_recordset($42) AS l(run uuid, superstep int, step_key text, channel text, value jsonb)
      JOIN guard g ON g.run_id = l.run),
do_journal AS (INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
      SELECT g.run_id, g.version, g.tenant_id, g.audit_count - j.count, j.lines, j.vals
      FROM unnest($43::uuid[], $44::int[], $45::bytea[], $46::bytea[]) AS j(run, count, lines, vals)
      JOIN guard g ON g.run_id = j.run),
do_cancel_queue AS (DELETE FROM queue USING (
        SELECT q.run_id, q.step_key FROM queue q JOIN guard g ON g.run_id = q.run_id
        WHERE $47::bool FOR UPDATE OF q SKIP LOCKED) AS u
      WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key),
do_effects AS (UPDATE effects SET run_id = g.run_id, step_key = e.step_key, receipt_id = e.receipt_id, status = e.status
      FROM unnest($48::text[], $49::text[], $50::uuid[], $51::text[], $52::uuid[])
        AS e(key, step_key, receipt_id, status, was) CROSS JOIN guard g
      WHERE effects.tenant_id = g.tenant_id AND effects.key = e.key AND effects.receipt_id = e.was
        AND (e.was = e.receipt_id OR effects.status = 'failed') RETURNING effects.key),
do_approvals AS (UPDATE approvals SET status = a.status, choice = coalesce(a.choice, approvals.choice),
        reason = coalesce(a.reason, approvals.reason), escalated = approvals.escalated OR a.escalated,
        consumed_at = CASE WHEN a.consumed THEN now() ELSE approvals.consumed_at END,
        decided_at = CASE WHEN a.status = 'requested' THEN NULL ELSE coalesce(approvals.decided_at, now()) END
      FROM guard g, unnest($53::uuid[], $54::text[], $55::text[], $56::text[], $57::bool[], $58::bool[])
        AS a(approval_id, status, choice, reason, consumed, escalated)
      WHERE approvals.approval_id = a.approval_id AND (approvals.run_id = g.run_id) IS TRUE),
do_votes AS (INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
      SELECT v.approval_id, v.person_id, g.tenant_id, v.choice, v.reason, v.groups, v.channel
      FROM json_to_recordset($59) AS v(run uuid, approval_id uuid, person_id text, choice text, reason text,
        groups text[], channel text) JOIN guard g ON g.run_id = v.run
      ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
        groups = excluded.groups, channel = excluded.channel, voted_at = now()),
do_cancel_approvals AS (UPDATE approvals SET status = 'canceled', decided_at = now() FROM guard g
      WHERE approvals.run_id = g.run_id AND approvals.status = 'requested'
        AND approvals.approval_id <> ALL ($60::uuid[]) AND $61::bool)
SELECT run_id, CASE WHEN $64 THEN pg_notify('counterseal_steps', '') END, CASE WHEN $65 THEN pg_notify('counterseal_messages', '') END, CASE WHEN $66 AND EXISTS (
    SELECT FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status = 'claimable')
  AND ((SELECT count(*) FROM queue q WHERE q.tenant_id = guard.tenant_id AND q.status <> 'claimable')
      >= (SELECT t.max_concurrency FROM tenants t WHERE t.tenant_id = guard.tenant_id)
    OR guard.cap > ''
      AND (SELECT count(*) FROM queue q
        WHERE q.tenant_id = guard.tenant_id AND q.cap = guard.cap AND q.status <> 'claimable')
      >= (SELECT c.slots FROM caps c WHERE c.tenant_id = guard.tenant_id AND c.cap = guard.cap))
  THEN pg_notify('counterseal_steps', '') END INTO landed FROM guard;
  RETURN landed IS NOT NULL;
END $function$;

CREATE FUNCTION open_run(uuid, text, text, text, int, text, text, text, text, text, int, int, int, int, bytea, interval, interval, uuid, int, bytea, text, bool, uuid[], text[], uuid[], int[], bool[], uuid[], int[], bytea[], bytea[], bool, text) RETURNS timestamptz LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE opened timestamptz;
BEGIN
PERFORM set_config('counterseal.tenant', $33, true);
  IF EXISTS (
    SELECT FROM unnest($30) AS j(lines)
    CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{checkpoint.committed,run.opened}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= clock_timestamp() + interval '10 seconds') IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE) THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  WITH 
guard AS (
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at, retention, parent_run_id, depth, run_key, cap)
  SELECT $1::uuid, $2::text, $3::text, $4::text, $5::int, $6::text, $7::text, $8::text, $9::text, $10::text, 'queued',
    1, $11::int, $12::int, $13::int, $14::int,
    encode(sha256(sha256(convert_to('run:' || $1, 'UTF8')) || $15::bytea), 'hex'),
    now() + $16::interval, $17::interval, $18::uuid, $19::int, $20::bytea, $21::text
  WHERE EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = $2 AND w.name = $4 AND w.version = $5 AND w.digest = $6
        AND w.retired_at IS NULL)
    AND ($22::bool OR NOT EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = $2 AND w.name = $4 AND w.version > $5 AND w.retired_at IS NULL))
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING run_id, tenant_id, workspace_id, cap, version, executing, audit_count),
workspace AS (
  INSERT INTO workspaces (tenant_id, workspace_id) SELECT tenant_id, workspace_id FROM guard
  ON CONFLICT (tenant_id, workspace_id) DO NOTHING),
do_queued AS (INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
      SELECT g.run_id, q.key, q.step_id, g.tenant_id, g.workspace_id, g.cap, q.starts_run, 'claimable', q.epoch
      FROM unnest($23::uuid[], $24::text[], $25::uuid[], $26::int[], $27::bool[])
        AS q(run, key, step_id, epoch, starts_run) JOIN guard g ON g.run_id = q.run),
do_journal AS (INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
      SELECT g.run_id, g.version, g.tenant_id, g.audit_count - j.count, j.lines, j.vals
      FROM unnest($28::uuid[], $29::int[], $30::bytea[], $31::bytea[]) AS j(run, count, lines, vals)
      JOIN guard g ON g.run_id = j.run)
SELECT clock_timestamp(), CASE WHEN $32 THEN pg_notify('counterseal_steps', '') END INTO opened FROM guard;
  RETURN opened;
END $function$;

CREATE FUNCTION order_message(uuid, uuid, text, jsonb, text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
BEGIN
PERFORM set_config('counterseal.tenant', $5, true);
  IF $3 NOT IN ('note', 'bundle') THEN
    RAISE EXCEPTION 'no face may order %', $3 USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT $1, tenant_id, run_id, $3, $4, 'pending', CASE $3 WHEN 'bundle' THEN 'bundle:' || run_id END
  FROM runs WHERE run_id = $2;
  PERFORM pg_notify('counterseal_messages', '');
END $function$;

CREATE FUNCTION read_run(uuid, bool, text, bool) RETURNS TABLE (run jsonb, run_key bytea, state bytea, policy_digest text, max_writes_per_run int, now timestamptz, firsts int[], lines bytea[], vals bytea[]) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
BEGIN
PERFORM set_config('counterseal.tenant', $3, true);
  IF $4 THEN
    PERFORM FROM runs WHERE run_id = $1 FOR UPDATE;
  END IF;
  RETURN QUERY SELECT to_jsonb(r) - 'state' - 'run_key' - 'error' - 'result' AS run, r.run_key, CASE WHEN $2 THEN NULL ELSE r.state END AS state,
  t.policy_digest, t.max_writes_per_run, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND ($2 OR j.n >= r.state_n OR j.n = 1)) tail ON true WHERE r.run_id = $1;
END $function$;

CREATE FUNCTION read_question(uuid, text, text, bool) RETURNS TABLE (approval jsonb, now timestamptz, workspace_id text, run_key bytea, asked_at int, asked bytea, shown bytea, kept jsonb, votes jsonb, person jsonb, run jsonb, state bytea, policy_digest text, max_writes_per_run int, firsts int[], lines bytea[], vals bytea[]) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
BEGIN
PERFORM set_config('counterseal.tenant', $3, true);
  IF $4 THEN
    PERFORM FROM runs WHERE run_id = (SELECT a.run_id FROM approvals a WHERE a.approval_id = $1) FOR UPDATE;
  END IF;
  RETURN QUERY SELECT q.approval, q.now, q.workspace_id, q.run_key, q.asked_at, q.asked, q.shown, q.kept, q.votes, q.person, v.run, v.state, v.policy_digest, v.max_writes_per_run, v.firsts, v.lines, v.vals
FROM (
SELECT to_jsonb(a) AS approval, now() AS now, r.workspace_id, r.run_key, j.first_seq AS asked_at, j.lines AS asked, j.vals AS shown,
  m.questions -> a.approval_id::text AS kept,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id)) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes,
  (SELECT jsonb_build_object('name', p.name, 'slack', p.slack_user_id, 'groups', (SELECT jsonb_agg(m.group_name)
      FROM group_members m WHERE m.tenant_id = p.tenant_id AND m.person_id = p.person_id))
    FROM people p WHERE p.tenant_id = a.tenant_id AND p.person_id = $2) AS person
FROM approvals a JOIN runs r ON r.run_id = a.run_id LEFT JOIN journal j ON j.run_id = a.run_id AND j.n = a.n
  LEFT JOIN remains m ON m.run_id = a.run_id WHERE a.approval_id = $1) q CROSS JOIN LATERAL (SELECT to_jsonb(r) - 'state' - 'run_key' - 'error' - 'result' AS run, r.run_key, CASE WHEN false THEN NULL ELSE r.state END AS state,
  t.policy_digest, t.max_writes_per_run, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND (false OR j.n >= r.state_n OR j.n = 1)) tail ON true WHERE r.run_id = (q.approval ->> 'run_id')::uuid) v;
END $function$;
