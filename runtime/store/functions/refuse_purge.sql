-- Refuses to bring the purge of a run forward. Its time follows from the run's end and its retention; an UPDATE may
-- only postpone it.
--
-- Nobody calls it: the trigger kept does, whichever login writes the row.
CREATE OR REPLACE FUNCTION refuse_purge() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  IF (NEW.purge_at >= OLD.purge_at) IS NOT TRUE
    AND (NEW.status IN ('succeeded', 'failed_terminal', 'canceled') AND NEW.purge_at >= now() + NEW.retention)
      IS NOT TRUE THEN
    RAISE EXCEPTION 'retention cannot be brought forward' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NULL;
END $function$;
