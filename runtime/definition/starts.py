"""Compiles the triggers of workflows besides ServiceNow's: schedules and signed webhooks."""

from __future__ import annotations

from core.cron import parse_cron
from core.errors import InputError
from core.templates import Template
from runtime.definition.compiler import GraphCompiler
from runtime.definition.leaves import StepScope
from runtime.definition.model import ScheduleTrigger, Triggers, WebhookTrigger
from runtime.engine.model.workflow import Overrun, ScheduleStart, WebhookStart


def started_by(
    compiler: GraphCompiler, triggers: Triggers, reference: Template
) -> tuple[ScheduleStart | None, WebhookStart | None]:
    """Compile the schedule and the webhook of a workflow."""
    return scheduled(compiler, triggers.schedule, reference), webhook(compiler, triggers.webhook, reference)


def scheduled(compiler: GraphCompiler, trigger: ScheduleTrigger | None, reference: Template) -> ScheduleStart | None:
    """Compile a schedule. With ``overrun``, the reference must follow from the moment alone: no run exists by then."""
    if trigger is None:
        return None
    place = ("triggers", "schedule")
    try:
        cron = parse_cron(trigger.cron, trigger.timezone)
    except InputError as error:
        key = "timezone" if "time zone" in error.message else "cron"
        compiler.problem((*place, key), f"{error.message}.", error.remedy)
        return None
    for name in trigger.with_.keys() & {"scheduled_at", "scheduled_local"}:
        compiler.problem((*place, "with", name), "The moment itself is here.", "Choose another name.")
    _look(compiler, place, trigger.overrun, reference)
    return ScheduleStart(cron, trigger.missed, trigger.overrun, trigger.workspace, dict(trigger.with_))


def webhook(compiler: GraphCompiler, trigger: WebhookTrigger | None, reference: Template) -> WebhookStart | None:
    """Compile a webhook trigger. Its expressions see the event only: no run exists by then."""
    if trigger is None:
        return None
    place = ("triggers", "webhook")
    scope = StepScope(place, {"event": "dyn"})
    when = None if trigger.when is None else compiler.template(scope, ("when",), trigger.when, "bool")
    made = None if trigger.map_ is None else compiler.value(scope, ("map",), dict(trigger.map_))
    dedupe = None if trigger.dedupe is None else compiler.template(scope, ("dedupe",), trigger.dedupe)
    by = trigger.requested_by
    requested_by = None if by is None else compiler.template(scope, ("requested_by",), by)
    _look(compiler, place, trigger.overrun, reference)
    return WebhookStart(trigger.endpoint, when, made, dedupe, requested_by, trigger.overrun)


def _look(compiler: GraphCompiler, place: tuple[str, ...], overrun: Overrun, reference: Template) -> None:
    """Refuse ``overrun`` if the reference needs facts of a run."""
    if overrun is not Overrun.ALL and any(name.partition(".")[0] != "trigger" for name in reference.references):
        message = "overrun looks at the runs of one reference, and this one is not made from the trigger."
        compiler.problem(place, message, "Give the workflow a reference that reads only `trigger`, or a fixed one.")
