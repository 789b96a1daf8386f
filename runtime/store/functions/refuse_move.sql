-- Refuses a move of a status that the triggers legal_move and legal_birth do not name.
--
-- Nobody calls it: a trigger does, whichever login writes the row.
CREATE OR REPLACE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
  IF TG_OP = 'INSERT' OR OLD.status || ' ' || NEW.status <> ALL (TG_ARGV) THEN
    RAISE EXCEPTION 'illegal move of % to %', TG_TABLE_NAME, NEW.status
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END $function$;
