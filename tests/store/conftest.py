"""The store's own tests, the only ones that know its tables: on the whole runtime, as tests/runtime drives it."""

from __future__ import annotations

from tests.support.runtime_stage import gate, late_gate, quiet, runtime

__all__ = ["gate", "late_gate", "quiet", "runtime"]
