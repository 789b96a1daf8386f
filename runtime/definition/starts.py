"""Triggers of workflows besides ServiceNow's, compiled: schedules and signed webhooks."""

from __future__ import annotations

from core.cron import parse_cron
from core.errors import InputError
from core.templates import Template
from runtime.definition.compiler import GraphCompiler
from runtime.definition.model import ScheduleTrigger
from runtime.engine.model.workflow import Overrun, ScheduleStart


def scheduled(compiler: GraphCompiler, trigger: ScheduleTrigger | None, reference: Template) -> ScheduleStart | None:
    """The schedule. If it looks at the runs of a reference, the moment must give that: no run is known by then."""
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
    if trigger.overrun is not Overrun.ALL and any(not name.startswith("trigger") for name in reference.references):
        message = "overrun looks at the runs of one reference, and this one is not made from the trigger."
        compiler.problem(place, message, "Give the workflow a reference that reads only `trigger`, or a fixed one.")
    return ScheduleStart(cron, trigger.missed, trigger.overrun, trigger.workspace, dict(trigger.with_))
