"""Slack's mrkdwn as HTML that is safe by construction: escape everything first, then add only our own tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

EMOJI: Final[Mapping[str, str]] = {
    "white_check_mark": "✅", "heavy_check_mark": "✔️", "x": "❌", "no_entry": "⛔", "warning": "⚠️",
    "hourglass": "⌛", "hourglass_flowing_sand": "⏳", "lock": "🔒", "unlock": "🔓", "bell": "🔔", "eyes": "👀",
    "rotating_light": "🚨", "information_source": "\u2139\ufe0f", "question": "❓", "grey_question": "❔",
    "clock3": "🕒",
    "pencil": "📝", "memo": "📝", "gear": "⚙️", "shield": "🛡️", "page_facing_up": "📄", "large_green_circle": "🟢",
    "large_yellow_circle": "🟡", "red_circle": "🔴", "large_orange_circle": "🟠", "arrow_right": "➡️",
    "leftwards_arrow_with_hook": "↩️", "bust_in_silhouette": "👤", "busts_in_silhouette": "👥", "tada": "🎉",
    "alarm_clock": "⏰", "stopwatch": "⏱️", "no_entry_sign": "🚫", "point_right": "👉", "thumbsup": "👍",
}  # fmt: skip
_OPEN, _CLOSE = "\ue000", "\ue001"  # private use: delimit placeholders for finished HTML while the rest is converted
_CODE: Final = re.compile(r"```(.+?)```\n?|`([^`\n]+)`", re.DOTALL)
_TAG: Final = re.compile(r"<([^<>\n]+)>")
_SPANS: Final = (
    (re.compile(r"(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])"), "strong"),
    (re.compile(r"(?<![\w_])_(?=\S)([^_\n]+?)(?<=\S)_(?![\w_])"), "em"),
    (re.compile(r"(?<![\w~])~(?=\S)([^~\n]+?)(?<=\S)~(?![\w~])"), "s"),
)


def emojis(text: str) -> str:
    """Replace ``:warning:`` and the like by characters; unknown names stay."""
    return re.sub(r":([a-z0-9_+-]+):", lambda match: EMOJI.get(match[1], match[0]), text)


def plain(text: str) -> Markup:
    """The text of a plain_text object as HTML."""
    return Markup("<br>").join(escape(emojis(text)).split("\n"))


def mrkdwn(text: str, names: Mapping[str, str]) -> Markup:
    """The text of a mrkdwn object as HTML. ``names``: id of a user, channel or group -> text of a mention."""
    pieces: list[Markup] = []

    def keep(html: Markup) -> str:
        pieces.append(html)
        return f"{_OPEN}{len(pieces) - 1}{_CLOSE}"

    def code(match: re.Match[str]) -> str:
        block, inline = match[1], match[2]
        if block is not None:
            return keep(Markup("<pre>{}</pre>").format(_unescaped(block.strip("\n"))))
        return keep(Markup("<code>{}</code>").format(_unescaped(inline)))

    text = text.replace(_OPEN, "").replace(_CLOSE, "")
    text = _CODE.sub(code, text)
    text = _TAG.sub(lambda match: keep(_tag(match[1], names)), text)
    html = str(escape(_unescaped(emojis(text))))
    for pattern, tag in _SPANS:
        html = pattern.sub(rf"<{tag}>\1</{tag}>", html)
    html = "\n".join(_quoted(line) for line in html.split("\n")).replace("</blockquote>\n", "</blockquote>")
    html = html.replace("\n", "<br>")
    for index in range(len(pieces) - 1, -1, -1):
        html = html.replace(f"{_OPEN}{index}{_CLOSE}", str(pieces[index]))
    return Markup(html)  # noqa: S704  every piece was escaped above


def _unescaped(text: str) -> str:
    """The text without entities. Slack escapes exactly these three."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _quoted(line: str) -> str:
    return f"<blockquote>{line.removeprefix('&gt;').strip()}</blockquote>" if line.startswith("&gt;") else line


def _tag(inside: str, names: Mapping[str, str]) -> Markup:
    target, _, label = inside.partition("|")
    if target.startswith(("@", "#")):
        return _mention(target[0] + names.get(target[1:], label or target[1:]))
    if target.startswith("!subteam^"):
        return _mention("@" + names.get(target.removeprefix("!subteam^"), label.lstrip("@") or target))
    if target.startswith("!date^"):
        return _date(target, label)
    if target.startswith("!"):
        return _mention("@" + target[1:])
    if target.startswith(("http://", "https://", "mailto:")):
        link = Markup('<a href="{}" target="_blank" rel="noreferrer noopener">{}</a>')
        return link.format(_unescaped(target), _unescaped(label or target))
    return escape(_unescaped(f"<{inside}>"))


def _mention(shown: str) -> Markup:
    return Markup('<span class="mention">{}</span>').format(_unescaped(shown))


def _date(target: str, fallback: str) -> Markup:
    parts = target.split("^")
    if len(parts) < 3 or not re.fullmatch(r"[0-9]{1,11}", parts[1]):
        return escape(fallback)
    at = datetime.fromtimestamp(int(parts[1]), UTC)
    shown = parts[2]
    formats = (
        ("{date_short_pretty}", "%b %d, %Y"), ("{date_short}", "%b %d, %Y"), ("{date_long_pretty}", "%A, %B %d, %Y"),
        ("{date_long}", "%A, %B %d, %Y"), ("{date_pretty}", "%B %d, %Y"), ("{date_num}", "%Y-%m-%d"),
        ("{date}", "%B %d, %Y"), ("{time_secs}", "%H:%M:%S UTC"), ("{time}", "%H:%M UTC"), ("{ago}", "%Y-%m-%d %H:%M"),
    )  # fmt: skip
    for token, pattern in formats:
        shown = shown.replace(token, at.strftime(pattern))
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(at.isoformat(), at.isoformat(" "), shown)
