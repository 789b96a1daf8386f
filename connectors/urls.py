"""Canonicalizes URLs: the canonical form is judged, shown and sent. A URL that readers may read differently is refused.

Equivalent spellings get one form: scheme and host in lower case, an international host in ASCII (UTS 46), no default
port, percent-encoding in upper case and only where RFC 3986 needs it. Errors are: a dot segment or an empty segment in
any spelling, a user name, a fragment, a backslash, a blank, a control character, and an unusual spelling of an IP
address.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

import idna

from core.errors import InputError

WHERE = "url"
_PARTS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.IGNORECASE | re.DOTALL)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_IN_PATH = _UNRESERVED | frozenset("!$&'()*+,;=:@/")
_IN_QUERY = _IN_PATH | frozenset("?")
_HEX = frozenset("0123456789abcdefABCDEF")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_HOST_CHARACTERS_MAX = 253
# A server may decode a path more than once. Deeper nesting is refused.
_DECODINGS_MAX = 5
# Names of query parameters from which some frameworks take the method, in place of the request's.
_METHOD_PARAMETERS = frozenset({"_method", "x-http-method-override", "x-http-method", "x-method-override"})
# Categories of characters that are invisible or not allowed in URLs: controls, formats, surrogates, all separators.
_NEVER = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})


def canonical_url(text: str) -> str:
    """The canonical form of an address. ``InputError`` says why it has none; it never repeats a password."""
    if any(unicodedata.category(char) in _NEVER for char in text) or "\\" in text:
        raise _refused("holds a blank, a backslash, or a character that cannot be seen", "Percent-encode it.")
    parts = _PARTS.fullmatch(text)
    if parts is None or not parts[2]:
        raise _refused("must start with http:// or https:// and name a host")
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4] or ""
    if "@" in authority:
        raise _refused("holds a user name or password", "Use a header.")
    if parts[5] is not None:
        raise _refused("has a fragment (#…), which is never sent", "Take it out.")
    host, port = _split(authority)
    number = "" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}"
    asked = _encoded(query[1:], _IN_QUERY)
    check_method_parameters(asked)
    return f"{scheme}://{_host(host)}{number}{_path(path)}{'?' if asked else ''}{asked}"


def check_method_parameters(query: str) -> None:
    """Refuse parameters, of a query or of a form, that may replace the method that was judged."""
    for name, _ in parse_qsl(query.replace(";", "&"), keep_blank_values=True):  # some servers take both as separators
        if name.strip().lower().replace("_", "-").removeprefix("-") in _METHOD_NAMES:
            raise _refused(f"has the parameter {name!r}, which replaces the method", "Give the method itself.")


_METHOD_NAMES = frozenset(name.replace("_", "-").removeprefix("-") for name in _METHOD_PARAMETERS)


def _refused(message: str, remedy: str = "") -> InputError:
    return InputError(message, where=WHERE, remedy=remedy)


def _split(authority: str) -> tuple[str, int | None]:
    """The host, and the port if there is one."""
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        return authority, None
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535 and len(port) <= 5):
        raise _refused("has a port that is no number from 1 to 65535")
    return host, int(port)


def _host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if not text.isascii():
        try:
            text = idna.encode(text, uts46=True, std3_rules=True, transitional=False).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise _refused("has a host that is no international domain name (UTS 46)") from None
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _HOST_CHARACTERS_MAX or not all(map(_LABEL.fullmatch, labels)):
        raise _refused("has a host that is no domain name and no IP address")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    for label in labels:
        if label.startswith("xn--") and not _is_a_label(label):
            raise _refused("has a host with a label xn--… that encodes nothing")
    return name


def _is_a_label(label: str) -> bool:
    try:
        return idna.encode(idna.decode(label), uts46=True, std3_rules=True).decode("ascii") == label
    except (idna.IDNAError, UnicodeError):
        return False


def _ipv4(name: str) -> str:
    try:
        return str(ipaddress.IPv4Address(name))  # only four decimal numbers without leading zeros are accepted
    except ValueError:
        words = "has an IP address in a spelling that is read in several ways"
        raise _refused(words, "Write four decimal numbers, as 192.0.2.1.") from None


def _ipv6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise _refused("has brackets around what is no IPv6 address") from None
    if address.scope_id is not None:
        raise _refused("has an IPv6 address with a zone, which means something on one machine only")
    if address.ipv4_mapped is not None:
        raise _refused("has an IPv4 address in IPv6 form", f"Write {address.ipv4_mapped}.")
    return f"[{address.compressed}]"


def _path(text: str) -> str:
    path = _encoded(text, _IN_PATH) or "/"
    try:
        unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise _refused("has a path whose percent-encoding is no UTF-8") from None
    seen, decoded = path, unquote(path)
    for _ in range(_DECODINGS_MAX):
        _check_steps(decoded)
        seen, decoded = decoded, unquote(decoded)
        if seen == decoded:
            return path
    raise _refused(f"has a path that is percent-encoded more than {_DECODINGS_MAX} times over")


def _check_steps(path: str) -> None:
    """Refuse control characters, and segments that lead to another path, in any spelling."""
    plain = unicodedata.normalize("NFKC", path)
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in plain):
        raise _refused("has a path with an encoded control character")
    steps = re.split(r"[/\\\u2044\u2215\u29f8\u2216]", plain)[1:]
    for at, step in enumerate(steps, 1):
        name = "".join(char for char in step.partition(";")[0] if unicodedata.category(char) not in _NEVER)
        if name in (".", ".."):
            raise _refused("has a step to another path (. or ..)", "Write the path that is meant.")
        if not name and at < len(steps):
            raise _refused("has an empty step (//), which many servers leave out", "Write one / there.")


def _encoded(text: str, safe: frozenset[str]) -> str:
    """The text, percent-encoded only where necessary, with hexadecimal digits in upper case."""
    made, at = list[str](), 0
    while at < len(text):
        char = text[at]
        if char == "%":
            digits = text[at + 1 : at + 3]
            if len(digits) < 2 or not _HEX.issuperset(digits):
                raise _refused("has a % that begins no percent-encoded character", "Write %25.")
            plain = chr(int(digits, 16))
            made.append(plain if plain in _UNRESERVED else f"%{digits.upper()}")
            at += 3
            continue
        made.append(char if char in safe else "".join(f"%{byte:02X}" for byte in char.encode("utf-8")))
        at += 1
    return "".join(made)
