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
