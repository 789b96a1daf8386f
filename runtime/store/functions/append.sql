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
