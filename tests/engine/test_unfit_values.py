"""Values that an expression gives and nothing can store: the step fails and says why, before anything is told (P-3)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.governing import HEAD, Governed, loaded, ruled
from tests.support.runtime_stage import ALLOW_ALL

pytestmark = pytest.mark.req("P-3")

CHANNELS = HEAD.replace("steps:", "channels: {kept: {initial: none}}\nsteps:")
PLACES = {
    "What `with` gives": "do: probe.effect.apply, with: {name: VALUE}",
    "What `set` gives": "do: probe.effect.apply, with: {name: a}, set: {kept: VALUE}",
    "The summary": "approve: {summary: VALUE, approvers: {group: owners}}",
    "What `with` gives a child": "run: other, with: {who: VALUE}",
    "What `with` gives the next": "continue_with: {workflow: other, with: {who: VALUE}}",
    "What `set` alone gives": "set: {kept: VALUE}",
}
NUL = (r"${{ 'a\\u0000b' }}", "cannot be recorded: it holds the character U+0000.")
LARGE = ("${{ trigger.large + trigger.large }}", "bytes long; at most")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("value", "words"), [NUL, LARGE])
def test_a_step_whose_expression_gives_what_nothing_can_store_fails(place: str, value: str, words: str) -> None:
    line = PLACES[place].replace("VALUE", f'"{value}"')
    run = Governed(loaded(f"{CHANNELS}  - {{id: a, {line}}}\n"), {"large": "x" * 200_000}, policy=ruled(ALLOW_ALL))
    run.open()
    run.drive()
    error: Any = run.rows["a"].last_error
    assert (run.status, error["class"], error["code"]) == ("failed_terminal", "expression", "expression")
    said = place.removesuffix(" a child").removesuffix(" the next").replace(" alone", "")
    assert error["message"].startswith(f"{said} ")
    assert words in error["message"]
    assert run.sent == (["probe.effect.apply"] if place == "What `set` gives" else [])
