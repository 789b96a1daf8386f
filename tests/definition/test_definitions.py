"""Published versions and directories in the memory of a process: each under all that tells it from another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from connectors.catalog import load_catalog
from core.canonical import sha256_hex
from core.errors import NotFoundError
from core.identity import NOBODY, Directory, Entry
from policy.sets import NO_POLICIES
from runtime.definition import catalog
from runtime.definition.catalog import CACHED_MAX, Definitions, _Recent
from runtime.engine.commit import MutationRow
from runtime.engine.run import Definition
from runtime.engine.told import Diverged
from runtime.store import books, documents, tenants
from runtime.store.documents import StoredWorkflow

NO_CONNECTION: Any = None
RUN, OTHER_RUN = UUID(int=1), UUID(int=2)


def stored(name: str = "w", version: int = 1, channel: str = "n") -> StoredWorkflow:
    text = f"workflow: {name}\nversion: {version}\nchannels: {{{channel}: {{}}}}\nsteps: [{{id: a, reference: x}}]\n"
    return StoredWorkflow(name, version, sha256_hex(text.encode()), text, {})


def added(step: str = "b") -> MutationRow:
    return MutationRow(1, "person:ann", {"steps": [{"id": step, "set": {"n": 1}}]}, {})


def of(one: StoredWorkflow, run: UUID = RUN, extensions: int = 0, tenant: str = "acme") -> Definition:
    return Definition(run, tenant, one.name, one.version, one.digest, extensions, b"key")


class Held:
    """A database in short: what each tenant holds, and what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workflows: dict[tuple[str, str, int], StoredWorkflow] = {}
        self.directories: dict[str, Directory] = {}
        self.mutations: dict[UUID, list[MutationRow]] = {}
        self.asked: list[Any] = []
        self.bound = ""
        monkeypatch.setattr(catalog, "within", self.within)
        monkeypatch.setattr(documents, "workflow", self.workflow)
        monkeypatch.setattr(tenants, "directory", self.directory)
        monkeypatch.setattr(books, "extensions", self.extensions)
        monkeypatch.setattr(books, "extensions_in", lambda told: told)

    @asynccontextmanager
    async def within(self, connection: Any, tenant: str) -> AsyncIterator[None]:
        self.bound = tenant
        yield
        self.bound = ""

    async def workflow(self, connection: Any, tenant: str, name: str, version: int) -> StoredWorkflow | None:
        assert self.bound == tenant
        self.asked.append((tenant, name, version))
        return self.workflows.get((tenant, name, version))

    async def directory(self, connection: Any, tenant: str) -> Directory:
        assert self.bound == tenant
        self.asked.append(tenant)
        return self.directories[tenant]

    async def extensions(self, connection: Any, run_id: UUID, run_key: bytes, count: int) -> list[MutationRow]:
        assert (self.bound, run_key) == ("acme", b"key")
        self.asked.append((run_id, count))
        return self.mutations[run_id][:count]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture(scope="module")
def declared() -> Any:
    return load_catalog()


@pytest.mark.req("V-4")
async def test_a_version_is_known_by_its_text_too(held: Held, declared: Any) -> None:
    """Two tenants may publish different texts under one name and number."""
    definitions, ours, theirs = Definitions(declared), stored(), stored(channel="m")
    held.workflows = {("acme", "w", 1): ours, ("other", "w", 1): theirs}
    first = await definitions.workflow(NO_CONNECTION, "acme", "w", 1, ours.digest)
    second = await definitions.workflow(NO_CONNECTION, "other", "w", 1, theirs.digest)
    assert ([*first.graph.channels], [*second.graph.channels]) == (["n"], ["m"])
    assert await definitions.workflow(NO_CONNECTION, "acme", "w", 1, ours.digest) is first
    assert definitions.compiled(ours) is first
    assert definitions.compiled(theirs) is second
    assert held.asked == [("acme", "w", 1), ("other", "w", 1)]
    for name, version in (("w", 2), ("v", 1)):
        another = stored(name, version)
        assert (definitions.compiled(another).name, definitions.compiled(another).version) == (name, version)
    for digest, tenant in ((theirs.digest, "acme"), ("0" * 64, "other")):
        fresh = Definitions(declared)
        with pytest.raises(NotFoundError) as caught:
            await fresh.workflow(NO_CONNECTION, tenant, "w", 1, digest)
        assert str(caught.value) == "Workflow w version 1 is not what it was when the run started."


@pytest.mark.req("V-6")
async def test_an_extended_graph_is_known_by_its_run_and_number(held: Held, declared: Any) -> None:
    definitions, base = Definitions(declared), stored()
    held.workflows = {("acme", "w", 1): base}
    held.mutations = {RUN: [added(), added("c")], OTHER_RUN: [added("d")]}

    async def steps(run: Definition) -> list[str]:
        return [node.id for node in (await definitions.of_run(NO_CONNECTION, run)).graph.root.nodes]

    every = [of(base), of(base, extensions=1), of(base, extensions=2), of(base, OTHER_RUN, 1)]
    for _ in range(2):
        assert [await steps(run) for run in every] == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "d"]]
    assert held.asked == [("acme", "w", 1), (RUN, 1), (RUN, 2), (OTHER_RUN, 1)], "each once"
    graphs = await definitions.graphs(NO_CONNECTION, every[2])
    assert [len(graph.root.nodes) for graph in graphs] == [1, 2, 3]
    assert [len(graph.root.nodes) for graph in await definitions.graphs(NO_CONNECTION, every[0])] == [1]


@pytest.mark.req("V-6")
async def test_a_book_is_read_by_the_editions_that_it_names(held: Held, declared: Any) -> None:
    definitions, base = Definitions(declared), stored()
    held.workflows = {("acme", "w", 1): base}
    row = {"tenant_id": "acme", "workflow": "w", "workflow_version": 1, "workflow_digest": base.digest}
    good = definitions.compiled(base).definition_digest

    def book(digest: str) -> Any:
        opened = SimpleNamespace(definition=digest)
        return SimpleNamespace(row=row, told=[added()], run_id=RUN, opened=opened)

    editions = await definitions.editions(NO_CONNECTION, book(good))
    assert [len(one.graph.root.nodes) for one in editions] == [1, 2]
    for many in range(4):
        further: Any = SimpleNamespace(
            **{**vars(book(good)), "told": [added(name) for name in "bcd"[:many]], "run_id": UUID(int=10 + many)}
        )
        editions = await definitions.editions(NO_CONNECTION, further)
        assert [[node.id for node in one.graph.root.nodes] for one in editions] == [
            [*"abcd"[: 1 + number]] for number in range(many + 1)
        ]
    unextended: Any = SimpleNamespace(**{**vars(book("0" * 64)), "told": []})
    with pytest.raises(Diverged):
        await definitions.editions(NO_CONNECTION, unextended)
    with pytest.raises(Diverged) as caught:
        await definitions.editions(NO_CONNECTION, book("0" * 64))
    assert "The workflow w@1 is not what it was when the run started" in str(caught.value)


async def test_people_are_those_of_the_tenant_under_the_digest_that_counts(held: Held, declared: Any) -> None:
    definitions = Definitions(declared)
    first, second = (Directory.of(digest, [Entry(digest, "A")]) for digest in ("d1", "d2"))
    held.directories = {"acme": first, "other": second}

    async def found(tenant: str, digest: str | None) -> Directory:
        return await definitions.directory(NO_CONNECTION, tenant, digest)

    assert await found("acme", None) is NOBODY
    assert (await found("acme", "d1"), await found("other", "d2"), await found("acme", "d1")) == (first, second, first)
    assert held.asked == ["acme", "other"]
    held.directories["acme"] = second
    assert await found("acme", "d2") is second, "published since"
    assert await found("acme", "d1") is second, "another has taken its place"
    assert await found("acme", None) is NOBODY, "a run that began before there was any"
    assert held.asked == ["acme", "other", "acme", "acme"]


POLICY = "policy: {}\nversion: 1\nrules: [{{id: a, match: {{operation: '*'}}, outcome: allow}}]\n"


@pytest.mark.req("U-4")
async def test_a_set_is_known_when_each_of_its_policies_is(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that is missing or altered denies, and is looked up anew each time; it may be back."""
    texts = {name: POLICY.format(name) for name in ("p", "q")}
    p, q = (sha256_hex(text.encode()) for text in texts.values())
    stored: dict[str, Any] = {p: ("p", 1, texts["p"])}
    asked: list[tuple[str, str]] = []

    async def policy(connection: Any, tenant: str, digest: str) -> Any:
        asked.append((tenant, digest))
        return stored.get(digest)

    monkeypatch.setattr(documents, "policy", policy)
    definitions = Definitions(declared)

    async def held(*digests: str) -> tuple[list[str], list[str]]:
        found = await definitions.policies(NO_CONNECTION, "acme", digests)
        return [one.name for one in found.policies], [one.message for one in found.broken]

    for order in ((p, q), (q, p), (p, q)):
        assert await held(*order) == (["p"], ["It is not in the database."])
    assert asked == [("acme", p), ("acme", q), ("acme", q), ("acme", q)], "p once, q each time"
    stored[q] = ("q", 1, texts["q"] + " ")
    assert await held(p, q) == (["p"], ["Its text is not the one that was published."])
    stored[q] = ("q", 1, texts["q"])
    asked.clear()
    for _ in range(2):
        assert await held(p, q) == (["p", "q"], [])
        assert await held(q) == (["q"], [])
    assert asked == [("acme", q)]


@pytest.mark.req("U-4")
async def test_a_policy_that_cannot_be_read_any_more_says_where_and_is_kept(
    declared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "policy: q\nversion: 7\napplies: {workflows: [w]}\n"
    text += "rules: [{id: a, match: {operation: gone.*}, outcome: deny}]\n"
    digest, asked = sha256_hex(text.encode()), list[str]()

    async def policy(connection: Any, tenant: str, digest: str) -> Any:
        asked.append(tenant)
        return "q", 7, text

    monkeypatch.setattr(documents, "policy", policy)
    definitions = Definitions(declared)
    for tenant in ("acme", "other"):
        [broken] = (await definitions.policies(NO_CONNECTION, tenant, [digest])).broken
        assert broken.digest == digest
        assert broken.message.startswith("q@7:4:25: rule a: no operation matches 'gone.*'.")
        assert (broken.scope.covers("w", "slack.message.post"), broken.scope.covers("v", "slack.message.post")) == (
            True,
            False,
        )
    assert asked == ["acme"]


async def test_a_tenant_without_policies_has_the_set_without_members(declared: Any) -> None:
    assert await Definitions(declared).policies(NO_CONNECTION, "acme", []) is NO_POLICIES


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    recent: _Recent[int, str] = _Recent()
    assert CACHED_MAX == 512
    for number in range(CACHED_MAX):
        assert recent.put(number, str(number)) == str(number)
    assert (len(recent), recent.known(0), recent.known(-1)) == (CACHED_MAX, "0", None)
    recent.put(CACHED_MAX, "new")
    assert (len(recent), recent.known(1), recent.known(0), recent.known(2)) == (CACHED_MAX, None, "0", "2")
