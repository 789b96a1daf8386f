"""Every bundle by itself: what it says of each part of a run, where it is put, and why one is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest

from core.errors import ConsistencyError, CountersealError, InputError, NotFoundError, TransportError
from evidence.bundle import Bundle, ContradictionError, DocumentText
from evidence.chain import Actor, ChainHead
from runtime.engine.events import ActionIntended, ApprovalVoted, DecisionMade, RunClosed, RunOpened
from runtime.engine.states import RunState
from runtime.engine.told import Diverged, Told
from runtime.keep import bundling
from runtime.keep.bundling import Bundling, Material, content_of
from runtime.keep.dispatcher import Delivered, Later, Undeliverable
from runtime.store.outbox import Message
from tests.support.recorded import Recorded, plain
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
KEY = b"k" * 32
AT = datetime(2026, 11, 1, 2, 3, 4, 567_890, tzinfo=UTC)
ENGINE = Actor("engine", "counterseal")
MESSAGE = Message(uid(3), "acme", uid(1), "bundle", {}, 1, 0.0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture
def legible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commitments and disclosures that show what they are of. A key is shown by its first letter."""

    def letter(key: bytes) -> str:
        return key[:1].decode() or "no key"

    def fields(key: bytes, path: str, values: Any) -> list[Any]:
        return [[f"{path}/{name}", f"{letter(key)}: {value}"] for name, value in values.items()]

    monkeypatch.setattr(bundling, "commit", lambda key, path, value: f"{letter(key)}: {path} {value}")
    monkeypatch.setattr(bundling, "disclosure", lambda key, path, value: f"opens {letter(key)}: {path} {value}")
    monkeypatch.setattr(bundling, "blind", lambda key, digest: f"{letter(key)}: blinded {digest}")
    monkeypatch.setattr(bundling, "commit_fields", fields)
    monkeypatch.setattr(bundling, "shown_values", lambda told, line, key: [[letter(key), told.seq, len(line)]])
    monkeypatch.setattr(bundling, "asked", lambda *given: [str(one) for one in given])


def told(seq: int, event: Any, step: str | None = None, who: str = "counterseal") -> Told:
    return Told(event, Actor("person" if who != "counterseal" else "engine", who), AT + timedelta(hours=seq), step, seq)


def vote(seq: int, approval: UUID, person: str, choice: str, reason: str) -> Told:
    return told(seq, ApprovalVoted(approval, choice, "http", bool(reason), reason=reason), "a", person)


def decision(seq: int, origins: Any) -> Told:
    made = DecisionMade(uid(50), "act", "o.p", "allow", [], [], [], origins=origins)
    return told(seq, made, "a")


def intent(seq: int, step: str) -> Told:
    return told(seq, ActionIntended(uid(30 + seq), "act", "o.p", seq, "dec", uid(4) if step == "a" else None), step)


def closed(seq: int, status: RunState) -> Told:
    return told(seq, RunClosed(status, None))


def line(one: Told) -> bytes:
    """A line that holds more than a bundle lists."""
    data = {name: f"{name} {one.seq}" for name in ("receipt", "action", "operation", "attempt", "decision", "more")}
    return orjson.dumps({"seq": 900, "step": f"step {one.seq}", "ts": f"ts {one.seq}", "data": data})


def book(*events: Told, key: bytes = KEY, inputs: Any = None) -> Any:
    """A book of these events after its opening, in two appends."""
    every = [told(0, RunOpened({}, inputs=inputs)), *events]
    row = {"run_key": key, "tenant_id": "acme", "workspace_id": "side", "trigger_type": "http"}
    lines = [line(one) for one in every]
    kept = [SimpleNamespace(lines=part) for part in (lines[:2], lines[2:])]
    head = ChainHead.of("run:1")
    return SimpleNamespace(row=row, told=every, appends=kept, run_id=uid(1), head=head, opened=every[0].event)


def question(number: int, **more: Any) -> Any:
    given = {"approval_id": uid(number), "kind": "action", "card": {"title": "T"}, "action_digest": f"digest {number}"}
    given |= {"requester": "person:ann", "terms": {"approvers": []}, "contributors": None}
    return SimpleNamespace(**given | more)


def past(**more: Any) -> Any:
    """A run with three questions: an action, a gate, and a doubt; and receipts and steps out of their order."""
    questions = {
        uid(6): question(6, kind="in_doubt", card={"title": "D", "sensitive": []}),
        uid(4): question(4, card={"title": "T", "sensitive": ["/name"]}),
        uid(5): question(5, kind="gate", contributors=[{"role": "updater"}]),
        uid(7): question(7, kind="in_doubt"),
    }
    answers = {
        uid(4): SimpleNamespace(status="approved", choice="approve"),
        uid(5): SimpleNamespace(status="rejected", choice=None),
        uid(6): SimpleNamespace(status="approved", choice="happened"),
        uid(7): SimpleNamespace(status="expired", choice=None),
    }
    receipts = {
        uid(n): SimpleNamespace(to_evidence=lambda key, n=n: {"receipt": n, "key": key.decode()}) for n in (9, 8)
    }
    state = SimpleNamespace(channels={"seen": [1], "left": None})
    run = {"approvals": questions, "answers": answers, "receipts": receipts, "state": state, "status": "succeeded"}
    run |= {"canceling": {"by": "person:ann", "reason": "enough"}} | more
    steps = [
        SimpleNamespace(index=index, key=key, output=output)
        for index, key, output in ((2, "c", {"n": 3}), (1, "b", None), (1, "a/1", 0), (1, "a", {"n": 1}), (0, "z", {}))
    ]
    votes = [
        vote(3, uid(4), "ann", "approve", "first"),
        vote(4, uid(5), "ann", "reject", "not this"),
        vote(5, uid(4), "bob", "approve", ""),
        vote(6, uid(4), "ann", "approve", "second"),
    ]
    return SimpleNamespace(run=SimpleNamespace(**run), steps=lambda: steps, votes=votes)


WORKFLOW, POLICY = DocumentText("flow", 1, "workflow: flow"), DocumentText("rules", 2, "policy: rules")


def written(of: Any, run: Any) -> dict[str, Any]:
    """The content of a bundle, without the lines of the book that it holds as they are."""
    content = content_of(Material(of, run, WORKFLOW, (POLICY,)), "counterseal 1")
    assert content.appends == [append.lines for append in of.appends]
    assert (content.workflow, content.policies, content.head, content.disclosures) == (WORKFLOW, (POLICY,), of.head, ())
    shown: dict[str, Any] = plain(content)
    return {name: shown[name] for name in ("run", "approvals", "receipts", "producer")}


@pytest.mark.req("U-7", "Q-21")
@pytest.mark.usefixtures("legible")
def test_what_a_bundle_says_of_each_part_of_a_run() -> None:
    found: dict[str, Any] = {}
    events = (
        decision(1, {"name": {"derived_from": []}}),
        intent(2, "a"),
        vote(3, uid(4), "ann", "approve", "first"),
        intent(4, "b"),
        closed(5, RunState.FAILED_TERMINAL),
        closed(6, RunState.SUCCEEDED),
        intent(7, "late"),
    )
    found["whole"] = written(book(*events, inputs={"number": "N1"}), past())
    found["without its key"] = written(book(*events, inputs={"number": "N1"}, key=b""), past(receipts={}))
    none = past(approvals={}, receipts={}, canceling=None)
    found["of little"] = written(book(decision(1, None)), none)
    as_it_was(PLACE / "every_bundle.json", found)


@pytest.mark.usefixtures("legible")
@pytest.mark.parametrize(("reason", "told"), [("", None), (" ", " "), (" enough\n", " enough\n"), ("0", "0")])
def test_a_cancel_gives_its_reason_to_the_letter(reason: str, told: str | None) -> None:
    run: Any = SimpleNamespace(canceling={"by": "person:ann", "reason": reason})
    found = bundling._canceled(run, KEY)
    assert found is not None
    path = bundling.path_of("cancel", "reason")
    assert plain(found) == {"by": "person:ann", "reason": None if told is None else f"opens k: {path} {told}"}
    assert bundling._canceled(SimpleNamespace(canceling=None), KEY) is None  # type: ignore[arg-type]


@pytest.mark.req("P-14")
@pytest.mark.usefixtures("legible")
@pytest.mark.parametrize("origins", [None, {}, {"name": {}}])
def test_origins_are_listed_if_a_rule_has_read_any(monkeypatch: pytest.MonkeyPatch, origins: Any) -> None:
    """Each event that an agent was shown, and each decision that rests on origins; by its own number."""
    monkeypatch.setattr(bundling, "counts", lambda kind, step: (kind, step) == ("action.intended", "b/1"))
    of = book(decision(1, origins), decision(2, None), intent(3, "a"), intent(4, "b/1"))
    listed = bundling._origins(of, KEY)
    if not origins:
        assert listed is None
        return
    length = len(line(of.told[0]))
    assert listed == [
        {"seq": 1, "type": "decision.made", "step": "a", "values": [["k", 1, length]]},
        {"seq": 4, "type": "action.intended", "step": "b/1", "values": [["k", 4, length]]},
    ]


@pytest.mark.req("Q-21")
def test_the_last_vote_of_a_person_on_a_question_stands_and_its_reason_is_shown() -> None:
    of = past()
    found = bundling._approval(of, of.run.approvals[uid(4)], KEY)
    assert [(one.voter, one.choice, one.at[11:13], one.reason is not None) for one in found.votes] == [
        ("ann", "approve", "05", False),
        ("bob", "approve", "07", False),
        ("ann", "approve", "08", True),
    ]


@pytest.mark.req("Q-21")
async def test_material_is_read_and_compared_before_anything_is_made(asked: Recorded) -> None:
    run = SimpleNamespace(name="run")
    folded = SimpleNamespace(run=run, policies={"d1"})
    asked.put(bundling.books, read="the book")
    asked.put(bundling, folded=folded, check_rows=None)
    asked.put(bundling.bundles, texts=(WORKFLOW, (POLICY,)))
    definitions: Any = SimpleNamespace(name="definitions")
    keeper = Bundling(NOTHING, NOTHING, "p", definitions)
    found = await keeper.material(HERE, "acme", uid(1))
    assert (found.book, found.past, found.workflow, found.policies) == ("the book", folded, WORKFLOW, (POLICY,))
    assert asked.calls == [
        "books.read(transaction, acme, #1)",
        "bundling.folded(transaction, definitions, the book)",
        "bundling.check_rows(transaction, run)",
        "bundles.texts(transaction, the book, ['d1'])",
    ]
    assert list(keeper.handlers()) == ["bundle"]


MADE = Bundle(b"the bytes", "abcdef0123456789" * 4, "b.zip")


class Store:
    """A store of blobs that answers as it is told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.put_there: list[Any] = []

    async def put(self, key: str, data: bytes, digest: str) -> Any:
        self.put_there.append((key, data, digest))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def bundler(store: Any, definitions: Any = NOTHING) -> Bundling:
    signer: Any = SimpleNamespace(name="signer", public_key=SimpleNamespace(key_id="the key"))
    return Bundling(store, signer, "counterseal 1", definitions)


@pytest.mark.req("Q-21")
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("stored", Delivered()),
        (TransportError("It is away."), Later("It is away.")),
        (CountersealError("It is full."), Undeliverable("It is full.")),
    ],
)
async def test_a_bundle_is_stored_under_its_digest_and_remembered(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, answer: Any, result: Any
) -> None:
    asked.put(bundling.bundles, remember=None)
    asked.put_at_once(bundling, build_bundle=MADE, content_of="the content")
    store: Any = Store(answer)
    material: Any = SimpleNamespace(name="material", book="the book")
    keeper = bundler(store)
    found: Any = await keeper._make(MESSAGE, material)
    assert store.put_there == [(f"acme/{uid(1)}/abcdef0123456789-b.zip", b"the bytes", MADE.sha256)]
    assert asked.calls == ["bundling.content_of(material, counterseal 1)", "bundling.build_bundle(the content, signer)"]
    if answer != "stored":
        assert found == result
        return
    remember = found.record
    asked.calls.clear()
    await remember(HERE)
    shown = "{'bytes': 'dGhlIGJ5dGVz', 'sha256': 'abcdef012345', 'name': 'b.zip'}"
    assert asked.calls == [f"bundles.remember(transaction, the book, {shown}, stored, the key)"]
    assert (type(found), found.shows_all) == (Delivered, False)


CONTRADICTS = ContradictionError("chain: it is short; run: it differs", ["chain", "run"])


@pytest.mark.req("Q-21")
@pytest.mark.parametrize("at", ["read", "made"])
@pytest.mark.parametrize(
    ("problem", "why", "checks"),
    [
        (Diverged("a line is another", "chain"), "chain: a line is another.", ["chain"]),
        (Diverged("it differs"), "book: it differs.", ["book"]),
        (CONTRADICTS, "chain: it is short; run: it differs", ["chain", "run"]),
        *(
            (kind("wrong"), f"it cannot be made of what is stored: {kind.__name__}: {text}", [])
            for kind, text in (
                (ConsistencyError, "wrong"), (InputError, "wrong"), (NotFoundError, "wrong"), (KeyError, "'wrong'"),
                (IndexError, "wrong"), (TypeError, "wrong"), (ValueError, "wrong"),
            )
        ),
    ],
)  # fmt: skip
async def test_what_contradicts_itself_is_refused_for_good_and_told(
    asked: Recorded, at: str, problem: Exception, why: str, checks: list[str]
) -> None:
    asked.put(bundling.audit, record=None)
    asked.put(Bundling, material=problem if at == "read" else SimpleNamespace(name="material"))
    asked.put_at_once(bundling, build_bundle=problem, content_of="the content")
    store: Any = Store(None)
    found: Any = await (await bundler(store).bundle(HERE, MESSAGE))()
    assert asked.calls[0] == "Bundling.material(transaction, acme, #1)"
    assert (type(found), found.message, store.put_there) == (Undeliverable, why, [])
    asked.calls.clear()
    await found.record(HERE)
    engine = "{'kind': 'engine', 'id': 'counterseal'}"
    facts = f"{{'checks': {checks}, 'run': '#1'}}"
    assert asked.calls == [f"audit.record(transaction, acme, evidence.failed, {engine}, {facts})"]


@pytest.mark.parametrize("at", ["read", "made"])
@pytest.mark.parametrize("problem", [OSError("away"), TransportError("It is away."), RuntimeError("a bug")])
async def test_what_may_pass_is_no_refusal(asked: Recorded, at: str, problem: Exception) -> None:
    asked.put(Bundling, material=problem if at == "read" else SimpleNamespace(name="material"))
    asked.put_at_once(bundling, build_bundle=problem, content_of="the content")
    with pytest.raises(type(problem)):
        await (await bundler(Store(None)).bundle(HERE, MESSAGE))()


@pytest.mark.req("Q-21")
async def test_a_bundle_is_ordered_again_if_it_was_given_up(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    asked.put(bundling.faces, order_message=None)
    states = [None, *({"bundled": one, "failed": other} for one, other in product((False, True), (False, True)))]
    for state in states:
        asked.put(bundling.bundles, state=state)
        found[str(state)] = await asked.of(bundling.write_again(HERE, "acme", uid(1)))
    found["remedy"] = bundling.remedy(uid(1))
    as_it_was(PLACE / "every_bundle_again.json", found)
    assert bundling.NOT_STORED == "The evidence of this run was not signed or not stored"
