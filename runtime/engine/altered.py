"""Effects that happened otherwise than asked: the receipt says that it was done, and the step fails. Pure.

Such an action is never sent again: its receipt succeeded, so a retried run recalls it with the same error.
"""

from __future__ import annotations

from typing import Any

from connectors.disclosure import secret_names
from connectors.operation import Operation
from connectors.port import Call, Done
from runtime.engine.errors import StepError


def unread(output: Any) -> str:
    """The fields of an output that could not be read back after the write, in words; "" if there are none."""
    names = output.get("unreadable") if isinstance(output, dict) else None
    if not isinstance(names, list) or not names:
        return ""
    return f"Done. Not readable afterwards, so not compared: {', '.join(map(str, names))}."


def error_of(operation: Operation, call: Call, done: Done) -> StepError:
    """The error of a step whose target holds something else than was asked for. Secret values are not told."""
    return StepError.altered(done.altered, secret_names(operation.input_schema, call.input))
