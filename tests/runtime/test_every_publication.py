"""Every publication by itself: what it asks of the store in which order, and what it answers or refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.canonical import sha256_hex
from core.errors import AuthorizationError, InputError
from core.identity import Directory
from evidence.chain import Actor
from policy.sets import PolicySet
from runtime.definition.catalog import Definitions
from runtime.definition.deciders import Findings
from runtime.definition.people import load_directory
from runtime.definition.reserved import POLICY_APPROVERS
from runtime.requests import consequences, publishing, renewing, twofold
from runtime.requests.consequences import change_of
from runtime.requests.renewing import Before, renew_directory, renew_policy, renew_workflow
from runtime.store.documents import Edition, Past, PublishedVersion, StoredWorkflow
from tests.runtime.conftest import probes
from tests.support.recorded import Recorded, line
from tests.support.rows import uid
from tests.support.whole import as_it_was

PLACE = Path(__file__).parent
ANN, AT = Actor("person", "ann"), datetime(2026, 11, 1, tzinfo=UTC)
HERE: Any = "transaction"
FLOW = "workflow: flow\nversion: 2\nsteps: [{id: act, do: probe.effect.apply, with: {name: n}}]\n"
POLICY = "policy: rules\nversion: 2\nrules: [{id: all, match: {connector: probe}, outcome: allow}]\n"
PEOPLE = f"""directory: people
version: 2
people: [{{id: ann, name: Ann}}, {{id: bob, name: Bob}}, {{id: cid, name: Cid, active: false}}]
service_accounts: [{{id: eve, owner: bob}}]
groups: {{leads: [ann], {POLICY_APPROVERS}: [ann, bob, cid]}}
"""
FEWER = PEOPLE.replace("[ann, bob, cid]", "[ann]")


def people(text: str = PEOPLE) -> Directory:
    found = load_directory(text, "d.yaml")
    return Directory.of(sha256_hex(text.encode()), found.entries)


NOBODY = Directory.of("", [])


def edition(text: str, name: str, number: int = 2) -> Edition:
    return Edition(name, number, sha256_hex(text.encode()))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return Definitions(probes())


def pasts(text: str, name: str) -> dict[str, Past]:
    """Everything that may have been published before this text."""
    own, other, another = edition(text, name), edition("x", name), Edition("other", 9, "d9")
    lower, higher = Edition(name, 1, "d1"), Edition(name, 3, "d3")
    return {
        "nothing": Past((), ()),
        "it is in use": Past((own,), (own,)),
        "it was, and nothing is": Past((own,), ()),
        "it was, and a lower one is": Past((own, lower), (lower,)),
        "it was, and one of another name is": Past((own, another), (another,)),
        "it was, and a higher one is": Past((own, higher), (higher,)),
        "another text of its number": Past((other,), (other,)),
        "another text of its number, away": Past((other,), ()),
        "another text, and a higher one": Past((other, higher), (higher,)),
        "a lower one": Past((lower,), (lower,)),
        "a lower one, away": Past((lower,), ()),
        "a higher one": Past((higher,), (higher,)),
        "a higher one, away": Past((higher, lower), ()),
        "one of another name": Past((another,), (another,)),
    }


def published(asked: Recorded) -> None:
    asked.put(renewing, publish_workflow="publish", publish_policy="publish", publish_directory="publish")


@pytest.mark.req("X-1")
async def test_a_start_publishes_what_takes_the_tenant_forward(asked: Recorded, definitions: Definitions) -> None:
    published(asked)
    found: dict[str, Any] = {}
    for name, past in pasts(FLOW, "flow").items():
        before = Before("acme", past.editions, Past((), ()))
        found[f"workflow: {name}"] = await asked.of(renew_workflow(HERE, definitions, before, FLOW, "f.yaml", ANN))
    for (name, past), group in product(pasts(POLICY, "rules").items(), (False, True)):
        if group and name not in ("nothing", "it is in use", "a higher one"):
            continue
        asked.put(renewing.documents, past_policies=past)
        asked.put(renewing.tenants, directory=people() if group else NOBODY)
        before = Before("acme", (), past)
        renewed = renew_policy(HERE, definitions, before, POLICY, "p.yaml", ANN)
        found[f"policy: {name}{', with a group' if group else ''}"] = await asked.of(renewed)
    asked.put(renewing.documents, past_policies=Past((), ()))
    asked.put(renewing.tenants, directory=NOBODY)
    before = Before("acme", (), Past((Edition("rules", 1, "d1"),), ()))
    renewed = renew_policy(HERE, definitions, before, POLICY, "p.yaml", ANN)
    found["policy: away before, and published since"] = await asked.of(renewed)
    as_it_was(PLACE / "every_renewal.json", found)


@pytest.mark.req("X-1", "P-12")
async def test_a_start_replaces_no_group_that_takes_two(asked: Recorded) -> None:
    published(asked)
    found: dict[str, Any] = {}
    few = ("nothing", "it is in use", "a higher one", "another text of its number")
    groups = {"no group": NOBODY, "the same group": people(), "another group": people(FEWER)}
    for (name, past), (which, now) in product(pasts(PEOPLE, "people").items(), groups.items()):
        if which != "no group" and name not in few:
            continue
        asked.put(renewing.documents, past_directories=past)
        asked.put(renewing.tenants, directory=now)
        renewed = renew_directory(HERE, Before("acme", (), Past((), ())), PEOPLE, "d.yaml", ANN)
        found[f"{name}, {which}"] = await asked.of(renewed)
    as_it_was(PLACE / "every_directory_renewed.json", found)


async def test_what_a_tenant_has_is_looked_at_with_its_documents_locked(asked: Recorded) -> None:
    past = Past((Edition("rules", 1, "d1"),), ())
    versions = [PublishedVersion("flow", number, f"d{number}", "ann", AT, None, (), ()) for number in (2, 1)]
    asked.put(renewing.tenants, lock=None)
    asked.put(renewing.documents, past_policies=past, workflow_versions=versions)
    found = await Before.look(HERE, "acme")
    assert found == Before("acme", (Edition("flow", 2, "d2"), Edition("flow", 1, "d1")), past)
    assert asked.calls == [
        "tenants.lock(transaction, acme)",
        "documents.past_policies(transaction, acme)",
        "documents.workflow_versions(transaction, acme)",
    ]


@pytest.mark.req("P-12")
async def test_a_change_of_two_is_made_by_those_of_the_group(asked: Recorded) -> None:
    """People, their tokens and their machines; nobody by the name of the operating system, and nobody who left."""
    found: dict[str, Any] = {}
    asked.put(twofold.audit, record=None)
    events = ("proposed", "published")
    kinds = ("person", "token", "service_account", "os", "unresolved", "slack")
    for kind, name in product(kinds, ("ann", "bob", "cid", "eve", "zoe")):
        asked.put(twofold.tenants, directory=people())
        said = await asked.of(twofold.member(HERE, "acme", Actor(kind, name)))
        found.setdefault(said[-1], []).append(f"{kind} {name}")
    for before in ((), ("ann",), ("bob",), ("ann", "bob"), ("cid", "zoe"), ("zoe", "bob")):
        for person in ("ann", "bob"):
            asked.put(twofold.tenants, directory=people())
            asked.put(twofold.documents, proposers={*before})
            who: Any = (HERE, "acme", events, {"digest": "d", "name": "n"}, Actor("token", person))
            found[f"{person} after {', '.join(before) or 'nobody'}"] = await asked.of(twofold.first_of_two(*who))
    asked.put(twofold.tenants, directory=NOBODY)
    who = (HERE, "acme", events, {"digest": "d"}, ANN)
    found["no group"] = await asked.of(twofold.first_of_two(*who))
    as_it_was(PLACE / "every_second.json", found)


def store(asked: Recorded, **more: Any) -> None:
    """A store in which every publication is new."""

    def kept(_: Any, tenant: str, one: StoredWorkflow, by: str) -> bool:
        asked.calls.append(line([one.name, one.version, one.digest, one.source, sorted(one.operations)]))
        return bool(more.get("publish_workflow", True))

    asked.put(publishing.tenants, lock=None, groups=None, directory=NOBODY, replace_directory=None)
    asked.put(publishing.tenants, set_workflow_caps=None, create=True, set_slots=None, set_caps=None)
    asked.put(publishing.audit, record=None)
    asked.put(Definitions, policies=PolicySet())
    asked.put(publishing.unavailable, forget=None)
    told: dict[str, Any] = {
        "publish_workflow": True,
        "in_force": ("d1", "d2"),
        "newest_workflows": [],
        "workflow_versions": [],
    }
    told |= {"known_versions": [], "retire_workflow": True, "policy": None} | more
    asked.put(publishing.documents, **told | {"publish_workflow": kept})
    asked.put(publishing, check_children=None, first_of_two=None)


CAPPED = FLOW.replace("steps", "caps: {max_concurrency: 3, max_runs_per_min: 7}\nsteps")
VERSIONS = [PublishedVersion("flow", number, "d", "ann", AT, None, (), ()) for number in (3, 2)]


@pytest.mark.req("X-1")
async def test_a_workflow_is_published_once_by_whoever_owns_its_name(asked: Recorded, definitions: Definitions) -> None:
    found: dict[str, Any] = {}
    publish = publishing.publish_workflow
    store(asked)
    found["a new one"] = await asked.of(publish(HERE, definitions, "acme", FLOW, "f.yaml", ANN))
    found["with caps"] = await asked.of(publish(HERE, definitions, "acme", CAPPED, "f.yaml", ANN))
    one = FLOW.replace("steps", "caps: {max_concurrency: 3}\nsteps")
    found["with one cap"] = await asked.of(publish(HERE, definitions, "acme", one, "f.yaml", ANN))
    asks = "workflow: w\nversion: 1\nsteps: [{id: g, approve: {summary: s, approvers: {group: leads}}}]\n"
    found["that asks"] = (await asked.of(publish(HERE, definitions, "acme", asks, "f.yaml", ANN)))[-1:]
    for newest in ([], [StoredWorkflow("flow", 2, "d", FLOW, {})]):
        store(asked, publish_workflow=False, newest_workflows=newest)
        name = f"again, {'retired' if not newest else 'and not retired'}"
        found[name] = await asked.of(publish(HERE, definitions, "acme", FLOW, "f.yaml", ANN))
    for person in ("ann", "bob"):
        store(asked, workflow_versions=VERSIONS)
        actor = Actor("person", person)
        published = publish(HERE, definitions, "acme", FLOW, "f.yaml", actor, owned=True)
        found[f"owned by ann, of {person}"] = (await asked.of(published))[:3]
        first = publish(
            HERE, definitions, "acme", FLOW.replace("version: 2", "version: 1"), "f.yaml", actor, owned=True
        )
        found[f"owned by ann, its first version of {person}"] = (await asked.of(first))[:3]
    as_it_was(PLACE / "every_publication.json", found)


@pytest.mark.req("X-1")
async def test_a_version_is_retired_for_good(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    for changed, left, number in product((True, False), ([], VERSIONS), (2, 9)):
        store(asked, known_versions=VERSIONS, retire_workflow=changed, newest_workflows=left)
        retired = publishing.retire_workflow(HERE, "acme", "flow", number, ANN)
        name = f"version {number}, {'' if changed else 'not '}changed, {len(left)} left"
        found[name] = await asked.of(retired)
    as_it_was(PLACE / "every_retirement.json", found)


@pytest.mark.req("P-12")
async def test_people_are_published_at_once_unless_that_takes_two(asked: Recorded) -> None:
    found: dict[str, Any] = {}
    for (name, now), second in product({"no group": NOBODY, "the same": people()}.items(), (None, "", "bob")):
        store(asked)
        asked.put(publishing.tenants, directory=now)
        asked.put(publishing, first_of_two=second)
        published = publishing.publish_directory(HERE, "acme", PEOPLE, "d.yaml", ANN)
        found[f"before: {name}, first: {second}"] = [one[:300] for one in await asked.of(published)]
    as_it_was(PLACE / "every_directory_published.json", found)


@pytest.mark.req("P-12")
async def test_whoever_publishes_people_is_warned_of_what_nobody_decides_among_these(asked: Recorded) -> None:
    store(asked)
    asked.put(publishing, undecided=("nobody may", "few may"))
    asked.put(publishing.tenants, directory=people())
    published = await publishing.publish_directory(HERE, "acme", PEOPLE, "d.yaml", ANN)
    assert (published.changed, published.waits, published.warnings) == (True, False, ("nobody may", "few may"))
    assert [call.partition("(")[0] for call in asked.calls[-2:]] == [
        "tenants.replace_directory",
        "publishing.undecided",
    ]


ASKS = """policy: rules
version: 2
rules: [{id: all, match: {connector: probe}, outcome: needs_approval, approvers: [{group: nobody}]}]
"""


@pytest.mark.req("P-12")
async def test_questions_that_nobody_could_decide_are_told_policy_by_policy(asked: Recorded) -> None:
    """A policy that is not stored, or that cannot be read, asks nobody."""
    texts = {"a": ("rules", 2, ASKS), "b": None, "c": ("broken", 1, "policy: ["), "d": ("others", 3, ASKS)}
    store(asked, in_force=tuple(texts), policy=lambda _, tenant, digest: texts[digest])
    asked.put(publishing.tenants, groups={"leads": frozenset({"ann"})})
    said = await publishing.undecided(HERE, "acme")
    assert [line.partition(":")[0] for line in said] == ["rules@2", "others@3"]
    assert all("nobody" in line for line in said)
    assert asked.calls == [
        "tenants.groups(transaction, acme)",
        "documents.in_force(transaction, acme)",
        *(f"documents.policy(transaction, acme, {digest})" for digest in texts),
    ]
    asked.put_at_once(publishing.deciders, of_policy=Findings(["nobody may", "none is left"], ["few may", "one may"]))
    asked.put(publishing.documents, in_force=("a", "d"))
    words = ("nobody may", "none is left", "few may", "one may")
    assert await publishing.undecided(HERE, "acme") == (*words, *words)


@pytest.mark.req("Q-12")
@pytest.mark.parametrize(
    ("created", "given", "calls"),
    [
        (True, {}, ["set_slots(transaction, acme, 16)"]),
        (False, {}, []),
        (True, {"max_concurrency": 3}, ["set_slots(transaction, acme, 3)"]),
        (False, {"max_concurrency": 3}, ["set_slots(transaction, acme, 3)"]),
        (False, {"max_runs_per_min": 4}, ["set_caps(transaction, acme, 4, null, null)"]),
        (False, {"max_runs_per_min": 0}, ["set_caps(transaction, acme, 0, null, null)"]),
        (False, {"max_writes_per_run": 5}, ["set_caps(transaction, acme, null, 5, null)"]),
        (False, {"weight": 0.5}, ["set_caps(transaction, acme, null, null, 0.5)"]),
        (
            True,
            {"max_concurrency": 1, "max_runs_per_min": 2, "max_writes_per_run": 3, "weight": 4.0},
            ["set_slots(transaction, acme, 1)", "set_caps(transaction, acme, 2, 3, 4.0)"],
        ),
    ],
)
async def test_a_tenant_has_the_caps_that_are_given(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, created: bool, given: dict[str, Any], calls: list[str]
) -> None:
    store(asked)
    asked.put(publishing.tenants, create=created)
    monkeypatch.setattr(publishing, "new_id", lambda: uid(7))
    assert await publishing.ensure_tenant(HERE, "acme", **given) is created
    assert asked.calls == ["tenants.create(transaction, acme, #7)", *(f"tenants.{call}" for call in calls)]
    with pytest.raises(InputError):
        await publishing.ensure_tenant(HERE, "No tenant")


def member(name: str, digest: str) -> Any:
    return SimpleNamespace(name=name, digest=digest)


@pytest.mark.req("U-4")
@pytest.mark.parametrize(
    ("name", "policy", "digests"),
    [
        ("b", member("b", "d9"), ("d1", "d9", "d3", "gone", "lost")),
        ("b", None, ("d1", "d3", "gone", "lost")),
        ("c", member("c", "d0"), ("d1", "d2", "d0", "gone", "lost")),
        ("a", member("a", "d9"), ("d9", "d2", "d3", "gone", "lost")),
        ("aa", member("aa", "d9"), ("d1", "d9", "d2", "d3", "gone", "lost")),
        ("d", None, ("d1", "d2", "d3", "gone", "lost")),
    ],
)
async def test_a_change_replaces_the_policy_of_its_name_and_no_other(
    asked: Recorded, monkeypatch: pytest.MonkeyPatch, name: str, policy: Any, digests: tuple[str, ...]
) -> None:
    """One that is in force and not in the database stays. The order is that of the names, whatever it was."""
    stored = Past((Edition("a", 1, "d1"), Edition("b", 1, "d2"), Edition("c", 1, "d3"), Edition("b", 2, "d8")), ())
    force = ("d3", "lost", "d1", "gone", "d2")
    asked.put(consequences.documents, past_policies=stored, in_force=force)
    members = [member("", digest) for digest in force]
    before = SimpleNamespace(members=members)
    known: Any = SimpleNamespace(policies=asked.verb("policies", before))
    monkeypatch.setattr(consequences, "PolicySet", list)
    found: Any = await change_of(HERE, known, "acme", name, policy)
    assert (found.before, found.digests) == (before, digests)
    assert [one.digest for one in found.after] == [*digests]
    assert asked.calls == [
        "documents.past_policies(transaction, acme)",
        "documents.in_force(transaction, acme)",
        "policies(transaction, acme, ['d3', 'lost', 'd1', 'gone', 'd2'])",
    ]


async def test_nobody_else_takes_a_name_that_is_owned(asked: Recorded) -> None:
    store(asked, workflow_versions=VERSIONS)
    with pytest.raises(AuthorizationError) as refused:
        await publishing._check_owner(HERE, "acme", "flow", Actor("person", "bob"))
    assert refused.value.message == "The workflow 'flow' belongs to ann, who has published it first."
    assert refused.value.remedy == "Choose another name, or let them or an administrator publish it."
