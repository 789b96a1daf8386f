"""What is asked of Counterseal, and what has to have come of it in the outside world in the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox.world import World

INTEGRATION = "counterseal.integration"
KINDS = ("webhook", "webhook", "rejected", "two", "loop", "durable", "late", "child", "task", "canceled")


@dataclass
class Case:
    """One run. ``effects``: what has to happen outside, exactly once each, and nothing else may."""

    kind: str
    ref: str
    effects: Counter[str]
    status: str = "succeeded"
    records: tuple[str, ...] = ()
    input: dict[str, Any] = field(default_factory=dict)
    acknowledged: list[str] = field(default_factory=list)


def make(kind: str, number: int, world: World, chance: random.Random) -> Case:
    """A case with its records in the stand-in; for ``webhook`` that is what starts it."""
    ref = f"{kind}-{number}"
    state = world.servicenow.state
    if kind == "webhook":
        record = state.insert("incident", {"short_description": ref, "impact": "3", "urgency": "3"}, "raj.quist")
        effects = [f"{ref}:a", f"{ref}:b", f"priority {record['sys_id']}", f"{ref}:said"]
        return Case(kind, ref, Counter(effects), records=(record["sys_id"],))
    count = 1 + (chance.randint(2, 4) if kind == "loop" else 0)
    fields = {"short_description": ref, "priority": "4", "urgency": "3"}
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
    }[kind]
    if kind == "loop":
        given["items"] = list(ids[1:])
    status = {"rejected": "failed_terminal", "canceled": "canceled"}.get(kind, "succeeded")
    return Case(kind, ref, Counter(wanted), status, ids, given)


def happened(world: World) -> Counter[str]:
    """Every effect that took place outside, under the names that ``Case.effects`` uses."""
    found: Counter[str] = Counter()
    for effect in world.servicenow.state.effects:
        if effect.user != INTEGRATION:
            continue
        for name, (_, after) in effect.changes.items():
            if name == "work_notes":
                found[after.partition("\n")[0]] += 1
            elif name in ("priority", "urgency"):
                found[f"{name} {effect.sys_id}"] += 1
    for message in world.slack.state.messages("C0INC"):
        found[message.text] += 1
    assert world.bpmn is not None
    for instance in world.bpmn.state.instances.values():
        found[f"process {instance.execution.variables['client']}"] += 1
    return found


def unexpected(cases: Iterable[Case], world: World) -> list[str]:
    """Each effect that is missing, or that there is one too many of."""
    wanted: Counter[str] = Counter()
    for case in cases:
        if case.acknowledged:
            wanted += case.effects
    found = happened(world)
    names = sorted(set(wanted) | set(found))
    return [f"{name}: {found[name]} times, not {wanted[name]}" for name in names if found[name] != wanted[name]]


def took_place(world: World, action: dict[str, Any]) -> bool:
    """What a person finds out who looks for the effect of an action that is in doubt."""
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
