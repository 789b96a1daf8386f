"""Questions as the store reads them from the book, page by page; and in which order retention removes things."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from approvals.model import Approval, ApprovalKind, ApprovalStatus, Choice, Vote, VoteChannel
from approvals.ports import MessageRef
from core.canonical import digest
from core.terms import Terms, Tier
from runtime.engine.events import ApprovalRequested
from runtime.engine.run import RunView
from runtime.engine.told import Diverged
from runtime.store import approvals, read_models, retention
from runtime.store.approvals import question
from runtime.store.read_models import FIRST_ID, FIRST_TIME, LAST_ID, LAST_TIME, RunFilter, Statement
from tests.support.asked import Asked, Row
from tests.support.rows import uid

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
ASKED, OTHER = uid(1), uid(2)
TYPE = f'"type":"{ApprovalRequested.TYPE}"'
TERMS = Terms(next(iter(Tier)), ())


def event(approval: Any = ASKED) -> ApprovalRequested:
    values: dict[str, Any] = dict.fromkeys(ApprovalRequested.__struct_fields__)
    values |= {"approval": approval, "kind": "action", "nonce": "n", "terms": TERMS.to_json(), "requester": "ann",
               "digest": "d", "shown": {"the": "card"}, "tier": "peer"}  # fmt: skip
    return ApprovalRequested(**values)


class Lines:
    """Stands in for reading lines: each tells the event that it is given for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: dict[bytes, Any], *, altered: bool = False) -> None:
        self.read: list[Any] = []
        self.checked: list[Any] = []
        self._events, self._altered = events, altered
        monkeypatch.setattr(approvals, "read_line", self._read)
        monkeypatch.setattr(approvals, "check_stored", self._check)

    def _read(self, line: bytes, values: Any, key: bytes, place: int, *, verify: bool) -> Any:
        self.read.append((line, values, key, place, verify))
        return SimpleNamespace(event=self._events[line])

    def _check(self, *given: Any) -> None:
        self.checked.append(given)
        if self._altered:
            raise Diverged("It was altered")


ABOUT = f'{{{TYPE},"data":{{"approval":"{ASKED}"}}}}'.encode()
ELSE = f'{{{TYPE},"data":{{"approval":"{OTHER}"}}}}'.encode()
NAMES_IT = f'{{"type":"wait.opened","data":{{"approval":"{ASKED}"}}}}'.encode()
CITES_IT = f'{{{TYPE},"data":{{"approval":"{OTHER}","replaces":"{ASKED}"}}}}'.encode()


def row(*lines: bytes, kept: Any = None, key: bytes | None = b"k") -> Any:
    asked = b"\n".join(lines) or None
    return Row(kept=kept, run_key=key, asked_at=7, asked=asked, shown=None)


@pytest.mark.req("Q-20")
@pytest.mark.parametrize(("key", "used"), [(b"k", b"k"), (None, b"")])
@pytest.mark.parametrize("kept", [None, {"the": "rest"}])
def test_a_question_is_what_its_own_line_tells(
    monkeypatch: pytest.MonkeyPatch, kept: Any, key: bytes | None, used: bytes
) -> None:
    """Read without a comparison what retention has kept: the values of its append are gone."""
    lines = Lines(monkeypatch, {ABOUT: event(), CITES_IT: event(OTHER)})
    found = question(row(NAMES_IT, ELSE, CITES_IT, ABOUT, kept=kept, key=key), ASKED)
    assert found == event()
    values = kept or {}
    assert lines.read == [(CITES_IT, values, used, 9, False), (ABOUT, values, used, 10, False)]
    assert lines.checked == ([] if kept else [(ABOUT, None, used)])


@pytest.mark.parametrize("lines", [(), (ELSE,), (NAMES_IT,), (CITES_IT,)])
def test_a_question_that_no_line_tells_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, lines: tuple[bytes, ...]
) -> None:
    Lines(monkeypatch, {CITES_IT: event(OTHER)})
    with pytest.raises(Diverged) as caught:
        question(row(*lines), ASKED)
    assert caught.value.check == "approvals"
    assert str(caught.value).startswith(f"The book does not tell what the approval {ASKED} asks.")


def test_a_question_whose_values_were_altered_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(monkeypatch, {ABOUT: event()}, altered=True)
    with pytest.raises(Diverged, match="It was altered"):
        question(row(ABOUT), ASKED)
    assert lines.read == []


VOTE = {"person_id": "bob", "choice": "approve", "reason": "yes", "groups": ["g"], "channel": "cli", "voted_at": "then"}
ITEM = {
    "approval_id": str(ASKED), "tenant_id": "acme", "run_id": str(uid(3)), "step_key": "a", "status": "approved",
    "choice": "approve", "reason": "because", "escalated": True, "consumed_at": "then", "channel": "C1",
    "message_ts": "9.1", "created_at": NOON.isoformat(), "expires_at": LATER.isoformat(),
}  # fmt: skip


def stored(**more: Any) -> Any:
    values = {"approval": {**ITEM, **more.pop("item", {})}, "votes": [{"vote": VOTE, "name": "Bob"}], "now": LATER,
              "workspace_id": "main", "directory_digest": "dir", "paused": {"tenant": {}}, **more}  # fmt: skip
    return approvals._stored(Row(**values), event(), "d", {"the": "card"}, ("shaped",))  # type: ignore[arg-type]


def test_an_approval_has_every_column_in_its_place() -> None:
    found, shaped = stored(), ("shaped",)
    votes = (Vote("bob", "Bob", Choice.APPROVE, "yes", frozenset({"g"}), VoteChannel.CLI, "then", "d"),)
    assert found.approval == Approval(
        id=ASKED, tenant_id="acme", run_id=uid(3), step_key="a", kind=ApprovalKind.ACTION,
        status=ApprovalStatus.APPROVED, action_digest="d", nonce="n", terms=TERMS, requester="ann",
        contributors=shaped, votes=votes, expires_at=LATER, escalated=True,  # type: ignore[arg-type]
    )  # fmt: skip
    assert (found.card, found.choice, found.reason, found.workspace_id) == (
        {"the": "card"}, "approve", "because", "main"
    )  # fmt: skip
    assert (found.consumed, found.now, found.created_at, found.directory_digest) == (True, LATER, NOON, "dir")
    assert (found.message, found.paused) == (MessageRef("C1", "9.1"), {"tenant": {}})
    nothing = {"consumed_at": None, "message_ts": None, "reason": None, "escalated": False}
    bare = stored(item=nothing, votes=None, paused=None)
    assert (bare.consumed, bare.message, bare.paused, bare.approval.votes) == (False, None, {}, ())
    assert (bare.choice, bare.reason, bare.approval.escalated) == ("approve", None, False)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("lock", [True, False])
async def test_what_is_decided_on_is_taken_from_the_run_and_else_from_the_book(
    monkeypatch: pytest.MonkeyPatch, lock: bool, there: bool
) -> None:
    asked: Any = SimpleNamespace(**{name: getattr(event(), name) for name in ("kind", "nonce", "terms", "requester")},
                                 action_digest="of the run")  # fmt: skip
    run = SimpleNamespace(approvals={ASKED: asked} if there else {})
    values: dict[str, Any] = dict.fromkeys(RunView.__struct_fields__)
    view = RunView(**{**values, "version": 12, "kept_at": 3, "run": run})

    async def loaded(*given: Any) -> Any:
        assert given == (connection, found_row, "the graphs")
        return view

    async def read(*given: Any) -> Any:
        assert given == (connection, ASKED)
        return "of the book"

    @asynccontextmanager
    async def within(*given: Any) -> AsyncIterator[Any]:
        assert given == (connection, "acme")
        yield connection

    found_row = Row(approval=ITEM, votes=None, now=LATER, workspace_id="main", directory_digest=None, paused=None)
    connection: Any = Asked(found_row)
    for name, value in (("loaded", loaded), ("read", read), ("within", within)):
        monkeypatch.setattr(approvals, name, value)
    monkeypatch.setattr(approvals, "barred_from", lambda run, row: ("barred",) if row is asked else None)
    graphs: Any = "the graphs"
    found, held = await approvals.read_to_decide(connection, "acme", ASKED, graphs, lock=lock)
    assert connection.told == [(approvals._READ_QUESTION, ASKED, "acme", lock)]
    assert (held.kept_at, held.version) == (12, 12)
    if there:
        told: Any = (found.approval.action_digest, found.approval.contributors, found.card)
        assert told == ("of the run", ("barred",), {})
    else:
        whole: Any = found
        assert whole == "of the book"


# -- pages -----------------------------------------------------------------------------------------------------------


def test_names_in_a_statement_are_numbered_in_their_order() -> None:
    statement = Statement("SELECT :b::text, :a FROM t WHERE x = :b AND y = CAST(:a_c AS text)")
    assert statement.names == ["b", "a", "a_c"]
    assert statement.sql == "SELECT $1::text, $2 FROM t WHERE x = $1 AND y = CAST($3 AS text)"


WANTED = RunFilter("waiting", "w", "ref")
PAGES: list[tuple[Any, tuple[Any, ...], dict[str, Any], Statement, dict[str, Any]]] = [
    (read_models.runs_page, (WANTED, 5), {}, read_models._RUNS,
     {"after_at": LAST_TIME, "after_id": LAST_ID, "status": "waiting", "workflow": "w", "reference": "ref",
      "limit": 5}),
    (read_models.runs_page, (RunFilter(), 5, NOON, uid(9)), {}, read_models._RUNS,
     {"after_at": NOON, "after_id": uid(9), "status": None, "workflow": None, "reference": None, "limit": 5}),
    (read_models.runs_page, (RunFilter("", "", ""), 5), {}, read_models._RUNS,
     {"after_at": LAST_TIME, "after_id": LAST_ID, "status": "", "workflow": "", "reference": "", "limit": 5}),
    (read_models.waits_page, ([uid(1)], 5), {}, read_models._WAITS,
     {"ids": [uid(1)], "after_at": FIRST_TIME, "after_id": FIRST_ID, "limit": 5}),
    (read_models.waits_page, ([uid(2), uid(1)], 5, NOON, uid(9)), {}, read_models._WAITS,
     {"ids": [uid(2), uid(1)], "after_at": NOON, "after_id": uid(9), "limit": 5}),
    (read_models.ledger_page, (uid(1), 5), {}, read_models._LEDGER,
     {"run": uid(1), "after_superstep": -1, "after_number": 0, "limit": 5}),
    (read_models.ledger_page, (uid(1), 5, 3, 4), {}, read_models._LEDGER,
     {"run": uid(1), "after_superstep": 3, "after_number": 4, "limit": 5}),
    (read_models.policy_versions, (), {}, read_models._POLICIES, {}),
    (approvals.approvals_page, (5,), {}, approvals._APPROVALS,
     {"after_at": LAST_TIME, "after_id": LAST_ID, "status": None, "run": None, "limit": 5}),
    (approvals.approvals_page, (5,), {"status": "requested", "run_id": uid(3), "after_at": NOON, "after_id": uid(9)},
     approvals._APPROVALS,
     {"after_at": NOON, "after_id": uid(9), "status": "requested", "run": uid(3), "limit": 5}),
]  # fmt: skip


@pytest.mark.req("V-1")
@pytest.mark.parametrize(("page", "given", "named", "statement", "values"), PAGES)
async def test_a_page_is_asked_for_behind_its_key_with_its_filters(
    page: Any, given: Any, named: Any, statement: Statement, values: Any
) -> None:
    connection = Asked([])
    assert await page(connection, "acme", *given, **named) == []
    every = {"tenant": "acme", **values}
    assert {*statement.names} == {*every}
    assert connection.told == [(statement.sql, *(every[name] for name in statement.names))]


@pytest.mark.parametrize("found", [True, False])
async def test_one_row_is_the_first_or_none(found: bool) -> None:
    rows = [Row(n=1, held="no"), Row(n=2, held="other")] if found else []
    for verb, statement, result in (
        (read_models.run, read_models._RUN, {"n": 1, "held": "no"}),
        (read_models.bundle, read_models._BUNDLE, {"n": 1, "held": "no"}),
        (read_models.start_held, read_models._HELD, "no"),
    ):
        connection: Any = Asked(rows)
        assert await verb(connection, "acme", uid(1)) == (result if found else None)
        values = {"tenant": "acme", "run": uid(1)}
        assert connection.told == [(statement.sql, *(values[name] for name in statement.names))]


@pytest.mark.parametrize(
    ("after", "limit", "seqs"), [(-1, 9, [0, 1, 2, 3]), (0, 9, [1, 2, 3]), (1, 2, [2, 3]), (-1, 2, [0, 1]), (3, 9, [])]
)
async def test_lines_are_those_behind_the_last_that_was_seen(after: int, limit: int, seqs: list[int]) -> None:
    rows = [Row(n=1, first_seq=0, lines=b'{"type":"a"}\n{'), Row(n=4, first_seq=2, lines=b'{"type":"b"}\n[]')]
    connection: Any = Asked(rows)
    found = await read_models.audit_page(connection, "acme", uid(1), limit, after)
    every = [(0, 1, "a", b'{"type":"a"}'), (1, 1, "unreadable", b"{"), (2, 4, "b", b'{"type":"b"}'),
             (3, 4, "unreadable", b"[]")]  # fmt: skip
    assert [(each["seq"], each["append"], each["type"], each["line"]) for each in found] == [every[seq] for seq in seqs]
    values = {"tenant": "acme", "run": uid(1), "limit": limit, "after_seq": after}
    names = read_models._APPENDS.names
    assert connection.told == [(read_models._APPENDS.sql, *(values[name] for name in names))]


async def test_a_listed_approval_is_shown_with_what_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "question", lambda row, approval: event() if approval == ASKED else None)
    row = {"approval_id": ASKED, "status": "requested"}
    shown = {**row, "kind": "action", "tier": "peer", "requester": "ann", "card": {"the": "card"}, "action_digest": "d"}
    assert await approvals.approval(Asked([Row(**row)]), "acme", ASKED) == shown  # type: ignore[arg-type]
    assert await approvals.approvals_page(Asked([Row(**row)]), "acme", 5) == [shown]  # type: ignore[arg-type]
    assert await approvals.approval(Asked([]), "acme", ASKED) is None  # type: ignore[arg-type]


# -- retention -------------------------------------------------------------------------------------------------------


@pytest.mark.req("Q-21")
@pytest.mark.parametrize(
    ("trigger", "inputs"),
    [("servicenow", {"n": 1}), ("servicenow", None), ("http", {"n": 1}), ("event", {"n": 1}), ("run", None)],
)
async def test_what_is_kept_is_written_before_anything_is_removed(
    monkeypatch: pytest.MonkeyPatch, trigger: str, inputs: Any
) -> None:
    monkeypatch.setattr(retention, "emptied", lambda past: ([{"at": NOON}], [{"receipt": uid(5)}], [past]))
    monkeypatch.setattr(retention, "questions", lambda past: {"q": past})
    row = {"trigger_type": trigger, "trigger_ref": "flow:1:2", "tenant_id": "acme"}
    book: Any = SimpleNamespace(run_id=uid(1), row=row, opened=SimpleNamespace(inputs=inputs))
    past: Any = "the past"
    connection: Any = Asked()
    await retention.remove_payloads(connection, book, past)
    kept = ([{"at": NOON.isoformat()}], [{"receipt": str(uid(5))}], ["the past"], {"q": "the past"})
    began = [(retention._EVENT, uid(1), "acme", "servicenow:flow", digest(inputs or {}))]
    removes = (retention._SIGNALS, retention._CHILDREN, retention._WAITS, retention._APPROVALS, retention._VOTES,
               retention._RECORDS, retention._RUN)  # fmt: skip
    assert connection.told == [
        (retention._KEEP, uid(1), *kept), *(began if trigger == "servicenow" else []),
        *((each, uid(1)) for each in removes),
    ]  # fmt: skip
