"""The workflow client-onboarding: weeks of waiting that cost nothing, and every way it can go."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app import processes
from core.documents import load_document
from runtime.definition.workflow import read_extension
from runtime.store.commits import STEPS_CHANNEL

TRIGGER = {"case": "KYC-1", "company": "c1"}
OWNER = {"name": "Ada Berg", "share": 60, "public_office": False}
DOCUMENTS = {"complete": True, "document": "extract.pdf"}


async def onboarding(office: Any, folder: Path, process: str = "document-request") -> UUID:
    """A client's onboarding, parked on the client's papers."""
    office.insert("core_company", "c1", name="Berg & Co", country="SE", u_register_number="SE-55", u_status="prospect")
    office.insert("u_company_register", "r1", u_number="SE-55", u_status="registered")
    office.insert("u_sanctions_list", "x1", name="Boris Bad")
    workflows = folder / "workflows"
    text = (workflows / "client-onboarding.yaml").read_text()
    assert "process: document-request\n" in text
    await office.publish(
        workflows / "owner-check.yaml",
        workflows / "follow-up.yaml",
        text.replace("process: document-request\n", f"process: {process}\n"),
        policy=folder / "policies" / "client-onboarding.yaml",
    )
    run_id: UUID = await office.start("client-onboarding", TRIGGER)
    await office.go_on()
    assert (await office.status(run_id), await office.error(run_id)) == ("waiting", {})
    return run_id


async def papers_came(office: Any, run_id: UUID) -> None:
    """The papers come by a signal, as any system can send it that knows the wait's key."""
    (wait,) = [item for item in (await office.get(f"/v1/runs/{run_id}/waits"))["items"] if item["status"] == "waiting"]
    answer = await office.signal(wait["correlation_key"], id="p1", output=DOCUMENTS)
    assert (answer.status_code, answer.json()["code"]) == (200, "delivered")
    await office.go_on()


async def confirmed(office: Any, run_id: UUID, **owner: Any) -> None:
    await papers_came(office, run_id)
    answer = await office.complete("ben.ortiz", {**OWNER, **owner})
    assert answer.status_code == 200, answer.text
    await office.go_on()
    assert await office.status(run_id) == "waiting_approval"


class Ear:
    """The wake-ups of a worker. ``deaf`` keeps them back, and ``let_one_through`` lets one through."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.deaf = False
        self.heard = asyncio.Event()
        self._wake = wake

    def __call__(self) -> None:
        self.heard.set()
        if not self.deaf:
            self._wake()

    async def let_one_through(self) -> None:
        await self.heard.wait()
        self._wake()


class Bystander:
    """Counts, on a connection of its own, what wakes workers."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._heard: list[str] = []
        self._fence = asyncio.Event()

    async def listen(self) -> None:
        await self._connection.add_listener(STEPS_CHANNEL, lambda *said: self._heard.append(str(said[2])))
        await self._connection.add_listener("fence", lambda *_: self._fence.set())

    async def count(self, speaker: asyncpg.Connection) -> int:
        """Count those sent by everything that has been committed up to now: they arrive in the order of commits."""
        await speaker.execute("NOTIFY fence")
        await self._fence.wait()
        return len(self._heard)


@asynccontextmanager
async def bystander(database_url: str) -> AsyncIterator[Bystander]:
    connection = await asyncpg.connect(database_url)
    try:
        found = Bystander(connection)
        await found.listen()
        yield found
    finally:
        await connection.close()


def papers_are_in(office: Any) -> Callable[[], Awaitable[Any]]:
    return lambda: office.books.waits(kind="external", status="completed")


def task_is_open(office: Any) -> Callable[[], Awaitable[Any]]:
    return lambda: office.books.waits(kind="task", open=True)


@pytest.mark.req("V-9")
@pytest.mark.req("V-11")
@pytest.mark.req("V-14")
@pytest.mark.req("V-15")
@pytest.mark.parametrize("process", ["document-request", "document-request-callback"])
async def test_nine_days_cost_nothing_and_one_wake_up_ends_them(
    office: Any, examples_folder: Path, process: str
) -> None:
    run_id = await onboarding(office, examples_folder, process)
    await office.holds_nothing()
    busy = await office.all("SELECT state FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'")
    assert len(busy) == 1, "only the test itself is at work"

    # Everything stops. Nothing is left that could hold the run: it is rows.
    await office.close()
    assert await office.connections() == []
    await office.pass_days(9)
    wait = await office.books.wait(kind="external")
    assert (wait.due_in.days, wait.status) == (4, "waiting")

    # Everything is opened anew: pools, definitions, connectors, HTTP. Nothing moves, for nothing has happened.
    await office.open()
    before = await office.books.run(run_id)
    await office.go_on()
    assert (await office.books.run(run_id)).version == before.version

    async with AsyncExitStack() as exits:
        app = await exits.enter_async_context(office.attentive())
        ear, stop = Ear(app.queue.wake), asyncio.Event()
        # A worker with its ear, and whoever fetches completions; no sweeper, and no look without a wake-up.
        group = await exits.enter_async_context(asyncio.TaskGroup())
        exits.callback(stop.set)
        group.create_task(app.worker().run(stop))
        group.create_task(processes.listen(app.database, {STEPS_CHANNEL: [ear]}, stop))
        group.create_task(app.completions().run(stop))
        await ear.heard.wait()  # it listens, and has looked at what there was
        ear.deaf = True
        ear.heard.clear()
        others = await exits.enter_async_context(bystander(office.settings.database_url.get_secret_value()))
        await office.upload(**DOCUMENTS)
        await office.until(papers_are_in(office))
        assert await others.count(office.records) == 1, "from the papers to the claim, exactly one wake-up"
        assert await task_is_open(office)() == [], "nobody looks without being woken"
        await ear.let_one_through()
        await office.until(task_is_open(office))
    assert (await office.books.event_types(run_id)).count("wait.completed") == 1
    assert (await office.channels(run_id))["papers"]["document"] == "extract.pdf"
    ended = office.world.bpmn.state.instances.values()
    await office.until(lambda: _all_ended(ended))
    await office.complete("ben.ortiz", OWNER)
    await office.go_on()
    for person in ("ana.lee", "cara.diaz"):
        assert (await office.vote(person, "approve")).status_code == 200
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    await office.verified(run_id)


async def _all_ended(instances: Any) -> bool:
    return [instance.state for instance in instances] == ["COMPLETED"]


@pytest.mark.req("V-2")
async def test_the_whole_way(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    looked_up = await office.books.steps(run=run_id, key={"register", "sanctions", "media"})
    assert len({step.superstep for step in looked_up}) == 1, "the look-ups run at the same time"
    await confirmed(office, run_id)
    assert (await office.vote("raj.quist", "approve")).status_code == 403
    assert (await office.vote("ana.lee", "approve")).status_code == 200
    await office.go_on()
    assert await office.status(run_id) == "waiting_approval", "one of two is not enough"
    assert (await office.vote("ana.lee", "approve")).status_code in (200, 409)
    assert await office.status(run_id) == "waiting_approval", "nobody counts twice"
    assert (await office.vote("ben.ortiz", "approve")).status_code == 403, "he has filled in the form"
    assert (await office.vote("cara.diaz", "approve")).status_code == 200
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    owner = {"name": "Ada Berg", "share": 60, "confirmed_by": "person:ben.ortiz"}
    assert await office.result(run_id) == {"outcome": "accepted", "owner": owner}
    assert office.record("core_company", "c1")["u_status"] == "active"
    assert await office.posts() == ["KYC-1: Onboarding ended: accepted"]
    channels = await office.channels(run_id)
    assert channels["findings"][0].startswith("register: SE-55 found 1")
    assert "owner: nothing found" in channels["findings"]
    runs = await office.books.runs()
    assert {(run.workflow, run.status) for run in runs} == {
        ("client-onboarding", "succeeded"),
        ("owner-check", "succeeded"),
        ("follow-up", "succeeded"),
    }
    assert (await office.books.run(run_id)).purge_at is not None
    for run in runs:
        await office.verified(run.id)


@pytest.mark.req("P-12")
async def test_only_the_assigned_group_confirms_the_owner(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    await papers_came(office, run_id)
    assert (await office.complete("cara.diaz", OWNER)).status_code == 403
    faulty = await office.complete("ben.ortiz", {"name": "Ada Berg", "share": 5})
    assert faulty.status_code == 422
    assert [problem["where"] for problem in faulty.json()["problems"]] == ["share"]
    assert await office.status(run_id) == "waiting"


@pytest.mark.req("X-10")
async def test_a_rejected_client_is_declined_and_the_run_ends_well(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    await confirmed(office, run_id, name="Boris Bad")
    question = await office.question()
    assert "look twice" in str(question.card)
    await office.vote("ana.lee", "reject", "is on the list")
    await office.go_on()
    assert (await office.status(run_id), (await office.result(run_id))["outcome"]) == ("succeeded", "declined")
    assert office.record("core_company", "c1")["u_status"] == "declined"
    await office.verified(run_id)


@pytest.mark.req("X-20")
async def test_personal_data_goes_after_its_time_and_the_evidence_stays(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    await confirmed(office, run_id)
    for person in ("ana.lee", "cara.diaz"):
        await office.vote(person, "approve")
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    assert "journal" in await office.mentions("Ada Berg")
    await office.trouble.bring_purges_nearer(timedelta(days=90))
    await office.go_on()
    assert await office.mentions("Ada Berg") == set()
    assert await office.mentions("extract.pdf") == set()
    purged = [run.id for run in await office.books.runs() if run.purged_at is not None]
    assert len(purged) == 3, "the onboarding, the check of its owner, and the follow-up"
    for purged_run in purged:
        await office.evidence(purged_run)
    assert [item["status"] for item in (await office.get(f"/v1/runs/{run_id}/steps"))["items"]] != []


@pytest.mark.req("X-10")
@pytest.mark.parametrize(("choice", "status"), [("approve", "waiting"), ("reject", "failed_terminal")])
async def test_papers_that_are_not_accepted_are_put_to_people(
    office: Any, examples_folder: Path, choice: str, status: str
) -> None:
    run_id = await onboarding(office, examples_folder, "document-request-callback")
    await office.upload(complete=False)
    await office.until(papers_are_in(office))
    await office.go_on()
    question = await office.question()
    assert "The document is incomplete" in str(question.card)
    await office.vote("ana.lee", choice)
    await office.go_on()
    assert await office.status(run_id) == status


@pytest.mark.req("V-12")
async def test_papers_that_never_come_are_escalated(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    await office.pass_days(13)
    await office.go_on()
    assert await office.status(run_id) == "waiting"
    await office.pass_days(1)
    await office.go_on()
    assert await office.status(run_id) == "waiting_approval"
    question = await office.question()
    assert question.step.endswith("papers_escalation")
    assert "Go on without it?" in str(question.card)
    assert await office.posts() == ["KYC-1: No papers after two weeks (timed_out)"]
    (process,) = office.world.bpmn.state.instances.values()
    assert process.state != "ACTIVE", "the process outside is ended as well"
    await office.vote("ana.lee", "approve", "known to us for years")
    await office.go_on()
    assert (await office.get("/v1/tasks?state=open"))["items"] != []
    await office.complete("ben.ortiz", OWNER)
    await office.go_on()
    await office.vote("ana.lee", "approve")
    await office.vote("cara.diaz", "approve")
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    assert (await office.channels(run_id))["papers"] is None
    await office.verified(run_id)


@pytest.mark.req("V-12")
async def test_an_escalation_that_is_rejected_ends_the_onboarding(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    await office.pass_days(14)
    await office.go_on()
    await office.vote("cara.diaz", "reject")
    await office.go_on()
    assert (await office.status(run_id), (await office.error(run_id))["code"]) == ("failed_terminal", "rejected")
    await office.verified(run_id)


@pytest.fixture
def second_look(examples_folder: Path) -> Any:
    """The extension of the library, as an agent sends it."""
    file = examples_folder / "extensions" / "second-look.yaml"
    return load_document(file.read_text(), str(file)).value


@pytest.mark.req("V-5")
@pytest.mark.req("V-6")
async def test_an_agent_adds_a_look_up_while_the_papers_are_awaited(
    office: Any, examples_folder: Path, second_look: Any
) -> None:
    run_id = await onboarding(office, examples_folder)
    answer = await office.extend(run_id, second_look)
    assert (answer.status_code, answer.json()["steps"]) == (201, ["parent_company"])
    await office.go_on()
    assert "parent company: 0 hit(s)" in (await office.channels(run_id))["findings"], "it need not wait for the papers"
    await office.close()
    await office.open()
    await confirmed(office, run_id)
    (mutation,) = (await office.get(f"/v1/runs/{run_id}/mutations"))["items"]
    assert (mutation["actor"], mutation["source"]) == ("agent", second_look)
    await office.vote("ana.lee", "approve")
    await office.vote("cara.diaz", "approve")
    await office.go_on()
    assert await office.status(run_id) == "succeeded"
    await office.verified(run_id)


def test_the_request_that_the_how_to_shows_is_one(examples_folder: Path) -> None:
    page = (examples_folder.parent / "docs" / "howto" / "client-onboarding.md").read_text()
    (body,) = re.findall(r"-d '(\{\"steps\".*?)'\n", page, re.DOTALL)
    assert [step.id for step in read_extension(json.loads(body)).steps] == ["parent_company"]


@pytest.mark.req("V-6")
async def test_what_an_agent_adds_is_judged_like_everything_else(office: Any, examples_folder: Path) -> None:
    run_id = await onboarding(office, examples_folder)
    master_data = {"table": "core_company", "sys_id": "c1", "fields": {"name": "Another Name"}}
    step = {"id": "rename", "needs": ["company"], "do": "servicenow.record.update", "with": master_data}
    assert (await office.extend(run_id, {"steps": [step]})).status_code == 201
    await office.go_on()
    await confirmed(office, run_id)
    for person in ("ana.lee", "cara.diaz"):
        await office.vote(person, "approve")
    await office.go_on()
    assert (await office.status(run_id), (await office.error(run_id))["code"]) == ("failed_terminal", "policy_denied")
    assert office.record("core_company", "c1")["name"] == "Berg & Co"
