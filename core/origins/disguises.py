"""Computes other forms of a text: decoded, and as readers see it. A value in such a form is the same value disguised.

Everything takes linear time. Character classes are those of Unicode 3.2, as in ``words``.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from unicodedata import ucd_3_2_0
from urllib.parse import unquote

# Normalization sorts combining marks in quadratic time, so all marks are removed from a text with more than these.
_MARKS_MAX = 1_000
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}+")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){4,}+(?![0-9a-fA-F])")
_BASE32 = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{8,}+=*")
_BULLETS = str.maketrans("\u00b7\u2022\u2219\u22c5\u2024", ".....")
_BETWEEN = re.compile(r"<[^<>\n]{0,80}>|[*`~]|[\"']\s?\+\s?[\"']")  # tags, emphasis, texts put together
_OPEN, _CLOSE = r"[ ]{0,3}[\[({<]\s?", r"\s?[\])}>][ ]{0,3}"
_DOT = re.compile(
    rf"{_OPEN}(?:dot|punkt|punto|point|\.){_CLOSE}|[ ]{{1,3}}dot[ ]{{1,3}}|(?<=\w)[ ]\.[ ]?(?=\w)", re.IGNORECASE
)
_AT = re.compile(
    rf"{_OPEN}(?:at|@|arroba|klammeraffe){_CLOSE}|[ ]{{1,3}}at[ ]{{1,3}}(?=[\w-]+\.\w)|[ ]@[ ]", re.IGNORECASE
)
_SLASH = re.compile(r"(?<=\w)[ ]{1,3}slash[ ]{1,3}(?=\w)", re.IGNORECASE)
_PHONE = re.compile(r"(?:\btel:\s?\+?|\+|\b0)\d[\d ().\-/]{6,24}\d")
_NO_DIGITS = re.compile(r"\D")
_URL_SAFE = str.maketrans("-_", "+/")
_DOTS = str.maketrans({"\u3002": ".", "\uff61": ".", "\ufe52": "."})
_ASCII_SIGNS = re.compile(r"[^a-z0-9]+")
# Invisible characters, some of which Unicode 3.2 counts as blanks.
UNSEEN = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u200b\u3164\uffa0")


class Forms(dict[int, str]):
    """A table for ``str.translate`` that computes each character's form when needed and caches it.

    The cache is bounded, so that no text can fill the memory.
    """

    def __init__(self, form: Callable[[str], str]) -> None:
        super().__init__()
        self._form = form

    def __missing__(self, code: int) -> str:
        form = self._form(chr(code))
        if len(self) < FORMS_MAX:
            self[code] = form
        return form


FORMS_MAX = 4_096


def _kept(character: str, kinds: Collection[str]) -> str:
    return "" if character in UNSEEN or ucd_3_2_0.category(character) in kinds else character


def _letter(character: str) -> str:
    """Letters and digits, case-folded; "" for any other character. Unassigned and private ones are kept."""
    kind = ucd_3_2_0.category(character)
    if kind in ("Cn", "Co", "Cs"):
        return character
    return character.casefold() if kind[0] in "LN" else ""


# Tables that remove invisible characters; the second also removes marks.
_SEEN = Forms(partial(_kept, kinds=("Cf",)))
_UNMARKED = Forms(partial(_kept, kinds=("Cf", "Mn", "Mc", "Me")))
_PLAIN = Forms(_letter)


def plain(text: str) -> str:
    """The visible letters and digits of a text, without case and marks: a loose form for finding earlier words."""
    if text.isascii():
        return _ASCII_SIGNS.sub("", text.lower())
    return ucd_3_2_0.normalize("NFKD", text.translate(_UNMARKED)).translate(_PLAIN)


def disguises(text: str) -> Iterator[str]:
    """Yield each other form of a text that differs from it: as readers see it, and by each decoding that we know."""
    found = {text}
    forms = (_seen(text), unquote(text), html.unescape(text), _unescaped(text), _spelled(text), _dialed(text))
    for other in (*forms, *_packed(text)):
        if other and other not in found:
            found.add(other)
            yield other


def _seen(text: str) -> str:
    if text.isascii():
        return text
    marks = sum(ucd_3_2_0.category(one)[0] == "M" for one in text)
    translated = text.translate(_SEEN if marks <= _MARKS_MAX else _UNMARKED)
    return ucd_3_2_0.normalize("NFKC", translated).translate(_DOTS)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)


def _spelled(text: str) -> str:
    """The text with signs for the words and brackets that stand for them: ``evil dot example``, ``evil[.]example``."""
    joined = _DOT.sub(".", _BETWEEN.sub("", text.translate(_BULLETS)))
    if joined == text:
        return text
    return _SLASH.sub("/", _AT.sub("@", joined))


def _dialed(text: str) -> str:
    """The text with telephone numbers as plain digits."""
    return _PHONE.sub(_digits, text)


def _digits(found: re.Match[str]) -> str:
    """The digits of a number with brackets, dots or slashes; a number with blanks stays, and is found as it is."""
    return found[0] if set(found[0]) <= set("+0123456789 -") else _NO_DIGITS.sub("", found[0])


def _packed(text: str) -> Iterator[str]:
    """Yield the decoded base64, base32 and hexadecimal words, those that are readable text."""
    yield " ".join(filter(None, (_read(_of_base64(word)) for word in _BASE64.findall(text))))
    yield " ".join(filter(None, (_read(_of_base32(word)) for word in _BASE32.findall(text))))
    yield " ".join(filter(None, (_read(bytes.fromhex(word)) for word in _HEX.findall(text))))


def _of_base64(word: str) -> bytes:
    try:
        return base64.b64decode(word.translate(_URL_SAFE) + "=" * (-len(word) % 4))
    except binascii.Error:
        return b""


def _of_base32(word: str) -> bytes:
    bare = word.rstrip("=")
    try:
        return base64.b32decode(bare + "=" * (-len(bare) % 8))
    except binascii.Error:
        return b""


def _read(held: bytes) -> str:
    try:
        text = held.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""
