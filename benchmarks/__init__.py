"""Measurements against the budgets of docs/running.md. They only print; no test depends on a measured time."""
