"""The end of a step that has its result: what can be kept, what it writes, how it names the run (X-8, X-10). Pure.

PostgreSQL, the checkpoint and the evidence must all hold a value, and its size is bounded. Anything else would fail the
commit that records it, at every attempt, and a call that was performed would stay without its outcome. So it is found
before it gets there, and becomes a failed step with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import CountersealError, ExpressionError, InputError
from runtime.engine.commit import StepRow
from runtime.engine.crossing import REFERENCE
from runtime.engine.errors import ErrorClass, StepError
from runtime.engine.graph import Graph, LeafNode
from runtime.engine.plan import variables
from runtime.engine.run import State
from runtime.engine.transition import Transition

# Of one step's input, of its output, and of its writes to channels.
VALUE_BYTES_MAX = 256 * 1024
# Of a sentence that came from outside, such as an error's message.
TEXT_CHARACTERS_MAX = 4000


def unfit(value: object, what: str, *, bytes_max: int = VALUE_BYTES_MAX) -> str | None:
    """The reason why a value cannot be kept, as a sentence that begins with ``what`` it is; None if it can."""
    try:
        data = canonical_bytes(value)
    except InputError as error:
        return f"{what} cannot be recorded: it {error.message}."
    except (AttributeError, TypeError, ValueError):
        return f"{what} cannot be recorded: it is not JSON."
    if len(data) > bytes_max:
        return f"{what} is {len(data)} bytes long; at most {bytes_max} are kept."
    if b"\\u0000" in data and _has_nul(value):
        return f"{what} cannot be recorded: it holds the character U+0000."
    return None


def check_text(text: str, where: str) -> str:
    """Words that somebody gives for the record, as they are; ``InputError`` names ``where`` if they cannot be kept."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InputError(f"is {len(text)} characters long; at most {TEXT_CHARACTERS_MAX} are kept", where=where)
    if clean(text) != text:
        raise InputError("holds a character that cannot be stored (U+0000 or a lone surrogate)", where=where)
    return text


def _has_nul(value: object) -> bool:
    """Only for a value whose canonical form looks like it, which bounds its depth."""
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_has_nul(item) for item in value)


def clean(text: object, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """A sentence from outside as it can be kept: what has no place in a text is replaced, what is too long is cut."""
    cut = str(text)[: characters_max + 1]
    shown = cut.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return shown if len(shown) <= characters_max else f"{shown[: characters_max - 1]}…"


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
        writes = writes_of(transition.graph, transition.run.state, transition.view.constants, step.key, values)
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
    values = variables(graph, state, constants, key)
    values.update(more)
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
    """Fail a step whose action cannot be made from what there is; nothing was done."""
    kind = ErrorClass.EXPRESSION if isinstance(error, ExpressionError) else ErrorClass.DEFINITION
    transition.fail(step, StepError(kind, error.code, str(error)).to_json())
