"""Reads a verified bundle for its report: lines and opened values. The only place that knows a bundle's files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, field

from core.canonical import Json
from core.errors import InputError
from evidence import layout
from evidence.chain import LINE_BYTES_MAX
from evidence.commitments import DISCLOSURE_BYTES_MAX, open_disclosure, path_of, reason_path
from evidence.container import Container, Files
from evidence.events import EventType
from evidence.opened import OpenedFile, digest_of, pairs_of
from evidence.sidecar import Attachments, SidecarValues
from evidence.signing import PublicKey, open_envelope

_DIGEST = re.compile(r"[0-9a-f]{64}")
# A member of these records that ends in ``_disclosure`` holds a value that the sidecar opens.
_RECORDS = ("approvals", "receipts", "attempts")
_OPENS = "_disclosure"


class Policy(Struct, frozen=True):
    """A policy that judged: its exact text, and its rules as JSON if the bundle holds them."""

    name: str
    version: str
    digest: str
    text: str
    rules: tuple[Mapping[str, Any], ...]


class ReadBundle(Struct, frozen=True):
    """A bundle. ``events`` have their number as ``seq``. ``opened`` are the opened values by their paths.

    ``attempted`` has the opened values of the attempt that the event of this number intended, by name.
    ``commitments`` counts everything that the bundle commits to.
    """

    predicate: Mapping[str, Any]
    key_id: str
    events: tuple[Mapping[str, Any], ...]
    approvals: Mapping[str, Mapping[str, Any]]
    receipts: Mapping[str, Mapping[str, Any]]
    policies: Mapping[str, Policy]
    activated: Mapping[str, str]
    read_only: frozenset[str]
    costs: tuple[Mapping[str, Any], ...]
    opened: Mapping[str, Json]
    commitments: int
    attempted: Mapping[int, Mapping[str, Json]] = field(default_factory=dict)


def read(path: Path) -> ReadBundle:
    """Read a bundle that was verified. ``InputError`` if it has no shape that a verified bundle has."""
    with closing(Container(path)) as files:
        try:
            return _read(files, Attachments.of(path))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"is no verified bundle: {error!r}", where="report") from None


def _read(files: Files, attachments: Attachments) -> ReadBundle:
    key = PublicKey.from_pem(files.read(layout.PUBLIC_KEY), where=layout.PUBLIC_KEY)
    statement = orjson.loads(open_envelope(files.read(layout.ENVELOPE), layout.PAYLOAD_TYPE, key))
    events = tuple({**orjson.loads(line), "seq": seq} for seq, line in enumerate(_lines(files, layout.EVENTS)))
    records = {kind: [*_records(files, kind)] for kind in _RECORDS}
    run = orjson.loads(files.read(layout.RUN_FILE))
    attempts = run.get("attempts") or records["attempts"]
    committed: dict[str, str] = {}
    for one in (run, *(event["data"] for event in events), *(each for kind in _RECORDS for each in records[kind])):
        committed.update(_commitments(one))
    opened = _opened(files, [run, *records["approvals"]], committed)
    if layout.OPENED in files.sizes:
        sidecar = SidecarValues(attachments, statement["predicate"], layout.FORMATS[statement["predicateType"]])
        with closing(sidecar), closing(OpenedFile(files)) as within:
            sources = [within, *([] if sidecar.here is None else [sidecar.here])]
            records["approvals"], attempted = _opened_of(sources, events, records["approvals"], committed, opened)
    else:
        attempted = {one["seq"]: _named(one.get("values"), opened) for one in attempts}
    definition = orjson.loads(files.read(layout.DEFINITION)) if layout.DEFINITION in files.sizes else {}
    declared = {**definition.get("operations", {}), **definition.get("added", {})}
    tenant = [orjson.loads(line)["line"] for line in _lines(files, layout.TENANT)]
    return ReadBundle(
        predicate=statement["predicate"],
        key_id=key.key_id,
        events=events,
        approvals={one["approval"]: one for one in records["approvals"]},
        receipts={one["receipt"]: one for one in records["receipts"]},
        policies={one["digest"]: _policy(files, one) for one in statement["predicate"]["policies"]},
        activated={one["data"]["digest"]: one["ts"] for one in tenant if one["type"] == "policy.activated"},
        read_only=frozenset(name for name, one in declared.items() if one.get("side_effects") == "none"),
        costs=tuple(orjson.loads(files.read(layout.COSTS))),
        opened=opened,
        commitments=len({*committed} | {each["card"] for each in (one["data"] for one in events) if "card" in each}),
        attempted=attempted,
    )


def _opened_of(
    sources: Sequence[OpenedFile],
    events: tuple[Mapping[str, Any], ...],
    approvals: list[dict[str, Any]],
    committed: dict[str, str],
    opened: dict[str, Json],
) -> tuple[list[dict[str, Any]], dict[int, Mapping[str, Json]]]:
    """Open the values that stand beside the events: into ``opened``, the approvals, and the attempts by their events.

    All of their commitments are added to ``committed``.
    """
    attempted: dict[int, Mapping[str, Json]] = {}
    for event in events:
        values: dict[str, Json] = {}
        for source in sources:
            shown, listed = source.of(event)
            values |= shown
            committed.update(listed or ())
        committed.update(pairs_of(event))
        opened.update(values)
        if event["type"] == EventType.ACTION_INTENDED:
            own = f"/{digest_of(event)}/"
            attempted[event["seq"]] = {
                path.removeprefix(own): value for path, value in values.items() if path.startswith(own)
            }
    return [_answered(one, opened) for one in approvals], attempted


def _answered(approval: Mapping[str, Any], opened: Mapping[str, Json]) -> dict[str, Any]:
    """An approval with the opened values of its card, its question and the reasons of its votes."""
    key = str(approval["approval"])
    votes = [{**vote, "reason": opened.get(reason_path(key, vote["voter"], vote["at"]))} for vote in approval["votes"]]
    card, asked = (opened.get(path_of("approval", key, part)) for part in ("card", "asked"))
    return {**approval, "votes": votes, "card": card, "asked": asked}


def _lines(files: Files, name: str) -> Iterator[bytes]:
    return files.lines(name, 2 * LINE_BYTES_MAX) if name in files.sizes else iter(())


def _records(files: Files, kind: str) -> Iterator[dict[str, Any]]:
    """The records of a kind, whether each has a file or each has a line."""
    for line in _lines(files, f"{kind}.jsonl"):
        yield orjson.loads(line)
    for name in sorted(files.sizes):
        if name.startswith(f"{kind}/"):
            yield orjson.loads(files.read(name))


def _policy(files: Files, named: Mapping[str, Any]) -> Policy:
    name, version = str(named["name"]), str(named["version"])
    plain = layout.canonical_file("policy", name, version)
    rules = orjson.loads(files.read(plain)).get("rules", ()) if plain in files.sizes else ()
    text = files.read(layout.text_file("policy", name, version)).decode()
    return Policy(name, version, str(named["digest"]), text, tuple(rules))


def _commitments(value: object) -> Iterator[tuple[str, str]]:
    """Every ``[path, commitment]`` in a JSON value."""
    match value:
        case [str(path), str(commitment)] if path.startswith("/") and _DIGEST.fullmatch(commitment):
            yield path, commitment
        case list():
            for each in value:
                yield from _commitments(each)
        case dict():
            for each in value.values():
                yield from _commitments(each)


def _opened(files: Files, records: Iterable[object], committed: Mapping[str, str]) -> dict[str, Json]:
    """The values of all disclosures, by path."""
    known = layout.DISCLOSURES in files.sizes
    lines = [line.decode() for line in files.lines(layout.DISCLOSURES, 2 * DISCLOSURE_BYTES_MAX)] if known else []
    disclosed = [open_disclosure(line) for line in lines]
    found = {one.path: one.value for one in disclosed if committed.get(one.path) == one.commitment}
    # The verifier has compared these with the lines that commit to them.
    for line in (each for record in records for each in _disclosures(record)):
        one = open_disclosure(line)
        found[one.path] = one.value
    return found


def _disclosures(value: object) -> Iterator[str]:
    match value:
        case dict():
            for name, each in value.items():
                if name.endswith(_OPENS) and isinstance(each, str):
                    yield each
                else:
                    yield from _disclosures(each)
        case list():
            for each in value:
                yield from _disclosures(each)


def _named(pairs: object, opened: Mapping[str, Json]) -> dict[str, Json]:
    """The opened values of an attempt, by the part of their path behind its event, such as ``proposed/input``."""
    listed = pairs if isinstance(pairs, list) else []
    return {path.split("/", 2)[2]: opened[path] for path, _ in listed if path in opened}
