"""Write the functions of the store into the migration that installs them: `python tools/render_functions.py`.

Their bodies are the statements of ``runtime.store``. Run it after a change of an append or its parts, of the faces'
statements (``runtime.store.faces``), or of the way in which a run is read for faces.
"""

from __future__ import annotations

from pathlib import Path

from runtime.store import approvals, commits, faces, views

PLACE = Path(__file__).resolve().parents[1] / "migrations" / "versions" / "0007_functions.sql"
# The engine's functions run with the caller's rights. The faces' functions run as an owner who never logs in, and see
# one tenant's rows.
_DEFINER = " SECURITY DEFINER\nSET search_path = pg_catalog, public, pg_temp"
# An assignment is cheaper than a query.
_TENANT = "\n  bound := set_config('counterseal.tenant', {}, true);"


def rendered() -> str:
    """The text of every function, separated by blank lines."""
    say = f"{commits.SENT},\n  _answers text, _expected int, _tenant text"
    order = "_command_id uuid, _run_id uuid, _kind text, _payload jsonb, _tenant text"
    functions = (
        _function("append", f"{commits.SENT},\n  {commits.ENGINES}", "int[]", commits.ITS, commits.APPEND),
        _face("append_to_run", say, "boolean", "seen int; book_at timestamptz;", faces.APPEND),
        _face("open_run", faces.OPENED, "timestamptz", f"book_at timestamptz; {commits.ITS}", faces.OPEN, "_tenant_id"),
        _face("order_message", order, "void", "", faces.ORDER),
        _face("read_run", views.READ_RUN_BY, f"TABLE ({views.VIEW})", "", views.READ_RUN),
        _face("read_question", approvals.READ_BY, f"TABLE ({approvals.QUESTION})", "", approvals.READ_QUESTION),
    )
    return "\n\n".join(functions) + "\n"


def _face(name: str, takes: str, returns: str, declared: str, body: str, tenant: str = "_tenant") -> str:
    return _function(name, takes, returns, f"bound text; {declared}", _TENANT.format(tenant) + body, _DEFINER)


def _function(name: str, takes: str, returns: str, declared: str, body: str, rights: str = "") -> str:
    return (
        f"CREATE FUNCTION {name}({takes}) RETURNS {returns} LANGUAGE plpgsql{rights} AS $function$\n"
        f"#variable_conflict use_column\nDECLARE {declared}\nBEGIN{body}\nEND $function$;"
    )


if __name__ == "__main__":
    PLACE.write_text(rendered())
