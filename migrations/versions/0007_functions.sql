CREATE FUNCTION append(_run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[],
  _epochs int[],
  _state bytea DEFAULT NULL, _lease interval DEFAULT NULL, _handed text[] DEFAULT NULL,
  _next text[] DEFAULT NULL, _next_ids uuid[] DEFAULT NULL, _next_epochs int[] DEFAULT NULL) RETURNS int[] LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE its_tenant text; its_workspace text; its_cap text; its_version int; its_executing int; its_count int;
  met int; notified bool; one record;
BEGIN
  IF _acts_for IS NOT NULL THEN
    notified := pg_advisory_xact_lock_shared(hashtextextended('counterseal.intents:' || _acts_for, 0)) IS NULL;
  END IF;
  IF _held IS NOT NULL THEN
    PERFORM FROM queue q WHERE q.run_id = _run_id AND q.step_key = ANY (_held) AND q.status = 'leased'
      AND q.lease_id = _leases[array_position(_held, q.step_key)]
      AND q.epoch = _epochs[array_position(_held, q.step_key)]
    ORDER BY q.step_key FOR NO KEY UPDATE;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met <> cardinality(_held) THEN
      RETURN NULL;
    END IF;
  END IF;
  IF _rest ? 'people' THEN
    IF NOT EXISTS (SELECT FROM runs r JOIN tenants t USING (tenant_id)
        WHERE r.run_id = _run_id AND t.directory_digest = _rest ->> 'people') THEN
      RETURN NULL;
    END IF;
  END IF;
  IF _rest ? 'family' THEN
    PERFORM FROM runs r WHERE r.run_id = _run_id FOR NO KEY UPDATE;
    PERFORM FROM families f WHERE f.root_run_id = (SELECT r.root_run_id FROM runs r WHERE r.run_id = _run_id)
      AND coalesce(f.writes + _writes <= (_rest #>> '{family,max}')::int, true)
      AND coalesce(f.number = (_rest #>> '{family,number}')::int, true) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  IF _rest ? 'asks' THEN
    IF EXISTS (SELECT FROM runs r CROSS JOIN jsonb_to_recordset(_rest -> 'asks')
          AS a(key text, asker text, most int, known jsonb)
        WHERE r.run_id = _run_id AND (EXISTS (SELECT FROM refusals f WHERE f.tenant_id = r.tenant_id
            AND f.key = a.key AND f.until > now() AND NOT a.known ? f.approval_id::text)
          OR (SELECT count(*) FROM (SELECT FROM approvals o WHERE o.tenant_id = r.tenant_id AND o.asker = a.asker
            AND o.status = 'requested' LIMIT greatest(a.most, 0)) n) >= a.most)) THEN
      RETURN NULL;
    END IF;
  END IF;
  UPDATE runs SET version = version + 1, gate = gate + _moved, status = _status, superstep = _superstep,
    executing = executing + _executing, width = _width, writes = writes + _writes, audit_count = audit_count + _count,
    audit_head = coalesce(encode(sha256(decode(audit_head, 'hex') || sha256(_lines)), 'hex'), audit_head),
    error = _error, canceling = _canceling, reference = coalesce(_reference, reference), result = _result,
    extensions = extensions + _extended,
    state = CASE WHEN _finished THEN NULL ELSE coalesce(_state, state) END,
    state_n = CASE WHEN _finished THEN 0 WHEN _state IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN _status IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN _finished THEN now() WHEN _status IN ('succeeded', 'failed_terminal', 'canceled') THEN finished_at END,
    purge_at = CASE WHEN _finished THEN now() + retention WHEN _status IN ('succeeded', 'failed_terminal', 'canceled') THEN purge_at END,
    last_at = greatest(last_at, _latest)
  WHERE run_id = _run_id AND gate = _gate AND (_version IS NULL OR version = _version)
    AND coalesce(_latest <= greatest(clock_timestamp() + interval '10 seconds', last_at), true)
    AND (_writes_max IS NULL OR writes + _writes <= _writes_max) AND (_stop IS NULL
      OR (SELECT t.stop_number FROM tenants t WHERE t.tenant_id = runs.tenant_id) = _stop)
  RETURNING tenant_id, workspace_id, cap, version, executing, audit_count
  INTO its_tenant, its_workspace, its_cap, its_version, its_executing, its_count;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF _rest @> '{"family": {"moves": true}}' THEN
    UPDATE families SET writes = writes + _writes, number = number + 1,
      refused = refused + greatest((_rest #>> '{family,refused}')::int, 0),
      asked = asked + greatest((_rest #>> '{family,asked}')::int, 0),
      same = same || coalesce(_rest #> '{family,same}', '{}')
    WHERE root_run_id = (SELECT r.root_run_id FROM runs r WHERE r.run_id = _run_id);
  END IF;
  IF _lines IS NOT NULL THEN
    INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
    VALUES (_run_id, its_version, its_tenant, its_count - _count, _lines, _vals);
  END IF;
  IF _unqueued IS NOT NULL AND NOT _wakes_steps THEN
    IF EXISTS (SELECT FROM queue q WHERE q.tenant_id = its_tenant AND q.status = 'claimable') THEN
      IF (SELECT count(*) FROM queue q WHERE q.tenant_id = its_tenant AND q.status <> 'claimable')
          >= (SELECT t.max_concurrency FROM tenants t WHERE t.tenant_id = its_tenant)
        OR its_cap > ''
          AND (SELECT count(*) FROM queue q
            WHERE q.tenant_id = its_tenant AND q.cap = its_cap AND q.status <> 'claimable')
          >= (SELECT c.slots FROM caps c WHERE c.tenant_id = its_tenant AND c.cap = its_cap) THEN
        notified := pg_notify('counterseal_steps', '') IS NULL;
      END IF;
    END IF;
  END IF;
  IF _unqueued IS NOT NULL THEN
    DELETE FROM queue USING (
      SELECT q.run_id, q.step_key FROM queue q WHERE q.run_id = _run_id AND q.step_key = ANY (_unqueued) FOR UPDATE SKIP LOCKED) AS u
    WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key;
  END IF;
  FOR i IN 1..coalesce(cardinality(_handed), 0) LOOP
    UPDATE queue SET step_key = _next[i], step_id = _next_ids[i], epoch = _next_epochs[i], starts_run = false,
      expires_at = now() + _lease, created_at = now()
    WHERE run_id = _run_id AND step_key = _handed[i];
  END LOOP;
  IF _rest IS NOT NULL THEN
  IF _rest ? 'cancels_rest' THEN
    DELETE FROM queue USING (
      SELECT q.run_id, q.step_key FROM queue q WHERE q.run_id = _run_id FOR UPDATE SKIP LOCKED) AS u
    WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key;
    UPDATE approvals SET status = 'canceled', decided_at = now() WHERE run_id = _run_id AND status = 'requested'
      AND approval_id <> ALL (ARRAY(
        SELECT (a ->> 'approval_id')::uuid FROM jsonb_array_elements(_rest -> 'approvals') a));
    UPDATE approvals SET outcome = 'canceled', why = 'canceled' WHERE run_id = _run_id AND status = 'approved'
      AND consumed_at IS NULL AND outcome IS NULL;
  END IF;
  IF _rest ? 'requeued' THEN
    UPDATE queue SET status = 'claimable', owner = NULL, expires_at = NULL, created_at = now()
    WHERE run_id = _run_id AND step_key = ANY (ARRAY(SELECT jsonb_array_elements_text(_rest -> 'requeued')));
  END IF;
  IF _rest ? 'waits' THEN
    UPDATE waits SET status = r.status, context = r.context, result = r.result, parked = r.parked,
      due_at = coalesce(now() + make_interval(secs => r.due_in), waits.due_at),
      completed_at = CASE WHEN r.status = 'waiting' THEN NULL ELSE now() END
    FROM jsonb_to_recordset(_rest -> 'waits') AS r(wait_id uuid, status text, context jsonb,
      result jsonb, due_in float8, parked bool)
    WHERE waits.wait_id = r.wait_id AND (waits.run_id = _run_id) IS TRUE AND waits.status = 'waiting';
  END IF;
  IF _rest ? 'approvals' THEN
    UPDATE approvals SET status = r.status, choice = coalesce(r.choice, approvals.choice),
      reason = coalesce(r.reason, approvals.reason), escalated = approvals.escalated OR r.escalated,
      consumed_at = CASE WHEN r.consumed THEN coalesce(approvals.consumed_at, now()) ELSE approvals.consumed_at END,
      outcome = coalesce(r.outcome, approvals.outcome),
      why = CASE WHEN r.outcome IS NULL THEN coalesce(r.why, approvals.why) ELSE r.why END,
      decided_at = CASE WHEN r.status = 'requested' THEN NULL ELSE coalesce(approvals.decided_at, now()) END
    FROM jsonb_to_recordset(_rest -> 'approvals') AS r(approval_id uuid, status text, choice text,
      reason text, consumed bool, escalated bool, outcome text, why text)
    WHERE approvals.approval_id = r.approval_id AND (approvals.run_id = _run_id) IS TRUE;
  END IF;
  IF _rest ? 'effects' THEN
    UPDATE effects SET run_id = _run_id, step_key = r.step_key, receipt_id = r.receipt_id,
      status = r.status, wait_id = r.wait_id, holder = CASE WHEN r.wait_id IS NOT NULL THEN _run_id END
    FROM jsonb_to_recordset(_rest -> 'effects') AS r(key text, step_key text, receipt_id uuid, status text, was uuid, wait_id uuid)
    WHERE effects.tenant_id = its_tenant AND effects.key = r.key AND effects.receipt_id = r.was
      AND (r.was = r.receipt_id OR effects.status = 'failed');
    IF _rest @> '{"effects": [{"status": "intended"}]}' THEN
      INSERT INTO effects (tenant_id, key, run_id, step_key, receipt_id, status)
      SELECT its_tenant, r.key, _run_id, r.step_key, r.receipt_id, r.status
      FROM jsonb_to_recordset(_rest -> 'effects') AS r(key text, step_key text, receipt_id uuid, status text)
      WHERE r.status = 'intended' AND NOT EXISTS (
        SELECT FROM effects e WHERE e.tenant_id = its_tenant AND e.key = r.key AND e.receipt_id = r.receipt_id
          AND e.status = 'intended');
    END IF;
  END IF;
  IF _rest ? 'sealed' THEN
    UPDATE runs SET open_until = NULL WHERE run_id = _run_id;
  END IF;
  IF _rest ? 'shares' THEN
    UPDATE effects SET status = r.status, holder = _run_id, wait_id = r.wait_id
    FROM jsonb_to_recordset(_rest -> 'shares') AS r(key text, receipt_id uuid, status text, wait_id uuid)
    WHERE effects.tenant_id = its_tenant AND effects.key = r.key AND effects.receipt_id = r.receipt_id
      AND CASE r.status WHEN 'begun' THEN effects.status = 'left' ELSE effects.wait_id = r.wait_id END;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met = 0 AND _rest @> '{"shares": [{"status": "begun"}]}' THEN
      RAISE EXCEPTION 'the effect has moved on' USING ERRCODE = 'unique_violation';
    END IF;
  END IF;
  IF _rest ? 'joins' THEN
    PERFORM FROM effects e JOIN jsonb_to_recordset(_rest -> 'joins') AS r(key text, receipt_id uuid)
      ON e.tenant_id = its_tenant AND e.key = r.key AND e.receipt_id = r.receipt_id
    WHERE e.status IN ('intended', 'in_doubt', 'begun') FOR NO KEY UPDATE OF e;
    GET DIAGNOSTICS met = ROW_COUNT;
    IF met < jsonb_array_length(_rest -> 'joins') THEN
      RAISE EXCEPTION 'the effect has moved on' USING ERRCODE = 'unique_violation';
    END IF;
  END IF;
  IF _rest ? 'new_waits' THEN
    INSERT INTO waits (wait_id, run_id, tenant_id, step_id, step_key, kind, status, token, context,
      due_at, correlation_key, parked)
    SELECT r.wait_id, _run_id, its_tenant, r.step_id, r.step_key, r.kind, r.status, r.token, r.context,
      now() + make_interval(secs => r.due_in), r.correlation_key, r.parked
    FROM jsonb_to_recordset(_rest -> 'new_waits') AS r(wait_id uuid, step_id uuid, step_key text, kind text, status text, token text,
      context jsonb, due_in float8, correlation_key text, parked bool);
  END IF;
  IF _rest ? 'new_approvals' THEN
    INSERT INTO approvals (approval_id, run_id, n, tenant_id, step_key, status, expires_at,
      decided_at, asker)
    SELECT r.approval_id, _run_id, its_version, its_tenant, r.step_key, r.status,
      now() + make_interval(secs => r.expires_in), CASE WHEN r.status <> 'requested' THEN now() END, r.asker
    FROM jsonb_to_recordset(_rest -> 'new_approvals') AS r(approval_id uuid, step_key text, status text, expires_in float8, asker text);
  END IF;
  IF _rest ? 'votes' THEN
    INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel)
    SELECT r.approval_id, r.person_id, its_tenant, r.choice, r.reason, r.groups, r.channel
    FROM jsonb_to_recordset(_rest -> 'votes') AS r(approval_id uuid, person_id text, choice text,
      reason text, groups text[], channel text)
    ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
      groups = excluded.groups, channel = excluded.channel, voted_at = now();
  END IF;
  IF _rest ? 'refusals' THEN
    DELETE FROM refusals WHERE tenant_id = its_tenant AND until < now();
    INSERT INTO refusals (tenant_id, key, approval_id, run_id, groups, askers, by, reason, until)
    SELECT its_tenant, r.key, r.approval_id, _run_id, r.groups, r.askers, r.by, r.reason,
      now() + make_interval(secs => r.holds)
    FROM jsonb_to_recordset(_rest -> 'refusals') AS r(approval_id uuid, key text, groups text[], askers text[], by text, reason text, holds float8)
    ON CONFLICT DO NOTHING;
  END IF;
  IF _rest ? 'commands' THEN
    INSERT INTO commands (command_id, tenant_id, run_id, kind, status, payload, ordering_key)
    SELECT r.command_id, its_tenant, _run_id, r.kind, r.status, r.payload, r.ordering_key
    FROM jsonb_to_recordset(_rest -> 'commands') AS r(command_id uuid, kind text, status text, payload jsonb, ordering_key text)
    ON CONFLICT (command_id) DO NOTHING;
  END IF;
  IF _rest ? 'records' THEN
    FOR one IN SELECT * FROM jsonb_to_recordset(_rest -> 'records') AS r(collection text, key text, value jsonb, absent bool,
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
    END LOOP;
  END IF;
  IF _rest ? 'ledger' THEN
    INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
    SELECT _run_id, its_tenant, r.superstep, r.step_key, r.channel, r.value
    FROM jsonb_to_recordset(_rest -> 'ledger') AS r(channel text, superstep int, step_key text, value jsonb);
  END IF;
  IF _rest ? 'queued' THEN
    INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
    SELECT _run_id, r.key, r.step_id, its_tenant, its_workspace, its_cap, r.starts_run, 'claimable', r.epoch
    FROM jsonb_to_recordset(_rest -> 'queued') AS r(key text, step_id uuid, epoch int, starts_run bool);
  END IF;
  IF _rest ? 'barrier' AND its_executing = 0 THEN
    INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, owner,
      lease_id, epoch, expires_at)
    VALUES (_run_id, '', gen_random_uuid(), its_tenant, its_workspace, its_cap, false, 'leased', 'barrier',
      gen_random_uuid(), 1, now() + _lease) ON CONFLICT DO NOTHING;
  END IF;
  END IF;
  IF _wakes_steps THEN
    notified := pg_notify('counterseal_steps', '') IS NULL;
  END IF;
  IF _wakes_messages THEN
    notified := pg_notify('counterseal_messages', '') IS NULL;
  END IF;
  RETURN ARRAY[its_version, its_executing];
END $function$;

CREATE FUNCTION append_to_run(_run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[],
  _epochs int[],
  _answers text, _expected int, _tenant text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; seen int; book_at timestamptz;
BEGIN
  bound := set_config('counterseal.tenant', _tenant, true);
  IF _latest > clock_timestamp() + interval '10 seconds' THEN
    SELECT last_at INTO book_at FROM runs WHERE run_id = _run_id;
    IF (_latest <= book_at) IS NOT TRUE THEN
      RETURN false;
    END IF;
  END IF;
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{action.doubt_resolved,approval.decided,approval.superseded,approval.vote_refused,approval.voted,checkpoint.committed,run.canceled,run.closed,run.extended,run.paused,run.reference_set,run.reopened,run.resumed,run.sealed,run.started,step.canceled,step.failed,step.resumed,wait.canceled,wait.completed,wait.postponed}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= greatest(clock_timestamp() + interval '10 seconds', book_at))
        IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE) OR _rest - '{queued,waits,commands,ledger,effects,shares,approvals,votes,refusals,cancels_rest,sealed,family}'::text[] <> '{}' THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF _answers IS NOT NULL THEN
    SELECT version INTO seen FROM runs WHERE run_id = _run_id FOR NO KEY UPDATE;
    IF seen > _expected THEN
      IF EXISTS (
          SELECT FROM journal j
          CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\n') AS l(line)
          WHERE j.run_id = _run_id AND j.n > _expected AND l.line::jsonb ->> 'step' = _answers) THEN
        RETURN false;
      END IF;
    END IF;
  END IF;
  RETURN append(_run_id, _version, _status, _superstep, _executing, _width, _writes, _count, _error, _canceling, _finished, _acts_for, _stop, _reference, _result, _extended, _gate, _writes_max, _moved, _latest, _lines, _vals, _wakes_steps, _wakes_messages, _unqueued, _rest, _held, _leases, _epochs) IS NOT NULL;
END $function$;

CREATE FUNCTION open_run(_run_id uuid, _tenant_id text, _workspace_id text, _workflow text, _workflow_version int,
  _workflow_digest text, _trigger_type text, _trigger_ref text, _reference text, _requested_by text, _superstep int,
  _executing int, _width int, _sla interval, _retention interval, _parent uuid, _depth int, _run_key bytea, _cap text,
  _pinned bool, _inherits bool, _open interval, _root uuid, _count int, _lines bytea, _vals bytea, _rest jsonb,
  _requester text, _started_by text, _people text) RETURNS timestamptz LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; book_at timestamptz; its_tenant text; its_workspace text; its_cap text; its_version int; its_executing int; its_count int;
  met int; notified bool; one record;
BEGIN
  bound := set_config('counterseal.tenant', _tenant_id, true);
  IF (split_part(convert_from(_lines, 'UTF8'), E'\n', 1)::jsonb ->> 'ts')::timestamptz > clock_timestamp() + interval '10 seconds' THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{checkpoint.committed,run.opened}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= greatest(clock_timestamp() + interval '10 seconds', book_at))
        IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE) THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO runs (run_id, tenant_id, workspace_id, workflow, workflow_version, workflow_digest, trigger_type,
    trigger_ref, reference, requested_by, status, version, superstep, executing, width, audit_count, audit_head,
    deadline_at, retention, parent_run_id, depth, run_key, cap, inherits, open_until,
    root_run_id, last_at, requester, started_by)
  SELECT _run_id, _tenant_id, _workspace_id, _workflow, _workflow_version, _workflow_digest, _trigger_type,
    _trigger_ref, _reference, _requested_by, 'queued', 1, _superstep, _executing, _width, _count,
    encode(sha256(sha256(convert_to('run:' || _run_id, 'UTF8')) || sha256(_lines)), 'hex'),
    now() + _sla, _retention, _parent, _depth, _run_key, _cap, _inherits, now() + _open, _root,
    (split_part(convert_from(_lines, 'UTF8'), E'\n', 1)::jsonb ->> 'ts')::timestamptz, _requester, _started_by
  WHERE EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = _tenant_id AND w.name = _workflow AND w.version = _workflow_version
        AND w.digest = _workflow_digest AND w.retired_at IS NULL AND w.waits_for IS NULL)
    AND (_pinned OR NOT EXISTS (
      SELECT FROM workflows w WHERE w.tenant_id = _tenant_id AND w.name = _workflow AND w.version > _workflow_version
        AND w.retired_at IS NULL AND w.waits_for IS NULL))
    AND (_people IS NULL OR EXISTS (
      SELECT FROM tenants t WHERE t.tenant_id = _tenant_id AND coalesce(t.directory_digest, '') = _people))
  ON CONFLICT (tenant_id, workflow, trigger_type, trigger_ref) DO NOTHING
  RETURNING tenant_id, workspace_id, cap, version, audit_count
  INTO its_tenant, its_workspace, its_cap, its_version, its_count;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
    VALUES (_run_id, its_version, its_tenant, its_count - _count, _lines, _vals);
  INSERT INTO queue (run_id, step_key, step_id, tenant_id, workspace_id, cap, starts_run, status, epoch)
    SELECT _run_id, r.key, r.step_id, its_tenant, its_workspace, its_cap, r.starts_run, 'claimable', r.epoch
    FROM jsonb_to_recordset(_rest -> 'queued') AS r(key text, step_id uuid, epoch int, starts_run bool);
  IF _rest ? 'ledger' THEN
    INSERT INTO ledger (run_id, tenant_id, superstep, step_key, channel, value)
    SELECT _run_id, its_tenant, r.superstep, r.step_key, r.channel, r.value
    FROM jsonb_to_recordset(_rest -> 'ledger') AS r(channel text, superstep int, step_key text, value jsonb);
  END IF;
  INSERT INTO workspaces (tenant_id, workspace_id) VALUES (_tenant_id, _workspace_id) ON CONFLICT DO NOTHING;
  IF _rest ? 'queued' THEN
    notified := pg_notify('counterseal_steps', '') IS NULL;
  END IF;
  RETURN clock_timestamp();
END $function$;

CREATE FUNCTION order_message(_command_id uuid, _run_id uuid, _kind text, _payload jsonb, _tenant text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; 
BEGIN
  bound := set_config('counterseal.tenant', _tenant, true);
  IF _kind NOT IN ('note', 'bundle') THEN
    RAISE EXCEPTION 'no face may order %', _kind USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT _command_id, tenant_id, run_id, _kind, _payload, 'pending',
    CASE _kind WHEN 'bundle' THEN 'bundle:' || run_id END
  FROM runs WHERE run_id = _run_id;
  PERFORM pg_notify('counterseal_messages', '');
END $function$;

CREATE FUNCTION read_run(_run_id uuid, _whole bool, _tenant text, _lock bool) RETURNS TABLE (run json, run_key bytea, state bytea, policy_digests text[], directory_digest text, max_writes_per_run int, stop_number int, paused jsonb, now timestamptz,
  firsts int[], lines bytea[], vals bytea[]) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; 
BEGIN
  bound := set_config('counterseal.tenant', _tenant, true);
  IF _lock THEN
    PERFORM FROM runs WHERE run_id = _run_id FOR UPDATE;
  END IF;
  RETURN QUERY 
SELECT (SELECT row_to_json(x) FROM (SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow,
    r.workflow_version, r.workflow_digest, r.trigger_type, r.status, r.version, r.gate, r.executing,
    r.extensions, r.audit_count, r.audit_head, r.state_n, r.deadline_at, r.parent_run_id, r.depth,
    r.purged_at, r.last_at, CASE WHEN r.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run, r.run_key, CASE WHEN _whole THEN NULL ELSE r.state END AS state, t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, now() AS now, tail.*
FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND (_whole OR j.n >= r.state_n OR j.n = 1)) tail ON true WHERE r.run_id = _run_id;
END $function$;

CREATE FUNCTION read_question(_approval_id uuid, _tenant text, _lock bool) RETURNS TABLE (run json, run_key bytea, state bytea, policy_digests text[], directory_digest text, max_writes_per_run int, stop_number int, paused jsonb, firsts int[],
  lines bytea[], vals bytea[], approval jsonb, now timestamptz, workspace_id text, votes jsonb) LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; 
BEGIN
  bound := set_config('counterseal.tenant', _tenant, true);
  IF _lock THEN
    PERFORM FROM runs WHERE run_id = (SELECT a.run_id FROM approvals a WHERE a.approval_id = _approval_id) FOR UPDATE;
  END IF;
  RETURN QUERY 
SELECT (SELECT row_to_json(x) FROM (SELECT r.run_id, r.tenant_id, r.workspace_id, r.workflow,
    r.workflow_version, r.workflow_digest, r.trigger_type, r.status, r.version, r.gate, r.executing,
    r.extensions, r.audit_count, r.audit_head, r.state_n, r.deadline_at, r.parent_run_id, r.depth,
    r.purged_at, r.last_at, CASE WHEN r.root_run_id IS NOT NULL THEN (
      SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run, r.run_key, r.state, t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, tail.*, to_jsonb(a) AS approval, now() AS now, r.workspace_id,
  (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id)) ORDER BY v.voted_at)
    FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
    WHERE v.approval_id = a.approval_id) AS votes
FROM approvals a JOIN runs r ON r.run_id = a.run_id JOIN tenants t ON t.tenant_id = a.tenant_id LEFT JOIN LATERAL (
  SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
    array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
  FROM journal j WHERE j.run_id = r.run_id AND (j.n >= r.state_n OR j.n = 1)) tail ON true WHERE a.approval_id = _approval_id;
END $function$;
