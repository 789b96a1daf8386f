"""The command ``counterseal-verify``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Check the bundle that the command line names; return the exit code."""
    # Before everything else, so that no `core` of somebody else is taken for ours.
    sys.path.insert(0, str(Path(__file__).resolve().parent / "parts"))
    code: int = import_module("evidence.verify").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
