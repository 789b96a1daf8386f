-- True if a row of the queue has the columns that its status demands: a row in line has no owner, a sent row has an
-- owner, and a leased row has an owner and a lease.
--
-- Nobody calls it: the constraint ck_queue_held_by_somebody does, whichever login writes the row.
CREATE OR REPLACE FUNCTION held_by_somebody(status text, owner text, lease_id uuid, expires_at timestamptz)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $function$
BEGIN
  RETURN CASE status
    WHEN 'claimable' THEN owner IS NULL AND expires_at IS NULL
    WHEN 'sent' THEN owner IS NOT NULL AND expires_at IS NOT NULL
    WHEN 'leased' THEN owner IS NOT NULL AND expires_at IS NOT NULL AND lease_id IS NOT NULL
    ELSE false END;
END $function$;
