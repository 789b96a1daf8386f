"""A whole runtime on a real PostgreSQL, for the promises that only a database can keep."""

from __future__ import annotations

from tests.support.runtime_stage import quiet, runtime

__all__ = ["quiet", "runtime"]
