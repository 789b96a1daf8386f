"""Verbs that note what they are asked and answer as they are told, in place of a store or of another request."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from msgspec import to_builtins

from core.errors import CountersealError

Verb: TypeAlias = Callable[..., Any]


# An argument that is longer is shown by its type and its name.
_LONGEST = 900


def plain(value: Any) -> Any:
    """A value as JSON. What has no form of its own is shown by its name."""
    return to_builtins(value, enc_hook=_named, str_keys=True, order="deterministic")


def _named(value: Any) -> str:
    name = getattr(value, "name", "") or getattr(value, "digest", "")
    if isinstance(value, SimpleNamespace):
        return str(name)
    return f"<{' '.join(filter(None, (type(value).__name__, name)))}>"


_SMALL = re.compile(r"\b00000000-0000-0000-0000-0{9}([0-9a-f]{3})\b")
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def line(value: Any) -> str:
    """A value on one line; ids that are small numbers, and digests, are shown short."""
    text = plain(value)
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False).replace('"', "'")
    text = text if len(text) <= _LONGEST or isinstance(value, str | dict) else _named(value)
    return _DIGEST.sub(r"\1", _SMALL.sub(lambda found: f"#{int(found[1], 16)}", text))


def _label(owner: Any, name: str) -> str:
    return f"{owner.__name__.rpartition('.')[2]}.{name}"


class Connected:
    """A database whose connections are only named."""

    def __init__(self) -> None:
        self.name = "database"

    def __str__(self) -> str:
        return self.name

    @asynccontextmanager
    async def transaction(self, tenant: str = "") -> AsyncIterator[str]:
        """A transaction, for this tenant if one is named."""
        yield f"transaction of {tenant}" if tenant else "transaction"

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[str]:
        """A connection without a transaction."""
        yield "connection"


class Recorded:
    """Everything that was asked, in its order, each on a line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._patch = monkeypatch

    def verb(self, name: str, answer: Any = None) -> Verb:
        """An asynchronous verb: a callable answer is called with what was given, and an exception is raised."""

        async def asked(*given: Any, **more: Any) -> Any:
            return self._answered(name, answer, given, more)

        return asked

    def method(self, name: str, answer: Any = None) -> Verb:
        """The same for a method, whose own object is not shown."""

        async def asked(_: Any, *given: Any, **more: Any) -> Any:
            return self._answered(name, answer, given, more)

        return asked

    def at_once(self, name: str, answer: Any = None) -> Verb:
        """The same for a verb that is not awaited."""
        return lambda *given, **more: self._answered(name, answer, given, more)

    def _answered(self, name: str, answer: Any, given: Any, more: Any) -> Any:
        asked = [*map(line, given), *(f"{key}={line(value)}" for key, value in more.items())]
        self.calls.append(f"{name}({', '.join(asked)})")
        if isinstance(answer, Exception):
            raise answer
        return answer(*given, **more) if callable(answer) else answer

    def put(self, owner: Any, **answers: Any) -> None:
        """Put verbs of these names, with these answers, in the place of the owner's."""
        for name, answer in answers.items():
            verb = self.method if isinstance(owner, type) else self.verb
            self._patch.setattr(owner, name, verb(_label(owner, name), answer))

    def put_at_once(self, owner: Any, **answers: Any) -> None:
        """The same for verbs that are not awaited."""
        for name, answer in answers.items():
            self._patch.setattr(owner, name, self.at_once(_label(owner, name), answer))

    async def of(self, asked: Any) -> list[str]:
        """All that is asked of others, then the answer to what is awaited, or its refusal."""
        self.calls.clear()
        try:
            said = line(await asked)
        except CountersealError as error:
            said = f"{type(error).__name__}: {error}"
        return [*self.calls, f"-> {said}"]
