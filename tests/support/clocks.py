"""A database whose clock the test sets: what the product's statements call ``now`` goes ahead, and back again."""

from __future__ import annotations

from datetime import timedelta

import asyncpg

_FUNCTIONS = """
CREATE SCHEMA shifted;
CREATE TABLE shifted.clock (ahead interval NOT NULL);
INSERT INTO shifted.clock VALUES ('0');
CREATE FUNCTION shifted.now() RETURNS timestamptz STABLE LANGUAGE sql
  AS 'SELECT pg_catalog.now() + (SELECT ahead FROM shifted.clock)';
CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
  AS 'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM shifted.clock)';
GRANT USAGE ON SCHEMA shifted TO PUBLIC;
GRANT SELECT ON shifted.clock TO PUBLIC;
"""
_ALL = """
DO $$ DECLARE each record; BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = shifted, pg_catalog, public', current_database());
  FOR each IN SELECT oid::regprocedure AS name FROM pg_proc
      WHERE pronamespace = 'public'::regnamespace AND proconfig IS NOT NULL LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = shifted, pg_catalog, public, pg_temp', each.name);
  END LOOP;
  FOR each IN SELECT adrelid::regclass AS t, attname AS c FROM pg_attrdef d
      JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
      WHERE pg_get_expr(adbin, adrelid) = 'now()' LOOP
    EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT shifted.now()', each.t, each.c);
  END LOOP;
END $$
"""


class Clock:
    """The clock of a database. ``url`` is the owner's."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def install(self) -> None:
        """Let all connections from now on read this clock."""
        await self._run(_FUNCTIONS, _ALL)

    async def set(self, ahead: timedelta) -> None:
        """Set the clock: so far ahead of the true time."""
        await self._run(f"UPDATE shifted.clock SET ahead = '{ahead.total_seconds()} s'")

    async def _run(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            for each in statements:
                await connection.execute(each)
        finally:
            await connection.close()
