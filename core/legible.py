"""Makes text from outside safe to read: nothing in it stays invisible, disguised or reordered.

- An invisible or structural character is written as a code, ``⟨U+XXXX⟩``. So is ``⟨`` itself, so that the original can
  always be recovered from what is shown.
- A letter that looks like one of another script is written as a code, too, where that could deceive: scripts that are
mixed in one word (UTS 39, "mixed script"), whole words of look-alikes, letters and digits of another width or style,
digits of another system, and signs that look like full stops and slashes.
- A value with letters that are written from right to left is isolated (U+2068 … U+2069), so that it never changes the
order of the text around it.

The script of a character is taken from its Unicode name. Look-alikes are characters that resemble Latin letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

FIRST_STRONG, POP = "\u2068", "\u2069"

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Me"})
# Characters that Unicode calls default-ignorable or that are invisible, and our own delimiters.
_HIDDEN_CHARACTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0`⟨")
_HIDDEN_RANGES = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0000, 0xE0FFF))
_MARKS_MAX = 3  # more combining marks on one letter would overlay the lines around it
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})

LATIN, EAST = "LATIN", "EAST"
# Scripts that are written together in one word, also with Latin (UTS 39, "highly restrictive").
_EASTERN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"})
# First words of Unicode names that name no script.
_COMMON = frozenset(
    {"MODIFIER", "MICRO", "FEMININE", "MASCULINE", "FULLWIDTH", "HALFWIDTH", "MATHEMATICAL", "COMBINING"}
)
_LETTERLIKE = range(0x2100, 0x2150)
_LOOK_ALIKE = {
    "CYRILLIC": frozenset(
        "\u0430\u0410\u0412\u0441\u0421\u0501\u0435\u0415\u050d\u04bb\u041d\u0456\u0406\u0458\u0408\u043a"
        "\u041a\u04cf\u04c0\u041c\u043e\u041e\u0440\u0420\u0455\u0405\u0422\u0445\u0425\u0443\u0423\u04af"
        "\u04ae\u051b\u051a\u051d\u051c\u0475\u0474\u044c\u042c\u0417"
    ),
    "GREEK": frozenset(
        "\u03b1\u0391\u0392\u03b5\u0395\u0396\u03b7\u0397\u03b9\u0399\u03ba\u039a\u039c\u03bd\u039d\u03bf"
        "\u039f\u03c1\u03a1\u03c3\u03c2\u03c4\u03a4\u03c5\u03a5\u03c7\u03a7\u03b3\u03f2\u03f9\u03f3\u037f"
        "\u03c9"
    ),
    "ARMENIAN": frozenset(
        "\u0585\u0555\u0578\u057d\u054d\u0570\u0581\u0566\u0584\u0575\u057b\u056c\u053c\u054f\u057f\u0548\u0587"
    ),
}
# Scripts whose letters look like other letters to people who do not read them.
_ALL_ALIKE = frozenset(
    {"CHEROKEE", "LISU", "COPTIC", "DESERET", "OLD", "OSAGE", "WARANG", "GOTHIC", "CARIAN", "LYCIAN"}
)
# Latin letters that look like a capital letter or like another letter.
_LATIN_ALIKE = frozenset("\u0251\u0261\u0269\u026a\u0262\u0274\u0280\u0299\u029c\u029f\u028f\u01c0\u01c3") | frozenset(
    map(chr, range(0x1D00, 0x1D23))
)
# Signs that look like the signs of an address or a number: anywhere in it, or only between two of its characters.
_SIGNS = frozenset(
    "\u2024\u2044\u2215\u29f8\u27cb\uff61\u3002\uff0e\uff0f\uff20\uff1a\ufe55\ufe52\ufe68\uff3c\u2236"
    "\ua789\u0589\u05c3\u201a\u2e40\u1390\u06d4\u0701\u0702\u205a\ufe30\u2f03\u3033\u29f5\u2216\u27cd"
    "\uff3f\uff0d\uff0c"
)
_HYPHENS = frozenset("\u2010\u2011\u2012\u2212\u02d7\u2043")
_STYLES = frozenset({"<wide>", "<font>", "<narrow>", ""})
_WORD = re.compile(r"[^\W_]+(?:[^\W_]|[\u0300-\u036f])*")
_TOKEN = re.compile(r"\S+")


def code_of(character: str) -> str:
    """The code that stands for a character."""
    return f"⟨U+{ord(character):04X}⟩"


def visible(text: str, *, edges: bool = True) -> str:
    """Write invisible, structural and disguised characters as codes; with ``edges``, also spaces at either end."""
    parts = []
    marks, last = 0, len(text) - 1
    disguised = confusing(text)
    for position, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character) == "Mn" else 0
        at_edge = edges and character == " " and position in (0, last)
        hide = position in disguised or _hidden(character) or marks > _MARKS_MAX or at_edge
        parts.append(code_of(character) if hide else character)
    return "".join(parts)


def isolated(shown: str) -> str:
    """Isolate a value with right-to-left letters. ``shown`` is the output of ``visible``."""
    return f"{FIRST_STRONG}{shown}{POP}" if any(map(_reversed, shown)) else shown


def embedded(shown: str) -> str:
    """Isolate the right-to-left parts of our own sentence, such as a name in it."""
    if not any(map(_reversed, shown)):
        return shown
    made, start, end = "", None, 0
    for position, character in enumerate(shown):
        if _reversed(character):
            made += shown[end:position] if start is None else ""
            start, end = (position if start is None else start), position + 1
        elif start is not None and unicodedata.bidirectional(character) in ("L", "B"):
            made += f"{FIRST_STRONG}{shown[start:end]}{POP}"
            start = None
    return made + (f"{FIRST_STRONG}{shown[start:end]}{POP}" if start is not None else "") + shown[end:]


def bare(shown: str) -> str:
    """The text without the isolation around it."""
    return shown[1:-1] if shown.startswith(FIRST_STRONG) and shown.endswith(POP) else shown


def confusing(text: str) -> frozenset[int]:
    """The places of characters that look like others, where that could deceive."""
    if text.isascii():
        return frozenset()
    return frozenset((*_of_words(text), *_of_tokens(text), *_of_styles(text), *_of_digits(text)))


def _of_words(text: str) -> Iterator[int]:
    """Yield the letters of other scripts in words of mixed scripts, and Latin letters that look like others."""
    for word in _WORD.finditer(text):
        scripts = [script_of(character) for character in word[0]]
        own = next((name for name in scripts if name), "")
        own = LATIN if LATIN in scripts else own
        allowed = {own, EAST} if own == LATIN else {LATIN, EAST} if own == EAST else {own}
        ascii_letters = sum(character.isascii() and character.isalpha() for character in word[0])
        for number, (character, script) in enumerate(zip(word[0], scripts, strict=True)):
            alike = character in _LATIN_ALIKE and ascii_letters
            if alike or (script and script not in allowed):
                yield word.start() + number


def _of_tokens(text: str) -> Iterator[int]:
    """Yield words of look-alikes: next to Latin letters, or if no other letter of the text shows their script."""
    letters = {(script_of(character), character) for character in set(text)}
    plain = {script for script, character in letters if script and not _alike(script, character)}
    for token in _TOKEN.finditer(text):
        latin = any(character.isascii() and character.isalpha() for character in token[0])
        for word in _WORD.finditer(token[0]):
            scripts = {script_of(character) for character in word[0]} - {""}
            if len(scripts) != 1 or (script := scripts.pop()) in (LATIN, EAST):
                continue
            if (latin or script not in plain) and all(
                _alike(script, character) for character in word[0] if script_of(character)
            ):
                start = token.start() + word.start()
                yield from (start + at for at, character in enumerate(word[0]) if script_of(character))
        yield from (token.start() + at for at in _signs(token[0]))


def _signs(token: str) -> Iterator[int]:
    """Yield signs that look like those of an address or a number, except in Chinese and Japanese words."""
    eastern = any(script_of(character) == EAST for character in token)
    western = any(character.isascii() and character.isalnum() for character in token)
    for at, character in enumerate(token):
        between = 0 < at < len(token) - 1 and all(
            one.isascii() and one.isalnum() for one in (token[at - 1], token[at + 1])
        )
        if (character in _SIGNS and (between or (western and not eastern))) or (character in _HYPHENS and between):
            yield at


def _of_styles(text: str) -> Iterator[int]:
    """Yield characters that look like ASCII letters or digits in another width or style."""
    for at, character in enumerate(text):
        if character.isascii() or not _styled(character):
            continue
        yield at


@lru_cache(maxsize=4096)
def _styled(character: str) -> bool:
    same = unicodedata.normalize("NFKC", character)
    if not same.isascii() or character.isascii():
        return False
    kind, form = unicodedata.category(character), unicodedata.decomposition(character)
    tag = form.partition(" ")[0] if form.startswith("<") else ""
    if same.isalnum():
        return tag in _STYLES or (tag == "<compat>" and kind[0] in "LN")
    return tag == "" and bool(form)  # such as the Greek question mark, which is a semicolon


def _of_digits(text: str) -> Iterator[int]:
    """Yield the places of digits of another script, such as Arabic ones, that a reader could take for ASCII digits.

    Digits are left out if the text has letters of that script, and the word has no ASCII character.
    """
    scripts = {script_of(character) for character in set(text)}
    for word in _WORD.finditer(text):
        ours = any(character.isascii() for character in word[0])
        for at, character in enumerate(word[0]):
            if not character.isascii() and unicodedata.category(character) == "Nd":
                name = _first(character).partition("-")[0].replace("EXTENDED", "ARABIC")
                if ours or name not in scripts:
                    yield word.start() + at


@lru_cache(maxsize=4096)
def script_of(character: str) -> str:
    """The script of a letter, by its name; "" for whatever belongs to none, or to all."""
    if character.isascii():
        return LATIN if character.isalpha() else ""
    if unicodedata.category(character)[0] != "L" or ord(character) in _LETTERLIKE:
        return ""
    name = _first(character)
    return EAST if name in _EASTERN else "" if name in _COMMON else name


def _first(character: str) -> str:
    return unicodedata.name(character, "").partition(" ")[0]


def _alike(script: str, character: str) -> bool:
    return script in _ALL_ALIKE or character in _LOOK_ALIKE.get(script, ())


def _reversed(character: str) -> bool:
    return not character.isascii() and unicodedata.bidirectional(character) in _RIGHT_TO_LEFT


def _hidden(character: str) -> bool:
    if character in _HIDDEN_CHARACTERS:
        return True
    if character.isascii() and character.isprintable():
        return False
    category = unicodedata.category(character)
    code = ord(character)
    return (
        category in _HIDDEN_CATEGORIES
        or (category == "Zs" and character != " ")
        or any(low <= code <= high for low, high in _HIDDEN_RANGES)
    )
