-- Stores the review of a use of emergency access (broken glass), with its line. False if no use of this question waits
-- for one.
--
-- Executed by counterseal_faces. Neither is written without the other, and whoever has broken the glass reviews nothing.
CREATE OR REPLACE FUNCTION review_glass(_line bytea, _tenant text, _approval uuid)
RETURNS bool LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE person text := convert_from(_line, 'UTF8')::jsonb #>> '{actor,id}';
BEGIN
  PERFORM set_config('counterseal.tenant', _tenant, true);
  UPDATE votes SET reviewed_by = person, reviewed_at = now()
  WHERE tenant_id = _tenant AND approval_id = _approval AND glass AND reviewed_at IS NULL AND person_id <> person;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM link_line(_line, '^glass\.reviewed$', _tenant);
  RETURN true;
END $function$;

ALTER FUNCTION review_glass OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION review_glass FROM PUBLIC;

GRANT EXECUTE ON FUNCTION review_glass TO counterseal_faces;
