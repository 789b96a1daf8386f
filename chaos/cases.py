"""The cases that Counterseal gets, and the effects that each must have in the outside world in the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox.world import World

INTEGRATION = "counterseal.integration"
KINDS = (
    "webhook", "webhook", "rejected", "two", "loop", "durable", "late", "child", "task", "canceled", "wide", "mark",
    "expired", "extended", "shared", "retried", "agent", "agent",
)  # fmt: skip
TENANT, OTHER = "default", "second"
# Slack, webhooks and the BPMN engine belong to the first tenant. People of the second tenant use HTTP, so only these
# kinds can be runs of the second tenant.
ANYBODY = frozenset(
    {"rejected", "two", "loop", "child", "canceled", "wide", "mark", "expired", "extended", "retried", "agent"}
)
WIDE = 24
SHARERS = 3


@dataclass
class Case:
    """One run, or ``runs`` of one reference that share effects. Each of ``effects`` must happen exactly once outside,
    and nothing else may happen.
    """

    kind: str
    ref: str
    effects: Counter[str]
    status: str = "succeeded"
    records: tuple[str, ...] = ()
    input: dict[str, Any] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)
    tenant: str = TENANT
    runs: int = 1

    @property
    def started(self) -> bool:
        """True if every run of the case was acknowledged."""
        return len(set(self.acknowledged)) >= self.runs


def make(kind: str, number: int, world: World, chance: random.Random) -> Case:
    """Make a case and its records in the stand-in. For ``webhook`` the new record starts the run."""
    ref = f"{kind}-{number}"
    state = world.servicenow.state
    if kind == "webhook":
        record = state.insert("incident", {"short_description": ref, "impact": "3", "urgency": "3"}, "raj.quist")
        effects = [f"{ref}:a", f"{ref}:b", f"priority {record['sys_id']}", f"{ref}:said"]
        return Case(kind, ref, Counter(effects), records=(record["sys_id"],))
    count = {"loop": 1 + chance.randint(2, 4), "wide": 1 + WIDE}.get(kind, 1)
    # As ServiceNow does, the record shows its empty fields: what is not shown may not be overwritten.
    fields = {"short_description": ref, "priority": "4", "urgency": "3", "category": "", "subcategory": ""}
    ids = tuple(state.insert("problem", fields, "raj.quist")["sys_id"] for _ in range(count))
    given: dict[str, Any] = {"ref": ref, "sys_id": ids[0]}
    wanted = {
        "rejected": [f"{ref}:a"],
        "two": [f"urgency {ids[0]}", f"{ref}:z"],
        "loop": [*(f"priority {one}" for one in ids[1:]), f"{ref}:z"],
        "durable": [f"process {ref}", f"{ref}:z"],
        "late": [f"process {ref}", f"{ref}:late", f"{ref}:z"],
        "child": [f"{ref}:a", f"{ref}:b", f"{ref}:z"],
        "task": [f"{ref}:z"],
        "canceled": [f"{ref}:a"],
        "wide": [*(f"{ref}:w{number}" for number in range(count - 1)), f"{ref}:z"],
        "mark": [f"category {ids[0]}", f"{ref}:told"],
        "expired": [f"{ref}:a"],
        "extended": [f"{ref}:a", f"{ref}:more", f"{ref}:b"],
        "shared": [f"{ref}:once", f"process {ref}", *(f"{ref}:z{number}" for number in range(SHARERS))],
        "agent": [f"priority {ids[0]}", f"{ref}:told", f"{ref}:n", f"{ref}:z"],
        "retried": [f"{ref}:a", f"priority {ids[0]}", f"{ref}:b"],
    }[kind]
    if kind == "loop":
        given["items"] = list(ids[1:])
    if kind == "wide":
        given["items"] = [{"id": one, "note": f"{ref}:w{number}"} for number, one in enumerate(ids[1:])]
    ends = {"rejected": "failed_terminal", "expired": "failed_terminal", "canceled": "canceled"}
    tenant = OTHER if kind in ANYBODY and chance.random() < 0.4 else TENANT
    runs = SHARERS if kind == "shared" else 1
    return Case(kind, ref, Counter(wanted), ends.get(kind, "succeeded"), ids, given, tenant=tenant, runs=runs)


def happened(world: World) -> Counter[str]:
    """Count every effect that happened outside, under the names of ``Case.effects``."""
    found: Counter[str] = Counter()
    for effect in world.servicenow.state.effects:
        if effect.user != INTEGRATION:
            continue
        for name, (_, after) in effect.changes.items():
            if name == "work_notes":
                found[after.partition("\n")[0]] += 1
            elif name in ("priority", "urgency", "category", "subcategory"):
                found[f"{name} {effect.sys_id}"] += 1
    for message in world.slack.state.messages("C0INC"):
        found[message.text] += 1
    assert world.bpmn is not None
    for instance in world.bpmn.state.instances.values():
        found[f"process {instance.execution.variables['client']}"] += 1
    return found


def unexpected(cases: Iterable[Case], world: World) -> list[str]:
    """List each effect that is missing or happened too often."""
    wanted: Counter[str] = Counter()
    for case in cases:
        if case.acknowledged:
            wanted += case.effects
    found = happened(world)
    names = sorted(set(wanted) | set(found))
    return [f"{name}: {found[name]} times, not {wanted[name]}" for name in names if found[name] != wanted[name]]


def took_place(world: World, action: dict[str, Any]) -> bool:
    """True if the effect of an action in doubt is there for a person who looks."""
    found = happened(world)
    given = action.get("input", action)
    text = json.dumps(given)
    if "work_notes" in given:
        return found[given["work_notes"]] > 0
    if "text" in given:
        return found[given["text"]] > 0
    if "fields" in given:
        return all(found[f"{name} {given['sys_id']}"] > 0 for name in given["fields"])
    if "variables" in given:
        return found[f"process {given['variables']['client']}"] > 0
    raise ValueError(f"nobody knows where to look for {text}")
