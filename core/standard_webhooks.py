"""The signatures of Standard Webhooks (standardwebhooks.com), for incoming and outgoing messages. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from core.errors import ConfigurationError

KEY_BYTES_MIN = 16


def key_of(secret: str) -> bytes:
    """The key in a secret: ``whsec_`` and base64. ``ConfigurationError`` if it is none, or too short."""
    try:
        found = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) < KEY_BYTES_MIN:  # anybody could sign with an empty key
        words = "the secret of this endpoint is no key of Standard Webhooks."
        raise ConfigurationError(words, remedy="It is whsec_ and base64, as the sender shows it.")
    return found


def signature(key: bytes, id_: str, timestamp: str, body: bytes) -> str:
    """The signature of a message, in base64, without its version."""
    made = hmac.new(key, b".".join([id_.encode(), timestamp.encode(), body]), hashlib.sha256)
    return base64.b64encode(made.digest()).decode()
