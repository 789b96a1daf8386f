"""Helpers of tests/connectors that several test files share: from conftest."""

from __future__ import annotations

# No part of it is like another, as in a hash.
KEY = "0123456789abcdef" + "fedcba9876543210" + "00112233445566778899aabbccddeeff"
