"""Signatures over evidence: keys, the signer port, and DSSE v1 envelopes.

A key's id is its fingerprint: the hexadecimal SHA-256 of its SubjectPublicKeyInfo DER. The command
``openssl pkey -pubin -in key.pem -outform DER | sha256sum`` prints the same.
"""

from __future__ import annotations

import base64
import os
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from core import bounded_json
from core.canonical import canonical_bytes, sha256_hex
from core.errors import ConfigurationError, InputError
from evidence.blobs import write_new

ENVELOPE_BYTES_MAX = 64 * 1024 * 1024
_PEM_BYTES_MAX = 64 * 1024


class Algorithm(StrEnum):
    """The signature algorithms that we use."""

    ED25519 = "ed25519"
    ECDSA_P256_SHA256 = "ecdsa-p256-sha256"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that checks signatures: Ed25519 (RFC 8032), or ECDSA on P-256 with SHA-256 and DER signatures."""

    algorithm: Algorithm
    key_id: str
    pem: bytes
    _key: ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey = field(repr=False, compare=False)

    @classmethod
    def from_pem(cls, pem: bytes, *, where: str = "public key") -> PublicKey:
        """Read a PEM ``PUBLIC KEY``. ``InputError`` for anything but Ed25519 and P-256.

        Text may be around it (RFC 7468, 2). A file that is no text is refused, such as a bundle, which holds a key too.
        """
        if b"\0" in pem:
            raise InputError("is not a PEM public key", where=where)
        try:
            key = serialization.load_pem_public_key(pem[:_PEM_BYTES_MAX])
        except (ValueError, UnsupportedAlgorithm):
            raise InputError("is not a PEM public key", where=where) from None
        return cls.of(key, where=where)

    @classmethod
    def of(cls, key: object, *, where: str = "public key") -> PublicKey:
        """Wrap a key of the ``cryptography`` library."""
        if isinstance(key, ed25519.Ed25519PublicKey):
            algorithm = Algorithm.ED25519
        elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
            algorithm = Algorithm.ECDSA_P256_SHA256
        else:
            raise InputError("is neither an Ed25519 nor a P-256 key", where=where)
        spki = serialization.PublicFormat.SubjectPublicKeyInfo
        pem = key.public_bytes(serialization.Encoding.PEM, spki)
        return cls(algorithm, sha256_hex(key.public_bytes(serialization.Encoding.DER, spki)), pem, key)

    def verify(self, data: bytes, signature: bytes) -> bool:
        """True if ``signature`` over ``data`` was made with this key's private half."""
        try:
            if isinstance(self._key, ed25519.Ed25519PublicKey):
                self._key.verify(signature, data)
            else:
                self._key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


class Signer(Protocol):
    """The signer of bundles: with a key in a file by default, with a key service in production."""

    @property
    def public_key(self) -> PublicKey:
        """The key that verifies the signatures; its ``key_id`` and ``algorithm`` are the signer's."""

    def sign(self, data: bytes) -> bytes:
        """Sign ``data`` itself (not a digest of it). Blocks; may raise ``TransportError`` if a service signs."""


class FileSigner:
    """Signs with an Ed25519 key from a PKCS #8 PEM file that only its owner can read."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = PublicKey.of(key.public_key())

    def sign(self, data: bytes) -> bytes:
        """Sign ``data`` (RFC 8032, pure Ed25519: equal data gives equal signatures)."""
        return self._key.sign(data)

    @classmethod
    def load(cls, path: Path) -> FileSigner:
        """Read the key. ``ConfigurationError`` if it is missing, is readable by others, or is no Ed25519 key."""
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode):
                    raise ConfigurationError(f"the signing key {path} is not a file")
                if mode & 0o077:
                    raise ConfigurationError(
                        f"the signing key {path} can be read by other users (mode {stat.S_IMODE(mode):04o}).",
                        remedy=f"Run: chmod 600 {path}, and replace the key if others had access to the machine.",
                    )
                pem = file.read(_PEM_BYTES_MAX)
        except OSError as error:
            raise ConfigurationError(f"the signing key {path} cannot be read: {error.strerror}") from None
        return cls.of_pem(pem, str(path))

    @classmethod
    def of_pem(cls, pem: bytes, where: str) -> FileSigner:
        """Read a key. ``ConfigurationError``, which names the place ``where``, if it is no Ed25519 key."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigurationError(f"{where} is not an unencrypted PEM private key") from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise ConfigurationError(f"the signing key {where} is not an Ed25519 key")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: Path) -> FileSigner:
        """Read the key, or create one (mode 0600) if there is none. Of several processes at once, one creates it."""
        if not path.exists():
            pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            try:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_new(path, pem)  # no effect if another process has just written one
            except OSError as error:
                raise ConfigurationError(f"the signing key {path} cannot be created: {error.strerror}") from None
        return cls.load(path)


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a DSSE v1 signature covers: the pre-authentication encoding of type and payload."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def seal_envelope(payload_type: str, payload: bytes, signer: Signer) -> bytes:
    """A DSSE v1 envelope with one signature, in canonical JSON; its keyid is the key's fingerprint."""
    return _envelope(payload_type, payload, signer.public_key.key_id, signer.sign(pae(payload_type, payload)))


def open_envelope(envelope: bytes, payload_type: str, key: PublicKey) -> bytes:
    """The payload of an envelope signed by ``key``; ``InputError`` if it is not.

    DSSE does not sign keyid, white space and base64 padding bits. We accept exactly one spelling of an envelope, so no
    byte of it can change unnoticed.
    """
    parsed = bounded_json.parse_object(envelope, bytes_max=ENVELOPE_BYTES_MAX, where="envelope")
    try:
        match [parsed.get(name) for name in ("payloadType", "payload", "signatures")]:
            case [str(kind), str(payload64), [{"keyid": str(keyid), "sig": str(sig64)}]]:
                payload, signature = base64.b64decode(payload64, validate=True), base64.b64decode(sig64, validate=True)
            case _:
                raise InputError("is not a DSSE envelope with one signature", where="envelope")
    except ValueError:
        raise InputError("holds what is not base64", where="envelope") from None
    if _envelope(kind, payload, keyid, signature) != envelope:
        raise InputError("is not spelled canonically: something was changed outside its signed part", where="envelope")
    if kind != payload_type:
        raise InputError(f"has the payload type {kind!r}, not {payload_type!r}", where="envelope")
    if keyid != key.key_id:
        raise InputError(f"names the key {keyid[:80]}, not {key.key_id}", where="envelope")
    if not key.verify(pae(kind, payload), signature):
        raise InputError(f"has a signature that is not of the key {key.key_id}", where="envelope")
    return payload


def _envelope(payload_type: str, payload: bytes, keyid: str, signature: bytes) -> bytes:
    return canonical_bytes(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type,
            "signatures": [{"keyid": keyid, "sig": base64.b64encode(signature).decode()}],
        }
    )
