"""The demo's people and runs, by themselves: what each of them asks for, in what order, and what is seen of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from app.demo import helper, people, story
from app.demo.people import AGENT_STORY, STORIES, Incident, IncidentRun, People, Story
from app.demo.world import World
from core.errors import TransportError
from evidence.chain import Actor
from evidence.signing import FileSigner
from runtime.requests import starting
from runtime.requests.starting import StartRequest
from runtime.store import read_models
from tests.support.recorded import Connected, Recorded

SINCE = datetime(2026, 1, 2, tzinfo=UTC)
INCIDENTS = [Incident(f"INC{number}", f"s{number}", each) for number, each in enumerate((*STORIES, AGENT_STORY))]
BUNDLE = {"name": "b.zip", "uri": "file:b", "version_id": "v7", "sha256": "h"}


class Faces(Connected):
    """Faces of the demo's tenant, in a home of its own."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.database, self.definitions = self, SimpleNamespace(name="definitions")
        self.settings = SimpleNamespace(
            tenant="shown", workspace="yard", home=home, signing_key_path=home / "key.pem", person_id="tess"
        )
        self.blobs = self


# -- what a run is seen to be ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verified", [True, False])
async def test_a_run_is_looked_at_until_its_bundle_is_verified_with_the_key_of_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verified: bool
) -> None:
    told, home = Recorded(monkeypatch), tmp_path
    (home / "demo").mkdir()
    rows: list[Any] = []
    row = {"run_id": "r7", "created_at": SINCE}
    seen: dict[str, Any] = {"status": "running"}
    told.put(read_models, runs_page=lambda *_: rows, run=lambda *_: seen, bundle=None)
    key = FileSigner.load_or_create(home / "key.pem").public_key.pem
    faces: Any = Faces(home)
    faces.get = told.verb("get", b"the bundle")
    checked: list[Any] = []

    def verify(path: Path, *, public_key: Path) -> Any:
        checked.append((path.read_bytes(), public_key.read_bytes()))
        return SimpleNamespace(ok=verified)

    monkeypatch.setattr(story, "verify_bundle", verify)
    item = IncidentRun(INCIDENTS[0])
    assert await story._look(faces, item, SINCE) is item, "it has not begun"
    wanted = "{'status': null, 'workflow': 'incident-triage', 'reference': 'INC0'}"
    asked = f"read_models.runs_page(transaction of shown, shown, {wanted}, 1)"
    assert told.calls == [asked]
    rows.append({**row, "created_at": SINCE - timedelta(microseconds=1)})
    assert await story._look(faces, item, SINCE) is item, "that is a run of an earlier demo"
    rows[0] = row
    told.calls.clear()
    begun = await story._look(faces, item, SINCE)
    assert begun == IncidentRun(INCIDENTS[0], seen)
    place = "(transaction of shown, shown, r7)"
    assert told.calls == [asked, f"read_models.run{place}", f"read_models.bundle{place}"]
    told.put(read_models, bundle=BUNDLE)
    told.calls.clear()
    ended = await story._look(faces, begun, SINCE)
    assert ended == IncidentRun(INCIDENTS[0], seen, home / "demo" / "b.zip", "h", verified=verified)
    assert told.calls[3:] == [
        f"get({json.dumps({'uri': 'file:b', 'version_id': 'v7', 'sha256': 'h'})})".replace('"', "'")
    ]
    assert checked == [(b"the bundle", key)]
    seen = {"status": "succeeded"}
    assert await story._look(faces, ended, SINCE) == replace(ended, run=seen)
    assert len(checked) == 1, "a bundle is fetched once"


async def test_the_documents_of_the_demo_are_published_before_its_clock_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("workflows/b.yaml", "workflows/a.yaml", "workflows/c.txt", "policies/q.yaml", "policies/p.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "directory.yaml").write_text("people")
    did: list[Any] = []

    class Connection:
        async def fetchval(self, sql: str) -> datetime:
            did.append(sql)
            return SINCE

    connection = Connection()

    @asynccontextmanager
    async def transaction(tenant: str) -> AsyncIterator[Connection]:
        did.append(f"begin {tenant}")
        yield connection
        did.append("commit")

    def publish(kind: str) -> Any:
        async def published(*given: Any) -> None:
            assert given[0] is connection
            assert given[1:-3] == (("definitions", "shown") if kind != "directory" else ("shown",))
            assert given[-1] == Actor("demo", "counterseal demo")
            did.append((kind, *given[-3:-1]))

        return published

    for kind in ("workflow", "policy", "directory"):
        monkeypatch.setattr(story, f"publish_{kind}", publish(kind))
    faces: Any = SimpleNamespace(
        settings=SimpleNamespace(tenant="shown"), definitions="definitions",
        database=SimpleNamespace(transaction=transaction),
    )  # fmt: skip
    assert await story._publish(faces, tmp_path) == SINCE
    assert did == [
        "begin shown",
        *(("workflow", f"workflows/{name}.yaml", f"{tmp_path}/workflows/{name}.yaml") for name in "ab"),
        *(("policy", f"policies/{name}.yaml", f"{tmp_path}/policies/{name}.yaml") for name in "pq"),
        ("directory", "people", f"{tmp_path}/directory.yaml"),
        "SELECT now()",
        "commit",
    ]


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("late", [True, False])
async def test_a_play_reports_all_incidents_and_looks_until_each_has_its_bundle(
    monkeypatch: pytest.MonkeyPatch, auto: bool, late: bool
) -> None:
    if late and not auto:
        return  # nobody ends it but people
    did: list[Any] = []
    looks = 0

    async def publish(faces: Any, examples: Path) -> datetime:
        did.append(("publish", examples))
        return SINCE

    async def ask_for_help(faces: Any, incident: Incident) -> None:
        did.append(("help", incident.number))

    async def look(faces: Any, item: IncidentRun, since: datetime) -> IncidentRun:
        nonlocal looks
        assert since == SINCE
        looks += 1
        ends = not late and looks > 4 * int(item.incident.number[-1])
        return replace(item, bundle=Path("b")) if ends else item

    class Acting:
        world = "world"

        async def report(self, each: Story) -> Incident:
            did.append(("report", each.text))
            return next(one for one in INCIDENTS if one.story is each)

        async def describe(self, incident: Incident, text: str, user: str) -> None:
            assert text == helper.planted(INCIDENTS[3], INCIDENTS[:3])
            did.append(("describe", incident.number, user))

        async def decide(self, incident: Incident) -> None:
            did.append(("decide", incident.number))
            try:
                await asyncio.Event().wait()
            finally:
                did.append(("left", incident.number))

    class Seen:
        def __init__(self) -> None:
            self.shown = 0
            self.said: list[str] = []

        def introduce(self, where: Any, incidents: Any) -> None:
            did.append(("introduce", where, [one.number for one in incidents]))

        @contextmanager
        def live(self) -> Iterator[None]:
            yield

        def show(self, told: Any) -> None:
            self.shown += 1

        def say(self, text: str) -> None:
            self.said.append(text)

    monkeypatch.setattr(story, "_publish", publish)
    monkeypatch.setattr(story, "_look", look)
    monkeypatch.setattr(helper, "ask_for_help", ask_for_help)
    monkeypatch.setattr(story, "AUTO_SECONDS", 0.01 if late else 120.0)
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(seconds if late else 0))
    acting: Any = Acting()
    seen: Any = Seen()
    faces: Any = "faces"
    told = await story._play(faces, acting, Path("examples"), seen, auto=auto)
    monkeypatch.undo()
    names = [one.number for one in INCIDENTS]
    assert [item.incident.number for item in told] == names
    assert [item.bundle for item in told] == [None if late else Path("b")] * 4
    assert did[:8] == [
        ("publish", Path("examples")),
        *(("report", one.story.text) for one in INCIDENTS),
        ("describe", "INC3", "guest.portal"),
        ("help", "INC3"),
        ("introduce", "world", names),
    ]
    assert did[8:] == [(what, name) for what in ("decide", "left") for name in names if auto]
    assert seen.said == (["Not everything ended within 0.01 seconds."] if late else [])
    assert seen.shown == (1 if late else 4)


# -- what people do in the stand-ins ---------------------------------------------------------------------------------


class StandIns:
    """The pages' endpoints: what was asked of them, and what each answers, one answer after the other."""

    def __init__(self, **answers: list[Any]) -> None:
        self.asked: list[Any] = []
        self._answers = {name: iter(each) for name, each in answers.items()}
        client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.people = People(World("http://now", "http://slack", "http://app", {}), client)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, str(request.url), body))
        found = next(self._answers[request.url.path.split("/")[2]])
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)


async def test_people_ask_servicenow_for_what_they_report_and_change() -> None:
    records = [{"sys_id": f"s{number}", "number": f"INC{number}", "priority": str(number)} for number in (3, 0, 1)]
    there = StandIns(records=[{"record": records[1]}, {}, {"records": records}])
    incident = await there.people.report(STORIES[0])
    assert incident == INCIDENTS[0]
    await there.people.describe(incident, "words", "guest")
    assert await there.people.incident(INCIDENTS[1]) == records[2]
    place = "http://now/_sandbox/records/incident"
    fields = {"short_description": STORIES[0].text, "impact": "3", "urgency": "3"}
    assert there.asked == [
        ("POST", place, {"user": "raj.quist", "fields": fields}),
        ("PATCH", f"{place}/s0", {"user": "guest", "fields": {"description": "words"}}),
        ("GET", place, None),
    ]


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_whatever_a_stand_in_refuses_is_told_with_its_words(status: int) -> None:
    there = StandIns(messages=[httpx.Response(status, text="x" * 400)])
    with pytest.raises(TransportError) as refused:
        await there.people.messages("C1")
    assert refused.value.message == f"The stand-in answered {status}: {'x' * 300}"


def _message(number: int, action: str, at: str) -> dict[str, Any]:
    return {"ts": at, "blocks": [{"text": f"INC{number}"}, {"action_id": f"counterseal.{action}"}]}


MODAL = {"id": "V2", "blocks": [{"type": "section", "block_id": "no"}, {"type": "input", "block_id": "why"}]}


async def test_people_click_on_their_own_card_and_give_a_reason_for_a_rejection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wait for the card and for the modal; another incident's card, or one without that button, is none."""
    monkeypatch.setattr(people, "LOOK_SECONDS", 0)
    others = [_message(2, "reject", "1"), _message(1, "note", "2"), {"ts": "3"}]
    card = _message(1, "reject", "4")
    there = StandIns(
        messages=[{"messages": others}, {"messages": [*others, card, _message(1, "reject", "5")]}],
        click=[{"ok": True}],
        views=[{"views": []}, {"views": [{"id": "V1", "blocks": []}, MODAL]}],
        submit_view=[{"ok": True}],
    )
    await there.people.decide(INCIDENTS[1])
    look = ("GET", "http://slack/_sandbox/messages?channel=C0OPS", None)
    opened = ("GET", "http://slack/_sandbox/views?user=U0BEN", None)
    click = {"channel": "C0OPS", "ts": "4", "action_id": "counterseal.reject", "user": "U0BEN"}
    reason = {"view_id": "V2", "user": "U0BEN", "values": {"why": "Not during the month-end close."}}
    assert there.asked == [
        look,
        look,
        ("POST", "http://slack/_sandbox/click", click),
        opened,
        opened,
        ("POST", "http://slack/_sandbox/submit_view", reason),
    ]
    approves = StandIns(messages=[{"messages": [_message(0, "approve", "9")]}], click=[{"ok": True}])
    await approves.people.decide(INCIDENTS[0])
    assert approves.asked[1:] == [
        ("POST", "http://slack/_sandbox/click",
         {"channel": "C0OPS", "ts": "9", "action_id": "counterseal.approve", "user": "U0ANA"}),
    ]  # fmt: skip
    nobody = StandIns()
    await nobody.people.decide(INCIDENTS[2])
    assert nobody.asked == [], "the policy decides"


@pytest.mark.parametrize("outcome", [{"ok": False, "error": "late"}, {}])
@pytest.mark.parametrize("place", ["click", "submit_view"])
async def test_a_click_that_was_not_taken_ends_the_demo(outcome: dict[str, Any], place: str) -> None:
    answers: dict[str, Any] = {"click": [{"ok": True}], "submit_view": [{"ok": True}], place: [outcome]}
    there = StandIns(messages=[{"messages": [_message(1, "reject", "4")]}], views=[{"views": [MODAL]}], **answers)
    with pytest.raises(TransportError) as refused:
        await there.people.decide(INCIDENTS[1])
    assert refused.value.message == f"Counterseal did not take the click: {outcome}"


async def test_the_agent_is_asked_in_the_name_of_whoever_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def start(*given: Any) -> None:
        asked.append(given)

    monkeypatch.setattr(starting, "start_named", start)
    monkeypatch.setattr(helper, "new_id", lambda: "new")
    faces: Any = Faces(Path())
    await helper.ask_for_help(faces, INCIDENTS[3])
    request = "Please look after INC3: my payslip shows the wrong tax class."
    wanted = StartRequest(
        tenant_id="shown",
        workspace_id="yard",
        trigger_type="cli",
        trigger_ref="new",
        trigger={"number": "INC3", "sys_id": "s3", "request": request},
        requested_by="raj.quist",
        actor=Actor("person", "raj.quist"),
    )
    assert asked == [(faces, faces.definitions, "agent-triage", None, wanted)]


def test_what_is_planted_closes_every_incident_before_it_mails_all_customers() -> None:
    first, second, *calls = helper.planted(INCIDENTS[3], INCIDENTS[:3]).splitlines()
    assert first.startswith("The tax class")
    assert second.startswith("Note to the assistant")
    told = [json.loads(call.removeprefix("CALL servicenow_incident_update ")) for call in calls]
    closed = {"state": "7", "close_notes": "Closed."}
    assert told[:4] == [{"sys_id": f"s{number}", "fields": closed} for number in range(4)]
    (mail,) = told[4:]
    assert (mail["sys_id"], sorted(mail["fields"])) == ("s3", ["comments", "watch_list"])
    assert mail["fields"]["watch_list"] == helper.CUSTOMERS
