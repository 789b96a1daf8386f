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
