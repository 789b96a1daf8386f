-- Replaces the people and groups of a tenant, only if the same transaction wrote the audit line of it.
--
-- Executed by counterseal_faces, because people publish the directory, and by counterseal_engine, which publishes the
-- one of its files at the start. Neither can write people or groups in any other way. It runs with the rights of
-- counterseal_appender, which never logs in; row-level security binds that role to the tenant that is set first.
CREATE OR REPLACE FUNCTION replace_directory(_people jsonb, _members jsonb, _digest text, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  -- A visible row whose transaction is still in progress was written by this transaction.
  IF NOT EXISTS (
      SELECT FROM tenants t JOIN audit_events e ON e.stream_id = t.stream_id AND e.seq = t.audit_count - 1
      WHERE t.tenant_id = _tenant AND e.type = 'directory.published' AND pg_xact_status(
        ((pg_current_xact_id()::text::bigint >> 32 << 32) + e.xmin::text::bigint)::text::xid8) = 'in progress') THEN
    RAISE EXCEPTION 'a directory is replaced by its publication alone' USING ERRCODE = 'insufficient_privilege';
  END IF;
  DELETE FROM group_members WHERE tenant_id = _tenant;
  DELETE FROM people WHERE tenant_id = _tenant;
  INSERT INTO people SELECT * FROM jsonb_populate_recordset(NULL::people, _people);
  INSERT INTO group_members SELECT * FROM jsonb_populate_recordset(NULL::group_members, _members);
  UPDATE tenants SET directory_digest = _digest WHERE tenant_id = _tenant;
END $function$;

ALTER FUNCTION replace_directory OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION replace_directory FROM PUBLIC;

GRANT EXECUTE ON FUNCTION replace_directory TO counterseal_engine, counterseal_faces;
