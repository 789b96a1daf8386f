"""The end of a step that has its result: what it writes to channels, and how it names the run (X-8, X-10). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.canonical import Json, JsonObject
from core.errors import CountersealError, ExpressionError
from runtime.engine.commit import StepRow
from runtime.engine.crossing import REFERENCE
from runtime.engine.fitness import clean, unfit
from runtime.engine.graph import Graph, LeafNode
from runtime.engine.plan import variables
from runtime.engine.state import State
from runtime.engine.transition import Transition

REFERENCE_CHARACTERS_MAX = 200


def finish(
    transition: Transition,
    step: StepRow,
    output: Json,
    usage: JsonObject | None = None,
    *,
    signal: JsonObject | None = None,
) -> None:
    """Evaluate what the step writes, and succeed. An expression's error fails the step.

    ``signal`` is what ended its wait, for the expressions of steps that wait: its payload, and by whom it was sent.
    """
    values: dict[str, Json] = {"output": output}
    if signal is not None:
        values["signal"] = signal
    try:
        writes = writes_of(transition.graph, transition.state, transition.view.constants, step.key, values)
    except ExpressionError as error:
        fail_expression(transition, step, error)
        return
    transition.succeed(step, output, writes, usage)


def writes_of(
    graph: Graph, state: State, constants: Mapping[str, object], key: str, more: Mapping[str, Json]
) -> JsonObject:
    """Evaluate what a step writes and how it names the run. ``more`` are variables besides those of the run.

    ``ExpressionError`` if an expression has no value.
    """
    leaf: LeafNode = graph.leaf(key)
    values = {**variables(graph, state, constants, key), **more}
    writes: JsonObject = {name: source.render(values) for name, source in leaf.sets.items()}
    if problem := unfit(writes, "What `set` gives") if writes else None:
        raise ExpressionError(problem)
    if leaf.reference is not None:
        writes[REFERENCE] = checked_reference(leaf.reference.render(values))
    return writes


def checked_reference(value: Json) -> str:
    """A business reference as it can be kept; ``ExpressionError`` if it cannot."""
    text = str(value)
    if not text or len(text) > REFERENCE_CHARACTERS_MAX or clean(text) != text:
        what = f"is empty, longer than {REFERENCE_CHARACTERS_MAX} characters, or holds what no text can"
        raise ExpressionError(what, where="reference")
    return text


def fail_expression(transition: Transition, step: StepRow, error: CountersealError) -> None:
    """What the step would do cannot be made from what there is: it fails, and nothing was done."""
    kind = "expression" if isinstance(error, ExpressionError) else "definition"
    transition.fail(step, {"class": kind, "code": error.code, "message": str(error)})
