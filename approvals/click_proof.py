"""Checks that a click came from the message that shows the question: a click alone proves only that somebody clicked.

A click counts from the one message that is recorded for its question, because only that shows the question. A window
counts if we opened it for this person and question (``approvals.slack.windows``).
"""

from __future__ import annotations

from approvals.ports import MessageRef
from approvals.quorum import NotCounted, RefusalCode

_NOTHING = "Nothing was counted."
_UNRECORDED = (
    "It is not recorded yet which message asks this, so it cannot be told if you pressed the button of its card. "
    f"{_NOTHING} Click again in a moment; the command line and HTTP take answers too."
)
_ELSEWHERE = (
    "The button that you pressed is not on the card of this request: it is not the card that Counterseal has posted. "
    f"{_NOTHING} Answer on the request's own card, and tell an administrator who posted the other message."
)
_NO_TASK = (
    "The button that you pressed is not on the message of this task: it is not the message of this task that "
    f"Counterseal has posted. {_NOTHING} Use the task's own message, and tell an administrator about the other one."
)
_NO_HOLD = (
    "The button that you pressed is not on the message of this step: it is not the message about it that Counterseal "
    f"has posted. {_NOTHING} Use the step's own message, and tell an administrator about the other one."
)
WINDOW = NotCounted(
    RefusalCode.FALSE_WINDOW,
    "This window was not opened for you and for what is asked now, or Counterseal has been set up anew since. "
    f"{_NOTHING} Open it again from the request's own message.",
)


def wrong_message(
    own: MessageRef | None, clicked: MessageRef, *, task: bool = False, held: bool = False
) -> NotCounted | None:
    """The reason why a click on this message does not count; None if this is the ``own`` message. Fails closed."""
    if own is None or not own.ts or not own.channel:
        return NotCounted(RefusalCode.FALSE_CARD, _UNRECORDED)
    if clicked != own:
        return NotCounted(RefusalCode.FALSE_CARD, _NO_TASK if task else _NO_HOLD if held else _ELSEWHERE)
    return None
