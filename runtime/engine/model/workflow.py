"""One immutable version of a workflow, as the engine runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property

from jsonschema_rs import Draft202012Validator

from connectors.operation import Operation
from connectors.schema import misfit, validator_of
from core.canonical import Json, JsonObject, digest
from core.cron import Cron
from core.errors import MisfitError
from core.templates import Template
from runtime.engine.model.graph import Graph


class Overrun(StrEnum):
    """The rule for an event while a run for its reference goes on: start another run, replace it, or skip."""

    ALL = "all"
    NEWEST = "newest"
    SKIP = "skip"


class Missed(StrEnum):
    """The rule for moments that passed while no keeper ran: the newest one starts a late run, or none does."""

    RUN_ONCE = "run_once"
    SKIP = "skip"


@dataclass(frozen=True)
class ScheduleStart:
    """The moments that start this workflow, and the values that its runs get besides the moment."""

    cron: Cron
    missed: Missed
    overrun: Overrun
    workspace: str
    values: JsonObject

    @property
    def spec(self) -> JsonObject:
        """The part of the schedule that determines its moments."""
        return {"cron": self.cron.text, "timezone": self.cron.zone.key}

    def trigger(self, moment: datetime) -> JsonObject:
        """The trigger of the run for this moment. It does not depend on when it is made."""
        local = moment.astimezone(self.cron.zone)
        return {**self.values, "scheduled_at": utc_text(moment), "scheduled_local": local.isoformat()}


@dataclass(frozen=True)
class WebhookStart:
    """The signed deliveries that start this workflow, and how a delivery becomes its trigger."""

    endpoint: str
    when: Template | None
    map: Template | None
    dedupe: Template | None
    requested_by: Template | None
    overrun: Overrun


def utc_text(moment: datetime) -> str:
    """A moment as text in UTC, which is the name of a schedule's moment."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class ServiceNowStart:
    """The ServiceNow events that start this workflow; ``dedupe`` gives the text that names the change.

    ``own_events`` says that changes by our own integration user start it, too. The events of one reference within
    ``debounce`` become one run.
    """

    table: str
    events: frozenset[str]
    when: Template | None
    dedupe: Template
    own_events: bool = False
    overrun: Overrun = Overrun.ALL
    debounce: timedelta | None = None

    @property
    def looks(self) -> bool:
        """True if an event is checked against running runs, or waits for further events."""
        return self.overrun is not Overrun.ALL or self.debounce is not None


# The length of a workflow's text above which its steps are evaluated in a thread.
TEXT_LIGHT = 32 * 1024


@dataclass(frozen=True)
class Workflow:
    """One immutable version of a workflow.

    ``digest`` is the SHA-256 of the text with its secret literals masked. ``operations`` are the declarations at the
    time of publishing: a run keeps them whatever later releases declare. ``definition_digest`` covers both.
    ``retention`` is how long the payloads of a run are kept once it is over; None means for ever. ``max_concurrency``
    bounds how many steps of all its runs in a tenant execute at once, ``max_runs_per_min`` how many of its runs start
    in a minute; None leaves that to the tenant's cap. ``functions`` are those that its expressions use, sorted.
    ``copies`` says that an expression builds a list in a loop. ``trigger`` is the JSON Schema of a run's input.
    ``subject`` gives the people whom its runs are about, who decide on nothing in them (promise 12). ``search`` gives
    the values by which its runs are found, ``gives`` is the JSON Schema of its result as far as it is known.
    """

    name: str
    version: int
    title: str
    digest: str
    text: str
    graph: Graph
    reference: Template
    servicenow: ServiceNowStart | None
    operations: Mapping[str, Operation]
    writes_max: int | None
    sla: timedelta | None
    retention: timedelta | None = None
    max_concurrency: int | None = None
    max_runs_per_min: int | None = None
    functions: tuple[str, ...] = ()
    copies: bool = False
    subject: Template | None = None
    schedule: ScheduleStart | None = None
    webhook: WebhookStart | None = None
    trigger: JsonObject | None = None
    search: Template | None = None
    gives: JsonObject = field(default_factory=dict)

    def check_trigger(self, given: JsonObject) -> None:
        """Refuse a trigger that does not fit its schema: ``MisfitError`` names the field."""
        if self.trigger is not None and not (validator := self._trigger_validator).is_valid(given):
            found = misfit(validator, given, where="trigger")
            remedy = f"`counterseal workflow show {self.name}@{self.version} --source` shows what it takes."
            raise MisfitError(found.message, where=found.where, remedy=remedy)

    @cached_property
    def _trigger_validator(self) -> Draft202012Validator:
        return validator_of(self.trigger or {})

    @cached_property
    def is_heavy(self) -> bool:
        """True if its steps may take long even with little data: because it is long, or because loops build lists."""
        return self.copies or len(self.text) > TEXT_LIGHT

    @property
    def triggered(self) -> bool:
        """True if events, schedules or webhooks start it."""
        return any(start is not None for start in (self.servicenow, self.schedule, self.webhook))

    def overrun(self, trigger_type: str) -> Overrun:
        """The rule for events of this kind of trigger while a run for their reference goes on."""
        starts = {"servicenow": self.servicenow, "schedule": self.schedule, "webhook": self.webhook}
        listens = starts.get(trigger_type)
        return Overrun.ALL if listens is None else listens.overrun

    @property
    def connectors(self) -> tuple[str, ...]:
        """The connectors it needs, sorted."""
        return tuple(sorted({operation.connector for operation in self.operations.values()}))

    @property
    def cap(self) -> str:
        """The name under which its steps are counted separately from the tenant's; "" if they are not."""
        return "" if self.max_concurrency is None and self.max_runs_per_min is None else self.name

    @property
    def frozen_operations(self) -> JsonObject:
        """The declarations as JSON, to be stored with the version."""
        return {name: operation.model_dump(mode="json") for name, operation in sorted(self.operations.items())}

    @property
    def definition_digest(self) -> str:
        """SHA-256 over the text's digest and the digest of every declaration used."""
        parts: Json = {name: operation.digest for name, operation in self.operations.items()}
        return digest([self.digest, parts])
