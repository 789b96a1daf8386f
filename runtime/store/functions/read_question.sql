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
