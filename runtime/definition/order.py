"""The order of the steps of one scope, and whose results are certain to be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from runtime.definition.model import StepDocument

Needs = Mapping[str, tuple[str, ...]]


class Circle(Exception):
    """Steps need each other; ``steps`` names them in the order of need, the first again at the end."""

    def __init__(self, steps: Sequence[str]) -> None:
        super().__init__(" → ".join(steps))
        self.steps = tuple(steps)


def in_order(ids: Sequence[str], needs: Needs) -> list[str]:
    """Every step after what it needs; among what is equally possible the author's order counts. ``Circle`` if none is.

    So equal documents give equal graphs.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError as error:
        raise Circle(list(reversed(error.args[1]))) from None
    numbers = {step_id: number for number, step_id in enumerate(ids)}
    result: list[str] = []
    possible = set(sorter.get_ready())
    while possible:
        chosen = min(possible, key=numbers.__getitem__)
        possible.remove(chosen)
        sorter.done(chosen)
        possible.update(sorter.get_ready())
        result.append(chosen)
    return result


def needed_by(step_id: str, needs: Needs) -> set[str]:
    """The steps that are over before this one begins: those it needs, directly or not."""
    before: set[str] = set()
    pending = list(needs[step_id])
    while pending:
        need = pending.pop()
        if need not in before:
            before.add(need)
            pending.extend(needs[need])
    return before


def results(step_id: str | None, step: StepDocument) -> list[str]:
    """The ids whose result can be read once ``step`` is over: its own, and those inside its branches."""
    inner = [*(step.then or ()), *(step.else_ or ())]
    own = [step_id] if step_id else []
    return own + [name for child in inner for name in results(child.id, child)]
