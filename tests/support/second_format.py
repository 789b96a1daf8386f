"""Writes bundles of the second format, as 0.2.0 did: the verifier still reads them, and nothing else writes them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import orjson
from msgspec import Struct, to_builtins

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import InputError
from evidence import layout
from evidence.bundle import Bundle, ContradictionError, DocumentText
from evidence.chain import ChainHead, ChainReport, timestamp, verify_lines
from evidence.commitments import blind, commit_fields, commit_paths, open_disclosure
from evidence.packing import pack
from evidence.receipts import ALTERED, Receipt, ReceiptStatus
from evidence.rollup import Rollup
from evidence.signing import PublicKey, Signer, seal_envelope
from evidence.verify import verify_unsigned


class Unsigned(Struct, frozen=True):
    """A bundle without its signature."""

    name: str
    files: Mapping[str, bytes]
    statement: bytes


_RUN_NAMES = {"tenant_id": "tenant", "workspace_id": "workspace", "run_id": "run", "trigger_type": "trigger"}
# Members of a late answer that are values.
_LATE_VALUES = ("detail", "external_id", "output")


class VoteRecord(Struct, frozen=True):
    """One counted vote. ``voter`` is the actor id of its ``approval.voted`` event; ``at`` an RFC 3339 text.

    ``reason`` is the disclosure that opens the commitment of that event; None if no reason was given, or if it is lost
    because the voter has replaced this vote.
    """

    voter: str
    choice: str
    channel: str
    at: str
    reason: str | None = None


class ApprovalRecord(Struct, frozen=True, rename={"approval_id": "approval"}):
    """One question put to people, with the member names that the bundle uses.

    ``card_disclosure`` opens the commitment ``card`` of ``approval.requested``: the card as shown. If it is None, the
    card is withheld. ``asked`` opens the commitment to the kind, the requester and the terms. ``action`` is the
    action's digest as in the events, None for a gate.
    """

    approval_id: str
    action: str | None
    status: str
    card_commitment: str
    card_disclosure: str | None
    votes: tuple[VoteRecord, ...] = ()
    asked: str | None = None


class CancelRecord(Struct, frozen=True):
    """The first cancellation of the run, as in its event. ``reason`` is a disclosure; None if no reason was given."""

    by: str
    reason: str | None


class RunRecord(Struct, frozen=True, rename=_RUN_NAMES):
    """The facts of ``run.json``. Times are RFC 3339 texts; ``inputs``, ``outputs`` are ``[path, commitment]`` pairs.

    ``state`` are the same pairs for the channels at the end. ``attempts`` lists every intent of an action: the facts of
    its event, and under ``values`` the pairs of the attempted values, whose digest is in the event. ``origins`` lists
    in the same way the events from which origins are computed, if a rule has read any.
    """

    tenant_id: str
    workspace_id: str
    run_id: str
    trigger_type: str
    status: str
    opened_at: str
    closed_at: str | None
    inputs: Sequence[Json] = ()
    outputs: Sequence[Json] = ()
    state: Sequence[Json] = ()
    attempts: Sequence[Json] | None = None
    origins: Sequence[Json] | None = None
    canceled: CancelRecord | None = None


class BundleContent(Struct, frozen=True):
    """The input of a bundle. ``appends`` is the run's whole chain, ``head`` its head according to the database.

    An append is a list of lines. ``receipts`` are results of ``Receipt.to_evidence``. ``producer`` is the version of
    Counterseal.
    """

    run: RunRecord
    workflow: DocumentText
    policies: tuple[DocumentText, ...]
    appends: Sequence[Sequence[bytes]]
    head: ChainHead
    approvals: tuple[ApprovalRecord, ...] = ()
    receipts: tuple[JsonObject, ...] = ()
    disclosures: tuple[str, ...] = ()
    producer: str = ""


def build_bundle(content: BundleContent, signer: Signer) -> Bundle:
    """Make the bundle, verify it and sign it.

    ``ContradictionError`` if the chain does not verify or does not end at ``head``, or if the parts contradict each
    other, so tampered evidence is never signed. ``InputError`` for names and disclosures that a bundle cannot hold.
    """
    unsigned = assemble(content, signer.public_key)
    found = verify_unsigned(unsigned.files, unsigned.statement)
    if not found.ok:
        message = "; ".join(f"{row.check}: {row.detail}" for row in found.failed)
        raise ContradictionError(message, [row.check for row in found.failed])
    return seal(unsigned, signer)


def assemble(content: BundleContent, key: PublicKey) -> Unsigned:
    """The files and the statement, before signing. Raises the errors of ``build_bundle``."""
    rollup = Rollup()
    sizes = [len(lines) for lines in content.appends]
    report = verify_lines(content.head, chain.from_iterable(content.appends), sizes, rollup.observe)
    _refuse_broken(content, report, rollup)
    files = _files(content, report, rollup, key)
    files[layout.SUMS] = "".join(f"{sha256_hex(files[name])}  {name}\n" for name in sorted(files)).encode()
    statement = {
        "_type": layout.STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": sha256_hex(files[name])}} for name in sorted(files)],
        "predicateType": layout.predicate_type(2),
        "predicate": _predicate(content, report),
    }
    return Unsigned(f"evidence-{content.run.run_id}-{report.count}.zip", files, canonical_bytes(statement))


def seal(unsigned: Unsigned, signer: Signer) -> Bundle:
    """Sign the statement and pack the zip, without any check."""
    envelope = seal_envelope(layout.PAYLOAD_TYPE, unsigned.statement, signer)
    files, buffer = {**unsigned.files, layout.ENVELOPE: envelope}, io.BytesIO()
    pack(((name, len(files[name]), (files[name],)) for name in sorted(files)), buffer)
    data = buffer.getvalue()
    return Bundle(data, sha256_hex(data), unsigned.name)


def _refuse_broken(content: BundleContent, report: ChainReport, rollup: Rollup) -> None:
    run = content.run.run_id
    if not report.ok:
        problem = f"the audit chain of run {run} is broken: {report.problem}"
    elif report.stream != f"run:{run}":
        problem = f"the audit chain is that of {report.stream}, not of run {run}"
    else:
        problem = "; ".join(rollup.problems)
    if problem:
        raise ContradictionError(problem, ["chain"])


def _files(content: BundleContent, report: ChainReport, rollup: Rollup, key: PublicKey) -> dict[str, bytes]:
    for line in content.disclosures:
        open_disclosure(line)
    workflow, policies = content.workflow, content.policies
    listed = [
        (layout.README, layout.readme(content.run.run_id, content.run.tenant_id, key.key_id, key.algorithm).encode()),
        (layout.PUBLIC_KEY, key.pem),
        (layout.EVENTS, b"".join(line + b"\n" for lines in content.appends for line in lines)),
        (layout.RUN_HEAD, canonical_bytes(_run_head(content, report)) + b"\n"),
        (layout.RUN_FILE, _pretty(_run(content))),
        (layout.DECISIONS, _pretty(rollup.decisions)),
        (layout.COSTS, _pretty(rollup.costs())),
        (layout.CHECKPOINTS, _pretty(rollup.checkpoints)),
        (layout.DISCLOSURES, "".join(f"{line}\n" for line in sorted(set(content.disclosures))).encode()),
        (layout.text_file("workflow", workflow.name, workflow.version), workflow.text.encode()),
        *((layout.text_file("policy", policy.name, policy.version), policy.text.encode()) for policy in policies),
        *((layout.record_file("approvals", one.approval_id), _pretty(_approval(one))) for one in content.approvals),
        *((layout.record_file("receipts", str(receipt["receipt"])), _pretty(receipt)) for receipt in content.receipts),
    ]
    files: dict[str, bytes] = {}
    for name, data in listed:
        if not layout.NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot be the name of a file in a bundle", where="bundle")
        if name in files:
            raise InputError(f"{name!r} would be in the bundle twice", where="bundle")
        files[name] = data
    if len({name.casefold() for name in files}) < len(files):
        raise InputError("two names differ only by case, which not every file system can hold", where="bundle")
    return files


def _run_head(content: BundleContent, report: ChainReport) -> JsonObject:
    return {
        "v": 2,
        "tenant": content.run.tenant_id,
        "run": content.run.run_id,
        "count": report.count,
        "head": report.head,
        "final": report.final,
        "appends": [len(lines) for lines in content.appends],
    }


def _run(content: BundleContent) -> JsonObject:
    canceled = content.run.canceled
    record = to_builtins(content.run)
    return {
        **{name: value for name, value in record.items() if value is not None or name != "origins"},
        "workflow": _named(content.workflow),
        "canceled": None if canceled is None else {"by": canceled.by, **_opened("reason", canceled.reason)},
    }


def _opened(name: str, line: str | None) -> JsonObject:
    """A value and the disclosure that proves it; both None if ``line`` is None."""
    return {name: None if line is None else open_disclosure(line).value, f"{name}_disclosure": line}


def _approval(approval: ApprovalRecord) -> JsonObject:
    opened = approval.card_disclosure and open_disclosure(approval.card_disclosure)
    if opened and opened.commitment != approval.card_commitment:
        problem = f"the card of approval {approval.approval_id} is not the one that was committed to"
        raise ContradictionError(problem, ["approvals"])
    return {
        **to_builtins(approval),
        **_opened("asked", approval.asked),
        **_opened("card", approval.card_disclosure),
        "votes": [{**to_builtins(vote), **_opened("reason", vote.reason)} for vote in approval.votes],
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
        "redaction": "metadata",
        "producer": content.producer,
    }


def _named(document: DocumentText) -> JsonObject:
    return {"name": document.name, "version": document.version, "digest": document.digest}


def _pretty(value: object) -> bytes:
    """Indented JSON for people. The statement covers its bytes, so it need not be canonical."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def to_evidence(receipt: Receipt, run_key: bytes) -> JsonObject:
    """The receipt as a bundle shows it: metadata, and commitments in place of every value.

    Fields that can carry business data (target, idempotency key, external id, texts, the reversal's input) are
    committed under ``/receipt/<id>/…``; the action's digest is blinded. ``values`` lists the committed values.
    """
    reverse = receipt.reverse
    shown: JsonObject = {
        "receipt": str(receipt.receipt_id),
        "run": str(receipt.run_id),
        "step": receipt.step_key,
        "operation": receipt.operation,
        "action": blind(run_key, receipt.action_digest),
        "status": str(receipt.status),
        "attempt": receipt.attempt,
        "lease_epoch": receipt.lease_epoch,
        "reversible": receipt.reversible,
        "reverse": None,
        "intended_at": timestamp(receipt.intended_at),
        "settled_at": None if receipt.settled_at is None else timestamp(receipt.settled_at),
        "committed": commit_paths(run_key, values(receipt).items()),
    }
    if reverse is not None:
        restores: Any = reverse["input"]
        shown["reverse"] = {
            "operation": reverse["operation"],
            "fields": [*sorted(restores)],
            "committed": commit_fields(run_key, f"/receipt/{receipt.receipt_id}/reverse", restores),
        }
    if receipt.status == ReceiptStatus.SUCCEEDED and receipt.error is not None and receipt.error.get("code") == ALTERED:
        shown["altered"] = receipt.error["fields"]
    if receipt.reverses is not None:
        shown["reverses"] = receipt.reverses
    if receipt.late:
        shown["late"] = [{name: late[name] for name in late if name not in _LATE_VALUES} for late in receipt.late]
    return shown


def values(receipt: Receipt) -> dict[str, Json]:
    """The paths and values that ``to_evidence`` commits to at its top level; absent values are left out."""
    place = f"/receipt/{receipt.receipt_id}"
    named: dict[str, Json] = {
        f"{place}/late/{number}/{name}": late[name]
        for number, late in enumerate(receipt.late)
        for name in _LATE_VALUES
        if name in late
    }
    named |= {
        f"{place}/error": None if receipt.error is None else str(receipt.error["message"]),
        f"{place}/approved_version": receipt.approved_version,
        f"{place}/external_id": receipt.external_id,
        f"{place}/idempotency_key": receipt.idempotency_key,
        f"{place}/resolution": receipt.resolution,
        f"{place}/target": receipt.target,
        f"{place}/version": receipt.version,
    }
    return {path: value for path, value in named.items() if value is not None}
