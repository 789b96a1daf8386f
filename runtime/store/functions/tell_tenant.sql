-- Appends a line to a tenant's audit stream that comes without a change of the tenant's state.
--
-- Executed by counterseal_engine and counterseal_faces. Facts that change what is in force have functions of their own,
-- which refuse to write the one without the other: publish_policy, publish_operation, change_policies, change_pause,
-- replace_directory.
CREATE OR REPLACE FUNCTION tell_tenant(_line bytea, _tenant text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true),
    link_line(_line, '^(signal|task|request|evidence|token|workflow|session|schedule|message)\.|^run\.purged$|^approval\.vote_refused$|'
      '^action\.late$|^hold\.refused$|^(policy|directory)\.proposed$|^policy\.retirement_proposed$|^glass\.broken$', _tenant);
END $function$;

ALTER FUNCTION tell_tenant OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION tell_tenant FROM PUBLIC;

GRANT EXECUTE ON FUNCTION tell_tenant TO counterseal_engine, counterseal_faces;
