"""The README.txt of every bundle (``readme.txt``): how to check it without us, and what that does not prove."""

from __future__ import annotations

from importlib.resources import files
from string import Template

_OPENSSL = {
    "ed25519": "openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in ../pae -sigfile ../sig",
    "ecdsa-p256-sha256": "openssl dgst -sha256 -verify public-key.pem -signature ../sig ../pae",
}


def readme(run: str, tenant: str, key_id: str, algorithm: str) -> str:
    """The text for one bundle."""
    text = Template(files("evidence").joinpath("readme.txt").read_text(encoding="utf-8"))
    return text.substitute(run=run, tenant=tenant, key_id=key_id, openssl=_OPENSSL[algorithm])
