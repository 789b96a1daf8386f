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
