"""How large a form is in a chat, before anything is drawn.

A modal travels with each of its submissions, form-encoded, and has to leave room there for what people entered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus

from approvals.fields import OPTION_CHARACTERS_MAX, FieldKind, fields_of

WEIGHT_MAX = 36 * 1024  # bytes, as weight_of counts them
_FIELD_WEIGHT = 480
_PARAGRAPH_WEIGHT = 300
_OPTION_WEIGHT = 150
_CODE_CHARACTERS = 9  # ⟨U+E0100⟩
_CODE_BYTES = 25  # of the same, encoded


def weight_of(form: Mapping[str, Any]) -> int:
    """An upper bound of what an otherwise accepted form adds to each submission of it, in bytes.

    It is counted here without drawing anything, so that publishing a workflow depends on no face.
    """
    total = 2 * _PARAGRAPH_WEIGHT + _encoded(form.get("title", "")) + _encoded(form.get("description", ""))
    for field in fields_of(form):
        default = field.schema.get("default", [])
        chosen = default if isinstance(default, list) else [default]
        answers = ("Yes", "No") if field.kind is FieldKind.BOOLEAN else field.options
        total += _FIELD_WEIGHT + 2 * len(field.name) + _encoded(field.title) + _encoded(field.description)
        total += sum(_OPTION_WEIGHT + _encoded(str(words)) for words in (*answers, *chosen))
        # What Slack would cut is said whole in a paragraph before the field.
        total += sum(_PARAGRAPH_WEIGHT + _encoded(words) for words in field.options if _may_be_cut(words))
    return total


def _encoded(text: str) -> int:
    """At most how long a text is in a submission."""
    plain = "".join(character for character in text if not _is_coded(character))
    return len(quote_plus(json.dumps(plain))) + _CODE_BYTES * (len(text) - len(plain))


def _may_be_cut(option: str) -> bool:
    return sum(_CODE_CHARACTERS if _is_coded(character) else 1 for character in option) > OPTION_CHARACTERS_MAX


def _is_coded(character: str) -> bool:
    """Whether a face may show the character by its code, as ⟨U+0060⟩, because it could forge or hide something."""
    return character == "`" or not (character.isascii() or character.isalpha())
