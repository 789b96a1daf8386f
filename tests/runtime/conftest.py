"""A whole runtime on a real PostgreSQL with one strict outside system, driven step by step by the test."""

from __future__ import annotations

from tests.support.runtime_stage import agents, gate, late_gate, quiet, runtime
from tests.support.runtime_voting import office

__all__ = ["agents", "gate", "late_gate", "office", "quiet", "runtime"]
