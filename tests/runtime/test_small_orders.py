"""Small branches of keepers and requests, each asked for what it comes to by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.ports import NotPosted, Posted, PostInDoubt, PostRefused
from core.errors import AuthorizationError
from core.identity import Directory, Entry
from evidence.chain import Actor
from runtime.engine.commit import Claim
from runtime.keep import messages
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.keep.messages import Messages
from runtime.requests import publishing
from runtime.store.documents import PublishedVersion
from runtime.work.driving import Drive
from runtime.work.holding import Tools
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
