"""Every change of a policy by itself: what it asks of the store in which order, who is asked, and what is answered."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from approvals.model import ApprovalEvent
from core.canonical import sha256_hex
from core.errors import DefinitionError
from core.identity import Directory, Entry
from core.terms import GroupQuorum
from evidence.chain import Actor
from policy.sets import BrokenPolicy, PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.deciders import Findings
from runtime.definition.reserved import DECIDE, POLICY_APPROVERS, POLICY_CHANGE, TRIGGER
from runtime.requests import consequences, enacting, policies
from runtime.requests.consequences import Change, Consequences
from runtime.requests.enacting import Foreseen, Proposed, Way
from runtime.requests.policies import Published
from runtime.store.documents import Edition, Past
from tests.runtime.conftest import probes
from tests.support.recorded import Recorded
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
HERE: Any = "transaction"
NOTHING: Any = None
ANN, BOB = Actor("token", "ann"), Actor("person", "bob")
POLICY = "policy: rules\nversion: 2\nrules: [{id: all, match: {connector: probe}, outcome: allow}]\n"
ASKS = POLICY.replace("allow", "needs_approval, approvers: [{group: %s}]")
TOLD = {"rules": [], "steps": [], "questions": [], "more": {"steps": 0, "questions": 0}, "unread": 0}
FORESEEN = Foreseen(Change(PolicySet(), PolicySet(), ("d1", "d2")), {**TOLD, "rollback_from": None})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return Definitions(probes())


def group(*members: str) -> Directory:
    return Directory.of("d", [Entry(name, name, groups=frozenset({POLICY_APPROVERS})) for name in members])


NEVER = Past((), ())


def store(asked: Recorded, past: Past = NEVER, **more: Any) -> None:
    """A store in which all is new, and a change that one person makes."""
    told: dict[str, Any] = {"store_policy": True, "past_policies": past, "policy_of": ("d", POLICY, "zoe")} | more
    asked.put(policies.documents, **told)
    asked.put(policies.tenants, lock=None, groups=None, directory=group())
    asked.put(policies.audit, record=None)
    asked.put(policies.pauses, open_questions=3)
    asked.put(policies.enacting, foresee=FORESEEN, make=None, propose=None)
    asked.put(policies, member=None, _confirmed=True)


OWN = Edition("rules", 2, sha256_hex(POLICY.encode()))
OTHER = Edition("other", 9, "d9")
LOWER, HIGHER = Edition("rules", 1, "d1"), Edition("rules", 3, "d3")
PASTS = {
    "nothing": Past((), ()),
    "it is in force": Past((OWN, OTHER), (OTHER, OWN)),
    "it was": Past((LOWER, OWN, OTHER), (OTHER,)),
    "another is": Past((OTHER,), (OTHER,)),
    "another was": Past((OTHER,), ()),
    "a lower one is": Past((OWN, LOWER), (LOWER,)),
    "a higher one is": Past((LOWER, OWN, HIGHER, OTHER), (OTHER, HIGHER)),
}


@pytest.mark.req("U-4")
async def test_what_publishing_activating_and_retiring_a_policy_does(asked: Recorded, definitions: Definitions) -> None:
    found: dict[str, Any] = {}
    for (name, past), dry_run in product(PASTS.items(), (False, True)):
        ways = {
            "publish": policies.publish_policy(HERE, definitions, "acme", POLICY, "p.yaml", ANN, dry_run=dry_run),
            "activate": policies.activate_policy(HERE, definitions, "acme", "rules", 2, ANN, dry_run=dry_run),
            "retire": policies.retire_policy(HERE, definitions, "acme", "rules", ANN, dry_run=dry_run),
        }
        for way, verb in ways.items():
            store(asked, past)
            found[f"{way}: {name}{', tried' if dry_run else ''}"] = await asked.of(verb)
    for stored in (True, False):
        store(asked, store_policy=stored)
        staged = policies.publish_policy(HERE, definitions, "acme", POLICY, "p.yaml", ANN, stage=True)
        found[f"stage: {'new' if stored else 'there'}"] = await asked.of(staged)
    store(asked)
    staged = policies.publish_policy(HERE, definitions, "acme", ASKS % "leads", "p.yaml", ANN, stage=True)
    found["stage: warned of"] = (await asked.of(staged))[-1:]
    for name, text in (("leads", ASKS % "leads"), ("nobody", ASKS % "nobody")):
        store(asked)
        asked.put(policies.tenants, groups={"leads": frozenset({"ann"})})
        published = policies.publish_policy(HERE, definitions, "acme", text, "p.yaml", ANN)
        found[f"asks {name}"] = (await asked.of(published))[4:]
    store(asked)
    warned = policies.publish_policy(HERE, definitions, "acme", ASKS % "leads", "p.yaml", ANN)
    found["asks leads, without a directory"] = (await asked.of(warned))[-1:]
    for member, confirmed in (("ann", True), ("ann", False)):
        for way in ("publish", "retire"):
            store(asked, PASTS["a lower one is"])
            asked.put(policies, member=member, _confirmed=confirmed)
            verb = (
                policies.retire_policy(HERE, definitions, "acme", "rules", ANN)
                if way == "retire"
                else policies.publish_policy(HERE, definitions, "acme", POLICY, "p.yaml", ANN)
            )
            found[f"{way}: of two, {'confirmed' if confirmed else 'proposed'}"] = (await asked.of(verb))[-3:]
    as_it_was(PLACE / "every_policy.json", found)


@pytest.mark.req("U-4")
async def test_a_stored_policy_that_cannot_be_read_is_named_with_its_version(
    asked: Recorded, definitions: Definitions
) -> None:
    store(asked, policy_of=("d", POLICY.replace("outcome: allow", "outcome: none"), "zoe"))
    with pytest.raises(DefinitionError) as refused:
        await policies.activate_policy(HERE, definitions, "acme", "rules", 2, ANN)
    assert [str(problem).partition(":")[0] for problem in refused.value.problems] == ["rules@2"]
    assert asked.calls == ["tenants.lock(transaction, acme)", "documents.policy_of(transaction, acme, rules, 2)"]


@pytest.mark.req("Q-16")
@pytest.mark.parametrize("problems", [[], ["it asks nobody"], ["it asks nobody", "and asks one twice"]])
async def test_a_policy_is_warned_of_for_what_it_trusts_and_whom_it_asks(asked: Recorded, problems: list[Any]) -> None:
    """Problems refuse it, whatever the warnings are."""
    found = Findings(problems, ["few may decide"])
    asked.put(policies.tenants, groups={"leads": frozenset({"ann"})})
    asked.put_at_once(policies.trusting, of_policy=["it trusts a name"])
    asked.put_at_once(policies.deciders, of_policy=found)
    known: Any = SimpleNamespace(catalog=SimpleNamespace(name="catalog"))
    warnings = policies._warnings(HERE, known, "acme", "the text", "p.yaml")
    if problems:
        with pytest.raises(DefinitionError) as refused:
            await warnings
        assert refused.value.problems == tuple(problems)
        return
    assert await warnings == ("it trusts a name", "few may decide")
    assert asked.calls == [
        "tenants.groups(transaction, acme)",
        "deciders.of_policy(the text, p.yaml, {'leads': ['ann']})",
        "trusting.of_policy(the text, p.yaml, catalog)",
    ]


PROPOSED = Proposed(Way.ACTIVATE, "rules", 2, "d2")


@pytest.mark.req("P-12")
async def test_the_second_of_two_confirms_what_the_first_has_proposed(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}
    confirm = policies._confirmed
    proposals = {
        "nothing": None,
        "by themselves": (uid(1), "person:ann", uid(4)),
        "by another": (uid(1), "person:bob", uid(4)),
        "by another, and not asked yet": (uid(1), "person:bob", None),
        "by one who left": (uid(1), "person:zoe", uid(4)),
    }
    store(asked)
    monkeypatch.setattr(policies, "_confirmed", confirm)
    known: Any = SimpleNamespace(name="definitions")
    for (name, proposal), members in product(proposals.items(), (("ann", "bob"), ("ann",))):
        asked.put(policies.tenants, directory=group(*members))
        asked.put(policies.runs, proposal=proposal)
        asked.put(policies, cancel_run=None, vote_within=SimpleNamespace(counted=True))
        done = confirm(HERE, known, "acme", PROPOSED, FORESEEN, ANN, "ann")
        found[f"proposed {name}, of {len(members)}"] = await asked.of(done)
    asked.put(policies.tenants, directory=group("ann", "bob"))
    asked.put(policies.runs, proposal=proposals["by another"])
    for kind in ("person", "token", "service_account", "os"):
        done = confirm(HERE, known, "acme", PROPOSED, FORESEEN, Actor(kind, "x"), "ann")
        found[f"by a {kind}"] = (await asked.of(done))[-2:]
    asked.put(policies.tenants, directory=group("ann", "Bob.B"))
    asked.put(policies.runs, proposal=(uid(1), "person:Bob.B", None))
    done = confirm(HERE, known, "acme", PROPOSED, FORESEEN, ANN, "ann")
    found["by a name in capitals"] = (await asked.of(done))[-2:]
    asked.put(policies.tenants, directory=group("ann", "bob"))
    asked.put(policies.runs, proposal=proposals["by another"])
    asked.put(policies, vote_within=SimpleNamespace(counted=False, sentence="It is not for you."))
    done = confirm(HERE, known, "acme", PROPOSED, FORESEEN, ANN, "ann")
    found["a vote that is not counted"] = (await asked.of(done))[-1:]
    as_it_was(PLACE / "every_confirmation.json", found)


@pytest.mark.req("U-4", "P-12")
async def test_a_change_is_made_and_told_with_what_it_leads_to(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}
    known: Any = SimpleNamespace(name="definitions")
    asked.put(enacting.documents, policy_of=("d", "text", "zoe"), put_in_force=True)
    asked.put(enacting.audit, record=None)
    asked.put(enacting.runs, going_of=[uid(1), uid(2), uid(3)])
    asked.put(enacting, cancel_run=None)
    for way, first, but in product(Way, ("", "bob"), (None, uid(2))):
        proposed = replace(PROPOSED, way=way)
        made = enacting.make(HERE, known, "acme", proposed, FORESEEN, ANN, first, but)
        found[f"{way}, first {first or 'nobody'}, but {but and but.int}"] = await asked.of(made)
    used = {"nothing": (), "a lower one": (LOWER,), "the same": (OWN,), "a higher one": (OTHER, HIGHER)}
    asked.put(enacting, change_of="change", foretell=Consequences(unread=7))
    monkeypatch.setattr(enacting, "Foreseen", lambda change, told: [change, told["unread"]])
    for (name, force), way in product(used.items(), Way):
        asked.put(enacting.documents, past_policies=Past((), force))
        foreseen = enacting.foresee(HERE, known, "acme", replace(PROPOSED, way=way), None)
        found[f"{way}, in force: {name}"] = await asked.of(foreseen)
    as_it_was(PLACE / "every_change.json", found)


@pytest.mark.req("P-12")
async def test_a_proposal_asks_the_others_of_the_group(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, definitions: Definitions
) -> None:
    asked.put(enacting.documents, publish_workflow=True)
    asked.put(enacting.audit, record=None)
    asked.put(enacting, _summary="What would change.", start_run=None)
    monkeypatch.setattr(enacting, "new_id", lambda: uid(7))
    found = {
        str(way): await asked.of(
            enacting.propose(HERE, definitions, "acme", "side", replace(PROPOSED, way=way), FORESEEN, "ann")
        )
        for way in Way
    }
    as_it_was(PLACE / "every_proposal.json", found)


@pytest.mark.req("P-12")
async def test_the_card_says_what_would_change_in_place_of_what(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"d1": ("old",), "d2": ("new",), "lost": None}

    asked.put(enacting, _rules=lambda connection, known, tenant, digest: rules[digest])
    monkeypatch.setattr(enacting, "_changes", lambda before, after: f"From {before} to {after}.")
    said = {}
    for way, used in product(Way, (None, "d1", "lost")):
        force = () if used is None else (Edition("rules", 1, used),)
        asked.put(enacting.documents, past_policies=Past((), force))
        proposed = replace(PROPOSED, way=way)
        asked.calls.clear()
        known: Any = SimpleNamespace(name="definitions")
        said[f"{way} {used}"] = await enacting._summary(HERE, known, "acme", proposed, FORESEEN)
        read = [used] if used else []
        read += ["d2"] if way is Way.ACTIVATE else []
        assert asked.calls == [
            "documents.past_policies(transaction, acme)",
            *(f"enacting._rules(transaction, definitions, acme, {digest})" for digest in read),
        ]
    now = "policy rules version 2 (digest d2)"
    was = "in place of rules version 1 (digest"
    assert said == {
        "activate None": f"Put {now} in force? No version of it is in force now. From () to ('new',).",
        "activate d1": f"Put {now} in force, {was} d1)? From ('old',) to ('new',).",
        "activate lost": f"Put {now} in force, {was} lost)? From None to ('new',).",
        "retire None": f"Take {now} out of force? From None to ().",
        "retire d1": f"Take {now} out of force? From ('old',) to ().",
        "retire lost": f"Take {now} out of force? From None to ().",
    }


async def test_rules_of_a_policy_that_cannot_be_read_are_unknown(definitions: Definitions) -> None:
    good = definitions.compile_policy(POLICY, "p.yaml")

    async def found(at: str, tenant: str, digests: list[str]) -> Any:
        assert (at, tenant) == ("transaction", "acme")
        return PolicySet([good if digests == ["good"] else BrokenPolicy("d", "it is gone")])

    known: Any = SimpleNamespace(policies=found)
    assert await enacting._rules(HERE, known, "acme", "good") == good.rules
    assert await enacting._rules(HERE, known, "acme", "broken") is None


def view(workflow: str = POLICY_CHANGE, trigger: str = TRIGGER, by: str = "person:ann", **more: Any) -> Any:
    told = {"change": "activate", "name": "rules", "version": 2, "digest": "d2", "policy": "rules@2"} | more
    run = SimpleNamespace(requested_by=by, trigger=told)
    return SimpleNamespace(workflow=workflow, trigger_type=trigger, run=run, tenant_id="acme", run_id=uid(1))


NOT_OURS = [
    (view("w"), DECIDE, ApprovalEvent.APPROVE),
    (view(trigger="http"), DECIDE, ApprovalEvent.APPROVE),
    (view(), "another", ApprovalEvent.APPROVE),
    (view(), DECIDE, None),
    *((view(), DECIDE, event) for event in ApprovalEvent if event is not ApprovalEvent.APPROVE),
]


@pytest.mark.req("P-12")
async def test_only_an_approval_at_our_own_step_changes_a_policy(asked: Recorded) -> None:
    for seen, step, effect in NOT_OURS:
        assert enacting.refusal(seen, step, effect, group("bob")) is None
        assert enacting.following(seen, step, NOTHING, effect, "bob") is None
    assert enacting.refusal(view(), DECIDE, ApprovalEvent.APPROVE, group("ann", "bob")) is None
    words = "Whoever proposed this is not of the group policy_approvers any more, so it cannot be put in force. "
    bob, others = Entry("bob", "Bob", groups=frozenset({POLICY_APPROVERS})), frozenset({"leads"})
    for people in (
        group("bob"),
        group(),
        Directory.of("d", [bob, Entry("ann", "Ann")]),
        Directory.of("d", [bob, Entry("ann", "Ann", groups=others)]),
        Directory.of("d", [bob, Entry("ann", "Ann", active=False, groups=bob.groups)]),
        Directory.of("d", [bob, Entry("zoe", "Zoe", groups=bob.groups, principals=("ann",))]),
    ):
        refused = enacting.refusal(view(), DECIDE, ApprovalEvent.APPROVE, people)
        assert refused is not None
        assert (str(refused.code), refused.sentence) == ("not_eligible", f"{words}Propose it anew.")
    asked.put(enacting, foresee=SimpleNamespace(name="foreseen"), make=None)
    stored = SimpleNamespace(members=("the policy",))
    known: Any = SimpleNamespace(name="definitions", policies=asked.verb("policies", stored))
    for way in Way:
        then = enacting.following(view(change=str(way)), DECIDE, known, ApprovalEvent.APPROVE, "bob")
        assert then is not None
        asked.calls.clear()
        await then(HERE)
        about = f"{{'way': '{way}', 'name': 'rules', 'version': 2, 'digest': 'd2'}}"
        comes = way is Way.ACTIVATE
        person = "{'kind': 'person', 'id': 'bob'}"
        assert asked.calls == [
            *(["policies(transaction, acme, ['d2'])"] if comes else []),
            f"enacting.foresee(transaction, definitions, acme, {about}, {'the policy' if comes else 'null'})",
            f"enacting.make(transaction, definitions, acme, {about}, foreseen, {person}, ann, but=#1)",
        ]


@pytest.mark.parametrize(
    ("approvers", "concerns"),
    [
        ((GroupQuorum(POLICY_APPROVERS),), True),
        ((GroupQuorum("leads"), GroupQuorum(POLICY_APPROVERS)), True),
        ((GroupQuorum("leads"),), False),
        ((GroupQuorum(POLICY_APPROVERS, 2),), False),
        ((), False),
    ],
)
def test_a_question_to_the_group_may_be_about_a_policy(approvers: Any, concerns: bool) -> None:
    question: Any = SimpleNamespace(terms=SimpleNamespace(approvers=approvers))
    assert enacting.may_concern(question) is concerns


def foreseen(step: str, words: str) -> Any:
    return SimpleNamespace(step=step, operation=f"o.{step}", foreseen=SimpleNamespace(words=words))


async def test_what_a_change_leads_to_is_worked_out_workflow_by_workflow_and_question_by_question(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow that cannot be read is left out; a question whose run cannot be read is counted."""
    before: Any = SimpleNamespace(name="before")
    after: Any = SimpleNamespace(name="after")
    steps = {
        ("w", "before"): [foreseen("a", "asks"), foreseen("b", "denied")],
        ("w", "after"): [foreseen("a", "allowed"), foreseen("b", "denied")],
        ("v", "before"): [foreseen("c", "denied")],
        ("v", "after"): [foreseen("c", "asks")],
    }
    stored = [SimpleNamespace(name=name) for name in ("w", "lost", "v")]

    def compiled(one: Any) -> Any:
        if one.name == "lost":
            raise consequences.CountersealError("It cannot be read.")
        return SimpleNamespace(name=one.name, version={"w": 3, "v": 4}[one.name])

    async def question(_: Any, known: Any, tenant: str, policy: Any, approval: Any) -> Any:
        asked.calls.append(f"question {approval.int} of {tenant} by {policy.name}")
        if approval.int == 2:
            raise consequences.CountersealError("It cannot be read.")
        return None if approval.int == 3 else (str(approval.int), "r", "s", "deny")

    asked.put(consequences.documents, newest_workflows=stored)
    asked.put(consequences.pauses, open_questions=207, questions=[uid(number) for number in (1, 2, 3, 4)])
    monkeypatch.setattr(consequences, "foresee_steps", lambda workflow, policy: steps[workflow.name, policy.name])
    monkeypatch.setattr(consequences, "changed", lambda one, other: [(f"{one.name} {other.name}", "is new")])
    monkeypatch.setattr(consequences, "_question", question)
    known: Any = SimpleNamespace(compiled=compiled)
    found = await consequences.foretell(HERE, known, "acme", Change(before, after, ()), 5)
    assert found == Consequences(
        rules=(("before after", "is new"),),
        steps=(("w@3", "a", "o.a", "asks", "allowed"), ("v@4", "c", "o.c", "denied", "asks")),
        questions=(("1", "r", "s", "deny"), ("4", "r", "s", "deny")),
        unread=8,
        rollback=5,
    )
    calls = [*asked.calls]
    for count, unread in ((0, 1), (200, 1), (201, 2)):
        asked.put(consequences.pauses, open_questions=count)
        assert (await consequences.foretell(HERE, known, "acme", Change(before, after, ()))).unread == unread
    assert calls == [
        "pauses.open_questions(transaction, acme)",
        "pauses.questions(transaction, acme, #0, 200)",
        *(f"question {number} of acme by after" for number in (1, 2, 3, 4)),
        "documents.newest_workflows(transaction, acme)",
    ]


@pytest.mark.parametrize(
    ("asks", "answer", "outcome", "told"),
    [
        (True, "requested", "deny", (str(uid(4)), str(uid(1)), "a", "deny")),
        (True, "requested", None, None),
        (True, "approved", "deny", None),
        (True, None, "deny", None),
        (False, "requested", "deny", None),
    ],
)
async def test_only_an_open_question_is_answered_otherwise(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, asks: bool, answer: str | None, outcome: str | None, told: Any
) -> None:
    question = SimpleNamespace(name="question", step_key="a")
    run = SimpleNamespace(
        approvals={uid(4): question} if asks else {},
        answers={} if answer is None else {uid(4): SimpleNamespace(status=answer)},
        steps={"a": "the step", "b": "another"},
    )
    seen = SimpleNamespace(name="view", run=run, definition="definition", directory_digest="people's")
    asked.put(consequences.approvals, run_of=uid(1))
    asked.put(consequences, load=seen)
    asked.put_at_once(consequences.review, otherwise=outcome)
    monkeypatch.setattr(consequences, "replace", lambda view, directory: f"{view.name} with {directory}")
    asked.put_at_once(consequences, Transition="transition")
    workflow = SimpleNamespace(name="workflow", graph="graph")
    verbs = {"of_run": asked.verb("of_run", workflow), "directory": asked.verb("directory", "people")}
    known: Any = SimpleNamespace(graphs="graphs", **verbs)
    after: Any = "after"
    assert await consequences._question(HERE, known, "acme", after, uid(4)) == told
    judged = [
        "of_run(transaction, definition)",
        "directory(transaction, acme, people's)",
        "consequences.Transition(view with people, graph)",
        "review.otherwise(transition, the step, workflow, after, question)",
    ]
    assert asked.calls == [
        "approvals.run_of(transaction, #4)",
        "consequences.load(transaction, #1, graphs, whole=true, tenant=acme)",
        *(judged if asks and answer == "requested" else []),
    ]


def test_what_was_published_says_all_that_became_of_it() -> None:
    assert Published("n", 1, "d", True) == Published("n", 1, "d", True, False, (), False, 0, False, None, False, ())
