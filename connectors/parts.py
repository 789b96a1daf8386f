"""The parts of a declaration: idempotency, reversal, diff, time limits and retries."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from core.durations import Duration

NAME_PATTERN = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,4}$"

JsonDocument: TypeAlias = dict[str, Any]  # because pydantic cannot read the recursive alias of core.canonical


class KeyScope(StrEnum):
    """The scope within which one idempotency key means one effect."""

    STEP = "step"
    REFERENCE = "reference"
    TENANT = "tenant"


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    # Keys of later releases. Serialization leaves them out if undeclared, so older declarations keep their digests.
    LATER: ClassVar[frozenset[str]] = frozenset()

    def declared_facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts to serialize: keys in ``LATER`` only if they have a value."""
        return {name: value for name, value in facts.items() if name not in self.LATER or value not in (None, {})}


class Idempotency(Part):
    """The rule by which two calls are one effect: the scope, and the input fields that distinguish effects in it.

    With no ``key``, scope ``step`` means one effect per step, and a wider scope compares the whole input.
    """

    scope: KeyScope = KeyScope.STEP
    key: tuple[str, ...] = ()


class Reverse(Part):
    """The operation that undoes this one, and its input. A value that is one whole placeholder keeps its type.

    Placeholders name input fields, or ``before``, which is the restorable values that were read before the write.
    """

    operation: str = Field(pattern=NAME_PATTERN)
    input: JsonDocument


class Diff(Part):
    """The fields to read before the write, so that people see before → after and the write can be undone.

    ``written`` reads the fields that the call writes, ``record`` reads the whole record that the call removes.
    ``appended`` fields are append-only (ServiceNow journals), so they have no value before; those that are also
    ``harmless``, such as internal notes, need no undo.
    """

    fields: Literal["written", "record"] | tuple[str, ...] = "written"
    appended: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _harmless_is_appended(self) -> Diff:
        extra = set(self.harmless) - set(self.appended)
        if extra:
            raise ValueError(f"harmless names fields that are not in appended: {', '.join(sorted(extra))}")
        return self


class Timeouts(Part):
    """Time limits: ``perform`` of one call; ``complete`` of a durable operation, after which its wait times out.

    ``park`` is another name for ``complete``. The outside party may extend the wait, up to ``extend_to`` after its
    beginning.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"park", "extend_to"})
    perform: Duration = timedelta(seconds=30)
    complete: Duration = timedelta(days=7)
    park: Duration | None = None
    extend_to: Duration | None = None

    @property
    def parked(self) -> timedelta:
        """The time that a durable operation may take."""
        return self.park or self.complete

    @model_serializer(mode="wrap")
    def _as_declared(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        facts = self.declared_facts(serialize(self))
        return facts if self.park is None else {name: value for name, value in facts.items() if name != "complete"}

    @model_validator(mode="after")
    def _extends(self) -> Timeouts:
        if self.park is not None and "complete" in self.model_fields_set:
            raise ValueError("park and complete are the same limit; declare one of them")
        if self.extend_to is not None and self.extend_to <= self.parked:
            raise ValueError("extend_to is not later than park: nothing could be put off")
        return self


class TimedOut(Part):
    """The default for a wait that times out, if the step declares nothing: this group is asked whether to go on."""

    escalate: str = Field(min_length=1, max_length=100)
    expires: Duration | None = None


class Retry(Part):
    """The retries after a failure that certainly had no effect: their number and their delays in seconds.

    ``attempts`` includes the first one. The last ``backoff`` repeats; ``jitter`` is the largest random fraction that is
    added or subtracted; ``cap`` bounds any single delay, in seconds.
    """

    attempts: int = Field(default=5, ge=1, le=20)
    backoff: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(5, 30, 120, 600), min_length=1)
    jitter: float = Field(default=0.2, ge=0, le=1)
    cap: float = Field(default=600, gt=0)

    def delay_seconds(self, attempt: int, *, chance: float) -> float:
        """The wait in seconds after the failed ``attempt`` (from 1); ``chance`` in [0, 1) chooses the jitter."""
        base = self.backoff[min(attempt, len(self.backoff)) - 1]
        return min(base * (1 + self.jitter * (2 * chance - 1)), self.cap)
