"""The schema of 0.2.0 as one fresh migration; databases of 0.1.0 (revisions up to 0005) are refused."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = branch_labels = depends_on = None

ENGINE = "counterseal_engine"
FACES = "counterseal_faces"
APPENDER = "counterseal_appender"
FINDER = "counterseal_finder"
BOTH = f"{ENGINE}, {FACES}"
OWN = "tenant_id = current_setting('counterseal.tenant', true)"

# A frozen copy on purpose: a migration must not change with the state tables in the code. One append may begin a run or
# a step and move it on at once, and may both open and cancel a question or a wait; so some pairs skip states.
MOVES = {
    "runs": {
        "queued": "running waiting waiting_approval succeeded failed_retryable failed_terminal canceled",
        "running": "waiting waiting_approval succeeded failed_retryable failed_terminal canceled",
        "waiting": "running succeeded failed_terminal canceled",
        "waiting_approval": "running failed_terminal canceled",
        "failed_retryable": "running failed_terminal canceled",
        "failed_terminal": "running",
    },
    "waits": {"waiting": "canceled completed timed_out"},
    "commands": {
        "deferred": "pending rejected",
        "pending": "leased dispatched rejected",
        "leased": "pending dispatched rejected failed",
        "dispatched": "pending",
        "failed": "pending",
    },
    "approvals": {"requested": "approved rejected expired canceled superseded", "approved": "superseded"},
    "effects": {
        "intended": "succeeded failed in_doubt begun",
        "in_doubt": "intended succeeded failed begun",
        "begun": "succeeded failed left",
        "left": "begun failed",
        "failed": "intended",
    },
}
BORN = {
    "runs": "queued",
    "waits": "waiting canceled",
    "commands": "pending deferred",
    "approvals": "requested canceled",
    "effects": "intended",
}
# The engine's rights to write. Records are never changed, and only ``purge_records`` deletes them, after their
# retention. Only the engine may write an effect, and nobody may delete one.
ENGINES = {
    **dict.fromkeys("audit_events journal ledger remains bundles".split(), "INSERT"),
    **dict.fromkeys("effects waits approvals votes inbox commands workspaces".split(), "INSERT, UPDATE"),
    **dict.fromkeys(("queue", "records"), "INSERT, UPDATE, DELETE"),
    "tenants": "UPDATE",
    "caps": "UPDATE (starts_left, starts_left_at)",
    **dict.fromkeys("workflows policies people group_members tokens unavailable".split(), ""),
    "runs": "",
}
# The engine may not change a run's owner, its key or its retention.
RUNS_KEPT = "run_id tenant_id run_key retention created_at purged_at inherits".split()
# A face writes the inbox, documents, tokens and tenants. It changes runs only through the appender's functions.
FACES_OWN = {
    "inbox": "INSERT, UPDATE (processed_at, result)",
    "audit_events": "INSERT",
    "tenants": "INSERT (tenant_id, stream_id),"
    " UPDATE (policy_digests, paused, resumed, max_concurrency, max_runs_per_min, max_writes_per_run, weight,"
    " audit_count, audit_head)",
    "caps": "INSERT (tenant_id, cap, slots, max_runs_per_min), UPDATE (slots, max_runs_per_min)",
    "workflows": "INSERT, UPDATE (retired_at)",
    "policies": "INSERT",
    "unavailable": "INSERT, UPDATE (reason), DELETE",
    "tokens": "INSERT, UPDATE (revoked_at)",
}
# The appender never logs in: it owns the functions and has the rights that their statements need. A row lock needs
# UPDATE.
APPENDS = {
    "runs": "SELECT, INSERT, UPDATE",
    "queue": "SELECT, INSERT, DELETE, UPDATE (created_at)",
    "waits": "SELECT, UPDATE",
    "approvals": "SELECT, UPDATE",
    "votes": "SELECT, INSERT, UPDATE",
    "effects": "SELECT, UPDATE",
    "commands": "SELECT, INSERT",
    "workspaces": "SELECT, INSERT",
    **dict.fromkeys(("journal", "ledger"), "SELECT, INSERT"),
    **dict.fromkeys("people group_members".split(), "SELECT, INSERT, DELETE"),
    **dict.fromkeys("caps workflows remains audit_events".split(), "SELECT"),
    "tenants": "SELECT, UPDATE (directory_digest)",
}
FUNCTIONS = "replace_directory append_to_run open_run order_message read_run read_question".split()


def upgrade() -> None:
    run = op.get_bind().exec_driver_sql
    # Lines inside a function may end with a semicolon, so functions are split at blank lines.
    for file, end in (("0006_tables.sql", ";\n"), ("0006_functions.sql", ";\n\n")):
        for statement in Path(__file__).with_name(file).read_text().rstrip(";\n").split(end):
            run(statement)
    for role in (ENGINE, FACES, APPENDER, FINDER):
        run(
            f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN "
            f"CREATE ROLE {role} NOLOGIN; END IF; END $$"
        )
        run(f"GRANT {role} TO CURRENT_USER")
        run(f"GRANT USAGE ON SCHEMA public TO {role}")
    for table, writes in ENGINES.items():
        run(f"GRANT {', '.join(filter(None, ('SELECT', writes)))} ON {table} TO {ENGINE}")
        run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        run(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        run(f"CREATE POLICY engine ON {table} TO {ENGINE} USING (true) WITH CHECK (true)")
        run(f"CREATE POLICY tenant ON {table} TO {FACES}, {APPENDER} USING ({OWN}) WITH CHECK ({OWN})")
        # Faces cannot read a run's folded state directly; only the functions that decide read it.
        shown = "SELECT" if table != "runs" else f"SELECT ({_columns_but('runs', 'state')})"
        run(f"GRANT {shown} ON {table} TO {FACES}")
    for role, rights in ((FACES, FACES_OWN), (APPENDER, APPENDS)):
        for table, writes in rights.items():
            run(f"GRANT {writes} ON {table} TO {role}")
    run(f"GRANT UPDATE ({_columns_but('runs', *RUNS_KEPT)}) ON runs TO {ENGINE}")
    run(f"GRANT SELECT ON alembic_version TO {BOTH}")
    _refuse_illegal_moves()
    _publish_directory()
    _own_functions()
    _guard_intents()
    _find_owners()
    _purge()
    _read_line_by_line()


def _columns_but(table: str, *hidden: str) -> str:
    return op.get_bind().exec_driver_sql(
        f"SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '{table}'::regclass "
        f"AND attnum > 0 AND NOT attisdropped AND attname <> ALL ('{{{','.join(hidden)}}}')"
    ).scalar_one()


def _own_functions() -> None:
    """Give the faces the functions that change runs. The engine calls the same ones when it forwards a request."""
    found = op.get_bind().exec_driver_sql(
        f"SELECT oid::regprocedure::text FROM pg_proc WHERE proname = ANY ('{{{','.join(FUNCTIONS)}}}')"
    )
    for signature in found.scalars():
        _give(signature, APPENDER, BOTH)
    # ``append``, which these functions and the engine call, runs with its caller's rights.
    op.execute("REVOKE ALL ON FUNCTION append FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION append TO {ENGINE}, {APPENDER}")


def _give(signature: str, owner: str, users: str) -> None:
    """Give a function its owner and users. The owner gets CREATE on the schema only for this statement."""
    op.execute(f"GRANT CREATE ON SCHEMA public TO {owner}")
    op.execute(f"ALTER FUNCTION {signature} OWNER TO {owner}")
    op.execute(f"REVOKE CREATE ON SCHEMA public FROM {owner}")
    op.execute(f"REVOKE ALL ON FUNCTION {signature} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {users}")


def _refuse_illegal_moves() -> None:
    refuse = (
        "RAISE EXCEPTION 'illegal move of % to %', TG_TABLE_NAME, NEW.status "
        "USING ERRCODE = 'integrity_constraint_violation'"
    )
    op.execute(
        "CREATE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF TG_OP = 'INSERT' OR OLD.status || ' ' || NEW.status <> ALL (TG_ARGV) THEN {refuse}; END IF; "
        "RETURN NULL; END $$"
    )
    # The time of the purge follows from the run's end and its retention; an UPDATE may only postpone it.
    ended = "NEW.status = ANY ('{succeeded,failed_terminal,canceled}') AND NEW.purge_at >= now() + NEW.retention"
    op.execute(
        "CREATE FUNCTION refuse_purge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF (NEW.purge_at >= OLD.purge_at) IS NOT TRUE AND ({ended}) IS NOT TRUE THEN "
        "RAISE EXCEPTION 'retention cannot be brought forward' USING ERRCODE = 'insufficient_privilege'; END IF; "
        "RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER kept AFTER UPDATE OF purge_at ON runs FOR EACH ROW "
        "WHEN (NEW.purge_at <> OLD.purge_at OR OLD.purge_at IS NULL AND NEW.purge_at IS NOT NULL) "
        "EXECUTE FUNCTION refuse_purge()"
    )
    for table, moves in MOVES.items():
        # PostgreSQL parses a trigger's condition for every statement, so it is short. A BEFORE trigger would lock the
        # row once more.
        legal = ", ".join(f"'{before} {after}'" for before, every in moves.items() for after in every.split())
        op.execute(
            f"CREATE TRIGGER legal_move AFTER UPDATE OF status ON {table} FOR EACH ROW "
            f"WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION refuse_move({legal})"
        )
        born = BORN[table].replace(" ", ",")
        op.execute(
            f"CREATE TRIGGER legal_birth AFTER INSERT ON {table} FOR EACH ROW "
            f"WHEN (NEW.status <> ALL ('{{{born}}}'::text[])) EXECUTE FUNCTION refuse_move()"
        )


def _publish_directory() -> None:
    """Create the function that replaces people and groups, only if the same transaction wrote the audit line of it.

    A visible row whose transaction is still in progress was written by this transaction.
    """
    told = (
        "SELECT FROM tenants t JOIN audit_events e ON e.stream_id = t.stream_id AND e.seq = t.audit_count - 1 "
        "WHERE t.tenant_id = _tenant AND e.type = 'directory.published' AND pg_xact_status("
        "((pg_current_xact_id()::text::bigint >> 32 << 32) + e.xmin::text::bigint)::text::xid8) = 'in progress'"
    )
    op.execute(
        "CREATE FUNCTION replace_directory(_people jsonb, _members jsonb, _digest text, _tenant text) RETURNS void "
        "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$ BEGIN "
        f"PERFORM set_config('counterseal.tenant', _tenant, true); IF NOT EXISTS ({told}) THEN "
        "RAISE EXCEPTION 'a directory is replaced by its publication alone' USING ERRCODE = 'insufficient_privilege'; "
        "END IF; DELETE FROM group_members WHERE tenant_id = _tenant; DELETE FROM people WHERE tenant_id = _tenant; "
        "INSERT INTO people SELECT * FROM jsonb_populate_recordset(NULL::people, _people); "
        "INSERT INTO group_members SELECT * FROM jsonb_populate_recordset(NULL::group_members, _members); "
        "UPDATE tenants SET directory_digest = _digest WHERE tenant_id = _tenant; END $$"
    )


def _guard_intents() -> None:
    """Create the trigger that raises ``stop_number``, the guard of every intent.

    It fires on any change of a tenant's policies, directory or pauses. It takes exclusively the lock that appends with
    intents share until they end. So the change goes on after every append that began before it, and an append that had
    to wait reads the new number (promise 11).
    """
    op.execute(
        "CREATE FUNCTION move_stop_number() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_advisory_xact_lock(hashtextextended('counterseal.intents:' || NEW.tenant_id, 0)); "
        "NEW.stop_number := OLD.stop_number + 1; "
        "NEW.judge_after := '00000000-0000-0000-0000-000000000000'; RETURN NEW; END $$"
    )
    op.execute(
        "CREATE TRIGGER stop_number BEFORE UPDATE OF policy_digests, directory_digest, paused ON tenants FOR EACH ROW "
        "WHEN ((OLD.policy_digests, OLD.directory_digest, OLD.paused) IS DISTINCT FROM "
        "(NEW.policy_digests, NEW.directory_digest, NEW.paused)) "
        "EXECUTE FUNCTION move_stop_number()"
    )


def _find_owners() -> None:
    """Create the lookups that faces need before they know the tenant: each takes an unguessable key."""
    op.execute(
        "CREATE FUNCTION token_owner(hash text) RETURNS TABLE (tenant_id text, subject text, roles text[], ended text) "
        "LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public AS $$ SELECT t.tenant_id, t.subject, t.roles, "
        "CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= now() THEN 'expired' "
        "WHEN p.person_id IS NULL OR p.owner IS NOT NULL AND o.person_id IS NULL THEN 'left' "
        "WHEN NOT (p.active AND coalesce(o.active, true)) THEN 'deactivated' END "
        "FROM tokens t LEFT JOIN people p ON p.tenant_id = t.tenant_id AND p.person_id = t.subject "
        "LEFT JOIN people o ON o.tenant_id = t.tenant_id AND o.person_id = p.owner WHERE t.token_hash = hash $$"
    )
    op.execute(
        "CREATE FUNCTION approval_owner(id uuid) RETURNS text LANGUAGE sql STABLE SECURITY DEFINER "
        "SET search_path = public AS $$ SELECT tenant_id FROM approvals WHERE approval_id = id $$"
    )
    # The functions' owner never logs in either. If the engine owned them, it could alter them.
    for table in ("tokens", "people", "approvals"):
        op.execute(f"GRANT SELECT ON {table} TO {FINDER}")
        op.execute(f"CREATE POLICY finder ON {table} FOR SELECT TO {FINDER} USING (true)")
    for signature in ("token_owner(text)", "approval_owner(uuid)"):
        _give(signature, FINDER, FACES)


def _purge() -> None:
    """Create the purge function. It deletes values; the lines stay, and commit to values that nobody can recover."""
    for table in ("runs", "ledger", "journal"):
        op.execute(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
    # Inherited values are purged with the parent run's.
    due = (
        "(r.purge_at <= now() OR r.inherits AND r.finished_at IS NOT NULL "
        "AND EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.purged_at IS NOT NULL))"
    )
    over = f"FROM runs r WHERE t.run_id = r.run_id AND r.run_id = id AND {due};"
    op.execute(
        "CREATE FUNCTION purge_records(id uuid) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public "
        f"AS $$ DELETE FROM ledger t USING {over[5:]} UPDATE journal t SET vals = NULL {over} "
        f"UPDATE runs r SET purged_at = now(), purge_at = NULL, run_key = NULL WHERE run_id = id AND {due} $$"
    )
    op.execute("REVOKE ALL ON FUNCTION purge_records(uuid) FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION purge_records(uuid) TO {ENGINE}")


def _read_line_by_line() -> None:
    """Create the view of the audit with a row for each line. The journal's row-level security applies to readers."""
    op.execute(
        "CREATE VIEW run_lines WITH (security_invoker = true) AS "
        "SELECT j.run_id, j.tenant_id, j.n, j.first_seq + l.number::int - 1 AS seq, "
        "l.line::json->>'type' AS type, convert_to(l.line, 'UTF8') AS line "
        "FROM journal j CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\\n') "
        "WITH ORDINALITY AS l(line, number)"
    )
    op.execute(f"GRANT SELECT ON run_lines TO {BOTH}")
