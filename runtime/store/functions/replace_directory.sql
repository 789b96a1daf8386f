-- Replaces the people and groups of a tenant, with the line that says so, and keeps the text of the directory for ever.
--
-- Executed by counterseal_faces, because people publish the directory, and by counterseal_engine, which publishes the
-- one of its files at the start. Neither can write people, groups or directories in any other way. It runs with the
-- rights of counterseal_appender, which never logs in; row-level security binds that role to the tenant that is set
-- first.
CREATE OR REPLACE FUNCTION replace_directory(_line bytea, _text text, _people jsonb, _members jsonb, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its_digest text := told #>> '{data,digest}';
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  IF encode(sha256(convert_to(_text, 'UTF8')), 'hex') IS DISTINCT FROM its_digest THEN
    RAISE EXCEPTION 'the line is of another text' USING ERRCODE = 'insufficient_privilege';
  END IF;
  PERFORM link_line(_line, '^directory\.published$', _tenant);
  -- A text that was published before is kept as it was then; each publication has a line of its own.
  INSERT INTO directories (tenant_id, digest, name, version, source, published_by)
  VALUES (_tenant, its_digest, told #>> '{data,name}', (told #>> '{data,version}')::int, _text, told #>> '{actor,id}')
  ON CONFLICT (tenant_id, digest) DO NOTHING;
  DELETE FROM group_members WHERE tenant_id = _tenant;
  DELETE FROM people WHERE tenant_id = _tenant;
  INSERT INTO people SELECT * FROM jsonb_populate_recordset(NULL::people, _people);
  INSERT INTO group_members SELECT * FROM jsonb_populate_recordset(NULL::group_members, _members);
  UPDATE tenants SET directory_digest = its_digest WHERE tenant_id = _tenant;
END $function$;

ALTER FUNCTION replace_directory OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION replace_directory FROM PUBLIC;

GRANT EXECUTE ON FUNCTION replace_directory TO counterseal_engine, counterseal_faces;
