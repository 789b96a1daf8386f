-- Raises stop_number, the guard of every intent, at any change of a tenant's policies, directory or pauses, and if a
-- target asks for no calls for a while.
--
-- Nobody calls it: the trigger stop_number does, whichever login writes the row. It takes exclusively the lock that
-- appends with intents share until they end (append.sql). So the change goes on after every append that began before
-- it, and an append that had to wait reads the new number (promise 11). A busy target needs no lock and no new
-- judgement: an intent that is being appended meanwhile counts as one that had gone out before.
CREATE OR REPLACE FUNCTION move_stop_number() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  NEW.stop_number := OLD.stop_number + 1;
  IF (OLD.policy_digests, OLD.directory_digest, OLD.paused, OLD.settings_version)
      IS DISTINCT FROM (NEW.policy_digests, NEW.directory_digest, NEW.paused, NEW.settings_version) THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.intents:' || NEW.tenant_id, 0));
    NEW.judge_after := '00000000-0000-0000-0000-000000000000';
  END IF;
  RETURN NEW;
END $function$;
