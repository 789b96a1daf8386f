"""Masks secret literals in documents: the text for people and for evidence has a mark in place of each.

A mark holds a slow digest (scrypt) of all secret literals of the document, so the masked text commits to them and
guessing is costly. The digest of a workflow is that of its masked text, so a bundle is verified without the secrets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import Node, ScalarNode

from connectors.headers import is_secret
from connectors.masking import HEADERS, hidden, parts_of
from connectors.operation import HTTP, Operation
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError
from core.pieces import split

_SALT = b"counterseal: secret literals of a document"
# The words around an expression that are no secret: the scheme of a credential.
_SCHEMES = re.compile(r"\s*(?:bearer|basic|token|apikey|api-key|digest)?\s*", re.IGNORECASE)
_QUOTED = re.compile(r"\"[^\"]+\"|'[^']+'")
_PROPERTIES = re.compile(r"((?:[&!]\S*\s+)*).*", re.DOTALL)
# A shorter literal is masked only at its own place, not where it occurs elsewhere, such as in a comment.
_ELSEWHERE_MIN = 6


def evident(text: str, value: Json, operations: Mapping[str, Operation]) -> str:
    """The text of a document with a mark in place of each secret literal. ``value`` is the parsed document."""
    secrets = sorted({*_literals(value, operations)})
    if not secrets:
        return text
    mark = _mark(tuple(secrets))
    made = text
    for start, end in sorted(_places(YAML(typ="safe", pure=True).compose(text), frozenset(secrets)), reverse=True):
        made = f"{made[:start]}{_properties(made[start:end])}{_as_scalar(mark, made[start:end])}{made[end:]}"
    parts = {part for secret in secrets for part in parts_of("authorization", secret)}
    for part in sorted(parts, key=len, reverse=True):
        made = made.replace(part, mark) if len(part) >= _ELSEWHERE_MIN else made
    return made


def shown_source(value: Json, operations: Mapping[str, Operation]) -> Json:
    """Mask a document that came as JSON, such as an extension, like ``evident``."""
    secrets = frozenset(_literals(value, operations))
    return _replaced(value, secrets, _mark(tuple(sorted(secrets)))) if secrets else value


@lru_cache(maxsize=1024)  # cached, because it is slow on purpose, and a text is masked whenever it is compiled or shown
def _mark(secrets: tuple[str, ...]) -> str:
    data = canonical_bytes([*secrets])
    return f"[secret {hashlib.scrypt(data, salt=_SALT, n=2**14, r=8, p=1, dklen=16).hex()}]"


def _replaced(value: Json, secrets: frozenset[str], mark: str) -> Json:
    if isinstance(value, dict):
        return {name: _replaced(item, secrets, mark) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, secrets, mark) for item in value]
    return mark if isinstance(value, str) and value in secrets else value


def _literals(value: Json, operations: Mapping[str, Operation]) -> Iterator[str]:
    """Yield the secret texts of every step and tool that calls an operation, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _literals(item, operations)
    if not isinstance(value, dict):
        return
    operation, given = operations.get(str(value.get("do"))), value.get("with")
    if operation is not None and isinstance(given, dict):
        yield from (one for one in _of_call(operation, given) if _says_something(one))
    for item in value.values():
        yield from _literals(item, operations)


def _of_call(operation: Operation, given: JsonObject) -> Iterator[str]:
    headers = given.get(HEADERS)
    if operation.handler == HTTP and isinstance(headers, dict):
        yield from (one for name, one in headers.items() if is_secret(name) and isinstance(one, str))
    elif operation.handler == HTTP and isinstance(headers, str):
        yield headers
    try:
        masked = hidden(operation, given)
    except (InputError, ValueError):
        return
    yield from _changed(given, masked)


def _changed(before: Json, after: Json) -> Iterator[str]:
    """The texts that were masked."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name, item in before.items():
            yield from _changed(item, after.get(name))
    elif isinstance(before, dict | list):
        for item in before.values() if isinstance(before, dict) else before:
            yield from _changed(item, None)
    elif isinstance(before, str):
        yield before


def _says_something(text: str) -> bool:
    """True if the text holds more than expressions and the scheme of a credential."""
    return any(
        _QUOTED.search(piece) is not None if is_expression else _SCHEMES.fullmatch(piece) is None
        for is_expression, piece in split(text)
    )


def _places(root: Node | None, secrets: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield the places of the scalars with a secret value. An anchor is looked at once, however often it is used."""
    seen, todo = set[int](), [root]
    while todo:
        node: Any = todo.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, ScalarNode):
            if node.value in secrets:
                yield node.start_mark.index, node.end_mark.index
        else:
            todo += [one for item in node.value for one in (item if isinstance(item, tuple) else (item,))]


def _properties(scalar: str) -> str:
    """The anchor and the tag of a scalar, which must stay because other places may refer to the anchor."""
    found = _PROPERTIES.fullmatch(scalar)
    return found[1] if found is not None else ""


def _as_scalar(mark: str, scalar: str) -> str:
    """The mark as YAML. A block scalar takes the rest of its lines, so its end is kept."""
    return f'"{mark}"' + ("\n" if scalar.endswith("\n") else "")
