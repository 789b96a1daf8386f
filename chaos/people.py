"""Those outside: they start runs, click, fill in forms, send signals and upload papers, and try again until they are
answered. What was answered is remembered, to be held against Counterseal."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx

from chaos import cases
from chaos.cases import TENANT, Case
from chaos.eyes import AWAY, DOUBTS, KINDS, Eyes, proposed
from sandbox.web import BadRequest
from sandbox.world import World

CHANNEL = "C0OPS"
SLACK_USERS = {"U0ANA": "ana.lee", "U0BEN": "ben.ortiz", "U0CARA": "cara.diaz"}
REQUESTER = "raj.quist"  # who asks for something has no say in it
LOOKERS = ("ana.lee", "ben.ortiz")
LOOK_SECONDS = 0.25


@dataclass
class People:
    """People outside. Acknowledged: ``clicks`` in Slack by (approval, account), ``votes`` by (approval, person)."""

    world: World
    eyes: Eyes
    url: str
    tokens: dict[tuple[str, str], str]
    chance: random.Random
    cases: list[Case] = field(default_factory=list)
    clicks: set[tuple[str, str]] = field(default_factory=set)
    votes: set[tuple[str, str]] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    _told: dict[str, float] = field(default_factory=dict)
    _client: httpx.AsyncClient = field(default_factory=lambda: httpx.AsyncClient(timeout=15, trust_env=False))

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def until_served(self) -> None:
        """Wait until somebody answers at all."""
        async with asyncio.timeout(180):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await self._client.get(f"{self.url}/healthz")).is_success:
                        return
                await asyncio.sleep(LOOK_SECONDS)

    async def start_runs(self, stop: asyncio.Event, pause: tuple[float, float], most: int) -> None:
        """Begin one case after the other until ``stop``."""
        async with asyncio.TaskGroup() as group:
            while not stop.is_set() and len(self.cases) < most:
                case = cases.make(self.chance.choice(cases.KINDS), len(self.cases), self.world, self.chance)
                self.cases.append(case)
                if case.kind != "webhook":
                    for number in range(case.runs):
                        group.create_task(self._start(case, number))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.chance.uniform(*pause)):
                        await stop.wait()

    async def _start(self, case: Case, number: int) -> None:
        """Ask until it is acknowledged; sometimes once more, with the same key."""
        body = {"workflow": case.kind, "input": {**case.input, "n": number}, "idempotency_key": f"{case.ref}:{number}"}
        again, known = self.chance.random() < 0.3, False
        while not known or again:
            answer = await self._post("/v1/runs", body, REQUESTER, case.tenant)
            if answer is not None and answer.status_code in (200, 201):
                again, known = again and not known, True
                case.acknowledged.append(answer.json()["run_id"])
                self.done["runs started over HTTP, acknowledged"] += 1
            else:
                await asyncio.sleep(LOOK_SECONDS * 2)

    async def go_on(self) -> None:
        """Look what waits for people and answer it, for ever."""
        while True:
            with _tolerating(self.done):
                self._note_webhooks()
                await self._decide()
                await self._fill_in()
                await self._signal()
                await self._cancel()
                await self._retry()
                await self._extend()
                await self._edit()
                self._upload()
            await asyncio.sleep(LOOK_SECONDS)

    def _note_webhooks(self) -> None:
        """ServiceNow gives up after a few tries; whoever looks after it sends the event again."""
        by_id = {case.records[0]: case for case in self.cases if case.kind == "webhook"}
        for delivery in self.world.servicenow.webhooks.deliveries:
            case = next((by_id[one] for one in by_id if one.encode() in delivery.body), None)
            if case is None or not delivery.done:
                continue
            if 202 not in delivery.statuses:
                self.world.servicenow.webhooks.redeliver(delivery)
            elif not case.acknowledged:
                case.acknowledged.append("")
                self.done["webhooks acknowledged"] += 1

    async def _decide(self) -> None:
        rows = await self.eyes.all(
            "SELECT a.approval_id, a.tenant_id, k.kind, r.workflow, x.vals, x.number, EXISTS (SELECT FROM run_lines l "
            "WHERE l.run_id = a.run_id AND l.type = 'run.reopened') AS reopened "
            f"FROM approvals a JOIN runs r USING (run_id) "
            f"JOIN ({KINDS}) k ON k.run_id = a.run_id AND k.approval = a.approval_id::text "
            f"LEFT JOIN ({DOUBTS}) x ON x.run_id = a.run_id AND x.step = a.step_key "
            "WHERE a.status = 'requested' ORDER BY a.created_at LIMIT 20"
        )
        await asyncio.gather(*(self._answer(row) for row in rows if self._due(str(row["approval_id"]))))

    async def _answer(self, row: asyncpg.Record) -> None:
        approval = str(row["approval_id"])
        tenant = row["tenant_id"]
        if row["kind"] == "in_doubt":
            true = cases.took_place(self.world, proposed(row))
            # As many as the action itself needs have to say so.
            await asyncio.gather(
                *(self._vote(approval, one, "happened" if true else "again", tenant) for one in LOOKERS)
            )
        elif row["workflow"] == "rejected" or (row["workflow"] == "retried" and not row["reopened"]):
            await self._vote(approval, "ben.ortiz", "reject", tenant)
        elif row["workflow"] == "expired":
            return  # nobody looks
        elif tenant != TENANT or self.chance.random() < 0.2:
            people = list(SLACK_USERS.values())[: 2 if row["workflow"] == "two" else 1]
            await asyncio.gather(*(self._vote(approval, person, "approve", tenant) for person in people))
        elif cards := self._cards_of(approval):
            users = self.chance.sample(list(SLACK_USERS), 2 if self.chance.random() < 0.5 else 1)
            clicks = [*users, *(users[:1] if self.chance.random() < 0.3 else [])]
            await asyncio.gather(*(self._click(approval, cards[-1], user) for user in clicks))

    def _cards_of(self, approval: str) -> list[str]:
        """Find the cards of this approval in Slack, also those that Counterseal does not know of yet."""
        messages = self.world.slack.state.messages(CHANNEL)
        return [one.ts for one in messages if approval in str(one.metadata) and not one.thread_ts]

    async def _click(self, approval: str, ts: str, user: str) -> None:
        try:
            outcome = await self.world.slack.people.click(CHANNEL, ts, "counterseal.approve", user, stale=True)
        except BadRequest:
            self.done["clicks on a card that had lost its buttons"] += 1
            return
        self.done["clicks acknowledged" if outcome.ok else "clicks without an answer, so clicked again"] += 1
        if outcome.ok:
            self.clicks.add((approval, user))

    async def _vote(self, approval: str, person: str, choice: str, tenant: str) -> None:
        body = {"choice": choice, "reason": "looked at it"}
        answer = await self._post(f"/v1/approvals/{approval}/votes", body, person, tenant)
        if answer is not None and answer.status_code == 200:
            self.votes.add((approval, person))
            self.done[f"votes over HTTP acknowledged: {choice}"] += 1

    async def _fill_in(self) -> None:
        for row in await self.eyes.all("SELECT wait_id FROM waits WHERE kind = 'task' AND status = 'waiting'"):
            body = {"value": {"name": "Ada"}}
            for _ in range(self.chance.randint(1, 2)):
                answer = await self._post(f"/v1/tasks/{row['wait_id']}/complete", body, "ana.lee")
                if answer is not None and answer.status_code == 200:
                    self.done["tasks completed, acknowledged"] += 1

    async def _signal(self) -> None:
        """Signals come before anybody waits for them as well as after, and some twice."""
        for case in self.cases:
            if case.kind == "child" and case.ref not in self._told and self.chance.random() < 0.1:
                answer = await self._post(
                    f"/v1/signals/go:{case.ref}", {"id": case.ref, "output": {}}, "ana.lee", case.tenant
                )
                if answer is not None and answer.status_code in (200, 202):
                    self.done["signals acknowledged"] += 1
                    if self.chance.random() < 0.7:
                        self._told[case.ref] = 1.0

    async def _cancel(self) -> None:
        """Cancel, as an operator, a run that waits for something that will never come."""
        waiting = await self.eyes.all(
            "SELECT run_id, w.tenant_id FROM runs JOIN waits w USING (run_id) WHERE workflow = 'canceled' "
            "AND finished_at IS NULL AND w.kind = 'signal' AND w.status = 'waiting'"
        )
        for row in waiting:
            answer = await self._post(
                f"/v1/runs/{row['run_id']}/cancel", {"reason": "nobody comes"}, "ana.lee", row["tenant_id"]
            )
            if answer is not None and answer.status_code == 200:
                self.done["cancellations acknowledged"] += 1

    async def _retry(self) -> None:
        """Go on, as somebody who then has no say in it, with a run that was rejected."""
        failed = await self.eyes.all(
            "SELECT run_id, tenant_id FROM runs WHERE workflow = 'retried' AND status = 'failed_terminal' LIMIT 20"
        )
        for row in failed:
            path, body = f"/v1/runs/{row['run_id']}/retry", {"reason": "it is wanted after all"}
            answer = await self._post(path, body, "cara.diaz", row["tenant_id"])
            if answer is not None and answer.status_code == 200:
                self.done["retries of failed runs acknowledged"] += 1

    async def _extend(self) -> None:
        """An agent adds a step to a run that waits for it, then lets the run go on."""
        waiting = await self.eyes.all(
            "SELECT r.run_id, r.tenant_id, r.reference, r.version, r.extensions FROM runs r JOIN waits w USING (run_id)"
            " WHERE workflow = 'extended' AND finished_at IS NULL AND w.kind = 'signal' AND w.status = 'waiting'"
        )
        for row in waiting:
            ref, path = row["reference"], f"/v1/runs/{row['run_id']}/steps"
            if row["extensions"]:
                told = {"id": ref, "output": {}}
                await self._post(f"/v1/signals/more:{ref}", told, "ana.lee", row["tenant_id"])
                continue
            given = {"sys_id": "${{ trigger.sys_id }}", "work_notes": "${{ trigger.ref }}:more"}
            body = {"steps": [{"id": "more", "do": "servicenow.problem.note", "with": given}], "before": ["b"]}
            answer = await self._post(path, body, "ana.lee", row["tenant_id"], {"If-Match": f'"{row["version"]}"'})
            if answer is not None and answer.status_code == 201:
                self.done["extensions acknowledged"] += 1

    async def _edit(self) -> None:
        """Edit the very record whose change is in doubt, so that a probe may not be able to tell."""
        for row in await self.eyes.all(f"{DOUBTS} LIMIT 20"):
            given = proposed(row).get("input", {})
            receipt = row["receipt"]
            if "fields" in given and receipt not in self._told and self.chance.random() < 0.5:
                state = self.world.servicenow.state
                table = next(name for name in ("problem", "incident") if state.record(name, given["sys_id"]))
                state.update(table, given["sys_id"], {"description": f"seen {receipt}"}, "raj.quist")
                self.done["records edited by somebody else while a change was in doubt"] += 1
            self._told[receipt] = 1.0

    def _upload(self) -> None:
        """The client answers, except those who are late."""
        assert self.world.bpmn is not None
        for instance in list(self.world.bpmn.state.running()):
            if str(instance.execution.variables["client"]).startswith(("durable", "shared")):
                for task in instance.user_tasks():
                    self.world.bpmn.state.complete_user_task(task.activity_id, {"complete": True})
                    self.done["papers uploaded"] += 1

    async def _post(
        self, path: str, body: dict[str, Any], person: str, tenant: str = TENANT, more: dict[str, str] | None = None
    ) -> httpx.Response | None:
        headers = {"Authorization": f"Bearer {self.tokens[tenant, person]}", **(more or {})}
        try:
            answer = await self._client.post(self.url + path, json=body, headers=headers)
        except httpx.TransportError:
            self.done["requests without an answer, so asked again"] += 1
            return None
        if answer.is_server_error:
            self.done[f"requests answered {answer.status_code}, so asked again"] += 1
        elif answer.is_client_error and answer.status_code != 409:
            self.done[f"requests refused {answer.status_code}: {answer.text[:120]}"] += 1
        return answer

    def _due(self, approval: str) -> bool:
        """People look at a card for a moment, and again after a while if it is still open."""
        now = asyncio.get_running_loop().time()
        first = self._told.setdefault(approval, now + self.chance.uniform(0.0, 2.0))
        if now < first:
            return False
        self._told[approval] = now + 2.0
        return True


@contextlib.contextmanager
def _tolerating(done: Counter[str]) -> Iterator[None]:
    try:
        yield
    except AWAY:
        done["looks into a database that was away"] += 1
