-- Takes a turn of a step at a target that takes so many calls in a minute. Returns 0 if it may call now, else the seconds
-- until its turn. A row is a turn: a call that was let out, or one that is kept for a step until then.
--
-- Executed by counterseal_engine. Turns at one target wait for each other, so none is counted twice; no other lock is
-- taken meanwhile. Calls are counted when they are let out. A kept turn that nobody comes for counts for a minute.
CREATE OR REPLACE FUNCTION take_turn(tenant text, place text, calls int, step uuid) RETURNS double precision
LANGUAGE plpgsql AS $function$
DECLARE
  moment timestamptz;
  mine bigint;
  slot timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.turns:' || tenant || ' ' || place, 0));
  moment := clock_timestamp();
  DELETE FROM turns WHERE tenant_id = tenant AND target = place AND at <= moment - interval '1 minute';
  SELECT number INTO mine FROM turns WHERE tenant_id = tenant AND target = place AND step_id = step AND NOT used;
  IF mine IS NULL THEN
    -- Behind all that wait: the turn after the newest so many.
    SELECT at + interval '1 minute' INTO slot FROM turns WHERE tenant_id = tenant AND target = place
      ORDER BY at DESC, number DESC OFFSET calls - 1 LIMIT 1;
    SELECT coalesce(max(number), 0) + 1 INTO mine FROM turns WHERE tenant_id = tenant AND target = place;
    INSERT INTO turns (tenant_id, target, number, step_id, at, used)
      VALUES (tenant, place, mine, step, coalesce(slot, moment), false);
  ELSE
    -- Its turn has come, or it comes too early: what was let out late lets it wait a little more.
    SELECT greatest(at, (SELECT t.at + interval '1 minute' FROM turns t WHERE t.tenant_id = tenant AND t.target = place
      AND t.used ORDER BY t.at DESC OFFSET calls - 1 LIMIT 1)) INTO slot
      FROM turns WHERE tenant_id = tenant AND target = place AND number = mine;
  END IF;
  UPDATE turns SET at = greatest(slot, moment), used = coalesce(slot, moment) <= moment
    WHERE tenant_id = tenant AND target = place AND number = mine;
  RETURN greatest(0, extract(epoch FROM slot - moment));
END $function$;

REVOKE ALL ON FUNCTION take_turn FROM PUBLIC;

GRANT EXECUTE ON FUNCTION take_turn TO counterseal_engine;
