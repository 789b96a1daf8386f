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
