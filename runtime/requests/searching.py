"""Answers an auditor's question about runs: who took which part, which rule decided what, and what was done.

Columns narrow the search; the answer about a run comes from its lines, which are verified on each read. A page looks at
a bounded number of runs, so a short page may still have a next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from approvals.model import ApprovalStatus
from core.db import Connection
from core.errors import InputError
from evidence.chain import Actor
from evidence.events import EventType
from evidence.report.folding import ALLOW, ASK, DENY, Judged, Plot, Question, Vote, fold
from runtime.definition.catalog import Definitions
from runtime.requests.finding import of_person
from runtime.requests.views import seen
from runtime.store import audit, books, console, searching, streams
from runtime.store.read_models import FIRST_ID, FIRST_TIME, LAST_TIME, Row, RunFilter
from runtime.store.searching import NEWEST as NEWEST
from runtime.store.searching import Narrowed, Place
from runtime.store.streams import TenantEvent

CHUNK, CHUNKS_MAX = 100, 10
SHOWN_MAX = 100


class Part(StrEnum):
    """The part of a person in a run. ``REFUSED``: their click did not count."""

    REQUESTER = "requester"
    APPROVER = "approver"
    CONTRIBUTOR = "contributor"
    REFUSED = "refused"


class Decision(StrEnum):
    """A decision of the rules about an action, or of people about a question."""

    ALLOWED = "allowed"
    ASKED = "asked"
    DENIED = "denied"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


_OF_RULES = {Decision.ALLOWED: ALLOW, Decision.ASKED: ASK, Decision.DENIED: DENY}
_OF_PEOPLE = {
    Decision.APPROVED: ApprovalStatus.APPROVED, Decision.REJECTED: ApprovalStatus.REJECTED,
    Decision.EXPIRED: ApprovalStatus.EXPIRED, Decision.SUPERSEDED: ApprovalStatus.SUPERSEDED,
}  # fmt: skip


class Asked(Struct, frozen=True):
    """A question about runs: each given member narrows it.

    ``since`` and ``until`` (excluded) bound the time of the vote if the question is about an approver, else the run's
    beginning.
    """

    person: str | None = None
    part: Part | None = None
    decision: Decision | None = None
    operation: str | None = None
    target: str | None = None
    rule: str | None = None
    reference: str | None = None
    workflow: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Answer(Struct, frozen=True):
    """The found runs, newest first, the number of runs looked at, and the key of the next page, if there is one."""

    runs: Sequence[Row]
    looked_at: int
    following: Place | None


async def find(
    connection: Connection,
    tenant: str,
    definitions: Definitions,
    actor: Actor,
    asked: Asked,
    limit: int,
    after: Place = NEWEST,
) -> Answer:
    """Look for up to ``limit`` runs. ``Diverged`` if the lines of one are not those that were written.

    The search itself is an event of the tenant. A crash before the commit leaves no event, and nothing was shown.
    """
    person, narrowed = await _narrowed(connection, tenant, asked)
    if asked.part is not Part.APPROVER and asked.until is not None:
        after = min(after, (asked.until.astimezone(UTC), FIRST_ID))
    found, looked = list[Row](), 0
    criteria = {name: str(value) for name, value in asdict(asked).items() if value is not None}
    await audit.record(connection, tenant, EventType.EVIDENCE_READ, actor, {"what": "search", "asked": {**criteria}})
    clicks = await _clicks(connection, tenant, person) if asked.part is Part.REFUSED else {}
    for _ in range(CHUNKS_MAX):
        rows = await searching.scan(connection, tenant, narrowed, after, CHUNK)
        for row in rows:
            after, looked = (row["created_at"], row["run_id"]), looked + 1
            if not row["fits"] or (asked.part is Part.REFUSED and str(row["run_id"]) not in clicks):
                continue
            mine = clicks.get(str(row["run_id"]), ())
            if (match := await _matching_run(connection, tenant, definitions, asked, person, row, mine)) is not None:
                found.append(match)
                if len(found) == limit:
                    return Answer(found, looked, after)
        if len(rows) < CHUNK:
            return Answer(found, looked, None)
    return Answer(found, looked, after)


async def _narrowed(connection: Connection, tenant: str, asked: Asked) -> tuple[str | None, Narrowed]:
    for where, moment in (("since", asked.since), ("until", asked.until)):
        if moment is not None and moment.tzinfo is None:
            raise InputError("has no time zone.", where=where, remedy="Such as 2026-11-01T00:00:00Z.")
    if (asked.person is None) != (asked.part is None):
        raise InputError("belong together.", where="person, part", remedy="Say who, and in which part.")
    whose = await of_person(connection, tenant, RunFilter(), asked.person)
    person = None if asked.person is None else whose.requester or asked.person
    lines = []
    if asked.operation is not None:
        lines.append(b'"operation":' + orjson.dumps(asked.operation))
    if asked.decision in _OF_RULES:
        lines.append(b'"outcome":' + orjson.dumps(_OF_RULES[asked.decision]))
    requested = asked.part is Part.REQUESTER
    return person, Narrowed(
        asked.reference, asked.workflow, whose.requester if requested else None, whose.texts if requested else (),
        person if asked.part is Part.APPROVER else None, asked.since or FIRST_TIME, asked.until or LAST_TIME,
        _OF_PEOPLE.get(asked.decision) if asked.decision else None, lines,
    )  # fmt: skip


async def _matching_run(
    connection: Connection,
    tenant: str,
    definitions: Definitions,
    asked: Asked,
    person: str | None,
    row: Row,
    clicks: Sequence[TenantEvent],
) -> Row | None:
    """The answer about a run by its lines; None if it does not fit the question."""
    lines = await books.lines(connection, tenant, row["run_id"])
    plot = fold({**orjson.loads(line), "seq": seq} for seq, line in enumerate(lines))
    for event in clicks:
        if (question := plot.asked.get(event["data"]["approval"])) is not None:
            click = Vote(event["seq"], event["ts"], event["actor"]["id"], "", refused=event["data"]["code"])
            question.votes.append(click)
    judged = [one for one in plot.judged.values() if _decision_fits(one, asked)]
    questions = [one for one in plot.asked.values() if _answered(one, asked, person)]
    by_rules = asked.operation is not None or asked.rule is not None or asked.decision in _OF_RULES
    by_people = asked.decision in _OF_PEOPLE or asked.part in (Part.APPROVER, Part.REFUSED)
    if (by_rules and not judged) or (by_people and not questions):
        return None
    if asked.part is Part.CONTRIBUTOR and not await _is_contributor(connection, tenant, row, person):
        return None
    if asked.target is not None and not await _aimed(connection, tenant, definitions, row, asked.target):
        return None
    names = (
        "run_id",
        "workflow",
        "workflow_version",
        "reference",
        "requester",
        "status",
        "error",
        "created_at",
        "finished_at",
    )
    shown = {**{name: row[name] for name in (*names, "bundle")}, "requester": row["requester"] or row["requested_by"]}
    return {
        **shown,
        "actions": [_action(one, plot) for one in judged[:SHOWN_MAX]],
        "questions": [_question(one) for one in questions[:SHOWN_MAX]],
        "more": max(0, len(judged) - SHOWN_MAX) + max(0, len(questions) - SHOWN_MAX),
    }


async def _clicks(connection: Connection, tenant: str, person: str | None) -> dict[str, list[TenantEvent]]:
    """A person's clicks that did not count, by run. They are in the tenant's stream, which is verified."""
    found: dict[str, list[TenantEvent]] = {}
    for event in (await streams.read(connection, tenant)).events:
        if event["type"] == EventType.APPROVAL_VOTE_REFUSED and event["actor"]["id"] == person:
            found.setdefault(str(event["data"].get("run")), []).append(event)
    return found


def _decision_fits(judged: Judged, asked: Asked) -> bool:
    return (
        asked.operation in (None, judged.operation)
        and (asked.decision not in _OF_RULES or judged.outcome == _OF_RULES[asked.decision])
        and (asked.rule is None or any(asked.rule in (rule, rule.partition("/")[2]) for rule in judged.rules))
    )


def _answered(question: Question, asked: Asked, person: str | None) -> bool:
    if asked.decision in _OF_PEOPLE and question.outcome != asked.decision:
        return False
    if asked.part not in (Part.APPROVER, Part.REFUSED):
        return True
    return any(
        vote.who == person and bool(vote.refused) is (asked.part is Part.REFUSED) and _within(vote.ts, asked)
        for vote in question.votes
    )


def _within(ts: str, asked: Asked) -> bool:
    at = datetime.fromisoformat(ts)
    return (asked.since is None or at >= asked.since) and (asked.until is None or at < asked.until)


async def _is_contributor(connection: Connection, tenant: str, row: Row, person: str | None) -> bool:
    """True if the person is a contributor of one of the run's questions."""
    listed = await console.questions_of_run(connection, tenant, row["run_id"], SHOWN_MAX)
    return any(person in (each.person, each.principal) for one in listed for each in one.stored.approval.contributors)


async def _aimed(connection: Connection, tenant: str, definitions: Definitions, row: Row, target: str) -> bool:
    """True if one of the run's effects had this target or one below it; False if the run's values are erased."""
    view = await seen(connection, definitions, tenant, row["run_id"])
    return any(str(one.get("target") or "").startswith(target) for one in view.receipts)


def _action(judged: Judged, plot: Plot) -> dict[str, Any]:
    done = [one for one in plot.effects.values() if plot.judged.get(one.decision) is judged]
    return {
        "seq": judged.seq, "at": judged.ts, "step": judged.step, "operation": judged.operation,
        "decision": judged.outcome, "rules": [*judged.rules], "outcome": done[-1].status if done else None,
        "receipt": done[-1].receipt if done else None,
    }  # fmt: skip


def _question(question: Question) -> dict[str, Any]:
    votes = [
        {
            "person": vote.who, "at": vote.ts, "choice": vote.choice or None, "groups": [*vote.groups],
            "counted": not vote.refused, "why": vote.refused or None,
        }
        for vote in question.votes
    ]  # fmt: skip
    facts = asdict(question)
    shown = {name: facts[name] for name in ("approval", "seq", "step", "kind")}
    return {**shown, "at": question.ts, "outcome": question.outcome or None, "answers": votes}
