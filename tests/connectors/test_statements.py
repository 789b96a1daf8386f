"""The statements of the connector sql, whole: every name is quoted, every value is a part of the one parameter."""

from __future__ import annotations

from connectors.sql import statements

_ROW = 'pg_catalog.jsonb_populate_record(NULL::"s"."t", $1::jsonb)'


def whole(text: str) -> str:
    """The statement with the row of the parameter in its place."""
    return text.replace("<row>", _ROW)


def shown(of: str, *names: str) -> str:
    listed = ", ".join(f'{of}."{name}"' for name in names)
    return f"(SELECT pg_catalog.to_jsonb(x)::text FROM (SELECT {listed}) x)"


def test_a_row_is_read_by_its_whole_key_and_locked_if_it_is_to_be_written() -> None:
    key, columns = ("k 1", 'k"2'), ("x", 'y"z')
    row = shown("t", "x", 'y""z')
    read = (
        f'SELECT {row} AS row, t.xmin::text AS version FROM "s"."t" t'
        f' JOIN <row> v ON t."k 1" = v."k 1" AND t."k""2" = v."k""2"'
    )
    assert statements.read("s.t", key, columns, None, lock=False) == whole(read)
    assert statements.read("s.t", key, columns, None, lock=True) == whole(f"{read} FOR UPDATE OF t")
    of_column = read.replace("t.xmin::text", 't."v""r"::text')
    assert statements.read("s.t", key, columns, 'v"r', lock=False) == whole(of_column)


def test_rows_are_selected_by_values_and_by_null_in_the_order_of_their_key() -> None:
    found = statements.select("s.t", ("k", "l"), ("x", "y"), ("a", "b"), ("n", "m"))
    head = f'SELECT {shown("t", "x", "y")} FROM "s"."t" t CROSS JOIN <row> v'
    order = ' ORDER BY t."k", t."l" LIMIT $2::bigint'
    assert found == whole(head) + f' WHERE t."a" = v."a" AND t."b" = v."b" AND t."n" IS NULL AND t."m" IS NULL{order}'
    assert statements.select("s.t", ("k", "l"), ("x", "y"), (), ()) == whole(head) + order


def test_a_write_touches_one_row_and_tells_what_came_of_it() -> None:
    inserted = (
        f'WITH v AS MATERIALIZED (SELECT * FROM <row>), t AS (INSERT INTO "s"."t" AS t ("k", "a")'
        f' SELECT v."k", v."a" FROM v RETURNING {shown("t", "k", "a", "b")} AS row, t.xmin::text AS version)'
        f" SELECT t.row, t.version, {shown('v', 'k', 'a')} AS intended FROM t, v"
    )
    assert statements.insert("s.t", ("k", "a"), ("k", "a", "b"), None) == whole(inserted)
    updated = (
        f'UPDATE "s"."t" AS t SET "a" = v."a", "b" = v."b" FROM <row> v WHERE t."k" = v."k" AND t."l" = v."l"'
        f' RETURNING {shown("t", "k", "l", "a", "b")} AS row, t."ver"::text AS version,'
        f" {shown('v', 'a', 'b')} AS intended"
    )
    assert statements.update("s.t", ("k", "l"), ("a", "b"), "ver") == whole(updated)
    deleted = (
        f'DELETE FROM "s"."t" AS t USING <row> v WHERE t."k" = v."k" AND t."l" = v."l"'
        f" RETURNING {shown('t', 'k', 'l')} AS row, NULL AS version, NULL AS intended"
    )
    assert statements.delete("s.t", ("k", "l")) == whole(deleted)


def test_a_name_is_never_read_as_anything_else() -> None:
    assert statements.quoted('a b.c"d') == '"a b"."c""d"'


def test_a_column_with_a_dot_is_one_column() -> None:
    key, given = ("k.1",), ("a.b", 'c"."d')
    columns, row = '"a.b", "c"".""d"', shown("t", "a.b", 'c"".""d')
    inserted = statements.insert("s.t", given, given, "v.r")
    assert f'AS t ({columns}) SELECT v."a.b", v."c"".""d" FROM v RETURNING {row} AS row, t."v.r"::text' in inserted
    updated = statements.update("s.t", key, given, "v.r")
    assert 'SET "a.b" = v."a.b", "c"".""d" = v."c"".""d" FROM' in updated
    assert 'WHERE t."k.1" = v."k.1" RETURNING' in updated
    assert 't."v.r"::text AS version' in updated
    found = statements.select("s.t", key, given, ("e.f",), ("g.h",))
    assert f"SELECT {row} FROM" in found
    assert 'WHERE t."e.f" = v."e.f" AND t."g.h" IS NULL ORDER BY t."k.1" LIMIT' in found
