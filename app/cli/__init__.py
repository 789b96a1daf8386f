"""The command line. Importing it is quick: what a command needs is imported when it runs."""

from __future__ import annotations

from app.cli.entry import main

__all__ = ["main"]
