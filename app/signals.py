"""The identity of a signal that its sender gave none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.canonical import digest


def default_id(correlation_key: str, said: Mapping[str, Any]) -> str:
    """SHA-256 over the key and everything that was said: a repeated delivery is one signal (V-10).

    ``InputError`` if what was said has no canonical form, which could not be recorded either.
    """
    return digest({**said, "key": correlation_key})
