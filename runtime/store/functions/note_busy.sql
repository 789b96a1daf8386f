-- Notes that a target asks for no calls for so many seconds, and returns until when: no call of the tenant goes to it
-- before, whichever worker makes it. At most an hour, so that one wrong answer does not stop a target for long.
--
-- Executed by counterseal_engine, in a transaction of its own. The time is a whole second, so that many answers of the
-- same second move the tenant's stop number once. Times that are over are forgotten here, and of more than 200 targets
-- those whose time is over first: then only the step that was told waits.
CREATE OR REPLACE FUNCTION note_busy(_tenant text, _place text, _seconds double precision) RETURNS timestamptz
LANGUAGE plpgsql AS $function$
DECLARE
  its_end timestamptz :=
    date_trunc('second', clock_timestamp() + make_interval(secs => least(greatest(_seconds, 0), 3600)))
    + interval '1 second';
BEGIN
  UPDATE tenants t SET busy = jsonb_build_object(_place, its_end) || coalesce((
      SELECT jsonb_object_agg(b.place, b.until) FROM (
        SELECT key AS place, value::timestamptz AS until FROM jsonb_each_text(t.busy)
        WHERE key <> _place AND value::timestamptz > clock_timestamp() ORDER BY 2 DESC LIMIT 199) b), '{}')
  WHERE t.tenant_id = _tenant AND ((t.busy ->> _place)::timestamptz < its_end) IS NOT FALSE;
  RETURN its_end;
END $function$;

REVOKE ALL ON FUNCTION note_busy FROM PUBLIC;

GRANT EXECUTE ON FUNCTION note_busy TO counterseal_engine;
