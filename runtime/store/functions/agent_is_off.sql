-- True if an agent's account has no valid token any more. Ids of the directory differ by more than their case.
--
-- Executed by counterseal_engine, counterseal_faces and counterseal_appender, when a run is read that the account has
-- asked for, and by append, before anything of it goes out. It runs with the rights of counterseal_finder, which never
-- logs in.
CREATE OR REPLACE FUNCTION agent_is_off(_tenant text, _account text)
RETURNS boolean LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT NOT EXISTS (SELECT FROM tokens t WHERE t.tenant_id = _tenant AND lower(t.subject) = lower(_account)
    AND 'agent' = ANY (t.roles) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp())
$function$;

ALTER FUNCTION agent_is_off OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION agent_is_off FROM PUBLIC;

GRANT EXECUTE ON FUNCTION agent_is_off TO counterseal_engine, counterseal_faces, counterseal_appender;
