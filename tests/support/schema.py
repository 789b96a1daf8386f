"""Questions about the schema as PostgreSQL knows it, each with two columns: tables, rules, rights, functions."""

from __future__ import annotations

_OURS = "('counterseal_engine', 'counterseal_faces', 'counterseal_appender', 'counterseal_finder', 'public')"
# The role that migrates is another one on each server.
_OWNER = "CASE WHEN pg_get_userbyid({0}) LIKE 'counterseal%' THEN pg_get_userbyid({0}) ELSE 'owner' END"
QUESTIONS = {
    "columns": """
SELECT c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
  CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'p') ORDER BY c.relname, a.attnum""",
    # A table that is secured, with nothing else to say of it, stands among the columns alone.
    "tables": """
SELECT relname, concat_ws(' ', relkind, CASE WHEN relrowsecurity THEN 'secured' END,
  CASE WHEN relforcerowsecurity THEN 'forced' END, array_to_string(reloptions, ' '))
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v', 'p')
  AND (relkind <> 'r' OR reloptions IS NOT NULL OR NOT (relrowsecurity AND relforcerowsecurity)) ORDER BY 1""",
    "constraints": """
SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY 1""",
    # Those of primary keys are their constraints.
    "indexes": """
SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND indexname !~ '^pk_' ORDER BY 1""",
    # Each with the tables that have it.
    "policies": """
SELECT concat_ws(' ', policyname || ':', cmd, array(SELECT CASE WHEN r LIKE 'counterseal%' THEN r
  ELSE 'owner' END FROM unnest(roles) r)::text, 'USING', qual, 'CHECK', with_check),
  string_agg(tablename, ', ' ORDER BY tablename)
FROM pg_policies WHERE schemaname = 'public' GROUP BY 1 ORDER BY 1""",
    "triggers": """
SELECT tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1""",
    # What they do stands in runtime/store/functions: see test_sql_files.
    "functions": f"""
SELECT oid::regprocedure::text, concat_ws(' ', pg_get_function_result(oid), {_OWNER.format("proowner")},
  CASE WHEN prosecdef THEN 'definer' END, array_to_string(proconfig, ' ')) FROM pg_proc
WHERE pronamespace = 'public'::regnamespace ORDER BY 1""",
    "rights on tables": f"""
SELECT table_name || ' to ' || grantee, string_agg(privilege_type, ', ' ORDER BY privilege_type)
FROM information_schema.role_table_grants WHERE table_schema = 'public' AND lower(grantee) IN {_OURS}
GROUP BY 1 ORDER BY 1""",
    "rights on columns": f"""
SELECT table_name || ' to ' || grantee || ': ' || privilege_type, string_agg(column_name, ', ' ORDER BY column_name)
FROM information_schema.role_column_grants c WHERE table_schema = 'public' AND lower(grantee) IN {_OURS}
  AND NOT EXISTS (SELECT FROM information_schema.role_table_grants t WHERE t.table_schema = 'public'
    AND t.table_name = c.table_name AND t.grantee = c.grantee AND t.privilege_type = c.privilege_type)
GROUP BY 1 ORDER BY 1""",
    "rights on functions": f"""
SELECT p.oid::regprocedure::text, (SELECT string_agg(g, ', ' ORDER BY g) FROM (
  SELECT CASE WHEN grantee = 0 THEN 'public' ELSE pg_get_userbyid(grantee) END AS g FROM aclexplode(p.proacl)) x
  WHERE g IN {_OURS})
FROM pg_proc p WHERE pronamespace = 'public'::regnamespace ORDER BY 1""",
    "roles": """
SELECT rolname, concat_ws(' ', CASE WHEN rolsuper THEN 'super' END, CASE WHEN rolinherit THEN 'inherit' END,
  CASE WHEN rolcreaterole THEN 'createrole' END, CASE WHEN rolcreatedb THEN 'createdb' END,
  CASE WHEN rolcanlogin THEN 'login' END, CASE WHEN rolbypassrls THEN 'bypassrls' END)
FROM pg_roles WHERE rolname IN ('counterseal_engine', 'counterseal_faces', 'counterseal_appender', 'counterseal_finder')
ORDER BY 1""",
}
