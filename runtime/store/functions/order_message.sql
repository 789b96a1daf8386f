-- Orders a message that no append orders: a note to one person, or the bundle of a run once more.
--
-- Executed by counterseal_faces and counterseal_engine. Every other message is ordered by the append that it is about.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
CREATE OR REPLACE FUNCTION order_message(_command_id uuid, _run_id uuid, _kind text, _payload jsonb, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text;
BEGIN
  bound := set_config('counterseal.tenant', _tenant, true);
  IF _kind NOT IN ('note', 'bundle') THEN
    RAISE EXCEPTION 'no face may order %', _kind USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT _command_id, tenant_id, run_id, _kind, _payload, 'pending',
    CASE _kind WHEN 'bundle' THEN 'bundle:' || run_id END
  FROM runs WHERE run_id = _run_id;
  PERFORM pg_notify('counterseal_messages', '');
END $function$;

ALTER FUNCTION order_message OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION order_message FROM PUBLIC;

GRANT EXECUTE ON FUNCTION order_message TO counterseal_engine, counterseal_faces;
