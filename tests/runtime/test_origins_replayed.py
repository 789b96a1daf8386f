"""Replay finds anew where values come from: a book that says otherwise is no book of what happened (promise 5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import pytest
from msgspec.structs import replace

from core.origins.matching import Matcher
from runtime.engine.model.events import AgentBegan, DecisionMade
from runtime.engine.replay.replay import Divergence, Replay, replay
from runtime.requests.publishing import publish_directory
from runtime.requests.replaying import again
from runtime.requests.views import RunReader
from runtime.store import books, documents
from tests.support.agents import Agents, calls, says
from tests.support.runtime_agent_origins import OWN, apply, go, read
from tests.support.runtime_origins import ACT, HEAD, started, world

pytestmark = [pytest.mark.req("P-14"), pytest.mark.req("P-9")]
OTHERS = "other origins than its values have"
READER = HEAD % "w" + (
    'steps:\n  - {id: r, do: probe.value.read, with: {name: r, value: "${{ trigger.other }}"}}\n'
    + ACT % "${{ trigger.name }}${{ steps.r.output.value }}"
)
Change: TypeAlias = Callable[[Any], Any]


async def book_of(runtime: Any, run: UUID) -> Replay:
    async with runtime.faces.transaction("acme") as connection:
        return await again(connection, runtime.definitions, await books.read(connection, "acme", run))


def altered(book: Replay, kind: type, change: Change, step: str = "") -> Replay:
    """The book with the last event of this kind changed, as somebody with the run's key could do it."""
    told = [*book.events]
    at = [n for n, one in enumerate(told) if isinstance(one.event, kind) and (one.step or "").startswith(step)][-1]
    told[at] = replace(told[at], event=change(told[at].event))
    return replace(book, events=told)


def lies(event: Any) -> Any:
    """The decision with the name as the requester's, in its origins and in its facts."""
    arguments = {**event.origins["arguments"]}
    arguments["name"] = {**arguments["name"], "origins": [["requester"]]}
    facts = {**event.facts, "origin.name": [["requester"]]}
    return replace(event, origins={**event.origins, "arguments": arguments}, facts=facts)


def facts(**changed: Any) -> Change:
    return lambda event: replace(event, facts={**event.facts, **{k.replace("__", "."): v for k, v in changed.items()}})


ALTERED: dict[str, tuple[Change, str]] = {
    "where a value comes from": (lies, OTHERS),
    "the facts alone": (facts(origin__name=[["requester"]]), OTHERS),
    "the digest of a source": (
        lambda event: replace(event, origins={**event.origins, "shown": "0" * 64, "arguments": {}}), OTHERS,
    ),
    "no origins": (lambda event: replace(event, origins=None), "origins that nobody has found"),
    "a matcher of the future": (
        lambda event: replace(event, origins={**event.origins, "matcher": 9}), "origins that nobody has found",
    ),
    "a matcher that is none": (
        lambda event: replace(event, origins={**event.origins, "matcher": 0}), "origins that nobody has found",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ALTERED)
async def test_an_altered_origin_of_a_step_is_found(runtime: Any, what: str) -> None:
    change, words = ALTERED[what]
    await world(runtime, READER)
    run = await started(runtime, "w")
    await runtime.worker().work_off()
    book = await book_of(runtime, run)
    with pytest.raises(Divergence, match=f"decision.made of act.: was judged by {words}"):
        list(replay(altered(book, DecisionMade, change, "act")))


@pytest.mark.parametrize("what", ALTERED)
async def test_an_altered_origin_of_an_agents_call_is_found(agents: Agents, what: str) -> None:
    change, words = ALTERED[what]
    run = await go(agents, calls(read("alpha")), calls(apply("beta")), says("Done."))
    book = await book_of(agents.runtime, run)
    with pytest.raises(Divergence, match=f"decision.made of triage/2/1.: was judged by {words}"):
        list(replay(altered(book, DecisionMade, change, "triage/2/1")))


async def test_a_call_without_any_origins_is_found(agents: Agents) -> None:
    run = await go(agents, calls(read("alpha")), says("Done."))
    book = await book_of(agents.runtime, run)
    bare = altered(book, DecisionMade, lambda event: replace(event, origins=None), "triage/1/1")
    with pytest.raises(Divergence, match=r"triage/1/1\): was judged without the origins"):
        list(replay(bare))


async def test_other_results_than_its_model_had_seen_are_found(agents: Agents) -> None:
    policy = OWN.replace("in o)\n    outcome: allow", "in o) && agent.read == []\n    outcome: allow")
    run = await go(agents, calls(read("alpha")), calls(apply("beta")), says("Done."), policy=policy)
    book = await book_of(agents.runtime, run)
    unread = altered(book, DecisionMade, facts(agent__read=[]), "triage/2/1")
    with pytest.raises(Divergence, match="other results than its model had seen"):
        list(replay(replace(unread, judge=lambda _: None)))


async def test_other_sources_of_its_first_messages_are_found(agents: Agents) -> None:
    """Else whoever alters them launders all that follows."""
    run = await go(agents, calls(apply("alpha")), says("Done."), text="Set it.")
    book = await book_of(agents.runtime, run)

    def given(event: AgentBegan) -> AgentBegan:
        return replace(event, sources=[{**one, "origin": "requester"} for one in event.sources or []])

    with pytest.raises(Divergence, match=r"agent.began of triage\): began with other sources"):
        list(replay(altered(book, AgentBegan, given)))


@pytest.mark.tampers
async def test_origins_that_a_process_made_up_are_told_by_replay(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that matches otherwise than it says writes a book that is sound, and wrong."""
    with monkeypatch.context() as patched:
        patched.setattr(Matcher, "origins", lambda *_, **__: [["requester"]])
        run = await go(agents, calls(apply("evil")), says("Done."))
    assert await agents.runtime.status(run) == "succeeded", "it was let out"
    report = await RunReader(agents.runtime.faces, agents.runtime.definitions).replay("acme", run)
    assert not report.ok
    assert report.difference is not None
    assert f"decision.made of triage/1/1): was judged by {OTHERS}." in report.difference


PEOPLE = """
directory: people
version: 1
people:
  - {id: ada, name: Ada}
  - {id: lee, name: Lee}
%s
groups: {leads: [lee]}
"""
MACHINE = PEOPLE.replace("  - {id: ada, name: Ada}\n", "") % "service_accounts: [{id: ada, name: Ada, owner: lee}]"


async def test_people_who_changed_since_are_taken_for_what_they_may_have_been(runtime: Any) -> None:
    """Past people are not stored. If they changed, whoever has started the run may have been a machine."""
    await world(runtime, HEAD % "w" + "steps:\n" + ACT % "${{ trigger.name }}")
    run = await started(runtime, "w")
    await runtime.worker().work_off()
    for text in (PEOPLE % "", MACHINE):
        before = datetime.now(UTC) - timedelta(days=1)
        async with runtime.faces.transaction("acme") as connection:
            await publish_directory(connection, "acme", text, "people.yaml", runtime.actor)
        book = await book_of(runtime, run)
        assert book.origins is not None
        today = "requester" if text is not MACHINE else "trigger:http"
        assert {*book.origins.starters(before)} == {"requester", "trigger:http"}
        assert [*book.origins.starters(before + timedelta(days=2))] == [today]
        # A worker that had read the people of before may append for a minute.
        async with runtime.faces.transaction("acme") as connection:
            since = await documents.directory_since(connection, "acme")
        assert since is not None
        for spent, sure in ((0, False), (60, False), (60.000001, True)):
            starters = book.origins.starters(since + timedelta(seconds=spent))
            assert starters[0] == today
            assert {*starters} == ({today} if sure else {"requester", "trigger:http"}), spent
        list(replay(book))
