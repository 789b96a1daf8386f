-- Writes a leaf of the tenant's log for a line of its stream, in the transaction that appends the line.
--
-- Nobody calls it: the trigger log_told does, whichever login writes the row. It runs with the rights of the tables'
-- owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_told() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  INSERT INTO log_leaves (tenant_id, kind, count, head)
  VALUES (NEW.tenant_id, 'told', NEW.seq + 1, decode(NEW.hash, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_told FROM PUBLIC;

CREATE TRIGGER log_told AFTER INSERT ON audit_events FOR EACH ROW EXECUTE FUNCTION log_told();
