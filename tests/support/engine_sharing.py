"""Helpers of tests/engine that several test files share: from test_sharing."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec.structs import replace

from connectors.port import Parked
from evidence.chain import Actor
from runtime.engine.book.instructions import Shared
from runtime.engine.book.shared_effects import life_of, performed
from runtime.engine.life import waits
from tests.engine.governing import HEAD, Governed, governed

SHARED_CASE = HEAD + "  - {id: a, do: probe.case.share, with: {name: x}}\n"


OTHER = UUID(int=9)


PEOPLE = Actor("token", "t")


def known_as(run: Governed, **more: Any) -> Shared:
    """The effect that this run has performed, as the book of another one would tell it."""
    ((receipt, life, wait),) = performed(run.whole().run).values()
    assert life_of(receipt, wait) is life
    return Shared(replace(receipt, run_id=OTHER), life, wait, **more)


def later(shared: Shared, text: str) -> Governed:
    """Another run that means the same effect."""
    run = governed(text)
    run.shared = shared
    return run.drive()


def begun() -> Governed:
    return governed(SHARED_CASE, said=(Parked("case-1"),)).drive()


def left() -> Governed:
    run = begun()
    run.attempt("a", lambda t, _: t.cancel(Actor("person", "p"), "enough"))
    return run


def ended(result: dict[str, Any]) -> Governed:
    return begun().over("a", lambda t, s, wait: waits.complete(t, s, wait, result, PEOPLE)).drive()


def error_of(run: Governed) -> Any:
    return (run.rows["a"].last_error or {}).get("code")
