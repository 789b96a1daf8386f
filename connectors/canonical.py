"""Computes the canonical form of an operation's input by its handler. That form is judged, shown, approved and sent.

A handler's rules hold for every operation that is declared on it, whatever its own schema allows. An input without a
canonical form is refused. The canonical form of a canonical input is that input, so a kept input can be built again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import TypeAlias
from urllib.parse import quote_plus

from connectors.headers import canonical_headers
from connectors.urls import canonical_url, check_method_parameters
from core.canonical import Json, JsonObject
from core.errors import InputError

Rule: TypeAlias = Callable[[Json, str], Json]

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_FORM = "application/x-www-form-urlencoded"
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\"';\s]*)", re.IGNORECASE)
# The name of a part of a multipart body: quoted, in the extended form, or bare.
_PART_NAME = re.compile(r"""name\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^;\s]*))""", re.IGNORECASE)
# Blocks of Slack whose text is not mrkdwn, so no escape for mrkdwn keeps a value in them from being read as syntax.
_OTHER_MARKUP = "markdown"
_BLOCKS_DEPTH_MAX = 32


def canonical(handler: str, values: JsonObject) -> JsonObject:
    """The canonical form of an input, or of a part of one. ``InputError`` names the argument that has none.

    Inputs of a handler that is not Counterseal's own stay as they are.
    """
    rules = _RULES.get(handler, {})
    made = {name: rules[name](value, name) if name in rules else value for name, value in values.items()}
    whole = _WHOLE.get(handler)
    if whole is not None:
        whole(made)
    return made


def unsendable(handler: str, values: JsonObject) -> str | None:
    """The reason why this input may not be sent: it is not the canonical one. None if it may be sent."""
    try:
        if canonical(handler, values) == values:
            return None
    except InputError as error:
        return str(error)
    return "the input is not in its canonical form, so it is not what was judged"


# -- rules of one argument -------------------------------------------------------------------------------------------


def _matches(pattern: str, words: str) -> Rule:
    wanted = re.compile(pattern)

    def rule(value: Json, where: str) -> Json:
        if not isinstance(value, str) or not wanted.fullmatch(value):
            raise InputError(f"must be {words}", where=where)
        return value

    return rule


def _each(one: Rule) -> Rule:
    def rule(value: Json, where: str) -> Json:
        if not isinstance(value, list):
            raise InputError("must be a list", where=where)
        return [one(item, f"{where}[{at}]") for at, item in enumerate(value)]

    return rule


def _names(one: Rule) -> Rule:
    """Names of an object's members; the values are left as they are."""

    def rule(value: Json, where: str) -> Json:
        if not isinstance(value, dict):
            raise InputError("must be an object", where=where)
        for name in value:
            one(name, f"{where}.{name}")
        return value

    return rule


def _count(value: Json, where: str) -> Json:
    if type(value) is not int or value < 0:
        raise InputError("must be a whole number, not below 0", where=where)
    return value


def _label(value: Json, where: str) -> Json:
    """Normalize a name by which something is looked up, so that two names that look the same are the same."""
    if not isinstance(value, str):
        raise InputError("must be text", where=where)
    unseen = any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in value)
    if unseen or value != value.strip() or value != unicodedata.normalize("NFC", value):
        words = "holds characters that cannot be seen, blanks around it, or accents that are not composed (NFC)"
        raise InputError(words, where=where)
    return value


def _line(value: Json, where: str) -> Json:
    if not isinstance(value, str) or any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in value):
        raise InputError("must be text in one line, without control characters", where=where)
    return value


def _method(value: Json, where: str) -> Json:
    if not isinstance(value, str) or value.upper() not in METHODS:
        raise InputError(f"must be one of {', '.join(METHODS)}", where=where)
    return value.upper()


def _url(value: Json, where: str) -> Json:
    if not isinstance(value, str):
        raise InputError("must be text", where=where)
    return canonical_url(value)


def _text(value: Json, where: str) -> Json:
    if not isinstance(value, str):
        raise InputError("must be text", where=where)
    return value


def _blocks(value: Json, where: str) -> Json:
    if not isinstance(value, list):
        raise InputError("must be a list", where=where)
    _refuse_markup(value, where, 0)
    return value


def _refuse_markup(value: Json, where: str, depth: int) -> None:
    if depth > _BLOCKS_DEPTH_MAX:
        raise InputError(f"is nested deeper than {_BLOCKS_DEPTH_MAX} levels", where=where)
    if isinstance(value, dict) and value.get("type") == _OTHER_MARKUP:
        raise InputError("holds a block of type markdown", where=where, remedy="Use a section with mrkdwn.")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_markup(item, where, depth + 1)


_TABLE = _matches(r"[a-z][a-z0-9_]{0,79}", "the name of a table: small letters, digits and _")
_SYS_ID = _matches(r"[A-Za-z0-9_-]{1,64}", "a sys_id: letters, digits, - and _")
_FIELD = _matches(r"[a-z][a-z0-9_.]*", "the name of a field: small letters, digits, _ and .")
_WRITTEN = _matches(r"(?!sys_)[a-z][a-z0-9_]*", "the name of a field that may be written")
_VERSION = _matches(r"[0-9]{1,9}", "a version as sys_mod_count has it: digits")
_PROCESS = _matches(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}", "the key of a process definition")
_VARIABLE = _matches(r"(?!counterseal_)[A-Za-z_][A-Za-z0-9_]{0,99}", "the name of a variable")
_CHANNEL = _matches(r"[CDG][A-Z0-9]{2,20}", "the id of a channel, such as C0123456789")
_TS = _matches(r"[0-9]+\.[0-9]+", "the ts of a message")
_COLLECTION = _matches(r"[a-z][a-z0-9_.-]{0,99}", "the name of a collection")
_RECORD: Mapping[str, Rule] = {"table": _TABLE, "sys_id": _SYS_ID, "fields": _each(_FIELD)}

_RULES: Mapping[str, Mapping[str, Rule]] = {
    "http:send": {
        "method": _method,
        "url": _url,
        "headers": canonical_headers,
        "body": _text,
        "expect_status": _each(_count),
    },
    "servicenow:get": _RECORD,
    "servicenow:query": {**_RECORD, "query": _line, "limit": _count, "offset": _count},
    "servicenow:update": {
        "table": _TABLE,
        "sys_id": _SYS_ID,
        "fields": _names(_WRITTEN),
        "work_notes": _text,
        "comments": _text,
    },
    "servicenow:create": {
        "table": _TABLE,
        "fields": _names(_WRITTEN),
        "correlate_by": _WRITTEN,
        "restores": _SYS_ID,
    },
    "servicenow:delete": {"table": _TABLE, "sys_id": _SYS_ID, "if_version": _VERSION},
    "slack:post": {"channel": _CHANNEL, "thread_ts": _TS, "text": _text, "blocks": _blocks},
    "model:complete": {"model": _label},
    "bpmn:start": {"process": _PROCESS, "variables": _names(_VARIABLE)},
    "bpmn:correlate": {
        "message": _label,
        "business_key": _label,
        "process_instance_id": _label,
        "variables": _names(_VARIABLE),
    },
    "records:put": {"collection": _COLLECTION, "key": _label},
    "records:get": {"collection": _COLLECTION, "key": _label},
    "records:delete": {"collection": _COLLECTION, "key": _label},
    "records:query": {"collection": _COLLECTION, "after": _text, "limit": _count},
    "sql:select": {"limit": _count},
}


# -- rules of a whole input ------------------------------------------------------------------------------------------


def _http(values: JsonObject) -> None:
    if "json" in values and "body" in values:
        raise InputError("is given besides json, and one body is sent", where="body")
    body, sent = values.get("body"), values.get("json")
    headers = values.get("headers")
    kind = str(headers.get("Content-Type", "")) if isinstance(headers, dict) else ""
    if any(name.lower() not in ("utf-8", "utf8", "us-ascii") for name in _CHARSET.findall(kind)):
        raise InputError("names a charset other than utf-8, which is what is sent", where="headers.Content-Type")
    if isinstance(body, str) and kind.lower().startswith(_FORM):
        check_method_parameters(body)
    if isinstance(body, str) and kind.lower().startswith("multipart/"):
        check_method_parameters("&".join(quote_plus(a or b or c) for a, b, c in _PART_NAME.findall(body)))
    if isinstance(sent, dict) and any(name.lower() == "_method" for name in sent):
        raise InputError("has a member _method, which replaces the method", where="json")


def _chat(values: JsonObject) -> None:
    if "prompt" in values and "messages" in values:
        raise InputError("is given besides messages, and only those are sent", where="prompt")


def _notes(values: JsonObject) -> None:
    """Refuse a note that is no text: the mark of its action is appended to it."""
    fields = values.get("fields")
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if name in ("work_notes", "comments"):
            _text(value, f"fields.{name}")


def _created(values: JsonObject) -> None:
    """Refuse an input that sets the field which holds the action's key."""
    _notes(values)
    fields, name = values.get("fields"), values.get("correlate_by", "correlation_id")
    if isinstance(fields, dict) and name in fields:
        remedy = "Leave it out, or name another field under `correlate_by`."
        raise InputError("bears the key by which the record is found again", where=f"fields.{name}", remedy=remedy)


_WHOLE: Mapping[str, Callable[[JsonObject], None]] = {
    "http:send": _http,
    "model:complete": _chat,
    "servicenow:update": _notes,
    "servicenow:create": _created,
}
