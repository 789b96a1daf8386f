"""Signatures of a log by a key that never leaves AWS KMS: Ed25519, of the key spec ECC_NIST_EDWARDS25519.

KMS signs the message itself (``ED25519_SHA_512`` with ``MessageType`` RAW, which is RFC 8032 without a prehash). So it
takes at most 4096 bytes: a checkpoint has some hundred. What KMS answers is verified before anybody gets it.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from core.errors import ConfigurationError, InputError, TransportError
from evidence.signing import Algorithm, PublicKey

MESSAGE_BYTES_MAX = 4096
_SPEC, _USAGE, _ALGORITHM = "ECC_NIST_EDWARDS25519", "SIGN_VERIFY", "ED25519_SHA_512"
# Errors that pass: the signer's next turn asks again.
_BUSY = frozenset(
    {"KeyUnavailableException", "DependencyTimeoutException", "KMSInternalException", "ThrottlingException",
     "LimitExceededException", "RequestLimitExceeded", "ServiceUnavailable", "InternalFailure"}
)  # fmt: skip
_CREATE = "Create it with --key-spec ECC_NIST_EDWARDS25519 --key-usage SIGN_VERIFY, and name it in COUNTERSEAL_LOG_KEY."


class KmsSigner:
    """Signs with a key in AWS KMS, through a boto3 KMS client that the caller made. See ``evidence.signing.Signer``."""

    def __init__(self, client: Any, arn: str, public_key: PublicKey) -> None:
        self._client = client
        # The key's own name, not the alias by which it was found: an alias may be pointed at another key.
        self._arn = arn
        self.public_key = public_key

    @classmethod
    def load(cls, client: Any, key: str) -> KmsSigner:
        """Find the key by its id, ARN or alias. ``ConfigurationError`` if it cannot sign a log, ``TransportError`` if
        KMS does not answer."""
        answer = _call(client.get_public_key, key, KeyId=key)
        offered = answer.get("SigningAlgorithms") or ()
        if (answer.get("KeySpec"), answer.get("KeyUsage")) != (_SPEC, _USAGE) or _ALGORITHM not in offered:
            kind = f"{answer.get('KeySpec')} for {answer.get('KeyUsage')}"
            raise ConfigurationError(f"the key {key} in KMS is a {kind}, which signs no log.", remedy=_CREATE)
        try:
            public = PublicKey.of(load_der_public_key(answer["PublicKey"]))
        except (ValueError, UnsupportedAlgorithm, InputError):
            public = None
        if public is None or public.algorithm is not Algorithm.ED25519:
            raise TransportError(f"KMS answered with no Ed25519 key for {key}.")
        return cls(client, str(answer["KeyId"]), public)

    def sign(self, data: bytes) -> bytes:
        """Sign ``data``. ``InputError`` if it is too long, ``TransportError`` if KMS returns no signature of this key.

        A crash before the answer leaves a signature that nobody has seen.
        """
        if len(data) > MESSAGE_BYTES_MAX:
            raise InputError(f"has {len(data)} bytes, and KMS signs at most {MESSAGE_BYTES_MAX}", where="message")
        named = {"KeyId": self._arn, "Message": data, "MessageType": "RAW", "SigningAlgorithm": _ALGORITHM}
        signature = bytes(_call(self._client.sign, self._arn, **named)["Signature"])
        if not self.public_key.verify(data, signature):
            raise TransportError(f"KMS answered with a signature that is not of the key {self._arn}.")
        return signature


def _call(call: Any, key: str, **given: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = call(**given)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code in _BUSY:
            raise TransportError(f"KMS answered {code} for the key {key}.", remedy="It is asked again.") from None
        remedy = "It has to exist, be enabled, and allow kms:GetPublicKey and kms:Sign to this process."
        raise ConfigurationError(f"KMS refused the key {key}: {code}.", remedy=remedy) from None
    except BotoCoreError as error:
        raise TransportError(f"KMS could not be reached for the key {key}: {type(error).__name__}.") from None
    return found
