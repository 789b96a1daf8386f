"""The evidence of one run in one signed file: assembles, verifies, signs and packs it.

A bundle is a zip whose entries are uncompressed, sorted, and have one fixed time. The same content signed by the same
Ed25519 key gives the same bytes on every machine (compressors differ between machines), so writing a bundle twice is
idempotent. A verifier need not trust the container: the signed statement lists every other file.

Files that follow from the events are derived here as the verifier derives them, line by line.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from typing import TypeAlias

from msgspec import Struct

from core.canonical import Json, JsonObject, canonical_bytes, sha256_hex
from core.errors import ConsistencyError, InputError
from evidence import layout
from evidence.chain import ChainHead, verify_lines
from evidence.container import Files, HeldFiles, Spool
from evidence.derived import Derived, predicate_of
from evidence.opened import Opened
from evidence.packing import pack
from evidence.sidecar import Attachments, split_opened
from evidence.signing import PublicKey, Signer, seal_envelope
from evidence.verify import verify_unsigned

FORMAT = 4
# The lines that open values, as bytes; None if nothing is opened but terms.
Sidecar: TypeAlias = bytes | None


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


class JudgedBy(Struct, frozen=True):
    """All that a history is judged by: the ``definition`` with the steps, ``people`` by the digest of their directory.

    ``tenant`` are lines of the tenant on which the run rests, each with its place.
    """

    definition: JsonObject
    people: Mapping[str, JsonObject]
    tenant: Sequence[tuple[int, JsonObject]] = ()


class BundleContent(Struct, frozen=True):
    """The input of a bundle. ``appends`` is the run's whole chain, ``head`` its head according to the database.

    An append is a list of lines. ``opened`` are the values that the bundle shows, in the order of their events.
    ``producer`` is the version of Counterseal. ``judged_by`` is what the history is judged by.
    ``moved_to`` are the versions of the workflow to which the run was moved.
    """

    tenant: str
    workflow: DocumentText
    policies: tuple[DocumentText, ...]
    appends: Collection[Sequence[bytes]]
    head: ChainHead
    judged_by: JudgedBy
    opened: Iterable[Opened] = ()
    producer: str = ""
    moved_to: tuple[DocumentText, ...] = ()

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.head.stream.removeprefix("run:")


class Bundle(Struct, frozen=True):
    """A finished bundle: its bytes, their SHA-256 in hexadecimal, a file name, and the sidecar with its values."""

    bytes: bytes
    sha256: str
    name: str
    sidecar: Sidecar = None


class Unsigned(Struct, frozen=True):
    """A bundle without its signature: all other files, and the statement that lists them, in canonical form.

    ``sidecar`` are the values that the statement names by their digest; None if nothing is opened but terms.
    """

    name: str
    files: Spool
    statement: bytes
    sidecar: bytes | None = None

    @property
    def attachments(self) -> Attachments:
        """Everything that a verifier finds beside the bundle."""
        return Attachments(None if self.sidecar is None else HeldFiles({layout.OPENED: self.sidecar}))


def build_bundle(content: BundleContent, signer: Signer, *, final: bool = True) -> Bundle:
    """Make the bundle, verify it and sign it. With ``final``, the run must have closed.

    ``ContradictionError`` if the chain does not verify or does not end at ``head``, or if the parts contradict each
    other, so tampered evidence is never signed. ``InputError`` for names that a bundle cannot hold.
    """
    unsigned = assemble(content, signer.public_key)
    with closing(unsigned.files):
        found = verify_unsigned(unsigned.files, unsigned.statement, final=final, attachments=unsigned.attachments)
        if not found.ok:
            message = "; ".join(f"{row.check}: {row.detail}" for row in found.failed)
            raise ContradictionError(message, [row.check for row in found.failed])
        return seal(unsigned, signer)


def assemble(content: BundleContent, key: PublicKey) -> Unsigned:
    """The files and the statement, before signing. Raises the errors of ``build_bundle``. Close the files after use."""
    files = Spool()
    try:
        return Unsigned(f"evidence-{content.run}-{content.head.count}.zip", files, *_assembled(content, key, files))
    except BaseException:
        files.close()
        raise


def _assembled(content: BundleContent, key: PublicKey, files: Spool) -> tuple[bytes, bytes | None]:
    """Write all files but the envelope. Returns the statement, and the sidecar."""
    derived = Derived(lambda name, line: files.write(name, line + b"\n"))
    for name in layout.STREAMS:
        files.write(name, b"")  # there may be nothing to say in it
    sizes: list[Json] = [len(lines) for lines in content.appends]
    report = verify_lines(content.head, _written(content, files), sizes, derived.observe)
    if not report.ok:
        raise ContradictionError(f"the audit chain of run {content.run} is broken: {report.problem}", ["chain"])
    if derived.rollup.problems:
        raise ContradictionError("; ".join(derived.rollup.problems), ["chain"])
    derived.finish(report, content.tenant, sizes)
    values = bytearray()
    for opened in content.opened:
        within, apart = split_opened(opened)
        if within is not None:
            files.write(layout.OPENED, canonical_bytes(within.to_json()) + b"\n")
        if apart is not None:
            values += canonical_bytes(apart.to_json()) + b"\n"
    for name, data in _others(content, key):
        if name in files.sizes:
            raise InputError(f"{name!r} would be in the bundle twice", where="bundle")
        files.write(name, data)
    if len({name.casefold() for name in files.sizes}) < len(files.sizes):
        raise InputError("two names differ only by case, which not every file system can hold", where="bundle")
    sidecar = bytes(values) or None
    named: JsonObject = {layout.SIDECAR: None if sidecar is None else sha256_hex(sidecar)}
    return write_statement(
        files, predicate_of(derived.history, report, content.tenant, content.producer, named)
    ), sidecar


def write_statement(files: Spool, predicate: JsonObject, number: int = FORMAT) -> bytes:
    """Write the checksums of all files. Return the statement that lists the files, in canonical form."""
    digests = {name: hash_of(files, name) for name in sorted(files.sizes)}
    files.write(layout.SUMS, "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode())
    digests[layout.SUMS] = hash_of(files, layout.SUMS)
    return canonical_bytes(
        {
            "_type": layout.STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)],
            "predicateType": layout.predicate_type(number),
            "predicate": predicate,
        }
    )


def hash_of(files: Files, name: str) -> str:
    """The SHA-256 of a file."""
    hasher = sha256()
    for chunk in files.chunks(name):
        hasher.update(chunk)
    return hasher.hexdigest()


def seal(unsigned: Unsigned, signer: Signer) -> Bundle:
    """Sign the statement and pack the zip, without any check."""
    files, buffer = unsigned.files, io.BytesIO()
    files.write(layout.ENVELOPE, seal_envelope(layout.PAYLOAD_TYPE, unsigned.statement, signer))
    pack(((name, files.sizes[name], files.chunks(name)) for name in sorted(files.sizes)), buffer)
    data = buffer.getvalue()
    return Bundle(data, sha256_hex(data), unsigned.name, unsigned.sidecar)


def _written(content: BundleContent, files: Spool) -> Iterator[bytes]:
    """Yield the lines of the chain, and write each."""
    for lines in content.appends:
        for line in lines:
            files.write(layout.EVENTS, line + b"\n")
            yield line


def _others(content: BundleContent, key: PublicKey) -> Iterator[tuple[str, bytes]]:
    """Yield the files that do not follow from the events: texts, and what the history is judged by."""
    workflow, policies, judged = content.workflow, content.policies, content.judged_by
    yield layout.README, layout.readme(content.run, content.tenant, key.key_id, key.algorithm).encode()
    yield layout.PUBLIC_KEY, key.pem
    yield layout.text_file("workflow", workflow.name, workflow.version), workflow.text.encode()
    others = {(one.name, str(one.version)): one for one in content.moved_to}
    for name, version in sorted(others.keys() - {(workflow.name, str(workflow.version))}):
        yield layout.text_file("workflow", name, version), others[name, version].text.encode()
    for policy in policies:
        yield layout.text_file("policy", policy.name, policy.version), policy.text.encode()
        if policy.plain is not None:
            yield layout.canonical_file("policy", policy.name, policy.version), canonical_bytes(policy.plain) + b"\n"
    yield layout.DEFINITION, canonical_bytes(judged.definition) + b"\n"
    yield layout.TENANT, b"".join(canonical_bytes({"seq": seq, "line": line}) + b"\n" for seq, line in judged.tenant)
    for digest, each in sorted(judged.people.items()):
        yield layout.people_file(digest), canonical_bytes(each) + b"\n"
