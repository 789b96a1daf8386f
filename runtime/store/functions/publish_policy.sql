-- Stores a policy with the line that says so; false if it was there. Name, version, digest and author are the line's.
--
-- Executed by counterseal_faces, because people publish policies. Nobody can store a policy in any other way.
CREATE OR REPLACE FUNCTION publish_policy(_line bytea, _source text, _operations jsonb, _tenant text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  IF encode(sha256(convert_to(_source, 'UTF8')), 'hex') IS DISTINCT FROM told #>> '{data,digest}' THEN
    RAISE EXCEPTION 'the line is of another text' USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO policies (tenant_id, digest, name, version, source, published_by, operations)
  VALUES (_tenant, told #>> '{data,digest}', told #>> '{data,name}', (told #>> '{data,version}')::int, _source,
    told #>> '{actor,id}', _operations)
  ON CONFLICT (tenant_id, digest) DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM link_line(_line, '^policy\.published$', _tenant);
  RETURN true;
END $function$;

ALTER FUNCTION publish_policy OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION publish_policy FROM PUBLIC;

GRANT EXECUTE ON FUNCTION publish_policy TO counterseal_faces;
