"""False histories, each signed with the trusted key and free of contradictions: the verifier finds every kind."""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from app.compiling import Texts
from core.canonical import JsonObject
from evidence.bundle import Bundle, build_bundle
from evidence.files import FileBlobStore
from evidence.signing import FileSigner
from evidence.verify import verify_bundle
from runtime.keep.bundling import Bundling, content_of
from runtime.requests.steering import close_run
from tests.support.agents import ALLOW, Agents, agent, call, calls, says
from tests.support.forging import VALUES, Forged, laid, resealed
from tests.support.mutating import containers, contents
from tests.support.other_verifiers import by_node, by_python
from tests.support.runtime_children import CHILD
from tests.support.runtime_stage import ACTOR

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
CHANGES = 10_000 if DEEP else 150

WHOLE = """
workflow: whole
version: 1
reference: ${{ run.id }}
steps:
  - {id: read, do: probe.value.read, with: {name: x}}
  - {id: ok, approve: {summary: Go on?, approvers: {group: owners}, quorum: 2}}
  - {id: raise, do: probe.record.update, with: {name: x, fields: {priority: "1"}}}
  - {id: put, do: probe.key.put, with: {name: x}}
  - {id: mail, do: probe.mail.send, with: {text: hello}}
  - {id: child, run: check, with: {name: ada}}
""" + agent().partition("steps:\n")[2].replace('    set: {found: "${{ output }}"}\n', "")
POLICY = ALLOW.replace(
    "rules:\n",
    """rules:
  - id: raising
    match: {operation: probe.record.update}
    outcome: needs_approval
    approvers: [{group: owners}, {group: managers}]
    two_person: true
    fresh_for: P1D
    escalate: {after: PT6H, to: {group: chiefs}}
""",
)


@pytest.fixture
async def whole(agents: Agents, late_gate: Any, tmp_path: Path) -> tuple[Bundle, FileSigner]:
    """The bundle of a run in which people, doubts, an agent, a child and an extension have their parts."""
    runtime: Any = agents.runtime
    read = call("probe_value_read", {"name": "y"})
    agents.model.turns = [calls(read), calls(call("probe_effect_apply", {"name": "z"})), says("done")]
    await runtime.tenant()
    await runtime.policy(POLICY)
    for person, groups in {
        "ana": ("owners", "managers"), "ben": ("owners",), "cara": ("managers",), "olga": ("operators",),
        "requester": ("owners", "chiefs"), "desk": ("desk",),
    }.items():  # fmt: skip
        await runtime.person(person, groups)
    await runtime.publish(CHILD, filled=False)
    await runtime.publish(WHOLE, filled=False)
    run = (await runtime.start("whole", {"text": "help"}, open=True)).run_id
    await runtime.worker().work_off()
    for people in (("ana", "ben"), ("ben", "cara")):
        for person in people:
            assert (await runtime.vote(person, "approve")).counted
        if people[1] == "ben":
            await runtime.worker().work_off()
    await runtime.crash(late_gate, "probe.mail.send")
    await runtime.worker().work_off()
    assert (await runtime.vote("olga", "happened")).counted
    await runtime.go_on()
    await runtime.extend(run, {"steps": [{"id": "more", "do": "probe.key.put", "with": {"name": "w"}}]})
    await runtime.go_on()
    async with runtime.faces.transaction("acme") as connection:
        await close_run(connection, runtime.definitions, "acme", run, ACTOR, "it is done")
    signer = FileSigner.load_or_create(tmp_path / "key.pem")
    making = Bundling(FileBlobStore(tmp_path), signer, "test", runtime.definitions)
    async with runtime.database.connection() as connection:
        material = await making.material(connection, "acme", run)
    return build_bundle(content_of(material, "test"), signer), signer


# -- the forgeries: each by its name, with words of the row that finds it ---------------------------------------------

GROUPS = {"ana": ["managers", "owners"], "ben": ["owners"], "cara": ["managers"], "olga": ["operators"]}


def people(f: Forged, but: dict[str, JsonObject] | None = None, **principals: list[str]) -> None:
    """Show who was in which group, by the one directory of this run."""
    shown: dict[str, Any] = {who: {"groups": groups, "standing": "person"} for who, groups in GROUPS.items()}
    shown |= but or {}
    meant = {f"person:{who}": [who] for who in shown} | principals
    f.people[f.event(ASKED)["data"]["directory"]] = {"people": shown, "principals": meant}


ASKED, VOTED, DECIDED, INTENDED = "approval.requested", "approval.voted", "approval.decided", "action.intended"
GATE, WRITE, DOUBT = 0, 1, 2  # the questions, in their order


def asked(f: Forged, number: int) -> dict[str, Any]:
    told: dict[str, Any] = f.asked[f.event(ASKED, number)["data"]["approval"]]
    return told


def terms(number: int, **more: Any) -> Any:
    return lambda f: asked(f, number)["terms"].update(more)


def data(kind: str, number: int = 0, step: str | None = None, **more: Any) -> Any:
    return lambda f: f.event(kind, number, step)["data"].update(more)


def actor(kind: str, number: int, who: str, step: str | None = None) -> Any:
    return lambda f: f.event(kind, number, step).update(actor=dict(zip(("kind", "id"), who.split(":"), strict=True)))


def drop(*kinds: str, step: str | None = None, number: int | None = None) -> Any:
    return lambda f: f.drop(*kinds, step=step, number=number)


def all_of(*parts: Any) -> Any:
    return lambda f: [part(f) for part in parts]


def moved(kind: str, number: int, step: str | None, to: int) -> Any:
    def move(f: Forged) -> None:
        event = f.events.pop(f.at(kind, number, step))
        f.events.insert(to, {**event, "ts": f.events[to]["ts"]})

    return move


def later(kind: str, number: int = 0, step: str | None = None) -> Any:
    return lambda f: f.later(f.at(kind, number, step))


def put(before: str, kind: str, step: str | None, number: int = 0, by: str = "engine:counterseal", **told: Any) -> Any:
    return lambda f: f.put(f.at(before, number, step), kind, step, by, **told)


def anew(**told: Any) -> Any:
    """The rule wants a login anew, and the first who approved the write has logged in so; others as they should."""

    def forge(f: Forged) -> None:
        asked(f, WRITE)["terms"]["step_up_seconds"] = 300
        for number in (0, 1):
            event = f.event(VOTED, number, "raise")
            login = {"at": event["ts"], "by": "oidc"}
            event["data"].update(channel="console", identity={"session": "s", "step_up": login})
        event = f.event(VOTED, 0, "raise")
        event["data"]["channel"] = told.get("channel", "console")
        login = {name: one for name, one in told.items() if name != "channel"}
        event["data"]["identity"]["step_up"].update(login)

    return forge


def glass(seconds: int = 600, **told: Any) -> Any:
    """The terms know an emergency, and the first who approved the write has broken the glass."""
    knows = {"break_glass": {"by": ["managers"], "review": ["owners"], "seconds": seconds}}
    vote = {"glass": True, "reason_given": True, "groups": ["group:managers"], **told}
    return all_of(terms(WRITE, **knows), data(VOTED, 0, "raise", **vote))


def without_step(f: Forged) -> None:
    """The gate never was: all its lines are gone, and it is no step of the story."""
    f.events = [event for event in f.events if event["step"] != "ok"]
    renumbered(f)


def renumbered(f: Forged) -> None:
    for number, place in enumerate(place for place, e in enumerate(f.events) if e["type"] == "checkpoint.committed"):
        f.events[place]["data"]["number"] = number


def gate_last(f: Forged) -> None:
    """People sign off after the write."""
    gate = [event for event in f.events if event["step"] == "ok"]
    f.events = [event for event in f.events if event["step"] != "ok"]
    place = f.at("step.succeeded", step="put")
    f.events[place:place] = [{**event, "ts": f.events[place]["ts"]} for event in gate]


def declared_harmless(f: Forged) -> None:
    f.definition["operations"]["probe.key.put"]["side_effects"] = "none"
    f.drop(INTENDED, "action.succeeded", step="put")


def rejected(f: Forged) -> None:
    """Everybody rejected the write, and it was made by the approval all the same."""
    for number in (2, 3):
        f.event(VOTED, number)["data"].update(choice="reject", reason_given=True)
    f.event(DECIDED, WRITE)["data"]["outcome"] = "rejected"


def paused(f: Forged) -> None:
    stop = f.event(INTENDED, step="put")["data"]["stop"]
    f.put(f.at("step.started", step="put"), "run.paused", None, "person:ana", reason_given=True, stop=stop)


def canceled(f: Forged) -> None:
    f.put(f.at("step.started", step="put"), "run.canceled", None, "person:ana", reason_given=False)


def in_the_tenant(kind: str, above: int, **told: Any) -> Any:
    """A line of the tenant, ``above`` the stop number of the write without people."""
    return lambda f: f.line(kind, f.event(INTENDED, step="put")["data"]["stop"] + above, **told)


def policy(f: Forged, **told: Any) -> dict[str, Any]:
    known: dict[str, Any] = f.event("decision.made")["data"]["policies"][0]
    return {"name": known["name"], "version": known["version"], "author": "a", "approver": "b", **told}


def other_card(number: int, **more: Any) -> Any:
    return lambda f: f.cards[f.event(ASKED, number)["data"]["approval"]].update(more)


def hidden(f: Forged) -> None:
    f.cards[f.event(ASKED, WRITE)["data"]["approval"]] = None


def escalated(f: Forged) -> None:
    f.put(f.at(VOTED, 2), "approval.escalated", "raise", approval=f.event(ASKED, WRITE)["data"]["approval"])
    f.drop(VOTED, step="raise", number=1)
    f.event(VOTED, 0, "raise").update(actor={"kind": "person", "id": "chief"})
    f.event(VOTED, 0, "raise")["data"]["groups"] = ["group:chiefs"]
    f.event(DECIDED, WRITE).update(actor={"kind": "person", "id": "chief"})


def shaped(f: Forged) -> None:
    asked(f, WRITE)["contributors"] = [{"role": "form_filler", "principal": "person:cara", "person": "cara"}]


def resent(f: Forged) -> None:
    """An action in doubt is sent again, and nobody had found out what became of it."""
    f.drop("approval.requested", "approval.voted", DECIDED, "approval.consumed", "action.doubt_resolved", step="mail")
    f.drop("step.parked", "step.resumed", step="mail")
    f.drop("step.started", step="mail", number=2)
    made = f.event("decision.made", step="mail")["data"]
    first = f.event(INTENDED, step="mail")["data"]
    place = f.at("action.in_doubt") + 1
    f.put(place, "decision.made", "mail", "policy:x", **{**made, "decision": "again"})
    f.put(place + 1, INTENDED, "mail", **{**first, "attempt": 2, "decision": "again"})
    f.put(place + 2, "action.succeeded", "mail", receipt=first["receipt"])


def old_people(f: Forged) -> None:
    """The directory by which they voted had been replaced by another an hour before."""
    f.line("directory.published", 1, name="d", version=1, digest=f.event(ASKED)["data"]["directory"])
    f.line("directory.published", 2, name="d", version=2, digest="newer")
    f.later(f.at(VOTED), timedelta(hours=1))


def other_steps(f: Forged) -> None:
    for edition in f.definition["editions"]:
        edition["raise"]["needs"] = []


def other_rules(f: Forged) -> None:
    (name,) = [name for name in f.files if name.startswith("policy/") and name.endswith(".json")]
    f.files[name] = f.files[name].replace(b'"two_person":true', b'"two_person":false')


def step_up_ruled(f: Forged) -> None:
    """The policy's rule asks for a login anew; the terms that people were asked on do not."""
    (name,) = [name for name in f.files if name.startswith("policy/") and name.endswith(".json")]
    f.files[name] = f.files[name].replace(b'"two_person":true', b'"step_up":"PT5M","two_person":true')


def added(file: str, data: bytes) -> Any:
    """More at the end of a file."""
    return lambda f: f.edits.append(lambda files: files.update({file: files[file] + data}))


def changed(file: str, old: bytes, new: bytes, *, last: bool = False) -> Any:
    """Other bytes in a file: in the first such place, or in the last."""

    def edit(files: dict[str, bytes]) -> None:
        assert old in files[file], file
        first, _, rest = files[file].rpartition(old) if last else files[file].partition(old)
        files[file] = first + new + rest

    return lambda f: f.edits.append(edit)


def relisted(f: Forged) -> None:
    """The commitments of one event are listed with another one."""
    changed(VALUES, b'"/output","', b'"/output","00')(f)


OPENED, APART = "disclosures", "values"
GATED, LET, RULES = "authority of people", "actions", "order of steps"
BY = {"author": "a", "approver": "a"}
INNER, HELD, TEXTS = "agents and runs within", "pauses and policies in force", "what it is judged by"

FORGERIES: dict[str, tuple[Any, str, str]] = {
    "quorum of two, one vote": (drop(VOTED, number=0), GATED, "do not meet its terms"),
    "a group lacks its vote": (
        data(VOTED, 1, "raise", groups=["group:owners"]), GATED, "do not meet its terms"
    ),
    "one person on two seats": (
        all_of(drop(VOTED, step="raise", number=0), data(VOTED, 0, "raise", groups=["group:managers", "group:owners"])),
        GATED, "two people",
    ),
    "terms of one vote for a gate of two": (terms(GATE, approvers=[{"group": "owners", "of": 1}]), LET, "approvers"),
    "terms without a group of the rule": (
        terms(WRITE, approvers=[{"group": "managers", "of": 1}], two_person=False), LET, "group:owners"
    ),
    "terms without the second person": (terms(WRITE, two_person=False), LET, "asks for two people"),
    "terms that let the requester decide": (terms(WRITE, allow=["requester"]), LET, "does not let"),
    "a doubt left to anybody": (terms(DOUBT, approvers=[{"group": "owners", "of": 1}]), LET, "decide about this doubt"),
    "the requester votes": (
        all_of(actor(VOTED, 1, "person:requester"), actor(DECIDED, GATE, "person:requester")),
        GATED, "shaped this as requester",
    ),
    "who shaped it votes": (shaped, GATED, "shaped this as form_filler"),
    "a vote of somebody outside of the group": (
        lambda f: people(f, {"cara": {"groups": ["desk"], "standing": "person"}}), GATED, "was not in group:managers"
    ),
    "a vote of nobody known": (
        all_of(people, actor(VOTED, 0, "person:ghost"), ), GATED, "could not vote"
    ),
    "a vote of somebody deactivated": (
        lambda f: people(f, {"ben": {"groups": ["owners"], "standing": "deactivated"}}), GATED, "could not vote"
    ),
    "the requester votes by another account": (
        lambda f: people(f, {}, requester=["ben"]), GATED, "ben shaped this as requester"
    ),
    "a machine votes": (actor(VOTED, 0, "token:robot"), GATED, "is no person"),
    "a vote for a group that was not asked": (data(VOTED, 0, groups=["group:desk"]), GATED, "was not asked"),
    "a vote without groups": (data(VOTED, 0, groups=[]), GATED, "counts for no group"),
    "a vote of which nothing says who gave it": (data(VOTED, 0, identity=None), GATED, "was known"),
    "an emergency that the rule does not know": (glass(), LET, "does not let them break the glass so"),
    "glass that no rule lets anybody break": (data(VOTED, 0, "raise", glass=True), GATED, "no rule lets anybody"),
    "glass broken for no reason": (glass(reason_given=False), GATED, "it gives no reason"),
    "glass broken by somebody else": (glass(groups=["group:owners"]), GATED, "not as one of those who may"),
    "glass broken for another": (glass(on_behalf="ben"), GATED, "no approval of one's own"),
    "glass broken at a gate": (data(VOTED, 0, glass=True), GATED, "no rule lets anybody"),
    "glass that was closed again": (all_of(glass(), later("step.started", 1, "raise")), GATED, "closed again"),
    "approved without a login anew": (terms(WRITE, step_up_seconds=300), GATED, "approved without one"),
    "a login anew at another door": (anew(channel="slack"), GATED, "approved without one"),
    "a login anew in no known way": (anew(by="trust"), GATED, "approved without one"),
    "a login anew at no time": (anew(at="lately"), GATED, "approved without one"),
    "a login before the question": (anew(at="2020-01-01T00:00:00+00:00"), GATED, "before the question was asked"),
    "a login after the vote": (anew(at="2090-01-01T00:00:00+00:00"), GATED, "was too old"),
    "terms without the login anew of the rule": (step_up_ruled, LET, "asks for a login anew"),
    "voted for somebody who has not said so": (
        all_of(people, data(VOTED, 1, on_behalf="cara", groups=["group:managers"])), GATED, "did not say so"
    ),
    "voted for somebody who had voted": (data(VOTED, 1, on_behalf="ana"), GATED, "who had voted"),
    "voted on what was edited": (
        lambda f: f.put(
            f.at(VOTED, 0, "raise"), "approval.edited", "raise", "person:ana", fields=["priority"], channel="console",
            approval=f.event(ASKED, WRITE)["data"]["approval"], directory=f.event(ASKED)["data"]["directory"],
        ), GATED, "what was edited since",
    ),
    "a rejection without a reason": (data(VOTED, 0, choice="reject", reason_given=False), GATED, "gives no reason"),
    "an answer that the question does not have": (data(VOTED, 0, choice="happened"), GATED, "no answer to this"),
    "a vote after the question had expired": (later(VOTED, 0), GATED, "had expired"),
    "a vote after the decision": (moved(VOTED, 0, None, 13), GATED, "after the question was approved"),
    "a stale approval": (later("step.started", 1, "raise"), GATED, "too old"),
    "decided by nobody who voted": (actor(DECIDED, 0, "person:cara"), GATED, "no vote decided it"),
    "decided against its votes": (data(DECIDED, 0, outcome="rejected"), GATED, "nobody rejected it"),
    "rejected, and gone on": (rejected, "authority", "by an approval that was rejected"),
    "escalated before its time": (escalated, GATED, "before its time"),
    "escalated by nobody": (
        all_of(escalated, drop("approval.escalated")), GATED, "was not asked"
    ),
    "the same answer used at another step": (
        lambda f: f.event("approval.consumed")["data"].update(approval=f.event(ASKED, WRITE)["data"]["approval"]),
        GATED, "nobody was asked this",
    ),
    "a gate passed without a question": (
        drop(ASKED, VOTED, DECIDED, "approval.consumed", step="ok"), RULES, "the gate"
    ),
    "a gate left out": (without_step, RULES, "before ok is over"),
    "signed off after the write": (gate_last, RULES, "raise begins before ok is over"),
    "a decision that no policy made": (actor("decision.made", 0, "person:ana"), LET, "is no policy"),
    "a decision that its rules do not give": (data("decision.made", 1, "raise", outcome="allow"), LET, "comes to"),
    "a decision by a rule that does not exist": (data("decision.made", 0, rules=["mercy"]), LET, "has a rule"),
    "a decision that leaves out a rule": (
        data("decision.made", 1, "raise", rules=["probe"], outcome="allow"), LET, "the decision leaves it out",
    ),
    "a question in another's name": (
        lambda f: asked(f, WRITE).update(requester="cara"), GATED, "its requester is 'cara'"
    ),
    "an answer about a doubt that was not used up": (
        drop("approval.consumed", step="mail"), LET, "was not used up"
    ),
    "an answer used twice": (
        lambda f: f.events.insert(f.at("approval.consumed"), f.event("approval.consumed")), GATED, "was used before"
    ),
    "a vote by a directory of before": (
        all_of(old_people, people), HELD, "another directory was in use"
    ),
    "a decision in spite of errors": (data("decision.made", 0, errors=["raising"]), LET, "could not be evaluated"),
    "a decision used twice": (
        lambda f: f.event(INTENDED, step="more")["data"].update(
            decision=f.event(INTENDED, step="put")["data"]["decision"],
            action=f.event(INTENDED, step="put")["data"]["action"],
        ), LET, "not the newest",
    ),
    "an effect without an intent": (drop(INTENDED, "action.succeeded", step="put"), RULES, "has an effect"),
    "an effect declared to be none": (declared_harmless, TEXTS, "other declarations"),
    "an effect under a name without one": (
        lambda f: [
            e["data"].update(operation="probe.value.read") for e in f.events
            if e["step"] == "put" and "operation" in e["data"]
        ], LET, "declared to have no effect",
    ),
    "an attempt left out": (data(INTENDED, 0, "put", attempt=2), LET, "follows attempt 0"),
    "a read that nothing let out": (drop("decision.made", step="read"), RULES, "policy did not let it"),
    "a doubt that nobody ended": (data("action.doubt_resolved", by=None), LET, "nothing says who"),
    "a doubt that a probe ended, of what cannot be asked": (
        data("action.doubt_resolved", by="probe", approval=None), LET, "is declared to leave"
    ),
    "a doubt that nobody found out about": (
        data("action.doubt_resolved", by="none", approval=None), LET, "nobody found out"
    ),
    "a doubt decided without a question": (
        lambda f: f.event("action.doubt_resolved")["data"].update(approval=f.event(ASKED, GATE)["data"]["approval"]),
        LET, "no question about this action",
    ),
    "a doubt decided otherwise than people said": (
        all_of(
            data(VOTED, 4, choice="fail"), data(DECIDED, DOUBT, outcome="fail"),
            drop("approval.consumed", step="mail"),
        ), LET, "people said fail",
    ),
    "sent again in doubt": (resent, LET, "nothing has ended the doubt"),
    "a card of another operation": (other_card(WRITE, operation="probe.mail.send"), LET, "another operation"),
    "a card of another step": (other_card(WRITE, step="put"), LET, "another step"),
    "a card of another workflow": (other_card(GATE, workflow="harmless"), LET, "another workflow"),
    "a card of another tier": (other_card(WRITE, tier="low"), LET, "another tier"),
    "a card with another rule": (other_card(WRITE, rules=[{"id": "probe", "because": "x"}]), LET, "the card names"),
    "a card withheld although it has no secret": (hidden, LET, "nothing on it is secret"),
    "let out while the run was paused": (paused, HELD, "while the run was paused"),
    "let out while its connector was paused": (
        in_the_tenant("pause.set", -1, paused="connector:probe", reason="x"), HELD, "connector:probe was paused"
    ),
    "let out while its operation was denied": (
        in_the_tenant("policy.activated", -1, name="counterseal-deny.probe.effect.apply", version=1, digest="d", **BY),
        HELD,
        "was in force, and did not judge it",
    ),
    "let out while its tenant was paused": (
        in_the_tenant("pause.set", -1, paused="tenant", reason="x"), HELD, "tenant was paused"
    ),
    "judged by a policy that was retired": (
        lambda f: in_the_tenant("policy.retired", -1, **policy(f, digest="d"))(f), HELD, "was retired"
    ),
    "judged by a policy that was not in force": (
        lambda f: in_the_tenant("policy.activated", -1, **policy(f, digest="d"))(f), HELD, "in another version"
    ),
    "stop numbers that run back": (data(INTENDED, 2, stop=0), HELD, "below that of an earlier one"),
    "an intent without its stop number": (data(INTENDED, 0, stop=None), LET, "stop number"),
    "let out after the cancel": (canceled, LET, "after the run was canceled"),
    "a step that began twice": (
        lambda f: f.events.insert(f.at("step.started", 0, "put"), f.event("step.started", 0, "put")),
        RULES, "put is running",
    ),
    "a step that was done without being begun": (drop("step.started", step="put"), RULES, "put is not begun"),
    "a step resumed by nothing": (drop("step.parked", step="ok"), RULES, "ok is running, and resumed"),
    "another operation than the workflow's": (
        data("step.started", 0, "put", operation="set"), RULES, "in the workflow"
    ),
    "a checkpoint left out": (drop("checkpoint.committed", number=4), RULES, "follows 3"),
    "a success with a step left out": (
        lambda f: setattr(f, "events", [e for e in f.events if e["step"] != "child"]), RULES, "without child"
    ),
    "a success with a step that had failed": (
        lambda f: f.event("step.succeeded", step="put").update(type="step.failed", data={"class": "x"}),
        RULES, "although put was failed",
    ),
    "canceled by nobody": (data("run.closed", status="canceled"), RULES, "nobody canceled it"),
    "failed for no reason": (data("run.closed", status="failed_terminal"), RULES, "nothing says why"),
    "an end that does not exist": (data("run.closed", status="excused"), RULES, "no run ends"),
    "an extension that nothing names": (drop("run.extended"), RULES, "no extension has added it"),
    "an extension by another number": (
        lambda f: f.event("run.extended")["data"].update(number=2), RULES, "extension 2 is number 1"
    ),
    "an extension of other steps": (data("run.extended", steps=["other"]), RULES, "other steps added"),
    "a child that nothing names": (drop("run.continued"), INNER, "names the run"),
    "a child of another workflow": (data("run.continued", workflow="other"), INNER, "other was started"),
    "a call that no model made": (data("agent.answered", 1, calls=[]), INNER, "no model has made the call"),
    "a call that was refused": (
        data("agent.answered", 1, calls=[["probe.effect.apply", "misfit"]]), INNER, "no model has made the call"
    ),
    "a call of another tool": (
        data("agent.answered", 1, calls=[["probe.value.read", ""]]), INNER, "the model called probe.value.read"
    ),
    "a call of what is no tool": (
        data("agent.answered", 1, calls=[["probe.key.put", ""]]), INNER, "may not call probe.key.put"
    ),
    "a turn after the result": (data("agent.answered", 0, came="answer"), INNER, "given its result"),
    "a turn without the answer before": (drop("agent.answered", number=1), INNER, "without the answer"),
    "an answer that no model gave": (drop("step.succeeded", step="triage/2"), INNER, "the model has given none"),
    "another model": (
        lambda f: f.event("step.succeeded", 0, "triage/1")["data"]["usage"].update(model="cheap"),
        INNER, "cheap answered",
    ),
    "an agent of another model": (data("agent.began", model="cheap"), INNER, "has another model"),
    "an agent that nothing began": (drop("agent.began"), INNER, "its agent has not"),
    "a wait that ends for nobody": (data("wait.completed", wait="w"), RULES, "nobody waited for"),
    "a run of another tenant": (data("run.opened", tenant="other"), "run", "opened in the tenant 'other'"),
    "steps that the workflow's text does not have": (other_steps, "texts", "other steps than the workflow's text"),
    "rules that the policy's text does not have": (other_rules, "texts", "is not its text"),
    "a claim that no statement has": (lambda f: f.claims.update(redaction_note="full"), "signature", "no bundle has"),
    "another release as its producer": (lambda f: f.claims.update(producer="the board agreed"), "statement", "release"),
    "another status in the statement": (lambda f: f.claims.update(status="canceled"), "statement", "status differs"),
    "a false output": (
        lambda f: f.bind("step.succeeded", "put", {"/output/name": "x"}, {"/output/name": "y"}),
        APART, "nothing in its line commits",
    ),
    "a false state": (
        lambda f: f.bind("step.succeeded", "read", {"/values/found": 1}, {"/values/found": 2}),
        APART, "nothing in its line commits",
    ),
    "an output that its line does not bind": (
        all_of(lambda f: f.bind("step.succeeded", "put", {"/output": "x"}, {"/output": "x"}), relisted),
        APART, "lists other values",
    ),
    "an output of another event": (
        lambda f: f.bind("step.succeeded", "put", {"/output/a": 1}, {f"/{'0' * 64}/output/a": 1}),
        APART, "nothing in its line commits",
    ),
    "a value of an event that there is not": (
        added(VALUES, b'{"opened":[["%s","/x",1]],"seq":9999,"values":null}\n' % (b"0" * 32)),
        APART, "which there is not",
    ),
    "a reason under another question": (
        data(VOTED, 0, committed=[["/approval/other/vote/ana/x/reason", "0" * 64]]), "lines", "what is not its own"
    ),
    "a member of a line": (data(VOTED, 0, also_approved_by="the board"), "lines", "'also_approved_by'"),
    "a member within a line": (
        lambda f: f.event("run.opened")["data"]["workflow"].update(signed_off="yes"), "lines", "'signed_off'"
    ),
    "a member of how somebody was known": (
        lambda f: f.event(VOTED)["data"]["identity"].update(mfa="yes"), "lines", "'mfa'"
    ),
    "a number that is none": (data("step.started", 0, epoch="x"), "lines", "'epoch' as what it never is"),
    "an answer to nothing is used up": (
        lambda f: f.event("approval.consumed")["data"].update(approval=None), "lines", "'approval' as what it never is"
    ),
    "known by nothing": (data(VOTED, 0, identity={}), GATED, "was known"),
    "known by a number": (data(VOTED, 0, identity={"named": 0}), "lines", "no text"),
    "a policy under another name": (
        lambda f: f.event("decision.made", 1)["data"]["policies"][0].update(version=9), "authority", "names a policy"
    ),
    "an object in place of a word": (data(VOTED, 0, channel={"also_approved_by": "the board"}), "lines", "'channel'"),
    "an object in a list": (data("step.succeeded", 0, writes=[["x", {"agreed": 1}]]), "lines", "'writes'"),
    "a term that no gate has": (
        lambda f: f.definition["editions"][0]["ok"]["terms"].update(waived="yes"), TEXTS, "'waived'"
    ),
    "another text in the README": (changed("README.txt", b"CHECK IT", b"TRUST IT"), "readme", "every bundle has"),
    "words around the key": (added("public-key.pem", b"It is that of the board.\n"), "readme", "more than a key"),
    **{
        f"a member of {file}": (changed(file, b"}", b',"zz":1}', last=True), row, "")
        for file, row in {
            "approvals.jsonl": "approvals", "receipts.jsonl": "receipts", "attempts.jsonl": "attempts",
            "checkpoints.jsonl": "checkpoints", "costs.json": "costs", "run.json": "run", "run-head.json": "run",
            "disclosures.jsonl": OPENED, VALUES: APART, "definition.json": TEXTS,
        }.items()
    },
    **{
        f"a line more in {file}": (added(file, b"{}\n"), row, "")
        for file, row in {
            "approvals.jsonl": "approvals", "receipts.jsonl": "receipts", "attempts.jsonl": "attempts",
            "checkpoints.jsonl": "checkpoints", "disclosures.jsonl": OPENED, VALUES: APART, "tenant.jsonl": TEXTS,
        }.items()
    },
    "a member of a line of the tenant": (
        in_the_tenant("pause.set", 9, paused="tenant", reason="x", agreed="yes"), TEXTS, "'agreed'"
    ),
    "a member of somebody in the directory": (
        lambda f: people(f, {"cara": {"groups": ["managers"], "standing": "person", "board": True}}), TEXTS, "board"
    ),
    "a definition spelled otherwise": (changed("definition.json", b"{", b"{ "), TEXTS, "spelled canonically"),
    "an event of a later release": (
        lambda f: f.put(5, "run.excused", None), "chain", "newer than this verifier"
    ),
}  # fmt: skip


async def test_every_false_history_is_found_and_the_true_one_is_not(whole: Any, tmp_path: Path) -> None:
    bundle, signer = whole
    key, path = tmp_path / "public.pem", tmp_path / "forged.zip"
    key.write_bytes(signer.public_key.pem)

    def failed(forge: Any) -> dict[str, str]:
        forged = Forged(bundle)
        forge(forged)
        laid(path, forged.sealed(signer))
        return {row.check: row.detail for row in verify_bundle(path, public_key=key, compiler=Texts()).failed}

    assert failed(lambda f: None) == {}, "taken apart and put together again, it is as true as before"
    assert failed(people) == {}
    passed = []
    for name, (forge, row, words) in FORGERIES.items():
        found = failed(forge)
        if words not in found.get(row, ""):
            passed.append(f"{name}: {row}: {words!r} not in {found}")
    assert passed == [], "\n".join(passed)


# What only `counterseal evidence verify` finds: it compiles the texts. Nobody else says that they are right.
COMPILED = {name for name, (_, row, _) in FORGERIES.items() if row == "texts"}


@pytest.mark.timeout(0 if DEEP else 600)
async def test_the_verifiers_of_one_file_come_to_the_same_verdicts(whole: Any, tmp_path: Path) -> None:
    """Holds `verify.py`, and `verify.mjs`, which is another program, to the same verdicts and rows."""
    bundle, signer = whole
    key = tmp_path / "public.pem"
    key.write_bytes(signer.public_key.pem)
    paths, wanted = list[Path](), list[tuple[int, set[str]]]()
    random, forges = Random(7), {"": lambda f: None, **{name: forge for name, (forge, _, _) in FORGERIES.items()}}
    datas = {"as it was built": bundle}
    for name, forge in forges.items():
        forged = Forged(bundle)
        forge(forged)
        datas[name] = forged.sealed(signer)
    files = Forged(bundle).files
    for number, (name, data) in enumerate(islice(contents(random, files), CHANGES // 4)):
        datas[f"{number}: a change of {name}"] = resealed(bundle, {name: data}, signer)
    forged_zip = datas["quorum of two, one vote"].bytes
    for number, data in enumerate(islice(containers(random, bundle.bytes, forged_zip), CHANGES // 4)):
        datas[f"{number}: a change of the zip"] = replace(bundle, bytes=data)
    for number, data in enumerate(datas.values()):
        paths.append(laid(tmp_path / f"{number}.zip", data))
        found = verify_bundle(paths[-1], public_key=key)
        wanted.append((found.exit_code, {row.check for row in found.failed}))
    named = [*zip(datas, wanted, strict=True)]
    assert {name for name, (code, _) in named if code == 0} == {"as it was built", "", *COMPILED}
    assert [*zip(datas, by_python(tmp_path, key, paths), strict=True)] == named
    others = by_node(tmp_path, key, paths)
    assert [code for code, _ in others] == [code for code, _ in wanted]
    differ = {
        name: (rows, ours) for (name, (_, ours)), (_, rows) in zip(named, others, strict=True)
        if name in forges and rows != ours
    }  # fmt: skip
    assert differ == {}


@pytest.mark.timeout(0 if DEEP else 600)
async def test_no_change_of_a_container_or_of_a_file_passes(whole: Any, tmp_path: Path) -> None:
    """Files are listed and signed anew, with the trusted key. 10,000 of each with COUNTERSEAL_DEEP=1."""
    bundle, signer = whole
    key, path, random = tmp_path / "public.pem", tmp_path / "changed.zip", Random(42)
    key.write_bytes(signer.public_key.pem)
    forged = Forged(bundle)
    terms(GATE, approvers=[{"group": "owners", "of": 1}])(forged)

    def passes(made: Bundle) -> bool:
        return verify_bundle(laid(path, made), public_key=key).ok

    assert passes(bundle)
    changed = islice(containers(random, bundle.bytes, forged.sealed(signer).bytes), CHANGES)
    assert [number for number, data in enumerate(changed) if passes(replace(bundle, bytes=data))] == []
    files = Forged(bundle).files
    # A sidecar that nobody named anew.
    for _, data in islice(contents(random, files, VALUES), CHANGES):
        assert not passes(replace(bundle, sidecar=data)), data
    for name, data in islice(contents(random, files), CHANGES):
        assert not passes(resealed(bundle, {name: data}, signer)), (name, data)
