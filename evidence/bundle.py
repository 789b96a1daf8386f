"""The evidence of one run in one signed file: assembles, verifies, signs and packs it.

A bundle is a zip whose entries are uncompressed, sorted, and have one fixed time. The same content signed by the same
Ed25519 key gives the same bytes on every machine (compressors differ between machines), so writing a bundle twice is
idempotent. A verifier need not trust the container: the signed statement lists every other file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain

import orjson
from msgspec import Struct, to_builtins

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import ConsistencyError, InputError
from evidence import layout
from evidence.chain import ChainHead, ChainReport, verify_lines
from evidence.commitments import open_disclosure
from evidence.packing import pack
from evidence.rollup import Rollup
from evidence.signing import PublicKey, Signer, seal_envelope
from evidence.verify import verify_unsigned

_RUN_NAMES = {"tenant_id": "tenant", "workspace_id": "workspace", "run_id": "run", "trigger_type": "trigger"}


class ContradictionError(ConsistencyError):
    """The parts of a run's evidence contradict each other; ``checks`` are the verifier's checks that fail."""

    def __init__(self, message: str, checks: Sequence[str]) -> None:
        super().__init__(message)
        self.checks = tuple(checks)


class DocumentText(Struct, frozen=True):
    """The exact text of a workflow or policy. Events refer to it by name, version and the SHA-256 of its UTF-8.

    ``plain`` is the document of a policy as JSON, for verifiers that read no YAML.
    """

    name: str
    version: str | int
    text: str
    plain: Json = None

    @property
    def digest(self) -> str:
        """SHA-256 of the text's bytes, in hexadecimal."""
        return sha256_hex(self.text.encode())


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


class JudgedBy(Struct, frozen=True):
    """All that a history is judged by: the ``definition`` with the steps, ``people`` by the digest of their directory.

    ``tenant`` are lines of the tenant on which the run rests, each with its place.
    """

    definition: JsonObject
    people: Mapping[str, JsonObject]
    tenant: Sequence[tuple[int, JsonObject]] = ()


class BundleContent(Struct, frozen=True):
    """The input of a bundle. ``appends`` is the run's whole chain, ``head`` its head according to the database.

    An append is a list of lines. ``receipts`` are results of ``Receipt.to_evidence``. ``producer`` is the version of
    Counterseal. ``judged_by`` is what the third format judges the history by; without it, the bundle is of the second.
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
    judged_by: JudgedBy | None = None

    @property
    def format(self) -> int:
        """The number of the bundle's format."""
        return 2 if self.judged_by is None else 3


class Bundle(Struct, frozen=True):
    """A finished bundle: its bytes, their SHA-256 in hexadecimal, and a file name."""

    bytes: bytes
    sha256: str
    name: str


class Unsigned(Struct, frozen=True):
    """A bundle without its signature: all other files, and the statement that lists them, in canonical form."""

    name: str
    files: Mapping[str, bytes]
    statement: bytes


def build_bundle(content: BundleContent, signer: Signer, *, final: bool = True) -> Bundle:
    """Make the bundle, verify it and sign it. The run must have closed, if it is to be ``final``.

    ``ContradictionError`` if the chain does not verify or does not end at ``head``, or if the parts contradict each
    other, so tampered evidence is never signed. ``InputError`` for names and disclosures that a bundle cannot hold.
    """
    unsigned = assemble(content, signer.public_key)
    found = verify_unsigned(unsigned.files, unsigned.statement, final=final)
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
        "predicateType": layout.predicate_type(content.format),
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
        *_judged_by(content),
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


def _judged_by(content: BundleContent) -> list[tuple[str, bytes]]:
    judged = content.judged_by
    if judged is None:
        return []
    lines = [canonical_bytes({"seq": seq, "line": line}) + b"\n" for seq, line in judged.tenant]
    plain = [(layout.canonical_file("policy", one.name, one.version), one.plain) for one in content.policies]
    return [
        (layout.DEFINITION, canonical_bytes(judged.definition) + b"\n"),
        (layout.TENANT, b"".join(lines)),
        *((name, _pretty(each)) for name, each in plain if each is not None),
        *((layout.people_file(digest), _pretty(each)) for digest, each in sorted(judged.people.items())),
    ]


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
