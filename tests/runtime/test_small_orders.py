"""Small branches of keepers and requests, each asked for what it comes to by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from approvals.ports import NotPosted, Posted, PostInDoubt, PostRefused
from core.errors import AuthorizationError
from core.identity import Directory, Entry
from evidence.chain import Actor
from runtime.engine.beginnings import Inherited
from runtime.engine.commit import Claim
from runtime.engine.graph import Reducer
from runtime.engine.instructions import OtherRun, StartRun
from runtime.keep import bundling, messages
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.keep.messages import Messages
from runtime.requests import publishing
from runtime.requests.starting import StartRequest
from runtime.store.documents import PublishedVersion
from runtime.work import other_runs
from runtime.work.driving import Drive
from runtime.work.holding import Tools
from runtime.work.lease import Lease, LostLease
from tests.runtime.test_children import begun, child_of
from tests.support.rows import uid


class Whisper:
    """A messenger that says things to one person, and notes where and to whom."""

    def __init__(self, outcome: Any) -> None:
        self.said: list[tuple[str, str, str]] = []
        self._outcome = outcome

    async def post_ephemeral(self, channel: str, user: str, text: str) -> Any:
        self.said.append((channel, user, text))
        return self._outcome


@pytest.mark.req("O-3")
@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (Posted(None), Delivered()),
        (PostInDoubt("no answer"), Delivered()),  # one that comes twice confuses
        (NotPosted("busy", 7.0), Later("busy", 7.0)),
        (PostRefused("gone", "The person is gone."), Undeliverable("gone: The person is gone.")),
    ],
)
async def test_an_answer_to_one_person_is_given_once(outcome: Any, result: Any) -> None:
    whisper = Whisper(outcome)
    handlers: Any = Messages(whisper, "C1", None)
    assert await handlers._note(("U1", "No."), "C9") == result
    assert await handlers._note(("U1", "No.")) == result
    assert await handlers._note(("", "No.")) == Delivered()
    assert whisper.said == [("C9", "U1", "No."), ("C1", "U1", "No.")]


@pytest.mark.req("O-3")
@pytest.mark.parametrize(
    ("principals", "user"),
    [(("slack:U1",), "U1"), (("slack:T1/U1",), "U1"), (("os:ann", "slack:T1/U2"), "U2"), ((), "")],
)
async def test_whoever_proposed_is_told_under_the_account_alone(
    monkeypatch: pytest.MonkeyPatch, principals: tuple[str, ...], user: str
) -> None:
    async def directory(*_: Any) -> Directory:
        return Directory.of("d", [Entry("ann", "Ann", principals=principals)])

    monkeypatch.setattr(messages.tenants, "directory", directory)
    message = SimpleNamespace(tenant_id="acme", payload={"person": "ann", "text": "nobody can be asked."})
    handlers: Any = Messages(Whisper(None), "C1", None)
    assert await handlers._unasked(None, message) == (user, "Ann, nobody can be asked.")


@pytest.mark.parametrize(
    ("versions", "owner"),
    [([(1, "ann", 1), (2, "bob", 2)], "ann"), ([(2, "ann", 1), (1, "bob", 2)], "ann"), ([], "bob")],
)
async def test_a_name_belongs_to_whoever_published_it_first(
    monkeypatch: pytest.MonkeyPatch, versions: list[tuple[int, str, int]], owner: str
) -> None:
    """First by the time, and not by the number."""

    async def published(*_: Any) -> list[PublishedVersion]:
        at = {day: datetime(2026, 11, day, tzinfo=UTC) for _, _, day in versions}
        return [PublishedVersion("w", number, "d", by, at[day], None, (), ()) for number, by, day in versions]

    monkeypatch.setattr(publishing.documents, "workflow_versions", published)
    verb: Any = publishing._check_owner
    refused = []
    for person in ("ann", "bob"):
        try:
            await verb(None, "acme", "w", Actor("person", person))
        except AuthorizationError:
            refused.append(person)
    assert refused == [person for person in ("ann", "bob") if versions and person != owner]


@pytest.mark.req("Q-10")
async def test_the_lease_of_a_run_within_is_beaten_with_that_of_the_run_above(runtime: Any) -> None:
    tools = Tools(runtime.database, runtime.definitions, runtime.connectors, "w", timedelta(seconds=30))
    above, within = Drive(tools), Drive(tools)
    claims = [Claim("a", uid(1), 1), Claim("b", uid(2), 1)]
    for number, drive in enumerate((above, within)):
        held: Any = SimpleNamespace(view=SimpleNamespace(run_id=uid(number)), claim=claims[number])
        drive._holding.hold = held
    assert above.leased == [(uid(0), claims[0])]
    above._within = within
    assert above.leased == [(uid(0), claims[0]), (uid(1), claims[1])]
    above._holding.hold = None
    assert above.leased == [(uid(1), claims[1])]


@pytest.mark.req("P-8")
async def test_the_end_of_a_run_within_that_its_parent_has_seen_itself_is_kept_no_longer(runtime: Any) -> None:
    run_id = await begun(runtime)
    await runtime.errands()
    (notice,) = await runtime.books.notices()
    assert (notice.id, notice.processed) == (str((await child_of(runtime)).id), True)
    assert notice.result == {"code": "already_ended", "run": str(run_id), "step": "child"}


@pytest.mark.req("Q-10")
@pytest.mark.parametrize(
    ("claim", "ours", "given_up", "until"),
    [
        (Claim("a", uid(1), 1), True, False, 130.0),
        (Claim("a", uid(1), 1), False, False, 0.0),
        (Claim("a", uid(9), 1), True, False, 110.0),
        (Claim("a", uid(1), 2), False, False, 110.0),
        (Claim("b", uid(1), 1), False, False, 110.0),
    ],
)
def test_a_lease_that_was_beaten_lasts_from_when_the_beat_began(
    claim: Claim, ours: bool, given_up: bool, until: float
) -> None:
    """The answer may come much later. An answer about a lease that was held before says nothing of this one."""
    drive = bare_drive()
    drive._holding.lease.until = 110.0
    held: Any = SimpleNamespace(view=SimpleNamespace(run_id=uid(0)), claim=Claim("a", uid(1), 1))
    drive._holding.hold = held
    assert drive.beaten(claim, 100.0, ours=ours) is given_up
    assert drive._holding.lease.until == until


def bare_drive() -> Drive:
    tools: Any = SimpleNamespace(lease=timedelta(seconds=30))
    return Drive(tools)


@pytest.mark.req("Q-9")
async def test_a_call_is_given_up_when_its_lease_is_lost_and_none_begins_when_it_may_be_over() -> None:
    lease = Lease(timedelta(seconds=30))

    async def hangs() -> None:
        assert lease.lost()
        await asyncio.sleep(60)

    async def answers() -> int:
        return 7

    with pytest.raises(LostLease):
        await lease.call(answers)
    lease.renewed(Lease.now())
    assert await lease.call(answers) == 7
    assert not lease.lost(), "nothing is called any more"
    lease.renewed(Lease.now())
    with pytest.raises(LostLease):
        await lease.call(hangs)
    lease.renewed(Lease.now() - 30)
    with pytest.raises(LostLease):
        await lease.call(answers)


@pytest.mark.req("X-13")
@pytest.mark.parametrize("origins", [{"trigger": []}, {}, None])
@pytest.mark.parametrize("version", [3, 1, None])
@pytest.mark.parametrize(("waits", "again", "ref"), [(True, 0, "a"), (False, 0, "a"), (True, 2, "a#2")])
async def test_another_run_is_started_with_all_that_the_step_gives_it(
    monkeypatch: pytest.MonkeyPatch, waits: bool, again: int, ref: str, version: int | None, origins: Any
) -> None:
    """No origins are wanted if there are none; if they are empty, they are wanted."""
    asked: list[Any] = []

    async def start(_: Any, definitions: Any, name: str, version: int | None, request: Any) -> None:
        asked.append((definitions, name, version, request))

    async def looked(_: Any, work: Any, definitions: Any) -> OtherRun:
        return OtherRun("waiting")

    monkeypatch.setattr(other_runs, "start_named", start)
    monkeypatch.setattr(other_runs, "look", looked)
    step: Any = SimpleNamespace(key="a", again=again)
    inherited = {"seen": Inherited([1], Reducer.APPEND)}
    shaped = ("form_filler a person:ben",)
    work = StartRun(step, uid(2), "other", version, {"who": "x"}, waits, shaped, inherited, origins)
    view: Any = SimpleNamespace(
        run_id=uid(1), tenant_id="acme", workspace_id="two", depth=4, run=SimpleNamespace(requested_by="ann")
    )
    database: Any = SimpleNamespace(transaction=nothing)
    definitions: Any = "the definitions"
    assert await other_runs.start_other(database, definitions, view, work) == OtherRun("waiting")
    request = StartRequest(
        tenant_id="acme",
        workspace_id="two",
        trigger_type="workflow",
        trigger_ref=f"{uid(1)}:{ref}",
        trigger={"who": "x"},
        requested_by="ann",
        actor=Actor("run", str(uid(1))),
        run_id=uid(2),
        parent=uid(1) if waits else None,
        depth=5,
        shaped=shaped,
        inherited=inherited,
        origins=origins,
    )
    assert asked == [("the definitions", "other", version, request)]


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield None


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("reason", ["", "enough"])
def test_a_bundle_discloses_the_reason_of_a_cancel_if_there_is_one(reason: str) -> None:
    run: Any = SimpleNamespace(canceling={"by": "person:ann", "reason": reason})
    told = bundling._canceled(run, b"k" * 32)
    assert told is not None
    assert told.by == "person:ann"
    assert (told.reason is not None) is bool(reason)
    assert bundling._canceled(cast("Any", SimpleNamespace(canceling=None)), b"k" * 32) is None
