"""A secret that a system gives back is found, however that system writes what stands in its texts."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from connectors.masking import Secrets

SECRET = "s3cr3t/Tok+en~of==<ours>&\"mö'"


def numbered(text: str, form: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else form % ord(char) for char in text)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "PHP's JSON": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON that escapes HTML": lambda text: numbered(text, "\\u%04X"),
    "JSON in JSON": lambda text: json.dumps(json.dumps(text).replace("/", "\\/")),
    "a script": lambda text: numbered(text, "\\x%02x"),
    "entities": lambda text: html.escape(text),
    "entities twice": lambda text: html.escape(html.escape(text)),
    "numbers": lambda text: numbered(text, "&#%d;"),
    "hexadecimal numbers": lambda text: numbered(text, "&#x%X;"),
    "a URL": lambda text: quote(text, safe=""),
    "a URL in a URL": lambda text: quote(quote(text, safe=""), safe=""),
    "a URL in lower case": lambda text: quote(text, safe="").replace("%2F", "%2f").replace("%3C", "%3c"),
    "some of a URL": lambda text: text.replace("/", "%2F"),
    "base64": lambda text: base64.b64encode(f"x{text}y".encode()).decode(),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_secret_is_masked_in_any_spelling(name: str) -> None:
    spelled = SPELLINGS[name](SECRET)
    masked = Secrets.of_headers({"X-Key": SECRET}).text(f"You sent {spelled}.")
    assert "[secret]" in masked
    assert not {"Tok", "en~of", "ours"} & set(masked.replace("%", " ").replace("\\", " ").split())
    assert "cr3t" not in masked
    assert len(masked) <= len("You sent [secret].") + (8 if name in ("base64", "JSON in JSON", "PHP's JSON") else 2)
