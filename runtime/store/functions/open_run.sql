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
