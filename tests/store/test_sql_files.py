"""The database does what the files of runtime/store say, and they say who may do it (promises 1, 6 and 8)."""

from __future__ import annotations

import re

import asyncpg
import pytest

from runtime.store import commits, faces
from tests.support.schema import QUESTIONS
from tools.copy_functions import COPY, FUNCTIONS, copied

FILES = {path.stem: path.read_text(encoding="utf-8") for path in FUNCTIONS.glob("*.sql")}
ROLES = ["counterseal_engine", "counterseal_faces", "counterseal_appender", "counterseal_finder"]
# Language, rights, settings, owner, who may execute it.
INSTALLED = """
SELECT p.proname, p.prosrc, p.prosecdef, p.proconfig, l.lanname, pg_get_userbyid(p.proowner) AS owner,
  ARRAY(SELECT r FROM unnest($1::text[]) r WHERE has_function_privilege(r, p.oid, 'EXECUTE')) AS users,
  EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0) AS public
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'public'::regnamespace"""


async def test_the_functions_of_a_migrated_database_are_those_of_the_files(database_url: str) -> None:
    assert COPY.read_text(encoding="utf-8") == copied(), "run `python tools/copy_functions.py`"
    connection = await asyncpg.connect(database_url)
    found = {row["proname"]: row for row in await connection.fetch(INSTALLED, ROLES)}
    await connection.close()
    assert {name: row["prosrc"] for name, row in found.items()} == {
        name: text.split("$function$")[1] for name, text in FILES.items()
    }
    for name, row in found.items():
        text = re.sub(r"\$function\$.*\$function\$", "", FILES[name], flags=re.DOTALL)
        assert row["prosecdef"] == ("SECURITY DEFINER" in text), name
        assert row["proconfig"] == (["search_path=pg_catalog, public, pg_temp"] if row["prosecdef"] else None), name
        owner = re.findall(rf"^ALTER FUNCTION {name} OWNER TO (\w+);", text, re.MULTILINE)
        assert [row["owner"]] == owner or (not owner and not row["owner"].startswith("counterseal")), name
        granted = re.findall(rf"^GRANT EXECUTE ON FUNCTION {name} TO (.+);", text, re.MULTILINE)
        revoked = f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC" in text
        told = {*granted[0].split(", "), *owner} if granted else set[str]() if revoked else set(ROLES)
        assert set(row["users"]) == told, name
        assert row["public"] is not revoked, f"{name}: only what triggers and constraints call is everybody's"
        assert revoked or not row["prosecdef"], f"{name}: anybody could put such a trigger on a table of their own"


@pytest.mark.parametrize("name", FILES)
def test_a_function_says_who_executes_it_and_why(name: str) -> None:
    header, _, rest = FILES[name].partition("CREATE OR REPLACE FUNCTION ")
    assert rest.startswith(f"{name}(")
    assert all(line.startswith("--") for line in header.splitlines())
    assert re.search(r"^-- (Executed by counterseal_|Nobody calls it: )", header, re.MULTILINE)
    for role in re.findall(r"^GRANT EXECUTE ON FUNCTION \w+ TO (.+);", rest, re.MULTILINE):
        assert set(role.split(", ")) <= set(re.findall(r"counterseal_\w+", header))


def test_a_commit_sends_the_columns_that_append_takes() -> None:
    taken: dict[str, set[str]] = {}
    for part, columns in re.findall(
        r"jsonb_to_recordset\(_rest -> '(\w+)'\)\s+AS \w\((.*?)\)", FILES["append"], re.DOTALL
    ):
        taken.setdefault(part, set()).update(column.split()[0] for column in columns.split(","))
    taken.pop("asks")  # rows of the guard, sent whole
    assert taken == {part: set(columns) for part, columns in commits.PARTS.items() if columns}
    asked = set(re.findall(r"_rest \? '(\w+)'", FILES["append"]))
    assert asked == {*commits.PARTS, "agent", "people", "family", "asks", "barrier"}


def test_a_face_names_the_parts_that_its_function_admits() -> None:
    (listed,) = re.findall(r"_rest - ARRAY\[(.*?)\]", FILES["append_to_run"], re.DOTALL)
    assert set(re.findall(r"'(\w+)'", listed)) == {*faces.PARTS, "family"}


async def test_the_rights_of_the_roles_are_those_of_the_file(database_url: str) -> None:
    """Take all rights on tables, apply the file: the same as after the migrations."""
    asked = {
        what: question for what, question in QUESTIONS.items() if what in ("rights on tables", "rights on columns")
    }
    connection = await asyncpg.connect(database_url)
    migrated = {what: await connection.fetch(question) for what, question in asked.items()}
    await connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {', '.join(ROLES)}")
    assert not any([await connection.fetch(question) for question in asked.values()])
    await connection.execute(FUNCTIONS.with_name("rights.sql").read_text(encoding="utf-8"))
    assert {what: await connection.fetch(question) for what, question in asked.items()} == migrated
    await connection.close()
