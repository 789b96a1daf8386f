"""Every look at a run by itself: what is read, from which moment, and what is said of what is gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from approvals.model import ApprovalKind
from core.errors import ConsistencyError, InputError, NotFoundError
from policy.sets import PolicySet
from runtime.engine.events import AgentBegan, DecisionMade, RunOpened
from runtime.engine.graph import ChildNode
from runtime.engine.replaying import Divergence
from runtime.engine.told import Diverged
from runtime.requests import handing, inheriting, looking, replaying, sharing
from runtime.requests.looking import Looking, ReplayReport, Seen
from tests.support.recorded import Connected, Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
AT = datetime(2026, 11, 1, 2, 3, 4, 567_890, tzinfo=UTC)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def book(*, purged: bool = False, **row: Any) -> Any:
    """A book of one event."""
    named = {"run_key": b"k", "superstep": 7, "tenant_id": "acme", "workflow": "flow", "workflow_version": 3} | row
    opened = RunOpened({}, inputs={"number": "N1"}, reference="ref", requested_by="person:ann", trigger="http")
    told = [SimpleNamespace(name="opening", event=opened, at=AT, step=None)]
    return SimpleNamespace(name="book", run_id=uid(1), row=named, told=told, purged=purged, opened=opened)


def definitions(asked: Recorded, **more: Any) -> Any:
    editions = [SimpleNamespace(name=f"edition {number}", graph=f"graph {number}") for number in (1, 2)]
    verbs = {"editions": asked.verb("editions", editions), "of_run": asked.verb("of_run", "workflow")} | more
    return SimpleNamespace(name="definitions", graphs="graphs", **verbs)


@pytest.mark.req("P-9")
async def test_a_book_is_folded_from_before_its_first_event_and_compared_with_its_row(asked: Recorded) -> None:
    past = SimpleNamespace(name="past", run="the run")
    asked.put_at_once(looking, unopened="before", past_of=past)
    asked.put(looking.books, aside=lambda size, fold: fold())
    asked.put_at_once(looking.books, check_row=None)
    assert await looking.folded(HERE, definitions(asked), book(), {3}) is past
    graphs = "['graph 1', 'graph 2']"
    assert [call for call in asked.calls if "aside" not in call] == [
        "editions(transaction, book)",
        "looking.unopened(#1, aw==, graph 1)",
        f"looking.past_of(before, ['opening'], {graphs}, [3])",
        "books.check_row(book, the run)",
    ]
    assert [call[:14] for call in asked.calls if "aside" in call] == ["books.aside(1,"]


SHOWN = {
    "step_rows": [{"step": "a"}],
    "receipt_rows": [{"receipt": 1}],
    "stories": [{"agent": "x"}],
}


@pytest.mark.req("X-5")
@pytest.mark.parametrize("purged", [False, True])
async def test_all_there_is_to_see_of_a_run_is_shown(asked: Recorded, purged: bool) -> None:
    state = SimpleNamespace(channels={"seen": [1]})
    run = SimpleNamespace(superstep=9, state=state)
    past = SimpleNamespace(name="past", run=run, extensions=[{"number": 1}], checkpoints=[{"superstep": 3}])
    asked.put(looking.books, read=book(purged=purged))
    asked.put(looking.retention, remains=([{"step": "left"}], [{"receipt": "left"}], [{"number": "left"}]))
    asked.put(looking, folded=past)
    asked.put_at_once(looking, **SHOWN)
    found = await looking.seen(HERE, definitions(asked), "acme", uid(1), {3})
    read = "books.read(transaction, acme, #1)"
    if purged:
        left: list[Sequence[Any]] = [[{"step": "left"}], [{"receipt": "left"}], [{"number": "left"}]]
        assert found == Seen(*left, checkpoints=(), last=7, purged=True)
        assert asked.calls == [read, "retention.remains(transaction, #1)"]
        return
    assert found == Seen(
        [{"step": "a"}],
        [{"receipt": 1}],
        [{"number": 1}],
        [{"superstep": 3}],
        9,
        False,
        {"seen": [1]},
        [{"agent": "x"}],
    )
    assert asked.calls == [
        read,
        "looking.folded(transaction, definitions, book, [3])",
        "looking.step_rows(past)",
        "looking.receipt_rows(past)",
        "looking.stories(past, ['opening'])",
    ]


def test_steps_that_failed_for_good_and_late_answers_are_counted_and_told() -> None:
    steps = [{"status": status} for status in ("failed_terminal", "succeeded", "failed_terminal", "failed_terminal")]
    receipts: Any = [
        {"step_key": "a", "late": [{"says": "it happened"}, {"says": "it failed"}]},
        {"step_key": "b", "late": []},
        {"step_key": "c", "late": [{"says": "so it was"}]},
    ]
    found = Seen(steps, receipts, (), (), 3)
    assert (found.handled, found.late) == (3, ["a: it happened", "a: it failed", "c: so it was"])


@pytest.mark.parametrize(
    ("kind", "consumed", "row"),
    [
        (ApprovalKind.ACTION, True, 3),
        (ApprovalKind.ACTION, False, None),
        (ApprovalKind.IN_DOUBT, True, 3),
        (ApprovalKind.IN_DOUBT, False, 3),
        (ApprovalKind.GATE, True, None),
        (ApprovalKind.GATE, False, None),
    ],
)
async def test_the_receipt_of_what_was_asked_is_the_last_one_of_its_action(
    asked: Recorded, kind: ApprovalKind, consumed: bool, row: int | None
) -> None:
    places = [("s", "d"), ("t", "d"), ("s", "e"), ("s", "d"), ("t", "d"), ("s", "e")]
    rows = [{"step_key": step, "action_digest": digest, "n": n} for n, (step, digest) in enumerate(places)]
    asked.put(looking, seen=SimpleNamespace(receipts=rows))
    approval = SimpleNamespace(tenant_id="acme", run_id=uid(1), step_key="s", action_digest="d", kind=kind)
    stored: Any = SimpleNamespace(approval=approval, consumed=consumed)
    found = await looking.receipt_of(HERE, definitions(asked), stored)
    assert (found and found["n"]) == row
    assert asked.calls == ([] if row is None else ["looking.seen(transaction, definitions, acme, #1)"])
    stored.approval.action_digest = "none"
    assert await looking.receipt_of(HERE, definitions(asked), stored) is None


@pytest.mark.req("X-5")
async def test_what_faces_ask_of_a_run_is_read_for_its_tenant(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    database: Any = Connected()
    looks = Looking(database, definitions(asked))
    rows = [{"superstep": 3, "state": "third"}, {"superstep": 5, "state": "fifth"}]
    seen = {"there": Seen((), (), (), rows, 9), "purged": Seen((), (), (), (), 9, purged=True)}
    for (name, run), numbers in product(seen.items(), ((), (5, 3), (3, 4))):
        asked.put(looking, seen=run)
        found[f"checkpoints {numbers}, {name}"] = await asked.of(looks.checkpoints("acme", uid(1), *numbers))
    for purged in (False, True):
        asked.put(looking.books, read=book(purged=purged))
        name = "purged" if purged else "there"
        found[f"trigger, {name}"] = await asked.of(looks.trigger("acme", uid(1)))
        found[f"editions, {name}"] = (await asked.of(looks.editions("acme", uid(1))))[:-1]
        if purged:
            found["editions of what is gone"] = (await asked.of(looks.editions("acme", uid(1))))[-1:]
    nothing = book()
    nothing.opened = RunOpened({}, inputs=None)
    asked.put(looking.books, read=nothing, lines=[b"one", b"two", b"three"])
    found["no trigger"] = (await asked.of(looks.trigger("acme", uid(1))))[-1:]
    found["lines"] = await asked.of(looks.lines("acme", uid(1)))
    told = [{"wait": str(uid(8))}, {"wait": str(uid(1))}, {"wait": str(uid(8))}, {"more": {"wait": str(uid(3))}}, {}]
    asked.put(looking.books, lines=[orjson.dumps({"data": one}) for one in told])
    asked.put(looking.journal, opened={uid(1): 4})
    found["waits"] = await asked.of(looks.waits("acme", uid(1)))
    as_it_was(PLACE / "every_look.json", found)


class Replayed(Recorded):
    """A run that is derived again: so many checkpoints, and then an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **fails: Exception) -> None:
        super().__init__(monkeypatch)
        row = {"purged_at": None, "status": "succeeded"}
        self.connection = SimpleNamespace(execute=self.verb("execute"))
        self.put(looking.books, fetch=row, checked=fails.get("checked", "the book"))
        self.put_at_once(looking.books, check_row=fails.get("row"))
        self.put(looking, again=SimpleNamespace(name="replay", first="the run"), check_rows=fails.get("rows"))

        def replay(_: Any) -> Any:
            yield from range(3)
            if (error := fails.get("replay")) is not None:
                raise error

        monkeypatch.setattr(looking, "replay", replay)

    def looks(self) -> Looking:
        @asynccontextmanager
        async def transaction(tenant: str) -> Any:
            self.calls.append(f"transaction of {tenant}")
            yield self.connection

        database: Any = SimpleNamespace(transaction=transaction)
        return Looking(database, definitions(self))


@pytest.mark.req("P-9")
@pytest.mark.parametrize(
    ("fails", "equal", "difference"),
    [
        ({}, 3, None),
        ({"checked": Diverged("a line is another", "chain")}, 0, "a line is another."),
        ({"replay": Divergence("line 4", "it is another")}, 3, "At line 4: it is another."),
        ({"row": Diverged("the row differs", "run")}, 3, "the row differs."),
        ({"rows": Diverged("a wait differs", "rows")}, 3, "a wait differs."),
    ],
)
async def test_a_replay_says_how_far_all_is_equal(
    monkeypatch: pytest.MonkeyPatch, fails: Any, equal: int, difference: str | None
) -> None:
    asked = Replayed(monkeypatch, **fails)
    report = await asked.looks().replay("acme", uid(1))
    assert report == ReplayReport(uid(1), "succeeded", equal, difference)
    assert report.ok is (difference is None)
    assert asked.calls[:3] == [
        "transaction of acme",
        "execute(SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY)",
        "books.fetch(, acme, #1)",
    ]
    if not fails:
        assert asked.calls[3:] == [
            "books.checked({'purged_at': null, 'status': 'succeeded'})",
            "looking.again(, definitions, the book)",
            "books.check_row(the book, the run)",
            "looking.check_rows(, the run)",
        ]


async def test_nothing_is_derived_of_a_run_whose_payloads_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Replayed(monkeypatch)
    asked.put(looking.books, fetch={"purged_at": AT, "status": "succeeded"})
    report = await asked.looks().replay("acme", uid(1))
    assert (report, report.ok) == (ReplayReport(uid(1), "purged", 0, purged_at=AT), False)


def decided(*digests: str, rules: Any = (), facts: Any = None) -> DecisionMade:
    policies: Any = [{"name": "p", "digest": one} for one in digests]
    return DecisionMade(uid(5), "act", "o.p", "allow", policies, [*rules], [], facts=facts)


@pytest.mark.req("P-9")
async def test_a_run_is_derived_again_by_what_judged_it(asked: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    one = book()
    one.told += [SimpleNamespace(event=decided(*digests)) for digests in (("d1",), ("d3", "d2"), ("d1",))]
    asked.put_at_once(replaying, constants_of="constants", unopened="before")
    asked.put(replaying, _origins="origins")
    known = definitions(asked, policies=asked.verb("policies", lambda _, tenant, which: f"set of {which}"))
    found = await replaying.again(HERE, known, one)
    assert (found.first, found.told, found.graphs, found.constants, found.origins) == (
        "before", one.told, ["graph 1", "graph 2"], "constants", "origins",
    )  # fmt: skip
    judges: Any = found.judge
    assert judges.args == ({("d1",): "set of ('d1',)", ("d3", "d2"): "set of ('d3', 'd2')"}, "flow")
    assert (judges.func, found.writes) == (replaying._judge, replaying.writes_of)
    policies = sorted(call for call in asked.calls if call.startswith("policies"))
    assert policies == ["policies(transaction, acme, ['d1'])", "policies(transaction, acme, ['d3', 'd2'])"]
    assert [call for call in asked.calls if call not in policies] == [
        "editions(transaction, book)",
        "replaying.constants_of({'number': 'N1'}, #1, flow, 3, ref, person:ann, 2026-11-01T02:03:04.567890Z)",
        "replaying.unopened(#1, aw==, graph 1)",
        "replaying._origins(transaction, book, ['edition 1', 'edition 2'], constants)",
    ]


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("who", "since", "at", "starters"),
    [
        ("ann", AT, timedelta(0), ("ann", "x http")),
        ("ann", AT, timedelta(minutes=1), ("ann", "x http")),
        ("ann", AT, timedelta(minutes=1, microseconds=1), ("ann",)),
        ("ann", AT, -timedelta(days=9), ("ann", "x http")),
        ("ann", None, timedelta(0), ("ann",)),
        ("", AT, timedelta(0), ("",)),
        ("x http", AT, timedelta(0), ("x http",)),
    ],
)
async def test_who_started_a_run_is_judged_by_the_people_of_that_time(
    asked: Recorded, who: str, since: datetime | None, at: timedelta, starters: tuple[str, ...]
) -> None:
    """Before the directory of today nobody knows how they stood: then each that it may have been is taken."""
    one = book()
    began: Any = [SimpleNamespace(event=AgentBegan("m", []), step=step) for step in ("b", None)]
    one.told += [*began, SimpleNamespace(event=decided("d1"), step="of no agent")]
    asked.put(replaying.tenants, directory="people")
    asked.put(replaying.documents, directory_since=since)
    asked.put(replaying.journal, of_others="others")
    asked.put_at_once(replaying, starter_of=who, starters_of=lambda trigger: [f"x {trigger}"])
    asked.put_at_once(replaying, wanted=lambda told, step: {("r2", step), ("r1", step)})
    editions: Any = ["editions"]
    found: Any = await replaying._origins(HERE, one, editions, {"constants": 1})
    assert (found.editions, found.constants, found.others) == (["editions"], {"constants": 1}, "others")
    assert found.starters(AT + at) == starters
    reads = [call for call in asked.calls if "wanted" not in call and "starter" not in call]
    assert reads == [
        "tenants.directory(transaction, acme)",
        "documents.directory_since(transaction, acme)",
        "journal.of_others(transaction, #1, [['r1', ''], ['r1', 'b'], ['r2', ''], ['r2', 'b']])",
    ]
    assert "replaying.starter_of(http, person:ann, people)" in asked.calls


@pytest.mark.req("P-9")
def test_a_decision_is_made_again_by_its_own_policies_over_its_own_facts(asked: Recorded) -> None:
    one: Any = SimpleNamespace(name="one", broken=(), policies=("p",))
    broken: Any = SimpleNamespace(name="broken", broken=("b",), policies=("p",))
    rules = [SimpleNamespace(id="r2"), SimpleNamespace(id="r1")]
    asked.put_at_once(replaying, evaluate=SimpleNamespace(outcome="deny", rules=rules))
    sets: Any = {("d1",): one, ("d2",): broken, ("d3",): PolicySet()}
    assert replaying._judge(sets, "flow", decided("d1", facts={"f": 1})) == ("deny", ["r2", "r1"])
    assert replaying._judge(sets, "flow", decided("d1")) == ("deny", ["r2", "r1"])
    for event in (
        decided("d2"),
        decided("d3"),
        decided("d9"),
        decided("d1", "d2"),
        decided("d1", rules=["r1", "cap:writes"]),
        decided("d1", rules=["contributors:two"]),
    ):
        assert replaying._judge(sets, "flow", event) is None
    assert asked.calls == [
        "replaying.evaluate(one, {'f': 1}, o.p, flow)",
        "replaying.evaluate(one, {}, o.p, flow)",
    ]
    assert replaying._judge(sets, "flow", decided("d1", rules=["capped", "the cap:x"])) is not None


@pytest.mark.req("P-14")
@pytest.mark.parametrize(
    ("traced", "wants", "told"), [(False, False, False), (True, False, True), (False, True, True), (True, True, True)]
)
async def test_origins_of_a_result_are_handed_over_if_they_are_wanted(
    asked: Recorded, traced: bool, wants: bool, told: bool
) -> None:
    asked.put(handing, load=SimpleNamespace(name="view", definition="definition"))
    ending: Any = {"run_id": uid(7), "traced": wants}
    asked.put_at_once(handing, result_origins=[])
    assert await handing.origins_of(HERE, definitions(asked), ending, traced=traced) == ([] if told else None)
    asked.calls.clear()
    asked.put_at_once(handing, result_origins=["an origin"])
    found = await handing.origins_of(HERE, definitions(asked), ending, traced=traced)
    assert found == (["an origin"] if told else None)
    reads = ["handing.load(transaction, #7, graphs)", "of_run(transaction, definition)"]
    assert asked.calls == ([*reads, "handing.result_origins(view, workflow)"] if told else [])


@pytest.mark.req("Q-15")
async def test_everybody_who_shares_an_effect_is_woken_each_in_a_transaction_of_its_own(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose run has moved on for good does not keep the others from hearing it."""
    rows = [{"run_id": uid(n), "step_key": f"s{n}", "wait_id": uid(10 + n), "waiting": n != 2} for n in (1, 2, 3, 4)]
    asked.put(sharing.effects, sharing=rows)
    asked.put(sharing, end_wait=True)
    tries: list[str] = []

    async def persistently(attempt: Any) -> Any:
        tries.append(f"try {len(tries)}")
        if len(tries) == 1:
            raise ConsistencyError("It has moved on.")
        return await attempt(len(tries) == 3)

    monkeypatch.setattr(sharing, "persistently", persistently)
    database: Any = Connected()
    assert await sharing.wake(database, definitions(asked), "acme", "key") == 3
    engine = "{}, {'kind': 'engine', 'id': 'counterseal'}"
    assert asked.calls == [
        "effects.sharing(connection, acme, key)",
        f"sharing.end_wait(transaction of acme, definitions, acme, ['#3', 's3', '#13'], {engine}, lock=false)",
        f"sharing.end_wait(transaction of acme, definitions, acme, ['#4', 's4', '#14'], {engine}, lock=true)",
    ]


def child(name: str, version: int | None, *inherit: str) -> Any:
    node = ChildNode.__new__(ChildNode)
    for field, value in {"id": name, "workflow": f"w-{name}", "version": version, "inherit": inherit}.items():
        object.__setattr__(node, field, value)
    return node


@pytest.mark.req("P-8")
@pytest.mark.parametrize(
    ("node", "reads", "words"),
    [
        (child("a", 1, "seen"), True, None),
        (child("a", None, "seen", "none"), False, None),
        (child("a", 1), False, None),
        (child("lost", 1, "none"), True, None),
        (child("a", 1, "seen", "sums"), True, "w-a@1 has no channel 'sums' that is folded by sum"),
        (child("a", 1, "left"), True, "w-a@1 has no channel 'left' that is folded by append"),
        (SimpleNamespace(inherit=("none",), version=1), False, None),
    ],
)
async def test_a_child_that_is_known_has_a_channel_for_each_copy(
    asked: Recorded, node: Any, reads: bool, words: str | None
) -> None:
    """The channel ``seen`` is folded alike in both, ``left`` otherwise, and ``sums`` is not in the child.

    Leaves that nothing is known of come before it, and hide nothing.
    """

    def channels(**reducers: str) -> Any:
        return SimpleNamespace(channels={name: SimpleNamespace(reducer=one) for name, one in reducers.items()})

    def startable(_: Any, tenant: str, name: str, version: int) -> Any:
        if name == "w-lost":
            raise NotFoundError("There is none.")
        return "stored"

    within = SimpleNamespace(graph=channels(seen="append", left="merge", other="sum"))
    asked.put(inheriting.documents, startable_workflow=startable)
    known = definitions(asked, compiled=asked.at_once("compiled", within))
    above = channels(seen="append", left="append", sums="sum", none="append")
    others = [SimpleNamespace(inherit=("none",), version=1), child("b", 1), child("c", None, "none")]
    above.leaves = dict(enumerate([*others, child("lost", 7, "none"), node]))
    workflow: Any = SimpleNamespace(graph=above)
    checking = inheriting.check_children(HERE, known, "acme", workflow)
    if words is None:
        await checking
    else:
        with pytest.raises(InputError) as refused:
            await checking
        assert (refused.value.message, refused.value.where) == (words, "a.inherit")
        assert refused.value.remedy == "Declare it there, or inherit another."
    first, *read = [call for call in asked.calls if "startable" in call]
    assert first == "documents.startable_workflow(transaction, acme, w-lost, 7)"
    assert read == ([f"documents.startable_workflow(transaction, acme, {node.workflow}, 1)"] if reads else [])
