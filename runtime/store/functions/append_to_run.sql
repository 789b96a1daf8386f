-- Appends to a run the events of people and of outside systems. Returns false if the run has changed since it was read.
--
-- Executed by counterseal_faces, the login of the HTTP service and of Slack, and by counterseal_engine, which passes
-- requests on in the same way. It accepts no events of actions: only the engine records decisions of policy, intents
-- and answers of connectors. The exceptions are a doubt that people count as failed, which performs nothing, and a late
-- report of an agent, which moves nothing.
--
-- It runs with the rights of counterseal_appender, which never logs in. That role has the rights on tables that the
-- function needs, and row-level security binds it to the tenant that the function sets first. So a face needs one round
-- trip, without a transaction around it, and has no rights of its own on the tables of runs.
-- _answers is the step whose question or wait the append answers: the append commutes with events of other steps.
CREATE OR REPLACE FUNCTION append_to_run(
  _run_id uuid, _version int, _status text, _superstep int, _executing int, _width int, _writes int, _count int,
  _error jsonb, _canceling jsonb, _finished bool, _acts_for text, _stop int, _reference text, _result jsonb,
  _extended int, _gate int, _writes_max int, _moved int, _latest timestamptz, _lines bytea, _vals bytea,
  _wakes_steps bool, _wakes_messages bool, _unqueued text[], _rest jsonb, _held text[], _leases uuid[], _epochs int[],
  _answers text, _expected int, _tenant text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $function$
#variable_conflict use_column
DECLARE bound text; seen int; book_at timestamptz; done boolean;
BEGIN
  -- An assignment is cheaper than a query.
  bound := set_config('counterseal.tenant', _tenant, true);
  -- A time ahead of the clock was read before the clock went back, or comes from the book: the caller reads it again.
  IF _latest > clock_timestamp() + interval '10 seconds' THEN
    SELECT last_at INTO book_at FROM runs WHERE run_id = _run_id;
    IF (_latest <= book_at) IS NOT TRUE THEN
      RETURN false;
    END IF;
  END IF;
  -- Refuse an append with a line that no face may write. If a line has a name twice, jsonb keeps the last one.
  IF EXISTS (
    SELECT FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' IN (
        -- What people and the outside say.
        'approval.said', 'approval.reassigned', 'approval.edited', 'approval.voted', 'approval.vote_refused', 'approval.decided',
        'approval.superseded',
        'wait.completed', 'wait.canceled', 'wait.postponed', 'hold.answered', 'grant.revoked',
        'run.canceled', 'run.extended', 'run.migrated', 'run.paused', 'run.resumed', 'run.reopened', 'run.sealed',
        -- What follows from it in the same append: a step that resumes or ends, the barrier behind that step, the end
        -- of the run.
        'step.resumed', 'step.failed', 'step.canceled', 'run.reference_set', 'checkpoint.committed', 'run.started',
        'run.closed',
        -- What an agent reports of a call of its own after its lease: it decides nothing.
        'action.late',
        -- Only as a failure: see below.
        'action.doubt_resolved')) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= greatest(clock_timestamp() + interval '10 seconds', book_at)) IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{data,resolution}' = 'failed') IS NOT TRUE)
    -- The rows that come with such an append. Only the engine writes leases, new waits, new questions and new effects.
    -- A rejection counts for all runs of the family: what is sent can only add to its counters.
    OR _rest - ARRAY[
      'queued', 'waits', 'commands', 'ledger', 'effects', 'shares', 'approvals', 'votes', 'refusals', 'cancels_rest',
      'sealed', 'family'] <> '{}' THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
  -- The run's row is locked first, so that this waits for other appends about the step and then sees them: a vote, a
  -- reminder, the end of its wait, a late answer.
  IF _answers IS NOT NULL THEN
    SELECT version INTO seen FROM runs WHERE run_id = _run_id FOR NO KEY UPDATE;
    IF seen > _expected THEN
      IF EXISTS (
          SELECT FROM journal j
          CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\n') AS l(line)
          WHERE j.run_id = _run_id AND j.n > _expected AND l.line::jsonb ->> 'step' = _answers) THEN
        RETURN false;
      END IF;
    END IF;
  END IF;
  done := append(
    _run_id, _version, _status, _superstep, _executing, _width, _writes, _count, _error, _canceling, _finished,
    _acts_for, _stop, _reference, _result, _extended, _gate, _writes_max, _moved, _latest, _lines, _vals,
    _wakes_steps, _wakes_messages, _unqueued, _rest, _held, _leases, _epochs) IS NOT NULL;
  -- The run's present version of its workflow, for lists: its book holds it too, and this row is of the same append.
  IF done AND position('"type":"run.migrated"'::bytea IN _lines) > 0 THEN
    UPDATE runs SET migrated_to = (
      SELECT (l.line::jsonb #>> '{data,workflow,version}')::int
      FROM string_to_table(convert_from(_lines, 'UTF8'), E'\n') AS l(line)
      WHERE l.line::jsonb ->> 'type' = 'run.migrated')
    WHERE run_id = _run_id;
  END IF;
  RETURN done;
END $function$;

ALTER FUNCTION append_to_run OWNER TO counterseal_appender;

REVOKE ALL ON FUNCTION append_to_run FROM PUBLIC;

GRANT EXECUTE ON FUNCTION append_to_run TO counterseal_engine, counterseal_faces;
