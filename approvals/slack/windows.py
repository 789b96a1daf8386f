"""Windows that we opened: each carries a mark, so that a submission proves what was shown, and to whom.

The mark is an HMAC over the kind of window, the Slack account for which it was opened, and everything that its metadata
says: the question and its digest, the choice, the page. So metadata that somebody else wrote, or that was taken from
another person's window, proves nothing. The key is derived from the app's signing secret: whoever has that could sign
clicks too. A new signing secret makes open windows void, and their people are told to open them again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from approvals.slack.blocks import Block
from approvals.slack.members import METADATA_BYTES_MAX, Clicker
from core.bounded_json import parse_object
from core.canonical import JsonObject, canonical_bytes
from core.errors import InputError

MARK = "m"
_PURPOSE = b"counterseal: a window that was opened for one person"


class Windows:
    """Marks windows, and recognises them."""

    def __init__(self, signing_secret: str) -> None:
        self._key = hmac.new(signing_secret.encode(), _PURPOSE, hashlib.sha256).digest()

    def marked(self, window: Block, clicker: Clicker) -> Block:
        """The window as it is opened for this account; one that asks nothing needs no mark."""
        if "callback_id" not in window:
            return window
        metadata = parse_object(window["private_metadata"].encode(), bytes_max=METADATA_BYTES_MAX)
        mark = self._mark(window["callback_id"], metadata, clicker)
        return {**window, "private_metadata": canonical_bytes({**metadata, MARK: mark}).decode()}

    def opened(self, view: Mapping[str, Any], clicker: Clicker) -> bool:
        """True if exactly this window was opened for this account. Fails closed."""
        try:
            metadata = parse_object(str(view["private_metadata"]).encode(), bytes_max=METADATA_BYTES_MAX)
            given = metadata.pop(MARK, None)
            expected = self._mark(str(view["callback_id"]), metadata, clicker)
        except (InputError, KeyError, UnicodeEncodeError):
            return False
        return isinstance(given, str) and given.isascii() and hmac.compare_digest(given, expected)

    def _mark(self, callback: str, metadata: JsonObject, clicker: Clicker) -> str:
        signed = canonical_bytes([callback, clicker.team, clicker.user, metadata])
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()
