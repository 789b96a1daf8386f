"""The errors with which steps and runs fail, as the book records them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from connectors.readback import sentence
from core.canonical import Json, JsonObject
from evidence.receipts import ALTERED


class ErrorClass(StrEnum):
    """The kinds of failures. They choose a workflow's branch, and operators look at them first."""

    TRANSPORT = "transport"
    TIMEOUT = "timeout"
    AUTHORIZATION = "authorization"
    EXPRESSION = "expression"
    DEFINITION = "definition"
    CONSISTENCY = "consistency"
    CANCELED = "canceled"


# The code of an action that people did not approve, which the branch ``on_rejected`` handles.
REJECTED = "rejected"
# The code of an action that policy denies.
DENIED = "policy_denied"
# The code of a call that failed too often after people had approved it, and of a question that exceeds a bound.
FAILED_BEFORE, TOO_MANY = "failed_before", "too_many_questions"
# The codes of a step that merely waits: because of the rate of its target, because the target has asked for no calls
# for a while, because Slack cannot say who is in a group, or because so many questions are open.
RATE, BUSY, SLACK_AWAY = "rate", "busy", "slack_away"
WAITS = frozenset({RATE, BUSY, SLACK_AWAY, TOO_MANY})
# Added to the last error of a step that a person lets try now: it is sent once though its target asks for no calls.
SOONER = "sooner"
# The code of a call that succeeded but whose result cannot be stored.
UNUSABLE = "unusable_output"

# The reason of an expired question whose card never reached anybody, so that nobody had a chance to decide.
UNDELIVERED = "Its card was never delivered, so nobody was asked there, and its time ran out."

# Added by the fold, and only by the fold, to the error of a held step if people let the run go on without it.
RELEASED = "released"

# Added to an error: the call was sent, so it may have been done, and no message may say that it was not.
SENT: Mapping[str, Json] = {"sent": True}
# Added to an error: the call would have differed from the approved one.
VOID: Mapping[str, Json] = {"void": True}


class StepError(Struct, frozen=True):
    """An error made by the engine. The audit shows its class and code; ``message`` and ``more`` may hold values."""

    kind: ErrorClass
    code: str | None
    message: str
    more: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def altered(cls, altered: JsonObject, hidden: Iterable[str] = ()) -> StepError:
        """The error of an effect that differs from what was asked for; it is never sent again."""
        names: list[Json] = [*altered]
        return cls(ErrorClass.CONSISTENCY, ALTERED, sentence(altered, hidden), {**SENT, "fields": names})

    def to_json(self) -> JsonObject:
        """The error as steps and events hold it; without a code if it has none."""
        code: JsonObject = {} if self.code is None else {"code": self.code}
        return {"class": str(self.kind), **code, "message": self.message, **self.more}


OUTPUT_REMOVED = StepError(
    ErrorClass.CONSISTENCY, "output_removed", "This effect was done before; retention has removed its result."
).to_json()
