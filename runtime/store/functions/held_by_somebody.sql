-- Says if a row of the queue holds what its status asks for: a row in line has no owner, one that was sent has one, and
-- a leased one has the lease, too.
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
