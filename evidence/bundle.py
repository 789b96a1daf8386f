"""The evidence of one run in one signed file (U-7, Q-21).

A bundle is a zip whose entries are stored uncompressed, sorted, with one fixed time: the same content signed by the
same Ed25519 key gives the same bytes on every machine (a compressor's output is not the same everywhere), so writing a
bundle twice is idempotent. Nothing about the container is trusted; the signed statement lists every other file.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import ConsistencyError, InputError
from evidence import layout
from evidence.chain import ChainHead, ChainReport, verify_lines
from evidence.commitments import open_disclosure
from evidence.readme import readme
from evidence.rollup import Rollup
from evidence.signing import Signer, seal_envelope

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
_FILE_MODE = 0o100644 << 16
_UNIX = 3


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The exact text of a workflow or policy. The events name it by name, version and the SHA-256 of its UTF-8."""

    name: str
    version: str | int
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text's bytes, in hexadecimal."""
        return sha256_hex(self.text.encode())


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """One counted vote. ``voter`` is the actor id of its ``approval.voted`` event; ``at`` an RFC 3339 text."""

    voter: str
    choice: str
    channel: str
    at: str


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """One question put to people.

    ``card_disclosure`` opens the commitment that ``approval.requested`` holds as ``card``: the card as shown. Without
    it the card is withheld. ``action`` is the action's digest as in the events, None for a gate.
    """

    approval_id: str
    action: str | None
    status: str
    card_commitment: str
    card_disclosure: str | None
    votes: tuple[VoteRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What ``run.json`` says. Times are RFC 3339 texts; ``inputs`` and ``outputs`` are ``[path, commitment]`` pairs."""

    tenant_id: str
    workspace_id: str
    run_id: str
    trigger_type: str
    status: str
    opened_at: str
    closed_at: str | None
    inputs: Sequence[Json] = ()
    outputs: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class BundleContent:
    """Everything a bundle is made of. ``lines`` is the run's whole chain and ``head`` its head as the database has it.

    ``receipts`` are what ``Receipt.to_evidence`` returns. ``redaction`` names the profile by which values were
    withheld, such as ``metadata``. ``producer`` is the version of Counterseal.
    """

    run: RunRecord
    workflow: DocumentText
    policies: tuple[DocumentText, ...]
    lines: Sequence[bytes]
    head: ChainHead
    approvals: tuple[ApprovalRecord, ...] = ()
    receipts: tuple[JsonObject, ...] = ()
    disclosures: tuple[str, ...] = ()
    redaction: str = "metadata"
    producer: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished bundle: its bytes, their SHA-256 in hexadecimal, and a file name."""

    bytes: bytes
    sha256: str
    name: str


def build_bundle(content: BundleContent, signer: Signer) -> Bundle:
    """Make and sign the bundle.

    ``ConsistencyError`` if the chain does not verify or does not end at ``head``: what was tampered with is not
    signed. ``InputError`` for names and disclosures that cannot stand in a bundle.
    """
    rollup = Rollup()
    report = verify_lines(content.lines, rollup.observe)
    _refuse_broken(content, report, rollup)
    files = _files(content, report, rollup, signer)
    files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
    statement = {
        "_type": layout.STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in sorted(files)],
        "predicateType": layout.PREDICATE_TYPE,
        "predicate": _predicate(content, report),
    }
    files[layout.ENVELOPE] = seal_envelope(layout.PAYLOAD_TYPE, canonical_bytes(statement), signer)
    data = _zip(files)
    return Bundle(data, sha256_hex(data), f"evidence-{content.run.run_id}-{report.count}.zip")


def _refuse_broken(content: BundleContent, report: ChainReport, rollup: Rollup) -> None:
    if not report.ok:
        raise ConsistencyError(f"the audit chain of run {content.run.run_id} is broken: {report.problem}")
    if ChainHead(report.stream, report.count, report.head) != content.head:
        raise ConsistencyError(f"the audit chain of run {content.run.run_id} does not end at its recorded head")
    if report.stream != f"run:{content.run.run_id}":
        raise ConsistencyError(f"the audit chain is that of {report.stream}, not of run {content.run.run_id}")
    if rollup.problems:
        raise ConsistencyError("; ".join(rollup.problems))


def _files(content: BundleContent, report: ChainReport, rollup: Rollup, signer: Signer) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    key = signer.public_key
    run = content.run
    text = readme(run=run.run_id, tenant=run.tenant_id, key_id=key.key_id, algorithm=key.algorithm)
    for line in content.disclosures:
        open_disclosure(line)
    _add(files, layout.README, text.encode())
    _add(files, layout.PUBLIC_KEY, key.pem)
    _add(files, layout.EVENTS, b"".join(line + b"\n" for line in content.lines))
    _add(files, layout.RUN_HEAD, _pretty(run_head(run.tenant_id, run.run_id, report)))
    _add(files, layout.RUN, _pretty(_run(content)))
    _add(files, layout.DECISIONS, _pretty(rollup.decisions))
    _add(files, layout.COSTS, _pretty(rollup.costs()))
    _add(files, layout.CHECKPOINTS, _pretty(rollup.checkpoints))
    _add(files, layout.DISCLOSURES, "".join(f"{line}\n" for line in sorted(set(content.disclosures))).encode())
    _add(files, layout.workflow_file(content.workflow.name, content.workflow.version), content.workflow.text.encode())
    for policy in content.policies:
        _add(files, layout.policy_file(policy.name, policy.version), policy.text.encode())
    for approval in content.approvals:
        _add(files, layout.approval_file(approval.approval_id), _pretty(_approval(approval)))
    for receipt in content.receipts:
        _add(files, layout.receipt_file(str(receipt["receipt"])), _pretty(receipt))
    if len({name.casefold() for name in files}) < len(files):
        raise InputError("two names differ only by case, which not every file system can hold", where="bundle")
    return files


def _add(files: dict[str, bytes], name: str, data: bytes) -> None:
    parts = name.split("/")
    if len(parts) > 2 or not all(layout.NAME.fullmatch(part) for part in parts):
        raise InputError(f"{name!r} cannot be the name of a file in a bundle", where="bundle")
    if name in files:
        raise InputError(f"{name!r} would be in the bundle twice", where="bundle")
    files[name] = data


def run_head(tenant_id: str, run_id: str, report: ChainReport) -> JsonObject:
    """What ``run-head.json`` says about a chain."""
    return {
        "v": 1,
        "tenant": tenant_id,
        "run": run_id,
        "count": report.count,
        "head": report.head,
        "final": report.final,
    }


def _run(content: BundleContent) -> JsonObject:
    run, workflow = content.run, content.workflow
    return {
        "tenant": run.tenant_id,
        "workspace": run.workspace_id,
        "run": run.run_id,
        "workflow": {"name": workflow.name, "version": workflow.version, "digest": workflow.digest},
        "trigger": run.trigger_type,
        "status": run.status,
        "opened_at": run.opened_at,
        "closed_at": run.closed_at,
        "inputs": list(run.inputs),
        "outputs": list(run.outputs),
    }


def _approval(approval: ApprovalRecord) -> JsonObject:
    card: Json = None
    if approval.card_disclosure is not None:
        disclosed = open_disclosure(approval.card_disclosure)
        if disclosed.commitment != approval.card_commitment:
            raise ConsistencyError(f"the card of approval {approval.approval_id} is not the one that was committed to")
        card = disclosed.value
    return {
        "approval": approval.approval_id,
        "action": approval.action,
        "status": approval.status,
        "card": card,
        "card_commitment": approval.card_commitment,
        "card_disclosure": approval.card_disclosure,
        "votes": [
            {"voter": vote.voter, "choice": vote.choice, "channel": vote.channel, "at": vote.at}
            for vote in approval.votes
        ],
    }


def _predicate(content: BundleContent, report: ChainReport) -> JsonObject:
    policies = sorted(content.policies, key=lambda policy: (policy.name, str(policy.version)))
    return {
        "tenant": content.run.tenant_id,
        "run": content.run.run_id,
        "status": content.run.status,
        "workflow": _named(content.workflow),
        "policies": [_named(policy) for policy in policies],
        "first_seq": 0,
        "last_seq": report.count - 1,
        "count": report.count,
        "head": report.head,
        "final": report.final,
        "redaction": content.redaction,
        "producer": content.producer,
    }


def _named(document: DocumentText) -> JsonObject:
    return {"name": document.name, "version": document.version, "digest": document.digest}


def _pretty(value: object) -> bytes:
    """JSON for people's eyes; its bytes are covered by the statement, so it need not be canonical."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = _UNIX
            entry.external_attr = _FILE_MODE
            archive.writestr(entry, files[name])
    return buffer.getvalue()
