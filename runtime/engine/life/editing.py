"""An edit of the action in question: the question becomes void, and the step proposes the edited action. Pure.

One append holds the edit, the end of the question and the step's return. After a crash before it, nothing is changed
and the person edits again. After a crash behind it, the next worker has policy judge the edited action (promise 3).
"""

from __future__ import annotations

from core.errors import ConsistencyError
from evidence.chain import Actor
from runtime.engine.book import edits
from runtime.engine.book.instructions import open_wait
from runtime.engine.life import ask
from runtime.engine.life.readers import VOIDED
from runtime.engine.life.transition import Transition
from runtime.engine.model.events import ApprovalEdited


def edit(transition: Transition, key: str, event: ApprovalEdited, actor: Actor) -> None:
    """Record a person's edit of the step with this key, and have the step judged anew."""
    wait = open_wait(transition.run, key)
    if wait is None:
        raise ConsistencyError(f"The step {key} does not wait for people.")
    transition.tell(event, step=key, actor=actor)
    step = transition.run.steps[key]
    ask.supersede(transition, step, event.approval, edits.EDITED)
    transition.message(VOIDED, event.approval, edits.EDITED)
    transition.resume(step, wait)
