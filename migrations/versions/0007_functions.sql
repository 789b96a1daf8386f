-- True if an agent's account has no valid token any more. Ids of the directory differ by more than their case.
--
-- Executed by counterseal_engine, counterseal_faces and counterseal_appender, when a run is read that the account has
-- asked for, and by append, before anything of it goes out. It runs with the rights of counterseal_finder, which never
-- logs in.
CREATE OR REPLACE FUNCTION agent_is_off(_tenant text, _account text)
RETURNS boolean LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT NOT EXISTS (SELECT FROM tokens t WHERE t.tenant_id = _tenant AND lower(t.subject) = lower(_account)
    AND 'agent' = ANY (t.roles) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp())
$function$;

ALTER FUNCTION agent_is_off OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION agent_is_off FROM PUBLIC;

GRANT EXECUTE ON FUNCTION agent_is_off TO counterseal_engine, counterseal_faces, counterseal_appender;

-- Does all of a commit to a run, or nothing of it. Returns the run's version and how many steps of its super-step still
-- execute; NULL if a guard does not hold: then the run, or the tenant's policy, is not as the caller expects it.
--
-- Executed by counterseal_engine, the login of the workers: only it records decisions of policy, intents and answers of
-- connectors. It runs with its caller's rights. counterseal_appender may execute it too: that role never logs in, and
-- owns append_to_run, which checks before what a face may append. No face may execute it.
--
-- Lock order: of each run the rows of its queue by step, then its row, then the counters of its family, then shared
-- effects by key, then the rest; of several runs, by id. Nobody waits for a row of the queue while holding the lock of
-- its run, or of a run later in that order. _rest holds the rows of the commit's parts by name; names that begin with
-- its_ are columns of the run's row after the append. Each part is a statement of its own, which is planned once per
-- connection; a part that the commit does not have costs a comparison.
CREATE OR REPLACE FUNCTION append(
  _run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[], _epochs int[],
  -- What only the engine sends.
  _state bytea DEFAULT NULL, _lease interval DEFAULT NULL, _handed text[] DEFAULT NULL, _next text[] DEFAULT NULL,
  _next_ids uuid[] DEFAULT NULL, _next_epochs int[] DEFAULT NULL)
RETURNS int[] LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE its_tenant text; its_workspace text; its_cap text; its_version int; its_executing int; its_count int;
  met int; notified bool; one record;
BEGIN
  -- An append that lets an action out shares this lock until its transaction ends. A change of the policy in force, the
  -- people or the pauses takes it exclusively, in the trigger that moves stop_number (move_stop_number.sql). So the
  -- change returns only when every append begun before it has ended, and an append that waited for it reads the new
  -- number in its next statement. In PL/pgSQL an assignment is cheaper than a query.
  IF _acts_for IS NOT NULL THEN
    notified := pg_advisory_xact_lock_shared(hashtextextended('counterseal.intents:' || _acts_for, 0)) IS NULL;
    -- Nothing of an agent goes out after its last token has ended. A revocation takes that lock exclusively, too.
    IF _rest ? 'agent' THEN
      IF agent_is_off(_acts_for, _rest ->> 'agent') THEN
        RETURN NULL;
      END IF;
    END IF;
  END IF;
  -- A settle locks the row of its lease first, and then checks in that statement that the lease is still its own: after
  -- a wait for a lock, PostgreSQL shows the locked row as it is now.
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
  -- Votes were counted by one directory. If there is a newer one, they must be counted again (promise 12).
  IF _rest ? 'people' THEN
    IF NOT EXISTS (SELECT FROM runs r JOIN tenants t USING (tenant_id)
        WHERE r.run_id = _run_id AND t.directory_digest = _rest ->> 'people') THEN
      RETURN NULL;
    END IF;
  END IF;
  -- The counters of the run's family are locked after its row, and only then compared, because a value that was read
  -- before the lock may be old. They are moved after the guard, so that an append which is refused moves nothing.
  IF _rest ? 'family' THEN
    PERFORM FROM runs r WHERE r.run_id = _run_id FOR NO KEY UPDATE;
    PERFORM FROM families f WHERE f.root_run_id = (SELECT r.root_run_id FROM runs r WHERE r.run_id = _run_id)
      AND coalesce(f.writes + _writes <= (_rest #>> '{family,max}')::int, true)
      AND coalesce(f.number = (_rest #>> '{family,number}')::int, true) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  -- People are not asked again what they have refused to this asker, nor is the asker's bound of open questions
  -- exceeded. The caller then reads the refusals and the count, and decides again.
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
  -- The guard: the row requires the gate that the commit expects, so commuting commits may come in between; a strict
  -- commit also requires the version. It refuses a time more than 10 seconds ahead of the database's clock: it is made
  -- up, or from a wrong clock. A line may repeat the latest time of its book, even if the database's clock has gone
  -- back since. A run begins (started_at) when it leaves `queued`, unless it is canceled then. A reopened run is not
  -- over any more: its values are kept until it ends again.
  UPDATE runs SET version = version + 1, gate = gate + _moved, status = _status, superstep = _superstep,
    executing = executing + _executing, width = _width, writes = writes + _writes, audit_count = audit_count + _count,
    audit_head = coalesce(encode(sha256(decode(audit_head, 'hex') || sha256(_lines)), 'hex'), audit_head),
    error = _error, canceling = _canceling, reference = coalesce(_reference, reference), result = _result,
    extensions = extensions + _extended,
    state = CASE WHEN _finished THEN NULL ELSE coalesce(_state, state) END,
    state_n = CASE WHEN _finished THEN 0 WHEN _state IS NULL THEN state_n ELSE version + 1 END,
    started_at = CASE WHEN _status IN ('queued', 'canceled') THEN started_at ELSE coalesce(started_at, now()) END,
    finished_at = CASE WHEN _finished THEN now()
      WHEN _status IN ('succeeded', 'failed_terminal', 'canceled') THEN finished_at END,
    purge_at = CASE WHEN _finished THEN now() + retention
      WHEN _status IN ('succeeded', 'failed_terminal', 'canceled') THEN purge_at END,
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
      anew = anew + greatest((_rest #>> '{family,anew}')::int, 0),
      same = same || coalesce(_rest #> '{family,same}', '{}'),
      failed = failed || coalesce(_rest #> '{family,failures}', '{}')
    WHERE root_run_id = (SELECT r.root_run_id FROM runs r WHERE r.run_id = _run_id);
  END IF;
  -- The book: all lines of the append in one row, with the values that they commit to (promise 6). Guard and parts are
  -- one transaction: a crash leaves all of them or nothing, and a writer whose guard fails decides again.
  IF _lines IS NOT NULL THEN
    INSERT INTO journal (run_id, n, tenant_id, first_seq, lines, vals)
    VALUES (_run_id, its_version, its_tenant, its_count - _count, _lines, _vals);
  END IF;
  -- If the tenant or the workflow is at its cap before the slot is free, a step may be waiting for this very slot: wake
  -- all workers. The conditions are nested, because a condition with a query in it costs a query even if its first part
  -- is false.
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
  -- The rows of the queue. The row of a lease that is settled is locked by the guard.
  IF _unqueued IS NOT NULL THEN
    DELETE FROM queue USING (
      SELECT q.run_id, q.step_key FROM queue q WHERE q.run_id = _run_id
        AND q.step_key = ANY (_unqueued) FOR UPDATE SKIP LOCKED) AS u
    WHERE queue.run_id = u.run_id AND queue.step_key = u.step_key;
  END IF;
  -- A step ends and the next one starts: its worker keeps the row, under the same lease and in the same slot.
  FOR i IN 1..coalesce(cardinality(_handed), 0) LOOP
    UPDATE queue SET step_key = _next[i], step_id = _next_ids[i], epoch = _next_epochs[i], starts_run = false,
      expires_at = now() + _lease, created_at = now()
    WHERE run_id = _run_id AND step_key = _handed[i];
  END LOOP;
  -- The parts of the commit that it has, in this order: ends come before beginnings.
  IF _rest IS NOT NULL THEN
    -- A cancel also deletes the rows of other steps, but skips a locked one: its locker waits for the run's row, and
    -- then finds that the step is over.
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
    -- The keys of effects with a wider scope than a step hold neither run nor step, so the table makes them unique
    --. An append that moves an effect holds its key. One that begins an effect finds the key free, or takes it
    -- from an attempt that certainly failed. If another run has taken it meanwhile, the insert fails and with it the
    -- append: nothing is performed. An outcome never meets that, because nobody takes a key from an attempt that may
    -- have had its effect. A crash leaves the row and the event that moves it, or neither. An update finds each row by
    -- its whole key, because the planner takes the list for a hundred rows, and cannot know how many rows the table
    -- has.
    IF _rest ? 'effects' THEN
      UPDATE effects SET run_id = _run_id, step_key = r.step_key, receipt_id = r.receipt_id,
        status = r.status, wait_id = r.wait_id, holder = CASE WHEN r.wait_id IS NOT NULL THEN _run_id END
      FROM jsonb_to_recordset(_rest -> 'effects')
        AS r(key text, step_key text, receipt_id uuid, status text, was uuid, wait_id uuid)
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
    -- The effect that this append is about has moved on since it was looked up: the caller looks it up again.
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
      FROM jsonb_to_recordset(_rest -> 'new_waits')
        AS r(wait_id uuid, step_id uuid, step_key text, kind text, status text,
        token text, context jsonb, due_in float8, correlation_key text, parked bool);
    END IF;
    IF _rest ? 'new_approvals' THEN
      INSERT INTO approvals (approval_id, run_id, n, tenant_id, step_key, status, expires_at,
        decided_at, asker, listed)
      SELECT r.approval_id, _run_id, its_version, its_tenant, r.step_key, r.status,
        now() + make_interval(secs => r.expires_in), CASE WHEN r.status <> 'requested' THEN now() END, r.asker,
        r.listed
      FROM jsonb_to_recordset(_rest -> 'new_approvals')
        AS r(approval_id uuid, step_key text, status text, expires_in float8, asker text, listed text);
    END IF;
    IF _rest ? 'votes' THEN
      INSERT INTO votes (approval_id, person_id, tenant_id, choice, reason, groups, channel, on_behalf, glass)
      SELECT r.approval_id, r.person_id, its_tenant, r.choice, r.reason, r.groups, r.channel, r.on_behalf, r.glass
      FROM jsonb_to_recordset(_rest -> 'votes') AS r(approval_id uuid, person_id text, choice text,
        reason text, groups text[], channel text, on_behalf text, glass bool)
      ON CONFLICT (approval_id, person_id) DO UPDATE SET choice = excluded.choice, reason = excluded.reason,
        groups = excluded.groups, channel = excluded.channel, on_behalf = excluded.on_behalf, glass = excluded.glass,
        voted_at = now();
    END IF;
    -- A rejection that binds comes with its vote. A crash leaves both or neither.
    IF _rest ? 'refusals' THEN
      DELETE FROM refusals WHERE tenant_id = its_tenant AND until < now();
      INSERT INTO refusals (tenant_id, key, approval_id, run_id, groups, askers, by, reason, until)
      SELECT its_tenant, r.key, r.approval_id, _run_id, r.groups, r.askers, r.by, r.reason,
        now() + make_interval(secs => r.holds)
      FROM jsonb_to_recordset(_rest -> 'refusals')
        AS r(approval_id uuid, key text, groups text[], askers text[], by text, reason text, holds float8)
      ON CONFLICT DO NOTHING;
    END IF;
    IF _rest ? 'commands' THEN
      INSERT INTO commands (command_id, tenant_id, run_id, kind, status, payload, ordering_key)
      SELECT r.command_id, its_tenant, _run_id, r.kind, r.status, r.payload, r.ordering_key
      FROM jsonb_to_recordset(_rest -> 'commands')
        AS r(command_id uuid, kind text, status text, payload jsonb, ordering_key text)
      ON CONFLICT (command_id) DO NOTHING;
    END IF;
    IF _rest ? 'records' THEN
      FOR one IN SELECT * FROM jsonb_to_recordset(_rest -> 'records')
          AS r(collection text, key text, value jsonb, absent bool, expects int, removes bool, shaped jsonb)
      LOOP
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
    -- The last step leaves the super-step, and no other step has seen all others leave. The append reports that to its
    -- caller, which commits the barrier and deletes this row with it. If the caller dies first, the row's lease runs
    -- out, and the sweeper does it.
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

REVOKE ALL ON FUNCTION append FROM PUBLIC;

GRANT EXECUTE ON FUNCTION append TO counterseal_engine, counterseal_appender;

-- Appends to a run the events of people and of outside systems. Returns false if the run has changed since it was read.
--
-- Executed by counterseal_faces, the login of the HTTP service and of Slack, and by counterseal_engine, which passes
-- requests on in the same way. It accepts no events of actions: only the engine records decisions of policy, intents
-- and answers of connectors. The exceptions are a doubt that people count as failed, which performs nothing, and a late
-- report of an agent, which moves nothing.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
-- _answers is the step whose question or wait the append answers: the append commutes with events of other steps.
CREATE OR REPLACE FUNCTION append_to_run(
  _run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[], _epochs int[],
  _answers text, _expected int, _tenant text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; seen int; book_at timestamptz; done boolean;
BEGIN
  -- An assignment is cheaper than a query.
  bound := set_config('counterseal.tenant', _tenant, true);
  -- A time ahead of the clock was read before the clock went back, or comes from the book: the caller reads it again.
  IF _latest > clock_timestamp() + interval '10 seconds' THEN
    SELECT last_at INTO book_at FROM runs WHERE run_id = _run_id;
    IF (_latest <= book_at) IS NOT TRUE THEN
      RETURN false;
    END IF;
  END IF;
  -- Refuse an append with a line that no face may write. If a line has a name twice, jsonb keeps the last one.
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' IN (
        -- What people and the outside say.
        'approval.said', 'approval.reassigned', 'approval.edited', 'approval.voted', 'approval.vote_refused', 'approval.decided',
        'approval.superseded',
        'wait.completed', 'wait.canceled', 'wait.postponed', 'hold.answered', 'grant.revoked',
        'run.canceled', 'run.extended', 'run.migrated', 'run.paused', 'run.resumed', 'run.reopened', 'run.sealed',
        -- What follows from it in the same append: a step that resumes or ends, the barrier behind that step, the end
        -- of the run.
        'step.resumed', 'step.failed', 'step.canceled', 'run.reference_set', 'checkpoint.committed', 'run.started',
        'run.closed',
        -- What an agent reports of a call of its own after its lease: it decides nothing.
        'action.late',
        -- Only as a failure: see below.
        'action.doubt_resolved')) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= greatest(clock_timestamp() + interval '10 seconds', book_at)) IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE)
    -- The rows that come with such an append. Only the engine writes leases, new waits, new questions and new effects.
    -- A rejection counts for all runs of the family: what is sent can only add to its counters.
    OR _rest - ARRAY[
      'queued', 'waits', 'commands', 'ledger', 'effects', 'shares', 'approvals', 'votes', 'refusals', 'cancels_rest',
      'sealed', 'family'] <> '{}' THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- The run's row is locked first, so that this waits for other appends about the step and then sees them: a vote, a
  -- reminder, the end of its wait, a late answer.
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
  done := append(
    _run_id, _version, _status, _superstep, _executing, _width, _writes, _count, _error, _canceling, _finished,
    _acts_for, _stop, _reference, _result, _extended, _gate, _writes_max, _moved, _latest, _lines, _vals,
    _wakes_steps, _wakes_messages, _unqueued, _rest, _held, _leases, _epochs) IS NOT NULL;
  -- The run's present version of its workflow, for lists: its book holds it too, and this row is of the same append.
  IF done AND position('"type":"run.migrated"'::bytea IN _lines) > 0 THEN
    UPDATE runs SET migrated_to = (
      SELECT (l.line::jsonb #>> '{data,workflow,version}')::int
      FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
      WHERE l.line::jsonb ->> 'type' = 'run.migrated')
    WHERE run_id = _run_id;
  END IF;
  RETURN done;
END $function$;

ALTER FUNCTION append_to_run OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION append_to_run FROM PUBLIC;

GRANT EXECUTE ON FUNCTION append_to_run TO counterseal_engine, counterseal_faces;

-- Stores a new version of a tenant's settings with the line that says so, and puts it in force.
--
-- Executed by counterseal_engine alone: the operator of the installation applies settings on the command line, and no
-- face does. Versions have no gaps, and none is ever changed. A crash before the commit leaves the former one in force.
CREATE OR REPLACE FUNCTION apply_settings(_line bytea, _text text, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  IF encode(sha256(convert_to(_text, 'UTF8')), 'hex') IS DISTINCT FROM told #>> '{data,digest}' THEN
    RAISE EXCEPTION 'the line is of another text' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^tenant\.applied$', _tenant);
  UPDATE tenants SET settings_version = coalesce(settings_version, 0) + 1
  WHERE tenant_id = _tenant AND coalesce(settings_version, 0) + 1 = (told #>> '{data,version}')::int;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the line names another version' USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO tenant_settings (tenant_id, version, digest, source, applied_by)
  VALUES (_tenant, (told #>> '{data,version}')::int, told #>> '{data,digest}', _text, told #>> '{actor,id}');
END $function$;

ALTER FUNCTION apply_settings OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION apply_settings FROM PUBLIC;

GRANT EXECUTE ON FUNCTION apply_settings TO counterseal_engine;

-- Looks up the tenant of an approval by its id.
--
-- Executed by counterseal_faces, before it knows the tenant of a click in Slack: the id cannot be guessed. It runs with
-- the rights of counterseal_finder, as token_owner does.
CREATE OR REPLACE FUNCTION approval_owner(id uuid) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT tenant_id FROM approvals WHERE approval_id = id
$function$;

ALTER FUNCTION approval_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION approval_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION approval_owner TO counterseal_faces;

-- Stores a pause or ends one, with the line that says so; false, and no line, if nothing changes. Key, person and
-- reason are the line's. A new pause also removes those of runs that are over.
--
-- Executed by counterseal_faces, because people pause, and by counterseal_engine, which may hand their requests on. Nobody can change `paused` in any other way, and only
-- follow_change takes a key out of `resumed`.
CREATE OR REPLACE FUNCTION change_pause(_line bytea, _tenant text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its_key text := told #>> '{data,paused}';
  sets boolean := told ->> 'type' = 'pause.set';
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  -- The row stays locked from here on, so nothing changes between this read and the update.
  PERFORM FROM tenants WHERE tenant_id = _tenant AND coalesce(paused ? its_key, false) <> sets FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM link_line(_line, '^pause\.(set|lifted)$', _tenant);
  IF sets THEN
    UPDATE tenants SET resumed = array_remove(resumed, its_key), paused = coalesce(paused, '{}') - ARRAY(
      SELECT k.key FROM jsonb_object_keys(paused) k(key)
        JOIN runs r ON r.run_id = CASE WHEN k.key LIKE 'run:%' THEN substr(k.key, 5)::uuid END
      WHERE r.tenant_id = _tenant AND r.finished_at IS NOT NULL)
      || jsonb_build_object(its_key, jsonb_build_object('by', told #>> '{actor,id}', 'reason', told #>> '{data,reason}',
        'at', now()))
    WHERE tenant_id = _tenant;
  ELSE
    UPDATE tenants SET resumed = array_append(array_remove(resumed, its_key), its_key),
      paused = nullif(paused - its_key, '{}')
    WHERE tenant_id = _tenant;
  END IF;
  RETURN true;
END $function$;

ALTER FUNCTION change_pause OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION change_pause FROM PUBLIC;

GRANT EXECUTE ON FUNCTION change_pause TO counterseal_engine, counterseal_faces;

-- Puts a policy in force in place of the one of its name, or takes it out of force, with the line that says so. What is
-- in force then follows from the line alone. A policy in force that is not in the database stays: it denies.
--
-- Executed by counterseal_faces, because people change policies, and by counterseal_engine, which may hand their
-- requests on. Nobody can change policy_digests in any other way. The
-- line names the author as the policy's publication did.
CREATE OR REPLACE FUNCTION change_policies(_line bytea, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its policies;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  SELECT * INTO its FROM policies WHERE tenant_id = _tenant AND digest = told #>> '{data,digest}'
    AND name = told #>> '{data,name}' AND version::text = told #>> '{data,version}'
    AND (told ->> 'type' = 'policy.retired' OR published_by = told #>> '{data,author}');
  IF NOT FOUND THEN
    RAISE EXCEPTION 'no such policy was published' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^policy\.(activated|retired)$', _tenant);
  UPDATE tenants SET policy_digests = ARRAY(
    SELECT d.digest FROM (
      SELECT unnest(policy_digests) EXCEPT SELECT p.digest FROM policies p WHERE p.tenant_id = _tenant AND p.name = its.name
      UNION ALL SELECT its.digest WHERE told ->> 'type' = 'policy.activated') d(digest)
    LEFT JOIN policies p ON p.tenant_id = _tenant AND p.digest = d.digest
    ORDER BY p.digest IS NULL, p.name COLLATE "C", d.digest COLLATE "C")
  WHERE tenant_id = _tenant;
END $function$;

ALTER FUNCTION change_policies OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION change_policies FROM PUBLIC;

GRANT EXECUTE ON FUNCTION change_policies TO counterseal_engine, counterseal_faces;

-- Stores how far a keeper has followed a change of a tenant's policies or pauses. A no-op if there is a newer change.
--
-- Executed by counterseal_engine, whose keeper follows. It writes only the list of work that a change has left: a
-- change of what is in force needs a line.
CREATE OR REPLACE FUNCTION follow_change(_number int, _after uuid, _over boolean, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  UPDATE tenants SET judge_after = _after, resumed = CASE WHEN _over THEN NULL ELSE resumed END
  WHERE tenant_id = _tenant AND stop_number = _number;
END $function$;

ALTER FUNCTION follow_change OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION follow_change FROM PUBLIC;

GRANT EXECUTE ON FUNCTION follow_change TO counterseal_engine;

-- True if a row of the queue has the columns that its status demands: a row in line has no owner, a sent row has an
-- owner, and a leased row has an owner and a lease.
--
-- Nobody calls it: the constraint ck_queue_held_by_somebody does, whichever login writes the row.
CREATE OR REPLACE FUNCTION held_by_somebody(status text, owner text, lease_id uuid, expires_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  RETURN CASE status
    WHEN 'claimable' THEN owner IS NULL AND expires_at IS NULL
    WHEN 'sent' THEN owner IS NOT NULL AND expires_at IS NOT NULL
    WHEN 'leased' THEN owner IS NOT NULL AND expires_at IS NOT NULL AND lease_id IS NOT NULL
    ELSE false END;
END $function$;

-- Appends one line to a tenant's audit stream, and returns the line as JSON. The tenant's row is locked until the
-- transaction ends.
--
-- Executed by counterseal_appender, within the functions that people and systems call: nobody else may write
-- audit_events, or the count and the head in the tenant's row. The line has to be of the given types, and of the time of
-- this transaction, so that nobody dates a fact back.
CREATE OR REPLACE FUNCTION link_line(_line bytea, _types text, _tenant text)
RETURNS json LANGUAGE plpgsql AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its record;
  head text;
BEGIN
  IF (told ->> 'type' ~ _types AND ARRAY(SELECT json_object_keys(told)) = '{actor,data,step,ts,type,v}'
      AND told ->> 'ts' = to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) IS NOT TRUE THEN
    RAISE EXCEPTION 'this line does not belong here' USING ERRCODE = 'insufficient_privilege';
  END IF;
  SELECT stream_id, audit_count, audit_head, stop_number INTO its FROM tenants WHERE tenant_id = _tenant FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no such tenant' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- A line about pauses, policies or the directory holds for every intent with a greater number. So an intent that
  -- ignored it is recognized by its own line.
  IF told ->> 'type' ~ '^(pause\.|policy\.(activated|retired)$|directory\.published$)'
      AND (told #>> '{data,stop}') IS DISTINCT FROM its.stop_number::text THEN
    RAISE EXCEPTION 'the line names another stop number' USING ERRCODE = 'insufficient_privilege';
  END IF;
  head := encode(sha256(CASE its.audit_count WHEN 0 THEN sha256(convert_to('tenant:' || _tenant, 'UTF8'))
    ELSE decode(its.audit_head, 'hex') END || sha256(_line)), 'hex');
  -- A crash before the commit leaves neither the line nor what the caller changes with it.
  INSERT INTO audit_events (stream_id, seq, tenant_id, type, line, hash)
  VALUES (its.stream_id, its.audit_count, _tenant, told ->> 'type', _line, head);
  UPDATE tenants SET audit_count = its.audit_count + 1, audit_head = head WHERE tenant_id = _tenant;
  RETURN told;
END $function$;

REVOKE ALL ON FUNCTION link_line FROM PUBLIC;

GRANT EXECUTE ON FUNCTION link_line TO counterseal_appender;

-- Writes a leaf for each open run whose head has moved since its last leaf; returns how many. A keeper calls it once a
-- minute: for that time, changes of an open run's book are known inside the database only.
--
-- Executed by counterseal_engine. It runs with the rights of the tables' owner, and takes count and head from the run's
-- row, so nobody can have it log another head. Runs that were still for longer than _within are left out, by the index
-- ix_runs_last_at; null for none.
CREATE OR REPLACE FUNCTION log_moved_heads(_within interval) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE met int := 0;
BEGIN
  -- Only one of several keepers writes; a crash before the commit leaves all of it to the next minute.
  IF pg_try_advisory_xact_lock(hashtextextended('counterseal.log', 0)) THEN
    INSERT INTO log_leaves (tenant_id, kind, run_id, count, head)
    SELECT r.tenant_id, 'moved', r.run_id, r.audit_count, decode(r.audit_head, 'hex') FROM runs r
    WHERE r.last_at > coalesce(now() - _within, '-infinity') AND r.finished_at IS NULL
      AND r.audit_head ~ '^[0-9a-f]{64}$'  -- a broken run does not stop the others
      AND r.audit_count > (SELECT coalesce(max(l.count), 0) FROM log_leaves l WHERE l.run_id = r.run_id);
    GET DIAGNOSTICS met = ROW_COUNT;
  END IF;
  RETURN met;
END $function$;

REVOKE ALL ON FUNCTION log_moved_heads FROM PUBLIC;

GRANT EXECUTE ON FUNCTION log_moved_heads TO counterseal_engine;

-- Numbers a new run within its tenant, without gaps, and writes the leaf that opens it.
--
-- Nobody calls it: the trigger log_opened does, at the very end of the transaction that opens the run, whichever login
-- writes the row. So the counter is locked only while that commits, and whoever waits for it holds nothing that another
-- start needs. It runs with the rights of the tables' owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_opened() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE its_number int;
BEGIN
  INSERT INTO log_counters AS c (tenant_id, runs) VALUES (NEW.tenant_id, 1)
  ON CONFLICT (tenant_id) DO UPDATE SET runs = c.runs + 1 RETURNING runs INTO its_number;
  INSERT INTO log_leaves (tenant_id, kind, run_id, number, count, head)
  VALUES (NEW.tenant_id, 'opened', NEW.run_id, its_number, NEW.audit_count, decode(NEW.audit_head, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_opened FROM PUBLIC;

CREATE CONSTRAINT TRIGGER log_opened AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION log_opened();

-- Writes a leaf of the tenant's log when a run parks, ends, is reopened, gets a late answer or is erased: in the
-- transaction that makes the fact, so that nobody makes one without the other.
--
-- Nobody calls it: the trigger log_run does, whichever login writes the row. It runs with the rights of the tables'
-- owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  -- A crash before the commit leaves neither the fact nor its leaf.
  INSERT INTO log_leaves (tenant_id, kind, run_id, count, head)
  VALUES (NEW.tenant_id, CASE
      WHEN OLD.purged_at IS NULL AND NEW.purged_at IS NOT NULL THEN 'erased'
      WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL THEN 'closed'
      WHEN OLD.finished_at IS NOT NULL AND NEW.finished_at IS NULL THEN 'reopened'
      WHEN NEW.finished_at IS NOT NULL THEN 'late' ELSE 'parked' END,
    NEW.run_id, NEW.audit_count, decode(NEW.audit_head, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_run FROM PUBLIC;

CREATE TRIGGER log_run AFTER UPDATE ON runs FOR EACH ROW WHEN (
  OLD.status <> NEW.status AND NEW.status IN ('waiting_approval', 'waiting')
  OR (OLD.finished_at IS NULL) <> (NEW.finished_at IS NULL)
  OR OLD.purged_at IS NULL AND NEW.purged_at IS NOT NULL
  OR NEW.finished_at IS NOT NULL AND OLD.audit_count <> NEW.audit_count) EXECUTE FUNCTION log_run();

-- Writes a leaf of the tenant's log for a line of its stream, in the transaction that appends the line.
--
-- Nobody calls it: the trigger log_told does, whichever login writes the row. It runs with the rights of the tables'
-- owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_told() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  INSERT INTO log_leaves (tenant_id, kind, count, head)
  VALUES (NEW.tenant_id, 'told', NEW.seq + 1, decode(NEW.hash, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_told FROM PUBLIC;

CREATE TRIGGER log_told AFTER INSERT ON audit_events FOR EACH ROW EXECUTE FUNCTION log_told();

-- Raises stop_number, the guard of every intent, at any change of a tenant's policies, directory or pauses, and if a
-- target asks for no calls for a while.
--
-- Nobody calls it: the trigger stop_number does, whichever login writes the row. It takes exclusively the lock that
-- appends with intents share until they end (append.sql). So the change goes on after every append that began before
-- it, and an append that had to wait reads the new number (promise 11). A busy target needs no lock and no new
-- judgement: an intent that is being appended meanwhile counts as one that had gone out before.
CREATE OR REPLACE FUNCTION move_stop_number() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  NEW.stop_number := OLD.stop_number + 1;
  IF (OLD.policy_digests, OLD.directory_digest, OLD.paused, OLD.settings_version)
      IS DISTINCT FROM (NEW.policy_digests, NEW.directory_digest, NEW.paused, NEW.settings_version) THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.intents:' || NEW.tenant_id, 0));
    NEW.judge_after := '00000000-0000-0000-0000-000000000000';
  END IF;
  RETURN NEW;
END $function$;

-- Notes that a target asks for no calls for so many seconds, and returns until when: no call of the tenant goes to it
-- before, whichever worker makes it. At most an hour, so that one wrong answer does not stop a target for long.
--
-- Executed by counterseal_engine, in a transaction of its own. The time is a whole second, so that many answers of the
-- same second move the tenant's stop number once. Times that are over are forgotten here, and of more than 200 targets
-- those whose time is over first: then only the step that was told waits.
CREATE OR REPLACE FUNCTION note_busy(_tenant text, _place text, _seconds double precision) RETURNS timestamptz
LANGUAGE plpgsql AS $function$
DECLARE
  its_end timestamptz :=
    date_trunc('second', clock_timestamp() + make_interval(secs => least(greatest(_seconds, 0), 3600)))
    + interval '1 second';
BEGIN
  UPDATE tenants t SET busy = jsonb_build_object(_place, its_end) || coalesce((
      SELECT jsonb_object_agg(b.place, b.until) FROM (
        SELECT key AS place, value::timestamptz AS until FROM jsonb_each_text(t.busy)
        WHERE key <> _place AND value::timestamptz > clock_timestamp() ORDER BY 2 DESC LIMIT 199) b), '{}')
  WHERE t.tenant_id = _tenant AND ((t.busy ->> _place)::timestamptz < its_end) IS NOT FALSE;
  RETURN its_end;
END $function$;

REVOKE ALL ON FUNCTION note_busy FROM PUBLIC;

GRANT EXECUTE ON FUNCTION note_busy TO counterseal_engine;

-- Opens a run with its first checkpoint and steps. Returns the database's time; NULL if the trigger has started a run
-- already, if no run starts with this version any more, if the tenant is suspended, or if the time was read before the database's clock went back.
--
-- Executed by counterseal_faces, because requests start runs, and by counterseal_engine, because runs and schedules do.
-- The lines can only open the run: nothing has been decided or performed in it by then.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
CREATE OR REPLACE FUNCTION open_run(
  _run_id uuid, _tenant_id text, _workspace_id text, _workflow text, _workflow_version int,
  _workflow_digest text, _trigger_type text, _trigger_ref text, _reference text, _requested_by text, _superstep int,
  _executing int, _width int, _sla interval, _retention interval, _parent uuid, _depth int, _run_key bytea, _cap text,
  _pinned bool, _inherits bool, _open interval, _root uuid, _count int, _lines bytea, _vals bytea, _rest jsonb,
  _requester text, _started_by text, _people text)
RETURNS timestamptz LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; its_tenant text; its_workspace text; its_cap text; its_version int; its_count int;
  notified bool;
BEGIN
  bound := set_config('counterseal.tenant', _tenant_id, true);
  IF (split_part(convert_from(_lines, 'UTF8'), E'\n', 1)::jsonb ->> 'ts')::timestamptz
      > clock_timestamp() + interval '10 seconds' THEN
    RETURN NULL;
  END IF;
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' IN ('run.opened', 'checkpoint.committed')
        -- A fork takes over the steps of an ended run of the same version; the fork's reference names that run.
        OR (t.line ->> 'type' = 'run.forked' AND _trigger_ref = 'fork:' || (t.line -> 'data' ->> 'origin')
          AND EXISTS (SELECT FROM runs o WHERE o.run_id = (t.line -> 'data' ->> 'origin')::uuid
            AND o.tenant_id = _tenant_id AND o.workflow_digest = _workflow_digest AND o.finished_at IS NOT NULL
            AND o.trigger_type = _trigger_type))) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= clock_timestamp() + interval '10 seconds') IS NOT TRUE) THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- One run for each workflow, type of trigger and reference. A version that was not asked for has to be the
  -- newest.
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
    AND NOT EXISTS (SELECT FROM tenants t WHERE t.tenant_id = _tenant_id AND t.paused ? 'suspended')
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
  IF _rest ? 'searched' THEN
    INSERT INTO searched (tenant_id, name, value, run_id)
    SELECT its_tenant, r.key, r.value, _run_id FROM jsonb_each_text(_rest -> 'searched') AS r;
  END IF;
  INSERT INTO workspaces (tenant_id, workspace_id) VALUES (_tenant_id, _workspace_id) ON CONFLICT DO NOTHING;
  IF _rest ? 'queued' THEN
    notified := pg_notify('counterseal_steps', '') IS NULL;
  END IF;
  RETURN clock_timestamp();
END $function$;

ALTER FUNCTION open_run OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION open_run FROM PUBLIC;

GRANT EXECUTE ON FUNCTION open_run TO counterseal_engine, counterseal_faces;

-- Gives the leaves of a tenant's log that have no place yet their places, in the order in which they were written;
-- returns how many. A leaf stays without a place until this gives it one, so none is missed, however late it commits.
--
-- Executed by counterseal_engine, whose keeper gives the order. It runs with the rights of the tables' owner, because no
-- login may change a leaf; it changes only leaves without a place.
CREATE OR REPLACE FUNCTION order_leaves(_tenant text) RETURNS int LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE met int;
BEGIN
  -- One keeper at a time: the next one sees the places that this one has given. A crash leaves the leaves unordered.
  PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.log:' || _tenant, 0));
  UPDATE log_leaves l SET place = w.place FROM (
    SELECT leaf_id, row_number() OVER (ORDER BY leaf_id)
      + (SELECT coalesce(max(place), -1) FROM log_leaves WHERE tenant_id = _tenant AND place IS NOT NULL) AS place
    FROM log_leaves WHERE tenant_id = _tenant AND place IS NULL ORDER BY leaf_id LIMIT 1000) w
  WHERE l.tenant_id = _tenant AND l.leaf_id = w.leaf_id;
  GET DIAGNOSTICS met = ROW_COUNT;
  RETURN met;
END $function$;

REVOKE ALL ON FUNCTION order_leaves FROM PUBLIC;

GRANT EXECUTE ON FUNCTION order_leaves TO counterseal_engine;

-- Orders a message that no append orders: a note to one person, or the bundle of a run once more.
--
-- Executed by counterseal_faces and counterseal_engine. Every other message is ordered by the append that it is about.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
CREATE OR REPLACE FUNCTION order_message(_command_id uuid, _run_id uuid, _kind text, _payload jsonb, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
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

ALTER FUNCTION order_message OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION order_message FROM PUBLIC;

GRANT EXECUTE ON FUNCTION order_message TO counterseal_engine, counterseal_faces;

-- Stores a version of a declaration with the line that says so. Name, version, digest and author are the line's.
--
-- Executed by counterseal_faces, because people publish declarations. Nobody can store one in any other way. Versions
-- have no gaps, and none is ever changed. A crash before the commit leaves neither the version nor its line.
CREATE OR REPLACE FUNCTION publish_operation(_line bytea, _source text, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  known int;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  SELECT max(version) INTO known FROM operations WHERE tenant_id = _tenant AND name = told #>> '{data,name}';
  IF encode(sha256(convert_to(_source, 'UTF8')), 'hex') IS DISTINCT FROM told #>> '{data,digest}'
    OR coalesce(known, 0) + 1 IS DISTINCT FROM (told #>> '{data,version}')::int THEN
    RAISE EXCEPTION 'the line is of another declaration' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^operation\.published$', _tenant);
  INSERT INTO operations (tenant_id, name, version, digest, source, published_by)
  VALUES (_tenant, told #>> '{data,name}', (told #>> '{data,version}')::int, told #>> '{data,digest}', _source,
    told #>> '{actor,id}');
END $function$;

ALTER FUNCTION publish_operation OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION publish_operation FROM PUBLIC;

GRANT EXECUTE ON FUNCTION publish_operation TO counterseal_faces;

-- Stores a policy with the line that says so; false if it was there. Name, version, digest and author are the line's.
--
-- Executed by counterseal_faces, because people publish policies. Nobody can store a policy in any other way.
CREATE OR REPLACE FUNCTION publish_policy(_line bytea, _source text, _operations jsonb, _tenant text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  IF encode(sha256(convert_to(_source, 'UTF8')), 'hex') IS DISTINCT FROM told #>> '{data,digest}' THEN
    RAISE EXCEPTION 'the line is of another text' USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO policies (tenant_id, digest, name, version, source, published_by, operations)
  VALUES (_tenant, told #>> '{data,digest}', told #>> '{data,name}', (told #>> '{data,version}')::int, _source,
    told #>> '{actor,id}', _operations)
  ON CONFLICT (tenant_id, digest) DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM link_line(_line, '^policy\.published$', _tenant);
  RETURN true;
END $function$;

ALTER FUNCTION publish_policy OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION publish_policy FROM PUBLIC;

GRANT EXECUTE ON FUNCTION publish_policy TO counterseal_faces;

-- Deletes the values of a run whose retention is over, or that has inherited values of a run that is purged. The lines
-- stay, and commit to values that nobody can recover.
--
-- Executed by counterseal_engine, whose keeper purges. Nobody else can delete a value, and this function deletes none
-- before its time: it runs with the rights of the tables' owner, and checks the time itself.
CREATE OR REPLACE FUNCTION purge_records(id uuid) RETURNS void LANGUAGE sql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  DELETE FROM ledger t USING runs r WHERE t.run_id = r.run_id AND r.run_id = id
    AND (r.purge_at <= now() OR r.inherits AND r.finished_at IS NOT NULL
      AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL));
  UPDATE journal t SET vals = NULL FROM runs r WHERE t.run_id = r.run_id AND r.run_id = id
    AND (r.purge_at <= now() OR r.inherits AND r.finished_at IS NOT NULL
      AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL));
  UPDATE runs r SET purged_at = now(), purge_at = NULL, run_key = NULL WHERE run_id = id
    AND (r.purge_at <= now() OR r.inherits AND r.finished_at IS NOT NULL
      AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL))
$function$;

REVOKE ALL ON FUNCTION purge_records FROM PUBLIC;

GRANT EXECUTE ON FUNCTION purge_records TO counterseal_engine;

-- Reads an approval of the tenant, with its votes, and its run, of one snapshot. _lock locks the run as read_run does.
--
-- Executed by counterseal_faces and counterseal_engine, to decide on a vote.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
CREATE OR REPLACE FUNCTION read_question(_approval_id uuid, _tenant text, _lock bool)
RETURNS TABLE (run json, run_key bytea, state bytea, policy_digests text[], directory_digest text,
  max_writes_per_run int, stop_number int, paused jsonb, firsts int[], lines bytea[], vals bytea[],
  approval jsonb, now timestamptz, workspace_id text, votes jsonb)
LANGUAGE plpgsql SECURITY DEFINER
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
      r.purged_at, r.last_at, CASE WHEN r.trigger_type = 'agent' THEN agent_is_off(r.tenant_id, r.requested_by) END AS off,
      CASE WHEN r.root_run_id IS NOT NULL THEN (
        SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run,
    r.run_key, r.state,
    t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, tail.*,
    to_jsonb(a) AS approval, now() AS now, r.workspace_id,
    (SELECT jsonb_agg(jsonb_build_object('vote', to_jsonb(v), 'name', coalesce(p.name, v.person_id) || coalesce(
      ' for ' || coalesce((SELECT d.name FROM people d WHERE d.tenant_id = v.tenant_id AND d.person_id = v.on_behalf),
      v.on_behalf), '') || CASE WHEN v.glass THEN ' (broke the glass)' ELSE '' END)
        ORDER BY v.voted_at)
      FROM votes v LEFT JOIN people p ON p.tenant_id = v.tenant_id AND p.person_id = v.person_id
      WHERE v.approval_id = a.approval_id) AS votes
  FROM approvals a JOIN runs r ON r.run_id = a.run_id JOIN tenants t ON t.tenant_id = a.tenant_id
  LEFT JOIN LATERAL (
    SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
      array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
    FROM journal j WHERE j.run_id = r.run_id AND (j.n >= r.state_n OR j.n = 1)) tail ON true
  WHERE a.approval_id = _approval_id;
END $function$;

ALTER FUNCTION read_question OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION read_question FROM PUBLIC;

GRANT EXECUTE ON FUNCTION read_question TO counterseal_engine, counterseal_faces;

-- Reads a run of the tenant, with the appends from its kept state on; all of them if _whole. _lock locks the run until
-- the transaction ends: in a statement of its own, so that the read sees what was committed while we waited for the
-- lock.
--
-- Executed by counterseal_faces and counterseal_engine, to decide on a request. A face cannot read a run's folded state
-- or lock its row otherwise. queries/views.sql (read) is the same for the engine's own reads.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
CREATE OR REPLACE FUNCTION read_run(_run_id uuid, _whole bool, _tenant text, _lock bool)
RETURNS TABLE (run json, run_key bytea, state bytea, policy_digests text[], directory_digest text,
  max_writes_per_run int, stop_number int, paused jsonb, now timestamptz, firsts int[], lines bytea[], vals bytea[])
LANGUAGE plpgsql SECURITY DEFINER
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
      r.purged_at, r.last_at, CASE WHEN r.trigger_type = 'agent' THEN agent_is_off(r.tenant_id, r.requested_by) END AS off,
      CASE WHEN r.root_run_id IS NOT NULL THEN (
        SELECT row_to_json(f) FROM families f WHERE f.root_run_id = r.root_run_id) END AS family) x) AS run,
    r.run_key, CASE WHEN _whole THEN NULL ELSE r.state END AS state,
    t.policy_digests, t.directory_digest, t.max_writes_per_run, t.stop_number, t.paused, now() AS now, tail.*
  FROM runs r JOIN tenants t ON t.tenant_id = r.tenant_id
  LEFT JOIN LATERAL (
    SELECT array_agg(j.first_seq ORDER BY j.n) AS firsts,
      array_agg(j.lines ORDER BY j.n) AS lines, array_agg(j.vals ORDER BY j.n) AS vals
    FROM journal j WHERE j.run_id = r.run_id AND (_whole OR j.n >= r.state_n OR j.n = 1)) tail ON true
  WHERE r.run_id = _run_id;
END $function$;

ALTER FUNCTION read_run OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION read_run FROM PUBLIC;

GRANT EXECUTE ON FUNCTION read_run TO counterseal_engine, counterseal_faces;

-- Refuses a move of a status that the triggers legal_move and legal_birth do not name.
--
-- Nobody calls it: a trigger does, whichever login writes the row.
CREATE OR REPLACE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  IF TG_OP = 'INSERT' OR OLD.status || ' ' || NEW.status <> ALL (TG_ARGV) THEN
    RAISE EXCEPTION 'illegal move of % to %', TG_TABLE_NAME, NEW.status
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END $function$;

-- Refuses to bring the purge of a run forward. Its time follows from the run's end and its retention; an UPDATE may
-- only postpone it.
--
-- Nobody calls it: the trigger kept does, whichever login writes the row.
CREATE OR REPLACE FUNCTION refuse_purge() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  IF (NEW.purge_at >= OLD.purge_at) IS NOT TRUE
    AND (NEW.status IN ('succeeded', 'failed_terminal', 'canceled') AND NEW.purge_at >= now() + NEW.retention)
      IS NOT TRUE THEN
    RAISE EXCEPTION 'retention cannot be brought forward' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $function$;

-- Replaces the people and groups of a tenant, with the line that says so, and keeps the text of the directory for ever.
--
-- Executed by counterseal_faces, because people publish the directory, and by counterseal_engine, which publishes the
-- one of its files at the start. Neither can write people, groups or directories in any other way. It runs with the
-- rights of counterseal_appender, which never logs in; row-level security binds that role to the tenant that is set
-- first.
CREATE OR REPLACE FUNCTION replace_directory(_line bytea, _text text, _people jsonb, _members jsonb, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its_digest text := told #>> '{data,digest}';
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  IF encode(sha256(convert_to(_text, 'UTF8')), 'hex') IS DISTINCT FROM its_digest THEN
    RAISE EXCEPTION 'the line is of another text' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^directory\.published$', _tenant);
  -- A text that was published before is kept as it was then; each publication has a line of its own.
  INSERT INTO directories (tenant_id, digest, name, version, source, published_by)
  VALUES (_tenant, its_digest, told #>> '{data,name}', (told #>> '{data,version}')::int, _text, told #>> '{actor,id}')
  ON CONFLICT (tenant_id, digest) DO NOTHING;
  DELETE FROM group_members WHERE tenant_id = _tenant;
  DELETE FROM people WHERE tenant_id = _tenant;
  INSERT INTO people SELECT * FROM jsonb_populate_recordset(NULL::people, _people);
  INSERT INTO group_members SELECT * FROM jsonb_populate_recordset(NULL::group_members, _members);
  UPDATE tenants SET directory_digest = its_digest WHERE tenant_id = _tenant;
END $function$;

ALTER FUNCTION replace_directory OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION replace_directory FROM PUBLIC;

GRANT EXECUTE ON FUNCTION replace_directory TO counterseal_engine, counterseal_faces;

-- Stores the review of a use of emergency access (broken glass), with its line. False if no use of this question waits
-- for one.
--
-- Executed by counterseal_faces. Neither is written without the other, and whoever has broken the glass reviews nothing.
CREATE OR REPLACE FUNCTION review_glass(_line bytea, _tenant text, _approval uuid)
RETURNS bool LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE person text := convert_from(_line, 'UTF8')::jsonb #>> '{actor,id}';
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  UPDATE votes SET reviewed_by = person, reviewed_at = now()
  WHERE tenant_id = _tenant AND approval_id = _approval AND glass AND reviewed_at IS NULL AND person_id <> person;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM link_line(_line, '^glass\.reviewed$', _tenant);
  RETURN true;
END $function$;

ALTER FUNCTION review_glass OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION review_glass FROM PUBLIC;

GRANT EXECUTE ON FUNCTION review_glass TO counterseal_faces;

-- Looks up the person of a console's session, or of a link that logs in once, by its hash, and why it is not valid any
-- more (null if it is valid).
--
-- Executed by counterseal_faces, before it knows the tenant of a request: the hash cannot be guessed. It runs with the
-- rights of counterseal_finder, as token_owner does. A session by a token ends with that token.
CREATE OR REPLACE FUNCTION session_owner(hash text)
RETURNS TABLE (
  tenant_id text, subject text, name text, roles text[], kind text, expires_at timestamptz, ended text
)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT s.tenant_id, s.subject, p.name, s.roles, s.kind, s.expires_at,
    CASE WHEN s.ended_at IS NOT NULL THEN 'over' WHEN s.expires_at <= now() OR t.expires_at <= now() THEN 'expired'
      WHEN s.token_hash IS NOT NULL AND (t.token_hash IS NULL OR t.revoked_at IS NOT NULL) THEN 'revoked'
      WHEN p.person_id IS NULL OR p.owner IS NOT NULL THEN 'left' WHEN NOT p.active THEN 'deactivated' END
  FROM sessions s LEFT JOIN tokens t ON t.token_hash = s.token_hash
  LEFT JOIN people p ON p.tenant_id = s.tenant_id AND p.person_id = s.subject
  WHERE s.session_hash = hash
$function$;

ALTER FUNCTION session_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION session_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION session_owner TO counterseal_faces;

-- Takes a turn of a step at a target that takes so many calls in a minute. Returns 0 if it may call now, else the seconds
-- until its turn. A row is a turn: a call that was let out, or one that is kept for a step until then.
--
-- Executed by counterseal_engine. Turns at one target wait for each other, so none is counted twice; no other lock is
-- taken meanwhile. Calls are counted when they are let out. A kept turn that nobody comes for counts for a minute.
CREATE OR REPLACE FUNCTION take_turn(tenant text, place text, calls int, step uuid) RETURNS double precision
LANGUAGE plpgsql AS $function$
DECLARE
  moment timestamptz;
  mine bigint;
  slot timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.turns:' || tenant || ' ' || place, 0));
  moment := clock_timestamp();
  DELETE FROM turns WHERE tenant_id = tenant AND target = place AND at <= moment - interval '1 minute';
  SELECT number INTO mine FROM turns WHERE tenant_id = tenant AND target = place AND step_id = step AND NOT used;
  IF mine IS NULL THEN
    -- Behind all that wait: the turn after the newest so many.
    SELECT at + interval '1 minute' INTO slot FROM turns WHERE tenant_id = tenant AND target = place
      ORDER BY at DESC, number DESC OFFSET calls - 1 LIMIT 1;
    SELECT coalesce(max(number), 0) + 1 INTO mine FROM turns WHERE tenant_id = tenant AND target = place;
    INSERT INTO turns (tenant_id, target, number, step_id, at, used)
      VALUES (tenant, place, mine, step, coalesce(slot, moment), false);
  ELSE
    -- Its turn has come, or it comes too early: what was let out late lets it wait a little more.
    SELECT greatest(at, (SELECT t.at + interval '1 minute' FROM turns t WHERE t.tenant_id = tenant AND t.target = place
      AND t.used ORDER BY t.at DESC OFFSET calls - 1 LIMIT 1)) INTO slot
      FROM turns WHERE tenant_id = tenant AND target = place AND number = mine;
  END IF;
  UPDATE turns SET at = greatest(slot, moment), used = coalesce(slot, moment) <= moment
    WHERE tenant_id = tenant AND target = place AND number = mine;
  RETURN greatest(0, extract(epoch FROM slot - moment));
END $function$;

REVOKE ALL ON FUNCTION take_turn FROM PUBLIC;

GRANT EXECUTE ON FUNCTION take_turn TO counterseal_engine;

-- Appends a line to a tenant's audit stream that comes without a change of the tenant's state.
--
-- Executed by counterseal_engine and counterseal_faces. Facts that change what is in force have functions of their own,
-- which refuse to write the one without the other: publish_policy, publish_operation, change_policies, change_pause,
-- replace_directory.
CREATE OR REPLACE FUNCTION tell_tenant(_line bytea, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true),
    link_line(_line, '^(signal|task|request|evidence|token|workflow|session|schedule|message)\.|^run\.purged$|^approval\.vote_refused$|'
      '^action\.late$|^hold\.refused$|^(policy|directory)\.proposed$|^policy\.retirement_proposed$|^glass\.broken$', _tenant);
END $function$;

ALTER FUNCTION tell_tenant OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION tell_tenant FROM PUBLIC;

GRANT EXECUTE ON FUNCTION tell_tenant TO counterseal_engine, counterseal_faces;

-- Looks up the owner of a bearer token by the token's hash, and why it is not valid any more (null if it is valid).
--
-- Executed by counterseal_faces, before it knows the tenant of a request: the hash cannot be guessed. It runs with the
-- rights of counterseal_finder, which never logs in and may only read tokens, people and approvals. If the engine owned
-- the function, it could alter it.
CREATE OR REPLACE FUNCTION token_owner(hash text)
RETURNS TABLE (tenant_id text, subject text, roles text[], ended text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT t.tenant_id, t.subject, t.roles,
    CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= now() THEN 'expired'
      WHEN p.person_id IS NULL OR p.owner IS NOT NULL AND o.person_id IS NULL THEN 'left'
      WHEN NOT (p.active AND coalesce(o.active, true)) THEN 'deactivated' END
  FROM tokens t LEFT JOIN people p ON p.tenant_id = t.tenant_id AND p.person_id = t.subject
  LEFT JOIN people o ON o.tenant_id = t.tenant_id AND o.person_id = p.owner
  WHERE t.token_hash = hash
$function$;

ALTER FUNCTION token_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION token_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION token_owner TO counterseal_faces;
