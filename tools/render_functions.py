"""Write the functions of the faces into the migration that installs them: `python tools/render_functions.py`.

Their bodies are the statements of ``runtime.store``, with every part that a face may have. Run it after a change of a
guard or a part, of what faces may say (``runtime.store.faces``), or of how a run is read for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from evidence.events import EventType
from runtime.store import approvals, commits, faces, views
from runtime.store.run_parts import Part

PLACE = Path(__file__).resolve().parents[1] / "migrations" / "versions" / "0006_functions.sql"
TENANT = "counterseal.tenant"


def rendered() -> str:
    """Every function, a blank line between them."""
    return "\n\n".join((_append(), _open(), _order(), *_reads())) + "\n"


def _function(name: str, types: Iterable[str], returns: str, body: str, declared: str = "") -> str:
    return (
        f"CREATE FUNCTION {name}({', '.join(types)}) RETURNS {returns} LANGUAGE plpgsql SECURITY DEFINER\n"
        f"SET search_path = pg_catalog, public, pg_temp AS $function$\n#variable_conflict use_column\n{declared}BEGIN\n"
        f"{body.strip()}\nEND $function$;"
    )


def _append() -> str:
    guard = _guard_types()
    kept = next(re.finditer(r"AS w\(([^)]*)\)", commits.GUARDS)).group(1).replace("\n", " ").split(",")
    state = [name.strip() for name in kept].index("state") + 1
    # What is kept of a run beside its book is the engine's word: see ``runtime.engine.keeping``.
    text = re.sub(rf"\${state}\b", "NULL::bytea", commits.GUARD)
    types = [*guard, *_types(faces.PARTS), "text", "int", "bool", "bool", "bool", "text"]
    count = len(types)
    woken = [
        f", CASE WHEN ${count - 3} THEN pg_notify('{commits.STEPS_CHANNEL}', '') END",
        f", CASE WHEN ${count - 2} THEN pg_notify('{commits.MESSAGES_CHANNEL}', '') END",
        commits.WAKE_AT_CAP.replace("CASE WHEN EXISTS", f"CASE WHEN ${count - 1} AND EXISTS"),
    ]
    body = _set_tenant(count) + _admit(faces.SAID | faces.FOLLOWS, _lines(faces.PARTS, len(guard)))
    body += _ANSWERED.format(f"${count - 5}", faces.TOLD_SINCE.format("$1", f"${count - 5}", f"${count - 4}"))
    body += _into("landed", commits.statement(text, len(guard), faces.PARTS, (), False), "run_id", "".join(woken))
    return _function("append_to_run", types, "boolean", body + "RETURN landed IS NOT NULL;", "DECLARE landed uuid;\n")


# The row is locked first, so that what is told of the step meanwhile is waited for, and then seen.
_ANSWERED = """  IF {0} IS NOT NULL THEN
    PERFORM FROM runs WHERE run_id = $1 FOR NO KEY UPDATE;
    IF EXISTS ({1}) THEN
      RETURN false;
    END IF;
  END IF;
"""


def _open() -> str:
    guard = dict(re.findall(r"\$(\d+)::(\w+)", faces.START_GUARD))
    own = [guard[str(n + 1)] for n in range(len(guard))]
    types = [*own, *_types(faces.START_PARTS), "bool", "text"]
    wake = f", CASE WHEN ${len(types) - 1} THEN pg_notify('{commits.STEPS_CHANNEL}', '') END"
    body = _set_tenant(len(types)) + _admit(faces.OPENS, _lines(faces.START_PARTS, len(own)))
    text = commits.statement(faces.START_GUARD, len(own), faces.START_PARTS, (), False)
    body += _into("opened", text, "clock_timestamp()", wake)
    return _function("open_run", types, "timestamptz", body + "RETURN opened;", "DECLARE opened timestamptz;\n")


_ORDER = """  IF $3 NOT IN ('note', 'bundle') THEN
    RAISE EXCEPTION 'no face may order %', $3 USING ERRCODE = 'insufficient_privilege';
  END IF;
  INSERT INTO commands (command_id, tenant_id, run_id, kind, payload, status, ordering_key)
  SELECT $1, tenant_id, run_id, $3, $4, 'pending', CASE $3 WHEN 'bundle' THEN 'bundle:' || run_id END
  FROM runs WHERE run_id = $2;
"""


def _order() -> str:
    body = f"{_set_tenant(5)}{_ORDER}  PERFORM pg_notify('{commits.MESSAGES_CHANNEL}', '');"
    return _function("order_message", ("uuid", "uuid", "text", "jsonb", "text"), "void", body)


_VIEW = (
    "run jsonb, run_key bytea, state bytea, policy_digest text, max_writes_per_run int, now timestamptz, firsts int[],"
    " lines bytea[], vals bytea[]"
)
_QUESTION = (
    "approval jsonb, now timestamptz, workspace_id text, run_key bytea, asked_at int, asked bytea, shown bytea,"
    " kept jsonb, votes jsonb, person jsonb"
)


def _reads() -> tuple[str, str]:
    """A run and a question as a face needs them to decide. Whoever locks reads what the lock let through."""
    locked = "  IF $4 THEN\n    PERFORM FROM runs WHERE run_id = {0} FOR UPDATE;\n  END IF;\n  RETURN QUERY {1};"
    body = _set_tenant(3) + locked.format("$1", views.SELECT.strip())
    run = _function("read_run", ("uuid", "bool", "text", "bool"), f"TABLE ({_VIEW})", body)
    view = views.SELECT.strip().replace("$2", "false").replace("$1", "(q.approval ->> 'run_id')::uuid")
    # What both have is taken once.
    columns = dict.fromkeys(f"{_QUESTION}, {_VIEW}".split(", "))
    shown = ", ".join(f"{'q' if column in _QUESTION else 'v'}.{column.split()[0]}" for column in columns)
    both = f"SELECT {shown}\nFROM ({approvals.READ}) q CROSS JOIN LATERAL ({view}) v"
    owner = "(SELECT a.run_id FROM approvals a WHERE a.approval_id = $1)"
    asked = _set_tenant(3) + locked.format(owner, both)
    return run, _function("read_question", ("uuid", "text", "text", "bool"), f"TABLE ({', '.join(columns)})", asked)


def _guard_types() -> list[str]:
    """The values that the guard of several takes as arrays, and the leases, which are arrays in both."""
    every = dict(re.findall(r"\$(\d+)::(\w+)\[\]", commits.GUARDS))
    leases = len(re.findall(r"\$\d+::\w+\[\]", commits.GUARD))
    values = len(every) - leases
    own = ["jsonb" if n in commits.GUARD_JSON else every[str(n + 1)] for n in range(values)]
    return own + [f"{every[str(n + 1)]}[]" for n in range(values, len(every))]


def _types(parts: Iterable[Part]) -> list[str]:
    return [kind for part in parts for kind in part.types]


def _lines(parts: Iterable[Part], number: int) -> int:
    """Which parameter holds the lines of the append."""
    for part in parts:
        if part.name == "journal":
            return number + part.types.index("bytea[]") + 1
        number += part.count
    raise ValueError("an append without its lines")


def _set_tenant(number: int) -> str:
    return f"  PERFORM set_config('{TENANT}', ${number}, true);\n"


def _admit(types: Iterable[EventType], number: int) -> str:
    """Refuse an append with a line that no face may write. Of a name that is there twice, the last one counts."""
    admitted = ",".join(sorted(types))
    return f"""  IF EXISTS (
    SELECT FROM unnest(${number}) AS j(lines)
    CROSS JOIN LATERAL string_to_table(convert_from(j.lines, 'UTF8'), E'\\n') AS l(line)
    CROSS JOIN LATERAL (SELECT l.line::jsonb OFFSET 0) AS t(line)
    WHERE (t.line ->> 'type' = ANY ('{{{admitted}}}'::text[])) IS NOT TRUE
      OR ((t.line ->> 'ts')::timestamptz <= clock_timestamp() + interval '{commits.AHEAD}') IS NOT TRUE
      OR t.line ->> 'type' = 'action.doubt_resolved'
        AND (t.line #>> '{{data,resolution}}' = 'failed') IS NOT TRUE) THEN
    RAISE EXCEPTION 'no face may append this' USING ERRCODE = 'insufficient_privilege';
  END IF;
"""


def _into(variable: str, statement: str, value: str, more: str) -> str:
    head, found, _ = statement.rpartition("\nSELECT run_id, version, executing FROM guard")
    assert found, "the statement of an append ends otherwise now"
    return f"  {head}\nSELECT {value}{more} INTO {variable} FROM guard;\n  "


if __name__ == "__main__":
    PLACE.write_text(rendered())
