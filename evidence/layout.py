"""Names and media types that the bundle's writer and its verifier share."""

from __future__ import annotations

import re

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://counterseal.dev/evidence-bundle/v2"

ENVELOPE = "bundle.intoto.dsse.json"
SUMS = "SHA256SUMS"
EVENTS = "events.jsonl"
README = "README.txt"
RUN = "run.json"
RUN_HEAD = "run-head.json"
DECISIONS = "decisions.json"
COSTS = "costs.json"
CHECKPOINTS = "checkpoints.json"
DISCLOSURES = "disclosures.txt"
PUBLIC_KEY = "public-key.pem"

ALWAYS = frozenset(
    {ENVELOPE, SUMS, EVENTS, README, RUN, RUN_HEAD, DECISIONS, COSTS, CHECKPOINTS, DISCLOSURES, PUBLIC_KEY}
)
OTHERS = re.compile(r"(?:workflow|policy)/[^/]+\.yaml|(?:approvals|receipts)/[^/]+\.json")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)


def workflow_file(name: str, version: str | int) -> str:
    """Where the workflow's text is."""
    return f"workflow/{name}-{version}.yaml"


def policy_file(name: str, version: str | int) -> str:
    """Where a policy's text is."""
    return f"policy/{name}-{version}.yaml"


def approval_file(approval_id: str) -> str:
    """Where an approval is."""
    return f"approvals/{approval_id}.json"


def receipt_file(receipt_id: str) -> str:
    """Where a receipt is."""
    return f"receipts/{receipt_id}.json"
