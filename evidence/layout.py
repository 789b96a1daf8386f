"""Names and media types that the bundle's writer and its verifier share, and its README.txt."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Set
from string import Template

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
# The second format has nothing to judge a history by; bundles of the third hold their values. Both still verify.
FORMATS = {f"https://counterseal.dev/evidence-bundle/v{number}": number for number in (2, 3, 4)}

ENVELOPE = "bundle.intoto.dsse.json"
SUMS = "SHA256SUMS"
EVENTS = "events.jsonl"
README = "README.txt"
RUN_FILE = "run.json"
RUN_HEAD = "run-head.json"
DECISIONS = "decisions.json"
COSTS = "costs.json"
CHECKPOINTS = "checkpoints.json"
DISCLOSURES = "disclosures.txt"
PUBLIC_KEY = "public-key.pem"
# Since the third format: the definition and the tenant's lines, which judges need; records as lines; opened values.
DEFINITION = "definition.json"
TENANT = "tenant.jsonl"
APPROVALS = "approvals.jsonl"
RECEIPTS = "receipts.jsonl"
ATTEMPTS = "attempts.jsonl"
CHECKPOINT_LINES = "checkpoints.jsonl"
OPENED = "disclosures.jsonl"

# The first format whose history is judged, and whose files follow from its events.
JUDGED_SINCE = 3
# The first format whose values are in a sidecar, and the member of the statement that names the sidecar.
SIDECAR_SINCE = 4
SIDECAR = "sidecar"
# The ends of the names of the files beside a bundle: its sidecar, a leaf of the log, and the proof of the leaf.
VALUES, LEAF, PROOF = ENDS = (".values.jsonl", ".leaf.json", ".tlog-proof")
_BOTH = frozenset({ENVELOPE, SUMS, EVENTS, README, RUN_FILE, RUN_HEAD, COSTS, PUBLIC_KEY})
_JUDGED = _BOTH | {DEFINITION, TENANT, APPROVALS, RECEIPTS, ATTEMPTS, CHECKPOINT_LINES, OPENED}
ALWAYS = {2: _BOTH | {DECISIONS, CHECKPOINTS, DISCLOSURES}, 3: _JUDGED, 4: _JUDGED}
_TEXTS = re.compile(r"(?:workflow|policy)/[^/]+\.yaml|(?:policy|directory)/[^/]+\.json")
OTHERS = {
    2: re.compile(r"(?:workflow|policy)/[^/]+\.yaml|(?:approvals|receipts)/[^/]+\.json"), 3: _TEXTS, 4: _TEXTS
}  # fmt: skip
# Files that are read line by line, so they may be long.
STREAMS = frozenset({EVENTS, APPROVALS, RECEIPTS, ATTEMPTS, CHECKPOINT_LINES, OPENED})
# A file name, in at most one folder.
NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


def text_file(kind: str, name: str, version: str | int) -> str:
    """The file of a document's text; ``kind`` is ``workflow`` or ``policy``."""
    return f"{kind}/{name}-{version}.yaml"


def misfits(names: Set[str], number: int) -> tuple[list[str], list[str]]:
    """The files that a bundle of this format lacks, and those that none has."""
    always = ALWAYS[number]
    return sorted(always - names), sorted(name for name in names - always if not OTHERS[number].fullmatch(name))


def canonical_file(kind: str, name: str, version: str | int) -> str:
    """The file of a document as JSON, beside its text."""
    return f"{kind}/{name}-{version}.json"


def people_file(digest: str) -> str:
    """The file of the extract of a directory."""
    return f"directory/{digest}.json"


def predicate_type(number: int) -> str:
    """The predicate type of a format."""
    return next(name for name, each in FORMATS.items() if each == number)


def record_file(kind: str, record_id: str) -> str:
    """The file of a record in the second format; ``kind`` is ``approvals`` or ``receipts``."""
    return f"{kind}/{record_id}.json"


_OPENSSL = {
    "ed25519": "openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in ../pae -sigfile ../sig",
    "ecdsa-p256-sha256": "openssl dgst -sha256 -verify public-key.pem -signature ../sig ../pae",
}


def readme(run: str, tenant: str, key_id: str, algorithm: str) -> str:
    """The README.txt of one bundle, from ``readme.txt``: how to check it without us, and the limits of the check.

    The verifier compares it byte for byte. So another text needs another format, or a verifier that accepts both.
    """
    text = pkgutil.get_data("evidence", "readme.txt")
    assert text is not None, "it is part of the package"
    return Template(text.decode()).substitute(run=run, tenant=tenant, key_id=key_id, openssl=_OPENSSL[algorithm])
