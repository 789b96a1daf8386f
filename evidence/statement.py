"""Reads the signed statement of a bundle: its files, its predicate, and the number of its format."""

from __future__ import annotations

from core import bounded_json
from core.canonical import JsonObject, canonical_bytes
from core.errors import InputError
from evidence import layout, members
from evidence.container import FILE_BYTES_MAX
from evidence.members import check_members


def read_statement(payload: bytes) -> tuple[dict[str, str], JsonObject, int]:
    """The SHA-256 of each file, the predicate, and the number of the format. ``InputError`` if it is no statement."""
    statement = bounded_json.parse_object(payload, bytes_max=FILE_BYTES_MAX, where="statement")
    if canonical_bytes(statement) != payload:
        raise InputError("is not canonical JSON", where="statement")
    number = layout.FORMATS.get(str(statement.get("predicateType")), 0)
    if number >= layout.JUDGED_SINCE:
        check_members("statement", statement, members.STATEMENT)
        more = {layout.SIDECAR} if number >= layout.SIDECAR_SINCE else set()
        check_members("statement", statement.get("predicate"), members.PREDICATE | more)
    match [statement.get(name) for name in ("_type", "predicateType", "subject", "predicate")]:
        case [layout.STATEMENT_TYPE, str(), [*listed], dict(predicate)] if number:
            subjects: dict[str, str] = {}
        case _:
            raise InputError("is not an evidence bundle's in-toto statement", where="statement")
    for entry in listed:
        match entry:
            case {"name": str(name), "digest": {"sha256": str(digest)}} if name not in subjects:
                subjects[name] = digest
            case _:
                raise InputError("lists a file twice or without its SHA-256", where="statement")
        if number >= layout.JUDGED_SINCE and entry != {"name": name, "digest": {"sha256": digest}}:
            raise InputError("says more of a file than its SHA-256", where="statement")
    if number >= layout.JUDGED_SINCE and [*subjects] != sorted(subjects):
        raise InputError("lists the files in another order", where="statement")
    return subjects, predicate, number
