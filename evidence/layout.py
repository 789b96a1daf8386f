"""Names and media types that the bundle's writer and its verifier share, and its README.txt."""

from __future__ import annotations

import re
from importlib.resources import files
from string import Template

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://counterseal.dev/evidence-bundle/v2"

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

ALWAYS = frozenset(
    {ENVELOPE, SUMS, EVENTS, README, RUN_FILE, RUN_HEAD, DECISIONS, COSTS, CHECKPOINTS, DISCLOSURES, PUBLIC_KEY}
)
OTHERS = re.compile(r"(?:workflow|policy)/[^/]+\.yaml|(?:approvals|receipts)/[^/]+\.json")
# A file name, in at most one folder.
NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


def text_file(kind: str, name: str, version: str | int) -> str:
    """The file of a document's text; ``kind`` is ``workflow`` or ``policy``."""
    return f"{kind}/{name}-{version}.yaml"


def record_file(kind: str, record_id: str) -> str:
    """The file of a record; ``kind`` is ``approvals`` or ``receipts``."""
    return f"{kind}/{record_id}.json"


_OPENSSL = {
    "ed25519": "openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in ../pae -sigfile ../sig",
    "ecdsa-p256-sha256": "openssl dgst -sha256 -verify public-key.pem -signature ../sig ../pae",
}


def readme(run: str, tenant: str, key_id: str, algorithm: str) -> str:
    """The README.txt of one bundle, from ``readme.txt``: how to check it without us, and the limits of the check."""
    text = Template(files("evidence").joinpath("readme.txt").read_text(encoding="utf-8"))
    return text.substitute(run=run, tenant=tenant, key_id=key_id, openssl=_OPENSSL[algorithm])
