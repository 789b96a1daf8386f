"""Judges the life of steps and of the run: each begins when it may, ends once, and what it needs is over before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from evidence.events import EventType as E
from evidence.judging.actions import Actions
from evidence.judging.case import COMPOSITES, Case, Judge, Step, split_key

RUNNING, SUCCEEDED, FAILED, CANCELED = "running", "succeeded", "failed", "canceled"
_OVER = frozenset({SUCCEEDED, FAILED, CANCELED})
# For each event, the state that follows and the states in which it may happen; "" is a step without any event yet.
_MOVES: Mapping[str, tuple[str, frozenset[str]]] = {
    E.STEP_STARTED: ("running", frozenset({"", "resumed", "expired"})),
    E.STEP_SUCCEEDED: (SUCCEEDED, frozenset({"running"})),
    E.STEP_FAILED: (FAILED, frozenset({"running", "parked"})),
    E.STEP_PARKED: ("parked", frozenset({"running"})),
    E.STEP_RETRY_SCHEDULED: ("retry", frozenset({"running"})),
    E.STEP_HELD: ("held", frozenset({"running", "parked"})),
    E.STEP_RESUMED: ("resumed", frozenset({"parked", "retry", "held"})),
    E.STEP_SET_BACK: ("set back", frozenset({"running"})),
    E.LEASE_EXPIRED: ("expired", frozenset({"running", "set back"})),
    E.STEP_CANCELED: (
        CANCELED,
        frozenset({"", "running", "parked", "retry", "held", "resumed", "set back", "expired"}),
    ),
}
_WORKING = frozenset({"running", "resumed", "set back", "expired"})
_GATE = "approve"
_ANSWERS = ("again", "without", "cancel")
_STATUSES = ("succeeded", "failed_terminal", "canceled")

# Editions hold where steps are and their operations, but not their inputs, so these cannot be compared.
_UNCOMPARED = (
    "not evaluated: that nothing behind a passed gate is another, and nothing is done twice; compare the texts"
)


class _History(Struct):
    state: str = ""
    operation: str = ""
    consumed: bool = False
    since: int = 0
    answer: str = ""
    released: bool = False


class Steps(Judge):
    """Follows steps, and the run as a whole."""

    name = "order of steps"

    def __init__(self, case: Case, actions: Actions) -> None:
        super().__init__(case)
        self.actions = actions
        if case.definition is not None:
            actions.steps = lambda: self.steps or {}
        self.begun: dict[str, _History] = {}
        self.extensions = 0
        self._checkpoint = -1
        self._canceled = False
        self._definition: object = None
        self._migrations = 0
        self.carried = 0
        self.origin: tuple[object, object] | None = None
        self._waits: dict[str, str | None] = {}

    @property
    def words(self) -> str:
        """The finding in words; of a moved run with the part that only the texts of both versions show."""
        found = f"{len(self.begun)} steps in the order of the workflow"
        if self.origin is not None:
            found += f"; {self.carried} of them were done in run {self.origin[0]}, up to its line {self.origin[1]}"
        return f"{found}; moved {self._migrations} times, {_UNCOMPARED}" if self._migrations else found

    @property
    def steps(self) -> Mapping[str, Step] | None:
        """The steps as they are after the extensions so far; None if the bundle has no definition."""
        definition = self.case.definition
        return None if definition is None else definition.editions[min(self.extensions, len(definition.editions) - 1)]

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        kind, data = event["type"], event["data"]
        if kind in _MOVES:
            self._move(kind, event)
        elif kind == E.APPROVAL_CONSUMED and event["step"] in self.begun:
            self.begun[event["step"]].consumed = True
        elif kind == E.CHECKPOINT_COMMITTED:
            if data["number"] != self._checkpoint + 1:
                self.fault(event, f"checkpoint {data['number']} follows {self._checkpoint}")
            self._checkpoint = data["number"] if type(data["number"]) is int else self._checkpoint + 1
        elif kind == E.RUN_EXTENDED:
            self._extend(event)
        elif kind == E.RUN_MIGRATED:
            self._migrate(event)
        elif kind == E.RUN_FORKED:
            self._fork(event)
        elif kind == E.RUN_OPENED:
            self._definition = data.get("definition")
        elif kind == E.RUN_CANCELED:
            self._canceled = True
        elif kind == E.RUN_REOPENED:
            self._reopen(event)
        elif kind == E.RUN_CLOSED:
            self._close(event)
        elif kind.startswith("wait."):
            self._wait(event)
        elif kind == E.HOLD_ANSWERED:
            self._answer(event)

    # -- one step ----------------------------------------------------------------------------------------------------

    def _move(self, kind: str, event: dict[str, Any]) -> None:
        key, (state, allowed) = event["step"], _MOVES[kind]
        if not isinstance(key, str):
            self.fault(event, "it names no step")
            return
        life = self.begun.setdefault(key, _History())
        if life.state not in allowed:
            self.fault(event, f"{key} is {life.state or 'not begun'}, and {kind.partition('.')[2]} follows")
        life.state = state
        if kind == E.STEP_STARTED:
            life.operation, life.consumed = str(event["data"].get("operation")), False
            life.since = event["seq"]
            self._may_begin(event, key, life)
        elif kind in (E.STEP_PARKED, E.STEP_HELD):
            self._wait(event)
        elif kind == E.STEP_SUCCEEDED:
            self._may_succeed(event, key, life)
        elif kind == E.STEP_FAILED and event["data"].get("released"):
            life.released = True
            if life.answer != "without":
                self.fault(event, f"nobody has said that the run goes on without {key}")

    def _may_begin(self, event: dict[str, Any], key: str, life: _History) -> None:
        prefix, node, inner = split_key(key)
        steps = self.steps
        if steps is None:
            return
        if node not in steps:
            self.fault(event, f"{key} is no step of the workflow, and no extension has added it")
            return
        if inner:
            return
        if steps[node].operation != life.operation:
            self.fault(event, f"{key} is {steps[node].operation} in the workflow, and {life.operation} here")
        if (late := self._unfinished_need(steps, prefix, node)) is not None:
            self.fault(event, f"{key} begins before {late} is over, which it needs")

    def _unfinished_need(self, steps: Mapping[str, Step], prefix: str, node: str) -> str | None:
        """The first step that must be over before this one, and is not."""
        at: str | None = node
        while at is not None:
            step = steps[at]
            for need in step.needs:
                if need in steps and not self._is_over(steps, prefix, need):
                    return prefix + need
            around = step.within
            if around is not None and step.branch in steps[around].branches:
                life = self.begun.get(prefix + around)
                if life is None or life.state != FAILED:
                    return prefix + around
            at = around
            if at is not None and steps[at].loops:
                prefix = prefix[: prefix[:-1].rfind(".") + 1]
        return None

    def _is_over(self, steps: Mapping[str, Step], prefix: str, node: str) -> bool:
        step = steps[node]
        if step.operation not in COMPOSITES:
            life = self.begun.get(prefix + node)
            if life is None or life.state not in _OVER:
                return False
        within = {name for name in steps if name != node and node in _around(steps, name)}
        # What an agent has begun may outlive it: its call is in doubt until somebody finds out.
        return all(
            life.state in _OVER
            for key, life in self.begun.items()
            if "/" not in key and split_key(key)[1] in within and key.startswith(prefix)
        )

    def _may_succeed(self, event: dict[str, Any], key: str, life: _History) -> None:
        """Judge if the events hold what a success of this operation requires."""
        definition = self.case.definition
        if life.operation == "approve" and not life.consumed:
            self.fault(event, f"the gate {key} was passed without an approval")
        if definition is None or definition.declared(life.operation) is None:
            return
        if definition.effect(life.operation) and key not in self.actions.done:
            self.fault(event, f"{life.operation} has an effect, and no line says that it was let out and happened")
        outcome = self.actions.allowed.get(key)
        if not definition.stays_inside(life.operation) and (outcome is None or outcome == "deny"):
            self.fault(event, f"{key} succeeded, and policy did not let it")

    def _answer(self, event: dict[str, Any]) -> None:
        """Follow a person's answer about a step that is held or waits for its retry."""
        data, life = event["data"], self.begun.get(str(event["step"]))
        self._wait(event)
        if event["actor"]["kind"] != "person":
            self.fault(event, "no person has answered")
        if life is None or life.state not in ("held", "retry"):
            self.fault(event, f"{event['step']} waits for no such answer")
        elif data["choice"] not in _ANSWERS or (life.state == "retry" and data["choice"] != "again"):
            self.fault(event, f"{data['choice']!r} is no answer to this")
        else:
            life.answer = str(data["choice"])

    # -- waits -------------------------------------------------------------------------------------------------------

    def _wait(self, event: dict[str, Any]) -> None:
        kind, data, wait = event["type"], event["data"], str(event["data"]["wait"])
        if kind in (E.WAIT_OPENED, E.STEP_PARKED, E.STEP_HELD):
            if data.get("known") and wait not in self._waits:
                self.fault(event, "it waits for what was never opened")
            self._waits[wait] = event["step"]
            return
        if wait not in self._waits:
            self.fault(event, "it ends what nobody waited for")
        elif self._waits[wait] != event["step"]:
            self.fault(event, f"the wait is that of {self._waits[wait]}")
        if kind == E.WAIT_COMPLETED and data["kind"] == "task" and event["actor"]["kind"] != "person":
            self.fault(event, "no person has completed the task")

    # -- the run -----------------------------------------------------------------------------------------------------

    def _extend(self, event: dict[str, Any]) -> None:
        data = event["data"]
        self.extensions += 1
        if data["number"] != self.extensions:
            self.fault(event, f"extension {data['number']} is number {self.extensions}")
        definition = self.case.definition
        if definition is None:
            return
        if len(definition.editions) <= self.extensions:
            self.fault(event, "the definition has no such edition")
            return
        new = {*definition.editions[self.extensions]} - {*definition.editions[self.extensions - 1]}
        new = {name for name in new if definition.editions[self.extensions][name].within is None}
        if new != {*map(str, data["steps"])}:
            self.fault(event, "the definition has other steps added than it says")

    def _fork(self, event: dict[str, Any]) -> None:
        """Take over what another run had done, before this one does anything: steps that are over, and no gate."""
        self.origin, steps = (event["data"]["origin"], event["data"]["line"]), self.steps
        if event["seq"] != 1:
            self.fault(event, "a run is begun from another one at its opening, or not at all")
        for one in event["data"]["steps"]:
            match one:
                case [str(key), str(operation), str(state)] if key not in self.begun and state in (SUCCEEDED, FAILED):
                    self.begun[key] = _History(state, operation, released=True)
                    self.carried += 1
                case _:
                    self.fault(event, "it takes over what is no step that is over")
                    continue
            node = split_key(key)[1]
            if operation == _GATE:
                self.fault(event, f"it takes over the gate {key}: its answer let another run go on")
            if steps is not None and (node not in steps or steps[node].operation != operation):
                self.fault(event, f"it takes over {key}, which is no such step of the workflow")

    def _migrate(self, event: dict[str, Any]) -> None:
        """Judge that a run was moved while it waited, and that nothing of what has begun is done again or left out."""
        data, before, definition = event["data"], self.steps, self.case.definition
        self.extensions += 1
        self._migrations += 1
        if data["number"] != self.extensions:
            self.fault(event, f"migration {data['number']} is number {self.extensions}")
        if data["before"] != self._definition:
            self.fault(event, "the run was of another definition before")
        self._definition = data["definition"]
        for key in sorted(key for key, life in self.begun.items() if life.state in _WORKING):
            self.fault(event, f"{key} is in the middle of its work")
        if definition is None or before is None:
            return
        moved = definition.moved_to(self.extensions)
        text = data["workflow"].get("digest") if isinstance(data["workflow"], dict) else None
        if moved is None or moved.text != text or definition.digest_of(text, moved.operations) != data["definition"]:
            self.fault(event, "the definition that it names is not the one that is here")
            return
        if len(definition.editions) <= self.extensions:
            self.fault(event, "the definition has no such edition")
            return
        for problem in _migration_faults(before, definition.editions[self.extensions], self.begun):
            self.fault(event, problem)

    def _reopen(self, event: dict[str, Any]) -> None:
        self._canceled = False
        for pair in event["data"]["steps"]:
            key = str(pair[0]) if isinstance(pair, list) and pair else ""
            life = self.begun.get(key)
            if life is None or life.state not in (FAILED, CANCELED):
                self.fault(event, f"{key or 'no step'} begins again although it had not failed")
            self.begun.pop(key, None)
            for inner in [one for one in self.begun if one.startswith(f"{key}/")]:
                del self.begun[inner]

    def _close(self, event: dict[str, Any]) -> None:
        status, steps = event["data"]["status"], self.steps
        if status not in _STATUSES:
            self.fault(event, f"no run ends as {status!r}")
        if status == "canceled" and not self._canceled:
            self.fault(event, "it ends as canceled, and nobody canceled it")
        open_ones = sorted(key for key, life in self.begun.items() if life.state not in _OVER)
        if open_ones:
            self.fault(event, f"{open_ones[0]} is not over")
        if status != "succeeded":
            if status == "failed_terminal" and not event["data"].get("error"):
                self.fault(event, "it failed, and nothing says why")
            return
        for problem in self._unfinished(steps):
            self.fault(event, problem)

    def _unfinished(self, steps: Mapping[str, Step] | None) -> Iterator[str]:
        """Yield what contradicts a success of the run: failures that nothing handles, and steps that are left out."""
        for key, life in self.begun.items():
            _, node, inner = split_key(key)
            step = None if steps is None else steps.get(node)
            if inner:
                continue
            handled = life.released or (step is not None and step.branches)
            unhandled = life.state == FAILED and steps is not None and not handled
            if unhandled or life.state == CANCELED:
                yield f"it succeeded although {key} was {life.state}"
        for name, step in (steps or {}).items():
            if step.within is None and step.operation not in COMPOSITES and name not in self.begun:
                yield f"it succeeded without {name}"

    def end(self) -> None:
        """Judge that no edition of the definition is left over."""
        definition = self.case.definition
        if definition is not None and len(definition.editions) != self.extensions + 1:
            self.faults.append("the definition has more editions than the events tell extensions")
        if definition is not None and len(definition.migrated) != self._migrations:
            self.faults.append("the definition has more migrations than the events tell")


def _migration_faults(
    before: Mapping[str, Step], after: Mapping[str, Step], histories: Mapping[str, _History]
) -> Iterator[str]:
    """Yield the faults of a migration: it repeats or leaves out a step that has begun, or leaves out a gate."""
    begun = {split_key(key)[1] for key in histories}
    for name in sorted(begun & before.keys()):
        was, now = before[name], after.get(name)
        if now is None or (now.operation, now.within, now.branch) != (was.operation, was.within, was.branch):
            yield f"{name} has begun, and the new version does not have it there"
    for name, step in before.items():
        gate_ahead = step.operation == _GATE and step.within is None and name not in begun
        if gate_ahead and (name not in after or after[name].operation != _GATE):
            yield f"the gate {name} was still ahead, and the new version has none"
    for name in sorted(begun & after.keys()):
        for need in after[name].needs:
            if need not in after:
                yield f"{name} needs {need}, which the new version does not have"
            elif after[need].operation == _GATE and need not in begun and before.get(name, after[name]).within is None:
                yield f"{name} has begun, and comes after the gate {need} in the new version"


def _around(steps: Mapping[str, Step], name: str) -> Iterator[str]:
    at = steps[name].within
    while at is not None:
        yield at
        at = steps[at].within
