"""Reads the store's statements: each file of ``queries/`` holds those of one module, each under ``-- name: <name>``.

They are read once, when the module is imported, and never changed or combined: PostgreSQL gets exactly the text of the
file. The functions of the database are in ``functions/``; a migration copies them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


def statements(module: str) -> Mapping[str, str]:
    """The statements of ``queries/<module>.sql`` by name, without comments. ``ValueError`` for a duplicate name."""
    text = files("runtime.store").joinpath("queries", f"{module}.sql").read_text(encoding="utf-8")
    before, *named = _NAMED.split(text)
    if _COMMENT.sub("", before).strip():
        raise ValueError(f"queries/{module}.sql has a statement without a name: write `-- name: <name>` above it")
    names, texts = named[::2], named[1::2]
    if len(set(names)) < len(names):
        raise ValueError(f"queries/{module}.sql has a name twice: {sorted(names)}")
    return {name: _COMMENT.sub("", each).strip().removesuffix(";") for name, each in zip(names, texts, strict=True)}
