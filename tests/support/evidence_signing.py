"""Helpers of tests/evidence that several test files share: from test_signing."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from evidence.signing import PublicKey


class P256Signer:
    """Signs as a key service would, with the port's second algorithm."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.public_key = PublicKey.of(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data, ec.ECDSA(hashes.SHA256()))
