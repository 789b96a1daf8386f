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
