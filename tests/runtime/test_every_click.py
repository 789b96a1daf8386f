"""Every click of a person by itself: votes and tasks, with what is asked of the store and of Slack, and the answers."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace as changed

from approvals.model import (
    Approval,
    ApprovalEvent,
    ApprovalKind,
    ApprovalStatus,
    Choice,
    TaskState,
    Vote,
    VoteChannel,
    Voter,
)
from approvals.ports import Membership
from approvals.quorum import Counted, NotCounted, RefusalCode
from core.errors import ConsistencyError
from core.identity import Contributor, Directory, Entry, Role, Standing
from core.terms import Escalation, GroupQuorum, GroupSource, Terms, Tier
from runtime.definition.reserved import POLICY_APPROVERS
from runtime.requests import counting, directory, tasks, voting
from runtime.requests.directory import DatabaseDirectory, actor_of, as_people, voter_of
from runtime.requests.tasks import Tasks
from runtime.requests.voting import AnswerTo, VoteAnswer, VoteRequest, Voting
from tests.support.recorded import Connected, Recorded, line, plain
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
NOW = datetime(2026, 11, 1, 12, 3, 4, 567_890, tzinfo=UTC)
LEADS = GroupQuorum("leads", 2)
SLACK = GroupQuorum("S1", 1, GroupSource.SLACK_GROUP)
TERMS = Terms(Tier.LOW, (LEADS,))
APPROVAL = Approval(
    uid(4),
    "acme",
    uid(1),
    "s",
    ApprovalKind.ACTION,
    ApprovalStatus.REQUESTED,
    "digest",
    "nonce",
    TERMS,
    "ann",
)
REQUEST = VoteRequest("acme", uid(4), "ann", Choice.APPROVE, "fine", VoteChannel.SLACK, "nonce", "digest")
ANSWER_TO = AnswerTo("C1", "U1")
ANSWER = VoteAnswer(True, "counted", "Recorded.", "requested", uid(1))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


def stored(approval: Approval = APPROVAL, **more: Any) -> Any:
    return SimpleNamespace(name="stored", approval=approval, now=NOW, directory_digest="people's", **more)


def of(*groups: GroupQuorum, **more: Any) -> Approval:
    return changed(APPROVAL, terms=Terms(Tier.LOW, tuple(groups)), **more)


class Judged(Recorded):
    """Votes whose judgements come one after the other: an answer, what is to be appended, or that Slack is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Any, approval: Approval = APPROVAL) -> None:
        super().__init__(monkeypatch)
        self.found = list(found)
        self.at = stored(approval)
        self.put(voting.tenants, lock=None)
        self.put(voting, _judge=self.next)
        nobody = Membership(frozenset(), frozenset())
        self.slack = SimpleNamespace(slack_membership=self.verb("slack_membership", nobody))

    def next(self, *_: Any, **__: Any) -> Any:
        one = self.found.pop(0)
        if isinstance(one, Exception):
            raise one
        return self.at, "the entry", one

    def appends(self, *answers: Any) -> Any:
        left = list(answers)
        return self.verb("append", lambda at: left.pop(0))

    def voting(self, *, slack: bool = True) -> Voting:
        database: Any = Connected()
        people: Any = self.slack if slack else None
        definitions: Any = SimpleNamespace(name="definitions")
        return Voting(database, definitions, people)


@pytest.mark.req("U-5", "X-6")
async def test_a_vote_is_judged_until_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lock from the third time on; a question about a policy with the tenant's documents locked."""
    found: dict[str, Any] = {}
    asks_slack, policy = of(SLACK), of(GroupQuorum(POLICY_APPROVERS))
    dead = asyncpg.DeadlockDetectedError("dead")
    for name, approval, slack, *judgements in (
        ("an answer", APPROVAL, True, ANSWER),
        ("an append", APPROVAL, True, [ANSWER]),
        ("overtaken once", APPROVAL, True, [None], [ANSWER]),
        ("overtaken twice", APPROVAL, True, [None], [None], [ANSWER]),
        ("overtaken three times", APPROVAL, True, [None], [None], [None], [ANSWER]),
        ("a deadlock", APPROVAL, True, dead, [ANSWER]),
        ("a question to Slack", asks_slack, True, None, [ANSWER]),
        ("a question to Slack, overtaken", asks_slack, True, None, [None], [ANSWER]),
        ("a question to Slack, which is not there", asks_slack, False, None, [ANSWER]),
        ("about a policy", policy, True, [None], [ANSWER]),
        ("about a policy, refused", policy, True, ANSWER),
        ("about a policy, a question to Slack", of(SLACK, policy.terms.approvers[0]), True, [None], None, [ANSWER]),
    ):
        judged = Judged(monkeypatch, approval=approval)
        judged.found = [judged.appends(*one) if isinstance(one, list) else one for one in judgements]
        found[name] = await judged.of(judged.voting(slack=slack).vote(REQUEST))
    judged = Judged(monkeypatch)
    judged.found = [judged.appends(None) for _ in range(20)]
    said = await judged.of(judged.voting().vote(REQUEST))
    found["overtaken for ever"] = [len(said), said[-1]]
    judged = Judged(monkeypatch)
    found["of no text"] = await judged.of(judged.voting().vote(changed(REQUEST, reason="\0")))
    as_it_was(PLACE / "every_vote_tried.json", found)


def judging(asked: Recorded, judged: Any, approval: Approval = APPROVAL, *, still: bool = True, no: Any = None) -> Any:
    """The definitions, in a store where a vote is judged like this."""
    run = SimpleNamespace(steps={"s": SimpleNamespace(name="step")})
    view = SimpleNamespace(name="view", run=run, definition="definition")
    asked.put(voting.approvals, read_to_decide=(stored(approval), view))
    people = Directory.of("d", [Entry("ann", "Ann", principals=("slack:U1",)), OLD, EVE])
    asked.put_at_once(voting, as_people=SimpleNamespace(name="the question today"))
    asked.put_at_once(voting, consider=judged, refusal=no, wait_of="the wait", count="approved", following="then")
    asked.put_at_once(voting, Transition="transition", _ask_anew="ask anew", _decided="decided")
    asked.put_at_once(voting.ask, gate_still_asks=still)
    asked.put(voting, _refuse="refused")
    workflow = SimpleNamespace(graph="graph")
    found = {"of_run": asked.verb("of_run", workflow), "directory": asked.verb("directory", people)}
    return SimpleNamespace(name="definitions", graphs="graphs", **found)


OF_THREE = frozenset({"slack_group:S1", "group:leads", "group:admins"})
COUNTED = Counted(
    Vote("ann", "Ann", Choice.APPROVE, "fine", OF_THREE, VoteChannel.SLACK, "now", "digest"),
    ApprovalEvent.APPROVE,
    Choice.APPROVE,
    "Recorded.",
)
REFUSED = NotCounted(RefusalCode.STALE, "It is stale.")


@pytest.mark.req("P-12")
async def test_a_vote_is_judged_on_the_question_as_it_is_by_the_people_as_they_are(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    gate = changed(APPROVAL, kind=ApprovalKind.GATE)
    known = Membership(frozenset({SLACK.key}), frozenset())
    no = NotCounted(RefusalCode.NOT_ELIGIBLE, "Propose it anew.")
    for name, (judged, approval, request, slack, still, refusal) in {
        "counted": (COUNTED, APPROVAL, REQUEST, None, True, None),
        "by an account": (COUNTED, APPROVAL, changed(REQUEST, person_id="slack:U1"), None, True, None),
        "by a stranger": (COUNTED, APPROVAL, changed(REQUEST, person_id="zoe"), None, True, None),
        "not counted": (REFUSED, APPROVAL, REQUEST, None, True, None),
        "not counted, of a stranger": (REFUSED, APPROVAL, changed(REQUEST, person_id="zoe"), None, True, None),
        "not counted, of one who left": (REFUSED, APPROVAL, changed(REQUEST, person_id="old"), None, True, None),
        "not counted, of a machine": (REFUSED, APPROVAL, changed(REQUEST, person_id="eve"), None, True, None),
        "refused for its policy": (COUNTED, APPROVAL, REQUEST, None, True, no),
        "a gate": (COUNTED, gate, REQUEST, None, True, None),
        "a gate that asks something else": (COUNTED, gate, REQUEST, None, False, None),
        "an action that asks something else": (COUNTED, APPROVAL, REQUEST, None, False, None),
        "before Slack was asked": (COUNTED, of(SLACK), REQUEST, None, True, None),
        "when Slack was asked": (COUNTED, of(SLACK), REQUEST, known, True, None),
    }.items():
        definitions = judging(asked, judged, approval, still=still, no=refusal)
        said = await asked.of(voting._judge(definitions, HERE, request, slack, lock=False))
        found[name] = said
    as_it_was(PLACE / "every_vote_judged.json", found)


@pytest.mark.req("P-12")
async def test_every_refusal_that_tells_who_tried_what_is_on_record(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.put(voting.audit, record=None)
    asked.put(voting.faces, order_message=None)
    monkeypatch.setattr(voting, "within", lambda at, tenant: Connected().transaction(f"{at} {tenant}"))
    found: dict[str, Any] = {}
    actor = actor_of("zoe", None)
    for code, to in product(RefusalCode, (None, ANSWER_TO)):
        request = changed(REQUEST, answer_to=to)
        refused = voting._refuse(HERE, request, stored(), actor, NotCounted(code, f"It is {code}."))
        found[f"{code}{', to somebody in Slack' if to else ''}"] = await asked.of(refused)
    as_it_was(PLACE / "every_refusal_told.json", found)


@pytest.mark.parametrize("to", [None, ANSWER_TO])
@pytest.mark.parametrize(("appended", "follows"), [(True, True), (True, False), (False, True)])
async def test_the_effect_of_a_vote_is_one_append_with_the_note_and_with_what_follows(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, to: Any, appended: bool, follows: bool
) -> None:
    monkeypatch.setattr(voting, "new_id", lambda: uid(9))
    asked.put(voting.faces, append=appended)
    commit = SimpleNamespace(name="commit", commands=[])
    transition: Any = SimpleNamespace(commit=lambda: commit)
    then = asked.verb("then") if follows else None
    append = voting._decided(transition, stored(), to, ANSWER, then)
    assert await append(HERE) == (ANSWER if appended else None)
    told = ["faces.append(transaction, commit, answers=s)", *(["then(transaction)"] if appended and follows else [])]
    assert asked.calls == told
    note = {"approval": str(uid(4)), "channel": "C1", "user": "U1", "text": "Recorded."}
    made = [(one.command_id, one.kind, str(one.status), one.payload) for one in commit.commands]
    assert made == ([(uid(9), "note", "pending", note)] if to else [])


@pytest.mark.req("X-7")
async def test_a_gate_that_would_ask_something_else_is_asked_anew(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SimpleNamespace(name="step", key="s")
    view = SimpleNamespace(run=SimpleNamespace(steps={"s": step}))
    moves = {name: asked.at_once(name) for name in ("tell", "resume")}
    transition: Any = SimpleNamespace(name="transition", view=view, **moves)
    asked.put_at_once(voting.ask, supersede=None)
    asked.put_at_once(voting, _decided="decided")
    wait: Any = "the wait"
    actor = actor_of("ann", Entry("ann", "Ann"))
    anew: Any = voting._ask_anew(transition, changed(REQUEST, answer_to=ANSWER_TO), stored(), actor, wait)
    assert anew == "decided"
    told = "{'approval': '#4', 'code': 'changed', 'channel': 'slack'}"
    answer = VoteAnswer(False, "changed", voting.ASKED_ANEW, "superseded", uid(1))
    assert asked.calls == [
        f"tell({told}, step=s, actor={{'kind': 'person', 'id': 'ann'}})",
        "ask.supersede(transition, step, #4)",
        "resume(step, the wait)",
        f"voting._decided(transition, stored, {{'channel': 'C1', 'user': 'U1'}}, {line(answer)})",
    ]


@pytest.mark.parametrize("judged", ["an answer", "an append", "overtaken", "Slack"])
async def test_a_vote_within_a_request_has_one_try(monkeypatch: pytest.MonkeyPatch, judged: str) -> None:
    asked = Judged(monkeypatch)
    ways = {"an answer": ANSWER, "an append": asked.appends(ANSWER), "overtaken": asked.appends(None), "Slack": None}
    asked.found = [ways[judged]]
    definitions: Any = SimpleNamespace(name="definitions")
    done = voting.vote_within(HERE, definitions, REQUEST)
    if judged in ("an answer", "an append"):
        assert await done == ANSWER
    else:
        with pytest.raises(ConsistencyError) as refused:
            await done
        words = "The question cannot be answered here."
        assert (refused.value.message, refused.value.remedy) == (words, "Answer it where it is shown.")
    asking = f"voting._judge(definitions, transaction, {line(REQUEST)}, null, lock=true)"
    assert asked.calls == [asking, *(["append(transaction)"] if judged in ("an append", "overtaken") else [])]


async def test_a_question_is_shown_and_a_note_is_ordered_in_a_transaction_of_their_tenant(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.put(voting.approvals, read=stored())
    asked.put(voting, receipt_of="the receipt")
    asked.put(voting.faces, order_message=None)
    asked.put_at_once(voting.approvals, card_view="the card")
    database: Any = Connected()
    definitions: Any = SimpleNamespace(name="definitions")
    requests = Voting(database, definitions)
    shown: Any = await requests.view("acme", uid(4))
    assert shown == "the card"
    await requests.note("acme", uid(4), ANSWER_TO, "No.")
    note = line({"approval": str(uid(4)), "channel": "C1", "text": "No.", "user": "U1"})
    assert asked.calls == [
        "approvals.read(transaction of acme, #4)",
        "voting.receipt_of(transaction of acme, definitions, stored)",
        "approvals.card_view(stored, the receipt)",
        "approvals.read(transaction of acme, #4)",
        f"faces.order_message(transaction of acme, acme, #1, note, {note})",
    ]


def test_only_groups_of_slack_that_may_decide_now_are_asked_for() -> None:
    escalates = Terms(Tier.LOW, (LEADS,), escalate=Escalation(NOTHING, SLACK))
    for approval, groups in (
        (of(LEADS), []),
        (of(LEADS, SLACK), [SLACK]),
        (changed(APPROVAL, terms=escalates), []),
        (changed(APPROVAL, terms=escalates, escalated=True), [SLACK]),
    ):
        assert voting._slack_groups(stored(approval)) == groups


def moves(asked: Recorded, kind: ApprovalKind, workflow: str = "w") -> Any:
    """A run with a question of this kind, and the moves that a vote makes on it."""
    step = SimpleNamespace(name="step", key="s")
    run = SimpleNamespace(steps={"s": step}, run_key=b"k" * 32)
    view = SimpleNamespace(name="view", run=run, now=NOW, workflow=workflow)
    told = {name: asked.at_once(name) for name in ("tell", "message", "resume")}
    asked.put_at_once(counting, wait_of=SimpleNamespace(name="wait"), last_receipt=SimpleNamespace(name="receipt"))
    asked.put_at_once(counting.doubt, given_up=None)
    asked.put_at_once(counting.waits, end_badly=None)
    return SimpleNamespace(name="transition", view=view, run="the run", **told), stored(changed(APPROVAL, kind=kind))


@pytest.mark.req("P-12", "Q-16")
async def test_a_vote_that_counts_is_told_and_decides(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    happened, fails = Choice.HAPPENED, Choice.FAIL
    reject = ApprovalEvent.REJECT
    given = COUNTED.vote
    waits = changed(COUNTED, effect=None, decision=None)
    for name, kind, counted, workflow in (
        ("one of two", ApprovalKind.ACTION, waits, "w"),
        ("one of two, without a reason", ApprovalKind.GATE, changed(waits, vote=changed(given, reason="")), "w"),
        ("approved", ApprovalKind.ACTION, COUNTED, "w"),
        ("approved by who shaped it", ApprovalKind.ACTION, changed(COUNTED, separation_waived=True), "w"),
        ("rejected", ApprovalKind.ACTION, changed(COUNTED, effect=reject, decision=Choice.REJECT), "w"),
        ("a gate, rejected", ApprovalKind.GATE, changed(COUNTED, effect=reject, decision=Choice.REJECT), "w"),
        ("it happened", ApprovalKind.IN_DOUBT, changed(COUNTED, decision=happened), "w"),
        ("given up", ApprovalKind.IN_DOUBT, changed(COUNTED, effect=reject, decision=fails), "w"),
        ("a policy approved", ApprovalKind.GATE, COUNTED, "counterseal-policy-change"),
        *(
            (
                f"{kind}, {effect}, for {vote.reason or 'no reason'}, in {workflow}", kind,
                changed(COUNTED, effect=effect, decision=decision, vote=vote), workflow,
            )
            for kind, (effect, decision), vote, workflow in product(
                ApprovalKind,
                ((None, None), (ApprovalEvent.APPROVE, Choice.APPROVE), (reject, Choice.REJECT)),
                (given, changed(given, reason="")),
                ("w", "counterseal-policy-change"),
            )
        ),
    ):  # fmt: skip
        transition, question = moves(asked, kind, workflow)
        asked.calls.clear()
        status = counting.count(transition, question, counted)
        found[name] = [*asked.calls, f"-> {status}"]
    as_it_was(PLACE / "every_vote_counted.json", found)


def test_a_step_that_does_not_wait_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    transition: Any = SimpleNamespace(run="the run")
    step: Any = SimpleNamespace(key="s")
    monkeypatch.setattr(counting, "open_wait", lambda run, key: None)
    with pytest.raises(ConsistencyError, match="The step s does not wait for this answer"):
        counting.wait_of(transition, step)


ANN = Entry("ann", "Ann", groups=frozenset({"leads"}), principals=("slack:T1/U1", "slack:U2", "os:ann"))
EVE = Entry("eve", "Eve", owner="ann", groups=frozenset({"bots"}))
OLD = Entry("old", "Old", active=False)


@pytest.mark.req("P-12")
def test_a_voter_is_whom_the_directory_says() -> None:
    slack = Membership(frozenset({"slack_group:S1"}), frozenset({"slack_group:S2"}))
    groups = frozenset({"group:leads", "slack_group:S1"})
    unknown = frozenset({"slack_group:S2"})
    assert voter_of("slack:U1", ANN, slack) == Voter("ann", "Ann", groups, unknown, Standing.PERSON)
    bots = frozenset({"group:bots", "slack_group:S1"})
    assert voter_of("eve", EVE, slack) == Voter("ann", "Eve", bots, unknown, Standing.MACHINE)
    assert voter_of("old", OLD, directory.NO_GROUPS).standing is Standing.DEACTIVATED
    assert voter_of("zoe", None, slack) == Voter("zoe", "zoe", frozenset(), frozenset(), Standing.UNKNOWN)
    actors = [plain(actor_of("slack:U1", one)) for one in (ANN, EVE, None)]
    assert [(one["kind"], one["id"]) for one in actors] == [
        ("person", "ann"),
        ("service_account", "eve"),
        ("unresolved", "slack:U1"),
    ]


@pytest.mark.req("P-12")
def test_a_question_is_judged_by_the_people_of_today() -> None:
    """A contributor's name means everybody whom it may mean now; a vote of who left counts no more."""
    people = Directory.of("d", [ANN, OLD])
    votes = tuple(
        Vote(name, name, Choice.APPROVE, "", frozenset({"group:leads"}), VoteChannel.CLI, "now", "digest")
        for name in ("ann", "old", "zoe")
    )
    shaped = (Contributor(Role.UPDATER, "slack:U2", None), Contributor(Role.REQUESTER, "zoe", None))
    found = as_people(changed(APPROVAL, votes=votes, contributors=shaped), people)
    assert [vote.voter for vote in found.votes] == ["ann"]
    assert [(one.principal, one.person) for one in found.contributors] == [("slack:U2", "ann"), ("zoe", None)]
    assert changed(found, votes=(), contributors=()) == APPROVAL
    without = as_people(changed(APPROVAL, votes=votes, contributors=shaped), Directory.of("d", [OLD]))
    assert (without.votes, [one.person for one in without.contributors]) == ((), [None, None])


class SlackSays:
    """Slack, which says of each account what groups it is in."""

    def __init__(self, **groups: Membership) -> None:
        self.asked: list[Any] = []
        self._groups = groups

    async def membership(self, account: str, wanted: Any) -> Membership:
        self.asked.append((account, [group.key for group in wanted]))
        return self._groups[account.replace("/", "_")]


@pytest.mark.req("P-12")
async def test_memberships_are_those_of_today(asked: Recorded) -> None:
    people = Directory.of("d", [ANN, Entry("bob", "Bob"), Entry("cid", "Cid", principals=("slack:T1/U3",))])
    asked.put(directory.tenants, directory_digest="digest")
    definitions: Any = SimpleNamespace(directory=asked.verb("directory", people))
    other = GroupQuorum("S2", 1, GroupSource.SLACK_GROUP)
    one = Membership(frozenset({SLACK.key}), frozenset({other.key}))
    two = Membership(frozenset(), frozenset({SLACK.key}))
    slack: Any = SlackSays(T1_U1=one, U2=two)
    database: Any = Connected()
    now = DatabaseDirectory(database, definitions, "acme", slack)
    wanted = [LEADS, GroupQuorum("others"), SLACK, other]
    both = frozenset({LEADS.key, SLACK.key})
    assert await now.membership("ann", wanted) == Membership(both, frozenset({other.key}))
    assert slack.asked == [("T1/U1", [SLACK.key, other.key]), ("U2", [SLACK.key, other.key])]
    assert await now.membership("ann", [LEADS]) == Membership(frozenset({LEADS.key}), frozenset())
    nobody = Membership(frozenset(), frozenset())
    assert await now.membership("bob", wanted) == await now.membership("zoe", wanted) == nobody
    away = DatabaseDirectory(database, definitions, "acme", None)
    assert await away.slack_membership(ANN, [SLACK, other]) == Membership(
        frozenset(), frozenset({SLACK.key, other.key})
    )
    assert await away.slack_membership(None, [SLACK]) == await away.slack_membership(ANN, []) == nobody
    place = ["tenants.directory_digest(transaction of acme, acme)", "directory(transaction of acme, acme, digest)"]
    assert asked.calls == place * 4
    found = [await now.person_of_slack_user(*names) for names in (("T1", "U1"), ("T1", "U2"), ("T2", "U1"))]
    assert [one and (one.id, one.name) for one in found] == [("ann", "Ann"), ("ann", "Ann"), None]


TASK = {"state": TaskState.OPEN, "group": "leads", "step": "s", "task_id": uid(6), "form": {}, "completed_by": None}


@pytest.mark.req("X-9", "P-12")
async def test_a_task_is_completed_by_who_may_do_it_now(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    asked.put(tasks.audit, record=None)
    leads, nobody = frozenset({"leads"}), frozenset({"others"})
    database: Any = Connected()
    definitions: Any = SimpleNamespace(name="definitions")
    asked.put(tasks.tasks, read=SimpleNamespace(view=SimpleNamespace(name="the task")))
    found["looked at"] = await asked.of(Tasks(database, definitions).view("acme", uid(6)))
    for name, groups, view, faults, taken in (
        ("taken", leads, {}, [], True),
        ("asked anew", leads, {}, [], False),
        ("of no group", nobody, {}, [], True),
        ("of a stranger", None, {}, [], True),
        ("of one who is in no group at all", frozenset[str](), {}, [], True),
        ("with faults", leads, {}, ["name: is missing", "more: is too much"], True),
        ("over", leads, {"state": TaskState.EXPIRED}, ["name: is missing"], True),
        ("over, of no group", nobody, {"state": TaskState.EXPIRED}, [], True),
    ):
        task = SimpleNamespace(view=SimpleNamespace(**TASK | view), groups=groups, run_id=uid(1), tenant_id="acme")
        asked.put(tasks.tasks, read=task)
        asked.put(tasks, end_wait=taken)
        asked.put_at_once(tasks, check_value=faults)
        requests = Tasks(database, definitions)
        done = requests.complete("acme", uid(6), "ann", {"name": "n"}, VoteChannel.HTTP)
        found[name] = await asked.of(done)
    as_it_was(PLACE / "every_task.json", found)
