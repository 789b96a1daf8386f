"""Escaping of values for texts in other languages, so that a value inside a text is never read as syntax."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from urllib.parse import quote

from core.canonical import Json
from core.errors import ExpressionError


class Language(StrEnum):
    """The language of a text that an outside system reads."""

    MRKDWN = "mrkdwn"
    ENCODED_QUERY = "encoded-query"
    URL_PART = "url-part"
    HTML = "html"


_ESCAPES: Mapping[Language, Callable[[str], str]] = {
    # Slack's own rule: without & < > a text can hold no mention and no link with a label.
    Language.MRKDWN: lambda text: html.escape(text, quote=False),
    # ServiceNow reads a doubled caret as a caret, and never as the end of a condition.
    Language.ENCODED_QUERY: lambda text: text.replace("^", "^^"),
    Language.URL_PART: lambda text: quote(text, safe=""),
    Language.HTML: html.escape,
}
# Patterns that no escape makes harmless, each with its description.
_REFUSED: Mapping[Language, tuple[re.Pattern[str], str]] = {
    Language.ENCODED_QUERY: (re.compile(r"javascript\s*:", re.IGNORECASE), "a script that the instance would run"),
    Language.URL_PART: (re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?=[/?#]|\Z)", re.IGNORECASE), "a step to another path"),
}


# Objects of Slack's blocks that mention people, or name an address by other words, without a character of mrkdwn.
_SPEAKING = frozenset({"rich_text", "markdown", "broadcast", "user", "usergroup", "link"})


def check_structure(language: Language | None, value: Json) -> None:
    """Raise ``ExpressionError`` if an object that no author wrote mentions people or disguises an address."""
    if language is not Language.MRKDWN or not isinstance(value, dict):
        return
    if value.get("type") in _SPEAKING or {"url", "text"} <= value.keys():
        words = f"gives an object of type {value.get('type')!r}, which mentions people or hides an address"
        raise ExpressionError(words, remedy="Write it in the workflow, and put values into its texts.")


def escaped(language: Language, text: str) -> str:
    """A value, escaped for a text of this language."""
    return _ESCAPES[language](text)


def check_meaning(language: Language, text: str, authored: str) -> None:
    """Raise ``ExpressionError`` if ``text`` has a refused pattern more often than the author's own words do."""
    pattern, what = _REFUSED.get(language, (None, ""))
    if pattern is not None and len(pattern.findall(text)) > len(pattern.findall(authored)):
        remedy = "Check the value first, or say raw(…) if it is meant to be one."
        raise ExpressionError(f"gives {what}, by what was put into it", remedy=remedy)
