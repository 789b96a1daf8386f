"""Collects what is needed to judge a run's history besides its texts: directories, and lines of the tenant's book."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

import orjson
from msgspec import Struct, field, to_builtins

from core.canonical import Json, JsonObject
from core.db import Connection
from core.identity import Directory, Entry
from core.terms import Stopped
from evidence.bundle import JudgedBy
from evidence.chain import timestamp
from evidence.events import EventType
from runtime.definition.canonical import definition_of
from runtime.definition.people import load_directory
from runtime.engine.book.recorded import RecordedEvent
from runtime.engine.life.pausing import account_key, key_of
from runtime.engine.model import events as e
from runtime.engine.model.run import AGENT
from runtime.engine.model.workflow import Workflow
from runtime.store import bundles
from runtime.store.books import Book
from runtime.store.offload import offload

_OF_POLICIES = (EventType.POLICY_PUBLISHED, EventType.POLICY_ACTIVATED, EventType.POLICY_RETIRED)
_BY_PEOPLE = (
    e.ApprovalRequested, e.ApprovalSaid, e.ApprovalReassigned, e.ApprovalEdited, e.ApprovalVoted, e.ApprovalConsumed,
    e.ApprovalSuperseded, e.ActionIntended,
)  # fmt: skip


class Grounds(Struct):
    """The things named in a book by which its history is judged: directories, people, migrations, policies, times."""

    directories: set[str] = field(default_factory=set)
    principals: set[str] = field(default_factory=set)
    moved: list[int] = field(default_factory=list)
    policies: set[str] = field(default_factory=set)
    agent: str = ""
    first: str = ""
    last: str = ""


async def judged_by(connection: Connection, book: Book, editions: list[Workflow]) -> JudgedBy:
    """Gather what a bundle of this run needs, so that others can judge its history without the database."""
    tenant, long = book.row["tenant_id"], book.weight
    grounds = await offload(long, lambda: _grounds(book), connection)
    texts = await bundles.directories(connection, tenant, sorted(grounds.directories))
    lines = await bundles.standing(connection, tenant)
    return await offload(long, lambda: gathered(book.run_id, grounds, editions, texts, lines), connection)


def gathered(
    run: UUID,
    grounds: Grounds,
    editions: list[Workflow],
    texts: Mapping[str, str],
    lines: Sequence[tuple[int, bytes]],
) -> JudgedBy:
    """Gather it from the directories' texts and the tenant's lines that were read. It takes long for a long book."""
    people = {digest: extract(_directory(text, digest), grounds.principals) for digest, text in texts.items()}
    return JudgedBy(definition_of(editions, grounds.moved), people, [*_relied_on(run, grounds, editions, lines)])


def _grounds(book: Book) -> Grounds:
    """Collect the grounds in one pass through the book."""
    found = Grounds()
    for one in book.events:
        at = timestamp(one.at)
        found.first, found.last = found.first or at, max(found.last, at)
        found.principals.update(_principals(one))
        match one.event:
            case e.RunOpened(trigger=trigger, requested_by=requester) if trigger == AGENT:
                found.agent = key_of(Stopped.AGENT, account_key(requester or ""))
            case e.RunMigrated(number=number):
                found.moved.append(number)
            case e.DecisionMade(policies=policies):
                found.policies.update(str(policy["name"]) for policy in policies)
            case event if isinstance(event, _BY_PEOPLE) and event.directory:
                found.directories.add(event.directory)
    return found


def _directory(text: str, digest: str) -> Directory:
    return Directory.of(digest, load_directory(text, f"directory {digest[:12]}").entries)


def _principals(one: RecordedEvent) -> Iterator[str]:
    """All people named in the run's questions: voters, and those who shaped what was asked."""
    if isinstance(one.event, e.ApprovalVoted | e.ApprovalSaid | e.ApprovalReassigned | e.ApprovalEdited):
        yield f"person:{one.actor.id}"
        if isinstance(one.event, e.ApprovalVoted) and one.event.on_behalf:
            yield f"person:{one.event.on_behalf}"
        if isinstance(one.event, e.ApprovalReassigned) and ":" not in one.event.to:
            yield f"person:{one.event.to}"
    elif isinstance(one.event, e.ApprovalRequested):
        yield one.event.requester
        for shaped in one.event.contributors or ():
            yield str(shaped["principal"])
            if shaped.get("person"):
                yield f"person:{shaped['person']}"


def extract(people: Directory, principals: Iterable[str]) -> JsonObject:
    """The part of a directory that says which people these principals are, and in which groups these people are."""
    principals_of = {text: sorted(people.people(text)) for text in principals}
    found = sorted({person for persons in principals_of.values() for person in persons})
    shown: JsonObject = {person: _shown(people.entries[person]) for person in found if person in people.entries}
    return {"people": shown, "principals": {text: [*persons] for text, persons in sorted(principals_of.items())}}


def _shown(one: Entry) -> JsonObject:
    facts: JsonObject = {"groups": [*sorted(one.groups)], "standing": str(one.standing)}
    return facts if one.delegate is None else {**facts, "delegate": to_builtins(one.delegate)}


def _relied_on(
    run: UUID, grounds: Grounds, editions: list[Workflow], lines: Iterable[tuple[int, bytes]]
) -> Iterator[tuple[int, JsonObject]]:
    """The tenant's lines about this run's policies and people, and about pauses that concern the run, up to its end."""
    connectors = {operation.connector for workflow in editions for operation in workflow.operations.values()}
    held = {"suspended", "tenant", f"workflow:{editions[0].name}", f"run:{run}", grounds.agent}
    held |= {f"connector:{one}" for one in connectors}
    found = [(seq, dict[str, Json](orjson.loads(line))) for seq, line in lines]
    people = [one for one in found if one[1]["type"] == EventType.DIRECTORY_PUBLISHED]
    # Of the directories' lines, keep that of the directory in use when the run began, and all later ones.
    since = max((seq for seq, fact in people if str(fact["ts"]) <= grounds.first), default=0)
    for seq, fact in found:
        kind, data = fact["type"], fact["data"]
        assert isinstance(data, dict), "the data of a line is an object"
        about = data.get("name") in grounds.policies if kind in _OF_POLICIES else data.get("paused") in held
        if kind == EventType.DIRECTORY_PUBLISHED:
            about = seq >= since or data.get("digest") in grounds.directories
        if about and str(fact["ts"]) <= grounds.last:
            yield seq, fact
