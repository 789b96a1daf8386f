-- Appends one line to a tenant's audit stream, and returns the line as JSON. The tenant's row is locked until the
-- transaction ends.
--
-- Executed by counterseal_appender, within the functions that people and systems call: nobody else may write
-- audit_events, or the count and the head in the tenant's row. The line has to be of the given types, and of the time of
-- this transaction, so that nobody dates a fact back.
CREATE OR REPLACE FUNCTION link_line(_line bytea, _types text, _tenant text)
RETURNS json LANGUAGE plpgsql AS $function$
DECLARE
  told json := convert_from(_line, 'UTF8')::json;
  its record;
  head text;
BEGIN
  IF (told ->> 'type' ~ _types AND ARRAY(SELECT json_object_keys(told)) = '{actor,data,step,ts,type,v}'
      AND told ->> 'ts' = to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) IS NOT TRUE THEN
    RAISE EXCEPTION 'this line does not belong here' USING ERRCODE = 'insufficient_privilege';
  END IF;
  SELECT stream_id, audit_count, audit_head, stop_number INTO its FROM tenants WHERE tenant_id = _tenant FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no such tenant' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- A line about pauses, policies or the directory holds for every intent with a greater number. So an intent that
  -- ignored it is recognized by its own line.
  IF told ->> 'type' ~ '^(pause\.|policy\.(activated|retired)$|directory\.published$)'
      AND (told #>> '{data,stop}') IS DISTINCT FROM its.stop_number::text THEN
    RAISE EXCEPTION 'the line names another stop number' USING ERRCODE = 'insufficient_privilege';
  END IF;
  head := encode(sha256(CASE its.audit_count WHEN 0 THEN sha256(convert_to('tenant:' || _tenant, 'UTF8'))
    ELSE decode(its.audit_head, 'hex') END || sha256(_line)), 'hex');
  -- A crash before the commit leaves neither the line nor what the caller changes with it.
  INSERT INTO audit_events (stream_id, seq, tenant_id, type, line, hash)
  VALUES (its.stream_id, its.audit_count, _tenant, told ->> 'type', _line, head);
  UPDATE tenants SET audit_count = its.audit_count + 1, audit_head = head WHERE tenant_id = _tenant;
  RETURN told;
END $function$;

REVOKE ALL ON FUNCTION link_line FROM PUBLIC;

GRANT EXECUTE ON FUNCTION link_line TO counterseal_appender;
