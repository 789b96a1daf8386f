"""Masks secret values of a call in its input, and finds them in its answer.

Secret are the values that a declaration marks (``x-secret``), and those that a handler knows to be secret: for
``http:send`` the values of all headers that are not known to be harmless, whoever gives them. The latter are shown to
nobody.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus

from msgspec import Struct
from msgspec.structs import replace

from connectors.disclosure import leaves
from connectors.headers import is_secret
from connectors.operation import HTTP, Operation
from connectors.port import Done, Failure, InDoubt, NotSent, Outcome, Parked, Probe, Refused
from core.canonical import Json, JsonObject
from core.secret_values import LIKE_REFERENCE

MASK = "[secret]"
HEADERS = "headers"

# A shorter value is not searched for: it would match unrelated words.
_MARKED_MIN, _OTHER_MIN = 4, 8
_CREDENTIAL = re.compile(r"auth|cookie|key|token|secret|pass|session|credential|signature|jwt", re.IGNORECASE)
_SCHEME = re.compile(r"(\S+)\s+(.+)", re.DOTALL)
# A cut text may end within a secret: this many characters of a secret's beginning count as the secret.
_BEGINNING_MIN = 8
# In a longer value, signs are not looked for in every spelling: the pattern would take too long to build.
_ANYHOW_MAX = 1000
# Shorter bytes are not looked for in other encodings.
_ENCODED_MIN = 6


def credentials_of(operation: Operation) -> tuple[str, ...]:
    """The inputs that may refer to secrets, whose values are filled in when the call is sent."""
    return (HEADERS,) if operation.handler == HTTP else ()


def borrowed(operation: Operation, values: JsonObject, written: Callable[[tuple[str | int, ...]], str | None]) -> str:
    """Describe where an input refers to a secret without the document's author having written that; "" if nowhere.

    ``written`` gives the text that the document fixes at a place. Words of a record, a person or a model get no secret.
    """
    for name in credentials_of(operation):
        found = values.get(name)
        for header, text in found.items() if isinstance(found, dict) else ():
            if isinstance(text, str) and LIKE_REFERENCE.search(text) and written((name, header)) != text:
                return f"{name}.{header} refers to a secret, and only the text of a workflow may do that"
    return ""


def shown(operation: Operation, values: JsonObject) -> JsonObject:
    """The input with a mask in place of every value that its handler knows to be secret."""
    headers = values.get(HEADERS)
    if operation.handler != HTTP or not isinstance(headers, dict):
        return values
    return {**values, HEADERS: {name: MASK if is_secret(name) else value for name, value in headers.items()}}


def hidden(operation: Operation, values: JsonObject) -> JsonObject:
    """The input as documents show it: masked, too, where the declaration says ``x-secret``."""
    made = shown(operation, values)
    if not operation.has_secrets:
        return made
    for leaf in [*leaves(operation.input_schema, made)]:
        path = [part.replace("~1", "/").replace("~0", "~") for part in leaf.path.split("/")[1:]]
        known = operation.handler == HTTP and path[:1] == [HEADERS]
        if leaf.secret and path and not known:
            made = _put(made, path)
    return made


def _put(value: Json, path: list[str]) -> JsonObject:
    made = dict(value) if isinstance(value, dict) else {}
    made[path[0]] = _put(made.get(path[0]), path[1:]) if path[1:] else MASK
    return made


class Secrets(Struct, frozen=True, dict=True):
    """The secret values of one call."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, operation: Operation, values: JsonObject) -> Secrets:
        """The secrets of a call of this operation."""
        found = [*_of_headers(values.get(HEADERS))] if operation.handler == HTTP else []
        for leaf in leaves(operation.input_schema, values) if operation.has_secrets else ():
            if leaf.secret and not (operation.handler == HTTP and leaf.path.startswith(f"/{HEADERS}")):
                found += _texts(leaf.value)
        return cls(tuple(sorted({one for one in found if len(one) >= _MARKED_MIN})))

    @classmethod
    def of_headers(cls, headers: Json) -> Secrets:
        """The secrets of a request's headers."""
        return cls(tuple(sorted({one for one in _of_headers(headers) if len(one) >= _MARKED_MIN})))

    def text(self, text: str) -> str:
        """The text with a mask in place of each secret, in any form, even of a secret cut off at the text's end."""
        if not self.values:
            return text
        made = self._pattern.sub(MASK, text)
        return next((made[:at] + MASK for form in self._forms if (at := _cut_off_at(form, made)) >= 0), made)

    def json(self, value: Json) -> Json:
        """The value with a mask in place of each secret, in texts and in names, at any depth."""
        if not self.values:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self.json(item) for name, item in value.items()}
        return value

    def object(self, value: JsonObject) -> JsonObject:
        """The object with a mask in place of each secret."""
        made = self.json(value)
        assert isinstance(made, dict)
        return made

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome of a call without its secrets. A value that is no outcome is returned as it is."""
        match outcome:
            case Done() if self.values:
                return self.done(outcome)
            case Parked(external_id=named, output=output) if self.values and isinstance(output, dict):
                external = None if named is None else self.text(named)
                return replace(outcome, external_id=external, output=self.object(output))
            case Refused() | NotSent() | InDoubt():
                return self.failure(outcome)
        return outcome

    def failure(self, failure: Failure) -> Failure:
        """The words of a failed call, without secrets."""
        match failure:
            case Refused() if self.values:
                return replace(failure, code=self.text(failure.code), message=self.text(failure.message))
            case NotSent() | InDoubt() if self.values:
                return replace(failure, message=self.text(failure.message))
        return failure

    def done(self, done: Done) -> Done:
        """The outcome without secrets."""
        named = done.external_id if not isinstance(done.external_id, str) else self.text(done.external_id)
        return replace(done, output=self.json(done.output), external_id=named, after=self.json(done.after))

    def probe(self, probe: Probe) -> Probe:
        """The answer of a probe, without secrets."""
        done = None if probe.done is None else self.done(probe.done)
        return replace(probe, evidence=self.text(probe.evidence), done=done) if self.values else probe

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """Every form in which a value may occur in an answer, the longest first."""
        every = {form for value in self.values for form in _forms(value)}
        return tuple(sorted(every, key=lambda one: (-len(one), one)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        short = sorted((one for one in self.values if len(one) <= _ANYHOW_MAX), key=lambda one: (-len(one), one))
        return re.compile("|".join([*map(_anyhow, short), *map(_anycase, self._forms)]))


NO_SECRETS = Secrets()


def _cut_off_at(form: str, text: str) -> int:
    """The place from which the text's end is the beginning of a secret's form; -1 if there is none."""
    first, at = form[:_BEGINNING_MIN], max(len(text) - len(form) + 1, 0)
    while (at := text.find(first, at)) >= 0:
        if form.startswith(text[at:]):
            return at
        at += 1
    return -1


def _anycase(form: str) -> str:
    """The pattern of a form, with hexadecimal digits of percent-encoding in upper or lower case."""
    pieces = re.split(r"(%[0-9A-F]{2})", form)
    return "".join(f"(?i:{piece})" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))


def _anyhow(value: str) -> str:
    """The pattern of a value, each sign of which may be escaped as in JSON, scripts, HTML or URLs, even repeatedly.

    Letters and digits are matched as they are: hardly any format escapes them.
    """
    return "".join(char if char.isalnum() and char.isascii() else _sign(char) for char in value)


def _sign(char: str) -> str:
    number, entity = ord(char), html.escape(char)
    units = char.encode("utf-16-be", "surrogatepass").hex()
    escaped = "".join(rf"\\{{1,8}}u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    octets = "".join(rf"%(?:25){{0,4}}(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogatepass"))
    ways = [rf"\\{{0,8}}{re.escape(char)}", escaped, rf"\\{{1,8}}u\{{0{{0,6}}(?i:{number:x})\}}", octets]
    ways += [rf"\\{{1,8}}x(?i:{number:02x})"] if number < 256 else []
    ways += [rf"&(?:amp;){{0,4}}#(?:0{{0,6}}{number}|[xX]0{{0,6}}(?i:{number:x}));"]
    ways += [rf"&(?:amp;){{0,4}}{entity[1:]}"] if entity != char else []
    return f"(?:{'|'.join([*ways, '[+]'] if char == ' ' else ways)})"


def _texts(value: Json) -> Iterator[str]:
    """Every text in a secret value; a number as its digits."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _of_headers(headers: Json) -> Iterator[str]:
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if not is_secret(name) or not isinstance(value, str):
            continue
        least = _MARKED_MIN if _CREDENTIAL.search(name) else _OTHER_MIN
        yield from (one for one in parts_of(name, value) if len(one) >= least)


def parts_of(name: str, value: str) -> Iterator[str]:
    """The value of a header, and those parts of it that are secret by themselves."""
    yield value
    if (found := _SCHEME.fullmatch(value)) is not None:
        yield found[2]
        if found[1].lower() == "basic":
            yield from _basic(found[2])
    if "cookie" in name.lower():
        yield from (part.partition("=")[2].strip() for part in value.split(";"))
    yield from (part.strip("\"' ,;") for part in re.split(r"[\s,;=]+", value) if len(part) >= 2 * _OTHER_MIN)


def _basic(encoded: str) -> Iterator[str]:
    try:
        plain = base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return
    yield plain
    yield plain.partition(":")[2]


def _forms(value: str) -> Iterator[str]:
    """The forms of a value: plain, in JSON, HTML and URLs, hexadecimal, and base64 at any offset of a longer text."""
    data = value.encode("utf-8", "surrogatepass")
    every = "".join(f"%{byte:02X}" for byte in data)
    yield from (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value))
    yield from (quote(value, safe="", errors="replace"), quote(value, errors="replace"))
    yield quote_plus(value, errors="replace")
    if len(data) < _ENCODED_MIN:
        return
    yield from (every, data.hex(), data.hex().upper())
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + data).decode("ascii").rstrip("=")
        # The first characters hold bits of the text before the value, the last one holds bits of the text after it.
        inner = whole[(0, 2, 3)[before] : len(whole) - (1 if (before + len(data)) % 3 else 0)]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))
