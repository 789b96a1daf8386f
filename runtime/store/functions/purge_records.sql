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
