"""Appends of a book as the store reads them: of a type, of a step, of other agents, and what models have used."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from core.grouping import WRITERS
from evidence.events import EventType
from runtime.engine.commit import Commit
from runtime.store import journal
from runtime.store.commits import apply
from runtime.store.journal import Append, appends
from runtime.work import chats, committing
from runtime.work.chats import Chats
from tests.support.asked import Asked, Row
from tests.support.rows import uid

RUN, KEY = uid(1), b"k"
NOTHING: Any = None


class Told:
    """Stands in for reading a line: its number, its step and its type, as they are written into it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checked: list[Any] = []
        self.read: list[Any] = []
        monkeypatch.setattr(journal, "check_stored", lambda *given: self.checked.append(given))
        monkeypatch.setattr(journal, "unpack_values", lambda stored: {1: {"from": stored}} if stored else {})
        monkeypatch.setattr(journal, "read_line", self._read)

    def _read(self, line: bytes, values: Any, key: bytes, place: int = -1, *, verify: bool = True) -> Any:
        self.read.append((line, values, key, place, verify))
        said = orjson.loads(line)
        return SimpleNamespace(step=said.get("step"), event=SimpleNamespace(TYPE=EventType(said["type"])), place=place)


def line(kind: str, step: str | None = None, **more: Any) -> bytes:
    return orjson.dumps({"type": kind, **({"step": step} if step else {}), **more})


def test_the_columns_of_the_rows_are_appends_line_by_line() -> None:
    found = appends([0, 2], [b"a\nb", b"c"], [b"v", None])
    assert found == [Append(0, [b"a", b"b"], b"v"), Append(2, [b"c"], None)]
    with pytest.raises(ValueError, match="shorter"):
        appends([0, 2], [b"a"], [None, None])


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("each", [False, True])
def test_each_line_is_read_at_its_place_with_its_own_values(monkeypatch: pytest.MonkeyPatch, each: bool) -> None:
    told, lines = Told(monkeypatch), [line("step.started"), line("step.succeeded")]
    found = Append(5, lines, b"v")
    read: list[Any] = [*found.told(KEY, each=each)]
    assert [one.place for one in read] == [5, 6]
    assert told.read == [(lines[0], {}, KEY, 5, each), (lines[1], {"from": b"v"}, KEY, 6, each)]
    assert told.checked == [(lines[1], b"v", KEY)], "what is stored is compared once, with the last line"


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("stored", [None, b""])
def test_values_that_are_gone_are_compared_as_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch, stored: bytes | None, each: bool
) -> None:
    told, lines = Told(monkeypatch), [line("step.started"), line("step.succeeded")]
    assert len([*Append(0, lines, stored).told(KEY, each=each)]) == 2
    assert told.checked == [(lines[1], stored, KEY)]


async def test_events_of_a_type_are_those_of_that_type_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch)
    lines = b"\n".join([line("run.extended"), line("step.started")])
    connection: Any = Asked([Row(n=4, first_seq=7, lines=lines, vals=None)])
    found: list[Any] = await journal.of_type(connection, RUN, KEY, EventType.RUN_EXTENDED)
    assert [one.place for one in found] == [7]
    assert connection.told == [(journal._WITH, RUN, b'"type":"run.extended"', 0)]
    two = b"\n".join([line("run.extended"), line("step.started"), line("run.extended")])
    rows = [Row(n=9, first_seq=20, lines=two, vals=None), Row(n=8, first_seq=30, lines=line("run.extended"), vals=None)]
    several: Any = Asked(rows)
    found = await journal.of_type(several, RUN, KEY, EventType.RUN_EXTENDED)
    assert [one.place for one in found] == [20, 22, 30]


@pytest.mark.parametrize("there", [True, False])
async def test_events_of_a_step_are_its_own_and_those_within_it(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    Told(monkeypatch)
    steps = ["agent", "agent/1", "agent/1/a", "agents", "other", None]
    rows = [
        Row(n=4, first_seq=10, lines=b"\n".join(line("step.started", key) for key in steps), vals=None),
        Row(n=9, first_seq=20, lines=line("step.started", "agent"), vals=None),
    ]
    connection: Any = Asked(rows if there else [])
    read: Any = await journal.of_step(connection, RUN, KEY, "agent", after=3)
    last, found = read
    assert connection.told == [(journal._WITH, RUN, b'"step":"agent', 3)]
    assert (last, [one.place for one in found]) == ((9, [10, 11, 12, 20]) if there else (3, []))


@pytest.mark.parametrize("names", [["agents"], ["agent"], ["agents", "agent/1"], ["agent", "agents"]])
async def test_what_was_read_of_a_step_is_read_whether_it_was_its_own_or_not(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    Told(monkeypatch)
    rows = [
        Row(n=number, first_seq=number, lines=line("step.started", name), vals=None)
        for number, name in enumerate(names, start=5)
    ]
    connection: Any = Asked(rows)
    read: Any = await journal.of_step(connection, RUN, KEY, "agent", after=3)
    own = [number for number, name in enumerate(names, start=5) if name != "agents"]
    assert (read[0], [one.place for one in read[1]]) == (4 + len(names), own)


async def test_other_agents_are_heard_as_far_as_their_runs_are_above_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def of_step(connection: Any, run_id: Any, key: bytes, step: str) -> Any:
        asked.append((run_id, key, step))
        return 9, [f"told of {step}"]

    monkeypatch.setattr(journal, "of_step", of_step)
    above = [Row(run_id=uid(1), run_key=b"one"), Row(run_id=uid(2), run_key=None)]
    connection: Any = Asked(above)
    wanted = [(str(uid(1)), "a"), (str(uid(2)), "b"), (str(uid(3)), "c")]
    found: Any = await journal.of_others(connection, RUN, wanted)
    assert found == {(str(uid(1)), "a"): ["told of a"]}
    assert (asked, connection.told) == ([(uid(1), b"one", "a")], [(journal._ABOVE, RUN)])
    alone: Any = Asked(above)
    one: Any = await journal.of_others(alone, RUN, wanted[:1])
    assert one == {(str(uid(1)), "a"): ["told of a"]}
    alone = Asked(above)
    assert await journal.of_others(alone, RUN, wanted[1:2]) == {}
    nobody: Any = Asked()
    assert (await journal.of_others(nobody, RUN, []), nobody.told) == ({}, [])


async def test_what_was_used_is_that_of_turns_and_the_calls_that_were_made() -> None:
    usage = {"input_tokens": 1}
    lines = [
        line("step.succeeded", data={"usage": usage}), line("step.failed", data={"usage": {"input_tokens": 2}}),
        line("step.retry_scheduled", data={"usage": {"input_tokens": 3}}), line("step.succeeded", data={"usage": None}),
        line("step.succeeded", data={}), line("step.started", data={"usage": {"input_tokens": 9}}),
        line("agent.answered", data={"calls": [["a", ""], ["b", "refused"], ["c", None]]}),
        line("agent.answered", data={"calls": [["d", ""]]}),
    ]  # fmt: skip
    connection: Any = Asked([Row(lines=b"\n".join(lines[:3])), Row(lines=b"\n".join(lines[3:]))])
    used, calls = await journal.used(connection, RUN)
    assert used == [usage, {"input_tokens": 2}, {"input_tokens": 3}]
    assert (calls, connection.told) == (3, [(journal._USED, RUN)])


async def test_lines_and_openings_are_those_of_the_run() -> None:
    connection: Any = Asked([Row(lines=b"a\nb"), Row(lines=b"c")], [Row(id=uid(5), n=4), Row(id=uid(6), n=7)])
    assert await journal.lines(connection, RUN) == [b"a", b"b", b"c"]
    assert await journal.opened(connection, RUN, [uid(5), uid(6)]) == {uid(5): 4, uid(6): 7}
    assert connection.told == [(journal._LINES, RUN), (journal._OPENED, RUN, [uid(5), uid(6)])]


# -- what a worker keeps of it ---------------------------------------------------------------------------------------


async def test_a_conversation_that_was_read_is_read_on_and_the_oldest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    async def of_step(connection: Any, run_id: Any, key: bytes, agent: str, *, after: int) -> Any:
        asked.append((connection, run_id, key, agent, after))
        return after + 2, [f"{agent} {after + 1}"]

    async def of_others(connection: Any, run_id: Any, wanted: Any) -> Any:
        return ("others", connection, run_id, wanted)

    monkeypatch.setattr(chats, "KEPT_MAX", 2)
    monkeypatch.setattr(journal, "of_step", of_step)
    monkeypatch.setattr(journal, "of_others", of_others)
    monkeypatch.setattr(chats, "wanted", lambda told, agent: ("wanted", told, agent))
    monkeypatch.setattr(chats, "chat_of", lambda *given: given)
    kept, connection = Chats(), NOTHING

    async def read(run: int, agent: str) -> Any:
        found: Any = await kept.read(connection, uid(run), b"k", agent)
        told, name, others, listeners = found
        assert (name, listeners is kept._listeners) == (agent, True)
        assert others == ("others", connection, uid(run), ("wanted", told, agent))
        return told

    assert await read(1, "a") == ("a 1",)
    assert await read(1, "a") == ("a 1", "a 3")
    assert await read(1, "b") == ("b 1",)
    assert await read(1, "a") == ("a 1", "a 3", "a 5")
    assert await read(2, "a") == ("a 1",), "another run's agent is another"
    assert [*kept._read] == [(uid(1), "a"), (uid(2), "a")]
    assert await read(1, "b") == ("b 1",), "it was forgotten, and is read anew"
    assert asked[1] == (connection, uid(1), b"k", "a", 2)
    assert isinstance(kept._read, OrderedDict)


async def test_a_conversation_to_which_nothing_was_added_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    since: list[tuple[int, list[str]]] = [(2, ["one", "two"]), (2, []), (2, []), (3, ["three"])]
    asked: list[int] = []

    async def of_step(*_: Any, after: int) -> Any:
        asked.append(after)
        return since.pop(0)

    async def of_others(*_: Any) -> Any:
        return ()

    monkeypatch.setattr(journal, "of_step", of_step)
    monkeypatch.setattr(journal, "of_others", of_others)
    monkeypatch.setattr(chats, "wanted", lambda told, agent: told)
    monkeypatch.setattr(chats, "chat_of", lambda told, *_: told)
    kept = Chats()
    found: list[Any] = [await kept.read(NOTHING, uid(1), b"k", "a/1/2") for _ in range(4)]
    assert found == [("one", "two")] * 3 + [("one", "two", "three")]
    assert asked == [0, 2, 2, 2]


# -- what goes in one statement --------------------------------------------------------------------------------------


def commit(run: int, lease: int = 30) -> Any:
    return SimpleNamespace(run_id=uid(run), lease=lease, alone=False)


@pytest.mark.parametrize(
    ("item", "taken", "fits"),
    [
        (commit(1), [], True),
        (commit(1), [commit(2)], True),
        (commit(1), [commit(1)], False),
        (commit(1), [commit(2), commit(1)], False),
        (commit(1), [commit(1), commit(2)], False),
        (commit(1, 60), [commit(2)], False),
        (commit(1, 60), [commit(2, 60)], True),
    ],
)
def test_commits_of_different_runs_with_leases_of_one_span_go_together(
    monkeypatch: pytest.MonkeyPatch, item: Any, taken: list[Any], fits: bool
) -> None:
    monkeypatch.setattr(committing, "can_go_together", lambda each: each is item)
    assert committing._fits(item, taken) is fits


def test_a_commit_that_goes_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "can_go_together", lambda _: False)
    assert committing._fits(commit(1), []) is False


async def test_each_of_those_that_went_together_has_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[Commit] = [commit(1), commit(2), commit(3)]
    answers = {uid(3): "three", uid(1): "one"}

    async def together(connection: Any, given: Any) -> Any:
        assert (connection, given) == ("the connection", items)
        return answers

    monkeypatch.setattr(committing, "apply_together", together)
    connection: Any = "the connection"
    found: Any = await committing._together(connection, items)
    assert found == ["one", None, "three"]


def test_a_committer_writes_each_alone_or_several_together() -> None:
    def connection() -> Any:
        """Give no connection."""

    found = committing.committer(connection, writers=3)
    assert (found._connection, found._alone, found._together, found._fits, found._free) == (
        connection, apply, committing._together, committing._fits, 3
    )  # fmt: skip
    assert committing.committer(connection)._free == WRITERS
