"""Discloses values of a run in a file besides its bundle: each line opens commitments of the run's lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct

from connectors.disclosure import resolved
from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.db import Connection
from core.errors import ConsistencyError, InputError
from evidence.chain import Actor
from evidence.commitments import opening
from evidence.events import EventType
from evidence.opened import Opened, digest_of
from runtime.definition.catalog import Definitions
from runtime.engine.book.recorded import RecordedEvent, listed_values, parts
from runtime.store import audit, books
from runtime.store.books import Book

# A shorter secret text may well occur elsewhere as an ordinary word.
_TELLING = 4


class Disclosed(Struct, frozen=True):
    """A file of disclosures: its lines, the number of opened values, and the number of withheld secret values."""

    lines: bytes
    opened: int
    withheld: int


async def disclose(
    connection: Connection, tenant: str, definitions: Definitions, actor: Actor, run_id: UUID, wanted: Sequence[str]
) -> Disclosed:
    """Open values of a run. An item of ``wanted`` is ``EVENT/PATH``: an event's type or number, and a value's path.

    Secret values are withheld. The disclosure is an event of the tenant: a crash before the commit leaves none, and
    nothing was handed out. ``ConsistencyError`` if the values were erased, ``InputError`` for what names no value.
    """
    book = await books.read(connection, tenant, run_id)
    if book.purged:
        raise ConsistencyError(
            "The values of this run are erased.", remedy="`counterseal audit tenant --type run.purged` says since when."
        )
    editions = await definitions.editions(connection, book)
    secrets = Secrets(book, (operation for one in editions for operation in one.operations.values()))
    made = _opened(book, [each.strip("/").partition("/")[::2] for each in wanted], secrets)
    missing = [text for text, found in zip(wanted, made.found, strict=True) if not found]
    if missing:
        raise InputError(
            "names no value of this run",
            where=missing[0],
            remedy="Such as decision.made/facts, or a number of its audit: 12/proposed.",
        )
    facts: JsonObject = {"run": str(run_id), "what": "values", "sha256": sha256_hex(made.lines), "paths": [*wanted]}
    await audit.record(connection, tenant, EventType.EVIDENCE_EXPORTED, actor, facts)
    return Disclosed(made.lines, made.opened, made.withheld)


class _Collected(Struct):
    found: list[bool]
    lines: bytes = b""
    opened: int = 0
    withheld: int = 0


def _opened(book: Book, wanted: Sequence[tuple[str, ...]], secrets: Secrets) -> _Collected:
    key, made = book.row["run_key"], _Collected([False] * len(wanted))
    lines = (line for append in book.appends for line in append.lines)
    for recorded, line in zip(book.events, lines, strict=True):
        listed = listed_values(recorded, line, key) or ()
        if not listed:
            continue
        own, shown = f"/{digest_of(orjson.loads(line))}", []
        for path, _ in listed:
            fits = [_names(recorded, path, *one) for one in wanted]
            if not any(fits):
                continue
            made.found = [before or now for before, now in zip(made.found, fits, strict=True)]
            value = value_at(parts(recorded.event)[1], path)
            if secrets.hold(path, value):
                made.withheld += 1
            else:
                shown.append(opening(key, own + path, value))
        if shown:
            assert recorded.seq is not None, "it is in the book"
            made.opened += len(shown)
            made.lines += canonical_bytes(Opened(recorded.seq, shown, listed).to_json()) + b"\n"
    return made


def _names(recorded: RecordedEvent, path: str, what: str, rest: str) -> bool:
    """True if a wanted item (``what``/``rest``) names this value of this event, or an object that contains it."""
    return what in (str(recorded.event.TYPE), str(recorded.seq)) and f"{path}/".startswith(f"/{rest}/" if rest else "/")


def value_at(values: Mapping[str, Json], path: str) -> Json:
    """The value at a path within the values of an event."""
    name, *member = path[1:].split("/")
    value = values[name]
    if not member:
        return value
    assert isinstance(value, dict), "only objects have members of their own"
    return value[member[0].replace("~1", "/").replace("~0", "~")]


class Secrets:
    """The property names that declarations mark as secret, and the texts under these names anywhere in a book."""

    def __init__(self, book: Book, operations: Iterable[Any]) -> None:
        self._names: set[str] = set()
        for operation in operations:
            self._names |= {*operation.params}
            for schema in (operation.input_schema, operation.output_schema):
                self._names |= {*_secret_in(schema or {}, schema or {}, set())}
        self._texts = {
            text for one in book.events for text in _under(parts(one.event)[1], self._names, inside=False)
            if len(text) >= _TELLING
        }  # fmt: skip

    def hold(self, path: str, value: Json) -> bool:
        """True if a value is secret, or contains a secret at any depth."""
        within = {part for place in path.split("/") for part in (place, place.rpartition(".")[2])}
        if within & self._names or any(name in self._names for name in _keys(value)):
            return True
        return any(secret in text for text in _texts(value) for secret in self._texts)


def _secret_in(root: JsonObject, schema: Json, seen: set[int]) -> Iterator[str]:
    """Yield the names of secret properties of a schema, at any depth."""
    here = resolved(root, schema)
    if id(here) in seen or not here:
        return
    seen.add(id(here))
    named = here.get("properties")
    for name, below in named.items() if isinstance(named, dict) else ():
        if resolved(root, below).get("x-secret") is True:
            yield name
        yield from _secret_in(root, below, seen)
    for part in ("items", "additionalProperties"):
        yield from _secret_in(root, here.get(part), seen)


def _under(value: Json, names: set[str], *, inside: bool) -> Iterator[str]:
    """Yield the texts at and below members with these names."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _under(each, names, inside=inside or bool({name, name.rpartition(".")[2]} & names))
    elif isinstance(value, list):
        for each in value:
            yield from _under(each, names, inside=inside)
    elif inside and isinstance(value, str):
        yield value


def _keys(value: Json) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(each)


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)
