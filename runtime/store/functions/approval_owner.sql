-- Looks up the tenant of an approval by its id.
--
-- Executed by counterseal_faces, before it knows the tenant of a click in Slack: the id cannot be guessed. It runs with
-- the rights of counterseal_finder, as token_owner does.
CREATE OR REPLACE FUNCTION approval_owner(id uuid) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
  SELECT tenant_id FROM approvals WHERE approval_id = id
$function$;

ALTER FUNCTION approval_owner OWNER TO counterseal_finder;

REVOKE ALL ON FUNCTION approval_owner FROM PUBLIC;

GRANT EXECUTE ON FUNCTION approval_owner TO counterseal_faces;
