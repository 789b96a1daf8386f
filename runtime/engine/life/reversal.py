"""Reversals: a run of Counterseal's own that undoes an effect. It is refused if the record was changed since. Pure.

Before each question and before each intent, the values that the effect had written are compared with the values in the
target, so nobody's later change is overwritten unseen. If the target's values cannot be read before a write, the
reversal is refused, too. The receipt of the reversal names the receipt that it reverses.
"""

from __future__ import annotations

from typing import Any

from connectors.readback import quoted, same_json
from core.canonical import JsonObject
from runtime.engine.life.proposal import Proposal
from runtime.engine.model.errors import ErrorClass, StepError
from runtime.engine.model.run import RunView

# The trigger of a reversal's run. Its input names the receipt, and says what the effect had written (``wrote``) or that
# it had ``removed`` a record.
REVERSAL = "reversal"


def reversed_by(view: RunView) -> str | None:
    """The receipt that this run reverses; None if it is no reversal."""
    asked = _asked(view)
    return None if asked is None else str(asked["receipt"])


def _asked(view: RunView) -> dict[str, Any] | None:
    trigger: Any = view.constants.get("trigger")
    return trigger if view.trigger_type == REVERSAL and isinstance(trigger, dict) else None


def refusal(p: Proposal) -> StepError | None:
    """The error if the record differs from what the effect left, or cannot be compared; None if it is the same."""
    asked = _asked(p.transition.view)
    if asked is None:
        return None
    before, wrote = p.known.before, asked["wrote"]
    if before is not None and asked.get("removed"):
        return None  # what it had removed was looked for with this pre-read, which is refused if it is there again
    if before is None or not wrote:
        words = "What the record holds cannot be compared with what was written, so it is not undone."
        return StepError(ErrorClass.CONSISTENCY, "not_comparable", words)
    other = [name for name, value in wrote.items() if not same_json(value, before.values.get(name))]
    if not other:
        return None
    changes = ", ".join(_change(name, wrote, before.values) for name in sorted(other))
    words = f"The record was changed since, so it is not undone: {changes}."
    return StepError(ErrorClass.CONSISTENCY, "changed_since", words)


def _change(name: str, wrote: JsonObject, now: JsonObject) -> str:
    found = quoted(now[name]) if name in now else "not readable"
    return f"{name} was left as {quoted(wrote[name])} and is {found}"
