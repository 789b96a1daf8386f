"""Measurements against the budgets of docs/running.md. They print; no test depends on a time that they find."""
