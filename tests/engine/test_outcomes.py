"""Outcomes of calls, each with all that it leaves: the step, its receipt, its waits and its lines (Q-18, Q-19).

``whole_outcomes.json`` has every outcome beside every kind of operation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from connectors.port import Done, InDoubt, NotSent, Parked, Refused, Usage
from runtime.engine.instructions import LookUp, Unfit, known_of
from runtime.engine.step import begin
from tests.engine.governing import ALLOW_ALL, CASE, DEDUPES, EFFECT, MAIL, TICKET, Governed, loaded, ruled
from tests.engine.test_whole_books import said
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-18")

READ = EFFECT.replace("effect.apply", "value.read")
KINDS = {"read": READ, "effect": EFFECT, "dedupes": DEDUPES, "mail": MAIL, "case": CASE, "ticket": TICKET}
USED = Usage("p", "m", 7, 3, "0.01")
OUTCOMES: dict[str, Any] = {
    "done": Done({"n": 1}, "e1", usage=USED),
    "done without use": Done({}),
    "goes on": Parked("p1", {"ref": 1}),
    "refused": Refused("422", "It is gone.", usage=USED),
    "not authorized": Refused("invalid_auth", "Nobody knows you."),
    "not sent": NotSent("away", 700, usage=USED),
    "not sent soon": NotSent("away"),
    "in doubt": InDoubt("The line broke."),
    "unfit": Unfit(Done({}, "e1", usage=USED), "The output is too large."),
    "nothing": None,
}
OF_STEP = ("status", "attempt", "usage", "last_error", "eligible_in", "output")
OF_RECEIPT = ("status", "attempt", "output", "external_id", "usage", "error", "resolution")


class Telling(Governed):
    """A run that has nothing to say but what a test gives it, nothing included."""

    def carry_out(self, key: str, work: Any) -> Any:
        if hasattr(work, "receipt") and self.said == [None]:
            self.said = []
            return self.move(key, lambda t, s: self.settle(t, replace(work, step=s), None))
        return super().carry_out(key, work)


def left(run: Governed) -> dict[str, Any]:
    """The step of a run, its effects and its waits."""
    whole = run.whole().run
    told = [orjson.loads(line) for line in run.lines[3:]]
    step = run.rows["a"]
    rows: dict[str, Any] = {
        "run": run.status,
        "step": {name: getattr(step, name) for name in OF_STEP},
        "receipts": [{name: getattr(row, name) for name in OF_RECEIPT} for row in whole.receipts.values()],
        "waits": [[row.kind, row.status, row.context] for row in whole.waits.values()],
        "told": [f"{line['type']}{' with its use' if line['data'].get('usage') else ''}" for line in told],
    }
    kept: dict[str, Any] = said(to_builtins(rows, str_keys=True))
    return kept


def once(text: str, outcome: Any, attempt: int = 0) -> dict[str, Any]:
    run = Telling(loaded(text), {}, said=[outcome], policy=ruled(ALLOW_ALL))
    run.open()
    run.claim("a")
    work = first(run)
    run.rows["a"] = replace(run.rows["a"], attempt=attempt)
    run.carry_out("a", work)
    return left(run)


def first(run: Governed) -> Any:
    """The first call of the step, after whatever has to be looked up for it."""
    known = known_of(run.view().run, "a")
    work = run.move("a", lambda t, s: begin(t, s, run.workflow, run.policy, known, run.nonce))
    while isinstance(work, LookUp):
        work = run.carry_out("a", work)
    return work


def test_every_outcome_leaves_what_it_left() -> None:
    found = {
        f"{kind}: {name}": once(text, outcome) for kind, text in KINDS.items() for name, outcome in OUTCOMES.items()
    }
    last = {name: OUTCOMES[name] for name in ("not sent", "in doubt", "nothing")}
    found |= {
        f"{kind}: {name} at last": once(KINDS[kind], outcome, attempt=9)
        for kind in ("read", "effect", "dedupes", "case")
        for name, outcome in last.items()
    }
    as_it_was(Path(__file__).with_name("whole_outcomes.json"), found)
