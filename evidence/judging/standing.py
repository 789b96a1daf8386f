"""Judges the tenant's state when an action was let out: no pause held it, and its policies were in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.events import DENIALS, STOPPING
from evidence.events import EventType as E
from evidence.judging.case import Case, Judge, seconds_between

_BY_PEOPLE = (E.APPROVAL_VOTED, E.ACTION_INTENDED, E.APPROVAL_CONSUMED)
# A vote that crosses the publication of a directory may be judged by the one before or by the one after.
CROSSED_SECONDS = 60
_OF_POLICIES = (E.POLICY_ACTIVATED, E.POLICY_RETIRED)


class Standing(Judge):
    """Follows intents, by their stop numbers. A line of the tenant applies to every intent with a greater number."""

    name = "pauses and policies in force"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.compared = 0
        self._run = ""
        self._workflow = ""
        self._by_agent = False
        self._paused: int | None = None
        self._last = 0
        self._decisions: dict[str, list[Any]] = {}
        self._published = [line for line in self.case.tenant or () if line["type"] == E.DIRECTORY_PUBLISHED]
        self._lines = sorted(self._of_tenant(), key=lambda line: line["data"]["stop"])

    def _of_tenant(self) -> Iterator[dict[str, Any]]:
        for line in self.case.tenant or ():
            if line["type"] in STOPPING and type(line["data"].get("stop")) is int:
                yield line

    def observe(self, event: dict[str, Any]) -> None:
        """Follow one event of the chain."""
        kind, data = event["type"], event["data"]
        if kind == E.RUN_OPENED:
            self._workflow = str(data["workflow"].get("name")) if isinstance(data["workflow"], dict) else ""
            self._by_agent = data.get("trigger") == "agent"
        elif kind == E.RUN_PAUSED:
            self._paused = data["stop"] if type(data.get("stop")) is int else None
        elif kind == E.RUN_RESUMED:
            self._paused = None
        elif kind == E.DECISION_MADE:
            self._decisions[data["decision"]] = data["policies"]
        if kind in _BY_PEOPLE and isinstance(data.get("directory"), str):
            self._people(event, data["directory"])
        if kind == E.ACTION_INTENDED and type(data.get("stop")) is int:
            self._intended(event, data["stop"])

    def _people(self, event: dict[str, Any], digest: str) -> None:
        """Compare the directory with the one that was published last. A publication may cross a vote by seconds."""
        if digest not in {line["data"].get("digest") for line in self._published}:
            return  # no line of it is here: the row of the people says that membership is not shown
        before = [one for one in self._published if one["ts"] <= event["ts"]]
        crossed = [one for one in self._published if abs(seconds_between(one["ts"], event["ts"])) < CROSSED_SECONDS]
        newest = {one["data"]["digest"] for one in [*before[-1:], *crossed, *before[-1 - len(crossed) : -1]]}
        if digest not in newest:
            self.fault(event, "another directory was in use at that time")

    @property
    def words(self) -> str:
        """The words that say how much was compared."""
        return f"{self.compared} intents compared with {len(self._lines)} lines of the tenant"

    def set_run(self, run: str) -> None:
        """Tell which run is judged, because a pause may name it."""
        self._run = run

    def _intended(self, event: dict[str, Any], stop: int) -> None:
        data = event["data"]
        if stop < self._last:
            self.fault(event, "its stop number is below that of an earlier one")
        self._last = max(stop, self._last)
        if self._paused is not None and stop <= self._paused:
            self.fault(event, "it was let out while the run was paused")
        if self.case.tenant is None:
            return
        self.compared += 1
        connector = str(data["operation"]).partition(".")[0]
        held = ("suspended", "tenant", f"workflow:{self._workflow}", f"connector:{connector}", f"run:{self._run}")
        pauses, policies = set[str](), dict[str, str]()
        for line in self._lines:
            if line["data"]["stop"] >= stop:
                break
            recorded = line["data"]
            if line["type"] == E.PAUSE_SET:
                pauses.add(str(recorded["paused"]))
            elif line["type"] == E.PAUSE_LIFTED:
                pauses.discard(str(recorded["paused"]))
            elif line["type"] in _OF_POLICIES:
                policies[str(recorded["name"])] = str(recorded["digest"]) if line["type"] == E.POLICY_ACTIVATED else ""
        # Of the lines about agents, a bundle holds those about the account that has asked for the run.
        agents = sorted(key for key in pauses if key.startswith("agent:")) if self._by_agent else ()
        for key in (*held, *agents):
            if key in pauses:
                self.fault(event, f"it was let out while {key} was paused")
        self._in_force(event, policies)

    def _in_force(self, event: dict[str, Any], policies: dict[str, str]) -> None:
        """Compare the policies that judged with those that were put in force before."""
        judged = self._decisions.get(event["data"]["decision"], [])
        named = {str(one.get("name")): one.get("digest") for one in judged if isinstance(one, dict)}
        for name, digest in named.items():
            if name in policies and policies[name] != digest:
                words = "was retired" if not policies[name] else "was in force in another version"
                self.fault(event, f"the policy {name} judged it, and {words}")
        denial = f"{DENIALS}{event['data']['operation']}"
        if policies.get(denial) and denial not in named:
            self.fault(event, f"the policy {denial} was in force, and did not judge it")
