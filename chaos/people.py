"""People and systems outside: they start runs, click, fill in forms, send signals and upload papers, and retry until
Counterseal answers. The acknowledged requests are recorded and checked in the end."""

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
REQUESTER = "raj.quist"  # not an owner, because a requester must not vote
LOOKERS = ("ana.lee", "ben.ortiz")
LOOK_SECONDS = 0.25


@dataclass
class People:
    """People outside. Acknowledged are ``clicks`` in Slack as (approval, account), ``votes`` as (approval, person)."""

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
        """Release connections."""
        await self._client.aclose()

    async def until_served(self) -> None:
        """Wait until the face answers."""
        async with asyncio.timeout(180):
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await self._client.get(f"{self.url}/healthz")).is_success:
                        return
                await asyncio.sleep(LOOK_SECONDS)

    async def start_runs(self, stop: asyncio.Event, pause: tuple[float, float], most: int) -> None:
        """Start one case after the other until ``stop``."""
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
        """Request the run until it is acknowledged; sometimes once more, with the same idempotency key."""
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
        """Answer everything that waits for people, forever."""
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
        """Record acknowledged webhooks. Send the others again, because ServiceNow gives up after a few tries."""
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
            # As many people must answer as the action itself needs approvers.
            await asyncio.gather(
                *(self._vote(approval, one, "happened" if true else "again", tenant) for one in LOOKERS)
            )
        elif row["workflow"] == "rejected" or (row["workflow"] == "retried" and not row["reopened"]):
            await self._vote(approval, "ben.ortiz", "reject", tenant)
        elif row["workflow"] == "expired":
            return  # nobody votes, so that it expires
        elif tenant != TENANT or self.chance.random() < 0.2:
            people = list(SLACK_USERS.values())[: 2 if row["workflow"] == "two" else 1]
            await asyncio.gather(*(self._vote(approval, person, "approve", tenant) for person in people))
        elif cards := self._cards_of(approval):
            users = self.chance.sample(list(SLACK_USERS), 2 if self.chance.random() < 0.5 else 1)
            clicks = [*users, *(users[:1] if self.chance.random() < 0.3 else [])]
            await asyncio.gather(*(self._click(approval, cards[-1], user) for user in clicks))

    def _cards_of(self, approval: str) -> list[str]:
        """The cards of this approval in Slack, including those that Counterseal does not know of yet."""
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
        """Send signals, some before their wait exists and some twice."""
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
        """Cancel, as an operator, each run that waits for a signal that never comes."""
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
        """Retry each rejected run, as a person who then may not vote on it."""
        failed = await self.eyes.all(
            "SELECT run_id, tenant_id FROM runs WHERE workflow = 'retried' AND status = 'failed_terminal' LIMIT 20"
        )
        for row in failed:
            path, body = f"/v1/runs/{row['run_id']}/retry", {"reason": "it is wanted after all"}
            answer = await self._post(path, body, "cara.diaz", row["tenant_id"])
            if answer is not None and answer.status_code == 200:
                self.done["retries of failed runs acknowledged"] += 1

    async def _extend(self) -> None:
        """Add a step to each run that waits for it, then signal the run to go on."""
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
        """Edit a record whose change is in doubt, so that a probe may answer *cannot tell*."""
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
        """Complete the clients' user tasks, except in the ``late`` cases."""
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
        """True if people answer this card now: after up to two seconds, then every two seconds while it is open."""
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
