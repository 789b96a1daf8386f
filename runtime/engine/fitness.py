"""What may be kept: values that PostgreSQL, the checkpoint and the evidence can all hold, of a bounded size. Pure.

Anything else would fail the commit that records it, at every attempt, and a call that was performed would stay without
its outcome. So it is found before it gets there, and becomes a failed step with a reason.
"""

from __future__ import annotations

from core.canonical import canonical_bytes
from core.errors import InputError

# Of one step's input, of its output, and of its writes to channels.
VALUE_BYTES_MAX = 256 * 1024
# Of a sentence that came from outside, such as an error's message.
TEXT_CHARACTERS_MAX = 4000

# The code of the error where a call succeeded and what came back cannot be kept.
UNUSABLE = "unusable_output"


def unfit(value: object, what: str, *, bytes_max: int = VALUE_BYTES_MAX) -> str | None:
    """Why a value cannot be kept, as a sentence that begins with ``what`` it is; None if it can."""
    try:
        data = canonical_bytes(value)
    except InputError as error:
        return f"{what} cannot be recorded: it {error.message}."
    except (AttributeError, TypeError, ValueError):
        return f"{what} cannot be recorded: it is not JSON."
    if len(data) > bytes_max:
        return f"{what} is {len(data)} bytes long; at most {bytes_max} are kept."
    if b"\\u0000" in data and _has_nul(value):
        return f"{what} cannot be recorded: it holds the character U+0000."
    return None


def check_text(text: str, where: str) -> str:
    """Words that somebody gives for the record, as they are; ``InputError`` names ``where`` if they cannot be kept."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InputError(f"is {len(text)} characters long; at most {TEXT_CHARACTERS_MAX} are kept", where=where)
    if clean(text) != text:
        raise InputError("holds a character that cannot be stored (U+0000 or a lone surrogate)", where=where)
    return text


def _has_nul(value: object) -> bool:
    """Only for a value whose canonical form looks like it, which bounds its depth."""
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_has_nul(item) for item in value)


def clean(text: object, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """A sentence from outside as it can be kept: what has no place in a text is replaced, what is too long is cut."""
    cut = str(text)[: characters_max + 1]
    shown = cut.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return shown if len(shown) <= characters_max else f"{shown[: characters_max - 1]}…"
