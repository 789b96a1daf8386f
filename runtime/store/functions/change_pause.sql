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
