"""Copy the functions of the store into the migration of the next release: `python tools/copy_functions.py`.

The files of ``runtime/store/functions`` are the source. Run it after a change of one of them. A released migration
keeps its copy for ever; the next one begins with a copy of its own.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = ROOT / "runtime" / "store" / "functions"
COPY = ROOT / "migrations" / "versions" / "0007_functions.sql"


def copied() -> str:
    """The files one after the other, by name, with a blank line between them."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(FUNCTIONS.glob("*.sql")))


if __name__ == "__main__":
    COPY.write_text(copied(), encoding="utf-8")
