-- Writes a leaf of the tenant's log when a run parks, ends, is reopened, gets a late answer or is erased: in the
-- transaction that makes the fact, so that nobody makes one without the other.
--
-- Nobody calls it: the trigger log_run does, whichever login writes the row. It runs with the rights of the tables'
-- owner, because no login may write a leaf.
CREATE OR REPLACE FUNCTION log_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
BEGIN
  -- A crash before the commit leaves neither the fact nor its leaf.
  INSERT INTO log_leaves (tenant_id, kind, run_id, count, head)
  VALUES (NEW.tenant_id, CASE
      WHEN OLD.purged_at IS NULL AND NEW.purged_at IS NOT NULL THEN 'erased'
      WHEN OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL THEN 'closed'
      WHEN OLD.finished_at IS NOT NULL AND NEW.finished_at IS NULL THEN 'reopened'
      WHEN NEW.finished_at IS NOT NULL THEN 'late' ELSE 'parked' END,
    NEW.run_id, NEW.audit_count, decode(NEW.audit_head, 'hex'));
  RETURN NEW;
END $function$;

-- Otherwise a login that may create tables could put this trigger on one of them, and write leaves of its own.
REVOKE ALL ON FUNCTION log_run FROM PUBLIC;

CREATE TRIGGER log_run AFTER UPDATE ON runs FOR EACH ROW WHEN (
  OLD.status <> NEW.status AND NEW.status IN ('waiting_approval', 'waiting')
  OR (OLD.finished_at IS NULL) <> (NEW.finished_at IS NULL)
  OR OLD.purged_at IS NULL AND NEW.purged_at IS NOT NULL
  OR NEW.finished_at IS NOT NULL AND OLD.audit_count <> NEW.audit_count) EXECUTE FUNCTION log_run();
