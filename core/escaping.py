"""Values as they stand in texts of other languages: what an author splices into a text says nothing in its language."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from urllib.parse import quote

from core.errors import ExpressionError


class Language(StrEnum):
    """The language of a text that an outside system reads."""

    MRKDWN = "mrkdwn"
    ENCODED_QUERY = "encoded-query"
    URL_PART = "url-part"
    HTML = "html"


_ESCAPES: Mapping[Language, Callable[[str], str]] = {
    # Slack's own rule: without these three there is neither a mention nor a link with words of its own.
    Language.MRKDWN: lambda text: html.escape(text, quote=False),
    # ServiceNow reads a doubled caret as a caret, and never as the end of a condition.
    Language.ENCODED_QUERY: lambda text: text.replace("^", "^^"),
    Language.URL_PART: lambda text: quote(text, safe=""),
    Language.HTML: html.escape,
}
# What no escape takes the meaning from, and what it is.
_REFUSED: Mapping[Language, tuple[re.Pattern[str], str]] = {
    Language.ENCODED_QUERY: (re.compile(r"javascript\s*:", re.IGNORECASE), "a script that the instance would run"),
    Language.URL_PART: (re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?=[/?#]|\Z)", re.IGNORECASE), "a step to another path"),
}


def escaped(language: Language, text: str) -> str:
    """A value as it stands in a text of this language."""
    return _ESCAPES[language](text)


def check_meaning(language: Language, text: str, authored: str) -> None:
    """Raise ``ExpressionError`` if the made text says what no escape prevents, and ``authored`` did not say it."""
    pattern, what = _REFUSED.get(language, (None, ""))
    if pattern is not None and len(pattern.findall(text)) > len(pattern.findall(authored)):
        remedy = "Check the value first, or say raw(…) if it is meant to be one."
        raise ExpressionError(f"gives {what}, by what was put into it", remedy=remedy)
