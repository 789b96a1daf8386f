-- Numbers a new run within its tenant, without gaps, and writes the leaf that opens it.
--
-- Nobody calls it: the trigger log_opened does, at the very end of the transaction that opens the run, whichever login
-- writes the row. So the counter is locked only while that commits, and whoever waits for it holds nothing that another
-- start needs. It runs with the rights of the tables' owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_opened() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
DECLARE its_number int;
BEGIN
  INSERT INTO log_counters AS c (tenant_id, runs) VALUES (NEW.tenant_id, 1)
  ON CONFLICT (tenant_id) DO UPDATE SET runs = c.runs + 1 RETURNING runs INTO its_number;
  INSERT INTO log_leaves (tenant_id, kind, run_id, number, count, head)
  VALUES (NEW.tenant_id, 'opened', NEW.run_id, its_number, NEW.audit_count, decode(NEW.audit_head, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_opened FROM PUBLIC;

CREATE CONSTRAINT TRIGGER log_opened AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION log_opened();
