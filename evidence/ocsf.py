"""Tells lines of the audit as events of OCSF 1.9.0 (Open Cybersecurity Schema Framework), with ``record_integrity``.

Each event holds its line as ``raw_data``, so whoever gets all of a stream can compute our chain again. The attestation
has a fingerprint of the event and names the event before it in the same stream: an event that was changed, or is
missing, shows there too. The mapping is pure: the same line gives the same event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from evidence.events import EventType as E

VERSION = "1.9.0"
_ENTITY, _AUTHENTICATION, _API = 3004, 3002, 6003
_CREATE, _READ, _UPDATE, _DELETE, _OTHER = 1, 2, 3, 4, 99
_ENTITIES = ("policy", "workflow", "directory", "pause", "tenant", "token", "grant", "approval")
_ACTIVITIES: Mapping[str, int] = {
    **dict.fromkeys(("published", "created", "requested", "given", "set", "proposed"), _CREATE),
    **dict.fromkeys(("retired", "revoked", "lifted", "ended", "expired", "superseded"), _DELETE),
}
_LOGONS: Mapping[str, int] = {"opened": 1, "ended": 2}
_CALLS: Mapping[str, int] = {E.EVIDENCE_READ: _READ, E.EVIDENCE_EXPORTED: _READ, E.ACTION_INTENDED: _UPDATE}
_FAILURES = ("failed", "refused", "in_doubt", "late", "expired")
_SHA256 = 3
_WORDS = {_CREATE: "Create", _READ: "Read", _UPDATE: "Update", _DELETE: "Delete"}


def events(stream: str, tenant: str, product: str, lines: Iterable[Mapping[str, Any]]) -> Iterator[JsonObject]:
    """Yield the event of each line of a stream, from its first line on; ``lines`` are parsed, without their places."""
    before: JsonObject | None = None
    for seq, line in enumerate(lines):
        event = _event(stream, tenant, product, seq, line)
        attestation: JsonObject = {"uid": f"{stream}#{seq}", "authority_uid": product, "chain_uid": stream}
        if before is not None:
            attestation["prev_event"] = before
        event["attestation"] = attestation
        attestation["fingerprint"] = _fingerprint(canonical_bytes(event))
        before = {"uid": attestation["uid"], "fingerprint": attestation["fingerprint"]}
        yield event


def _event(stream: str, tenant: str, product: str, seq: int, line: Mapping[str, Any]) -> JsonObject:
    kind, data, raw = str(line["type"]), line["data"], canonical_bytes(line)
    area, _, what = kind.partition(".")
    failed = what in _FAILURES or data.get("outcome") == "deny"
    classified = _classed(area, what, kind, line)
    uid = f"{stream}#{seq}"
    metadata: JsonObject = {
        "version": VERSION, "uid": uid, "tenant_uid": tenant, "profiles": ["record_integrity"], "event_code": kind,
        "log_name": stream, "sequence": seq, "original_time": line["ts"],
        "product": {"name": "Counterseal", "vendor_name": "Counterseal", "version": product},
    }  # fmt: skip
    activity, classed = classified.pop("activity_id"), classified.pop("class_uid")
    assert isinstance(activity, int), "it is one of ours"
    assert isinstance(classed, int), "it is one of ours"
    return {
        "class_uid": classed, "category_uid": classed // 1000, "activity_id": activity,
        "activity_name": _WORDS.get(activity, what) if classed != _AUTHENTICATION else what,
        "type_uid": classed * 100 + activity, "time": _millis(str(line["ts"])),
        "severity_id": 3 if failed else 1, "status_id": 2 if failed else 1, "message": kind, "metadata": metadata,
        "raw_data": raw.decode(), "raw_data_hash": _fingerprint(raw), **classified,
    }  # fmt: skip


def _classed(area: str, what: str, kind: str, line: Mapping[str, Any]) -> JsonObject:
    """The class, the activity, and the members that the class asks for."""
    data, actor = line["data"], line["actor"]
    who: JsonObject = {"uid": actor["id"], "type": actor["kind"]}
    if area == "session":
        user: JsonObject = {"uid": data.get("subject", actor["id"]), "type": "person"}
        return {"class_uid": _AUTHENTICATION, "activity_id": _LOGONS.get(what, _OTHER), "user": user}
    if area in _ENTITIES:
        named = data.get(area) or data.get("name") or data.get("paused") or area
        entity: JsonObject = {"type": area, "uid": str(named), "name": str(named)}
        if "version" in data:
            entity["version"] = str(data["version"])
        activity = _ACTIVITIES.get(what, _UPDATE)
        return {"class_uid": _ENTITY, "activity_id": activity, "entity": entity, "actor": {"user": who}}
    resource = data.get("receipt") or data.get("run") or line["step"]
    operation = data.get("operation") or kind
    called: JsonObject = {
        "class_uid": _API, "activity_id": _CALLS.get(kind, _OTHER), "actor": {"user": who},
        "api": {"operation": str(operation), "service": {"name": "Counterseal"}},
        "src_endpoint": {"name": "Counterseal"},
    }  # fmt: skip
    return called if resource is None else {**called, "resources": [{"uid": str(resource), "type": area}]}


def _fingerprint(data: bytes) -> Json:
    return {"algorithm": "SHA-256", "algorithm_id": _SHA256, "value": sha256_hex(data)}


def _millis(ts: str) -> int:
    moment = datetime.fromisoformat(ts).astimezone(UTC)
    return round(moment.timestamp() * 1000)
