"""The page of one run: its outcome, its graph, its times, its steps, its receipts, and what can be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access import Role
from app.console import graph, questions, runs, story
from app.console.sessions import Viewer
from app.console.web import HOME, Decider, FacesDep, Operator, Page, Posted, Reader, go, identified, page
from app.faces import Faces
from app.http import runs as over_http
from app.outcomes import OPEN, failure_of, state_of, title_of
from app.outlining import outline
from app.shown import attempted, run_row
from approvals.model import ApprovalKind, ApprovalStatus, VoteChannel
from core.errors import CountersealError
from core.identity import Directory, Kind, principal
from core.terms import holds
from evidence.receipts import ReceiptStatus
from runtime.engine.life.holding import Answer
from runtime.engine.model.states import RunState
from runtime.requests import granting, pausing
from runtime.requests.directory import as_people
from runtime.requests.holding import HoldRequest
from runtime.requests.reversing import Undo, reverse
from runtime.requests.views import Seen
from runtime.store import console, read_models, tenants
from runtime.store.console import ListedQuestion
from runtime.store.read_models import Row

router = APIRouter(prefix="/runs")

QUESTIONS_MAX = 200
STEPS_SHOWN = 200
RECEIPTS_SHOWN = 30
_DECIDED = {"allow": "Allowed", "needs_approval": "People were asked", "deny": "Denied"}
_RECEIPTS = {
    ReceiptStatus.INTENDED: ("executing", "Executing"),
    ReceiptStatus.SUCCEEDED: ("applied", "Applied"),
    ReceiptStatus.FAILED: ("failed", "Failed"),
    ReceiptStatus.IN_DOUBT: ("in-doubt", "In doubt"),
}


@router.get("/{run}")
async def look(request: Request, run: str, viewer: Reader, faces: FacesDep) -> Response:
    """Show the run. Approvers see only runs that they requested, and runs whose questions are theirs."""
    return await _drawn(faces, await page(request, faces, viewer), identified(run))


@router.post("/{run}/answer")
async def answer(request: Request, run: str, viewer: Decider, faces: FacesDep, fields: Posted) -> Response:
    """Take an answer about a held step, or try a step now whose retry waits for its time."""
    run_id, reason, step = identified(run), fields.one("reason", 2000).strip(), fields.one("step", 500)
    if fields.one("answer", 20) not in set(Answer):
        raise HTTPException(400, "Nothing was answered.")
    await run_row(faces, viewer.who.tenant, run_id)
    problem, status = "" if reason else "Write a reason: it is kept in the audit", 422
    if not problem:
        said, admin = Answer(fields.one("answer", 20)), viewer.has(Role.ADMIN)
        who = (viewer.who.tenant, viewer.who.person)
        asked = HoldRequest(*who, said, reason, VoteChannel.CONSOLE, run_id=run_id, step=step, admin=admin)
        reply = await faces.holding.answer(asked)
        if reply.accepted:
            return go(f"{HOME}/runs/{run_id}?done={reply.code}")
        problem, status = reply.sentence, 409
    shown = await page(request, faces, viewer)
    return await _drawn(faces, shown, run_id, status=status, problem=problem, doing=step, reason=reason)


@router.post("/{run}/reverse")
async def undo(request: Request, run: str, viewer: Operator, faces: FacesDep, fields: Posted) -> Response:
    """Start the run that undoes what a receipt of this run records; then show that run."""
    run_id, reason = identified(run), fields.one("reason", 2000).strip()
    receipt, tenant = identified(fields.one("receipt", 100)), viewer.who.tenant
    await run_row(faces, tenant, run_id)
    try:
        who = (viewer.who.subject, viewer.actor, viewer.who.subject)
        asked = Undo(tenant, faces.settings.workspace, receipt, reason, *who)
        return go(f"{HOME}/runs/{(await faces.ask(tenant, reverse, faces.definitions, asked)).run_id}")
    except CountersealError as error:
        shown = await page(request, faces, viewer)
        told = {"problem": str(error), "doing": str(receipt), "reason": reason}
        return await _drawn(faces, shown, run_id, status=409 if reason else 422, **told)


@router.post("/{run}/{do}")
async def steer(request: Request, run: str, do: str, viewer: Operator, faces: FacesDep, fields: Posted) -> Response:
    """Retry or cancel the run; the reason is kept if it is refused."""
    run_id, reason = identified(run), fields.one("reason", 2000).strip()
    if do not in ("retry", "cancel", "revoke"):
        raise HTTPException(404)
    await run_row(faces, viewer.who.tenant, run_id)
    problem = "" if reason else "Write a reason: it is kept in the audit"
    status = 422
    if not problem:
        try:
            if do == "revoke":
                named = (faces.definitions, run_id, identified(fields.one("grant", 50)))
                await faces.ask(viewer.who.tenant, granting.revoke_grant, *named, viewer.who.actor, reason)
            else:
                await runs.steer(faces, viewer, do, run_id, reason)
            return go(f"{HOME}/runs/{run_id}?done={do}")
        except CountersealError as error:
            problem, status = str(error), 409
    shown = await page(request, faces, viewer)
    return await _drawn(faces, shown, run_id, status=status, problem=problem, doing=do, reason=reason)


@router.get("/{run}/evidence")
async def evidence(run: str, viewer: Reader, faces: FacesDep) -> Response:
    """Give the bundle to auditors and admins. That is an event, as over HTTP."""
    if not viewer.has(Role.AUDITOR, Role.ADMIN):
        raise HTTPException(404)
    return await over_http.download(identified(run), viewer.who, faces)


async def _drawn(faces: Faces, shown: Page, run_id: UUID, *, status: int = 200, **values: Any) -> Response:
    viewer, tenant = shown.viewer, shown.viewer.who.tenant
    async with faces.database.transaction(tenant) as connection:
        row = await read_models.run(connection, tenant, run_id)
        if row is None:
            raise HTTPException(404)
        asked = await console.questions_of_run(connection, tenant, run_id, QUESTIONS_MAX)
        digest = await tenants.directory_digest(connection, tenant)
        people = await faces.definitions.directory(connection, tenant, digest)
        held = await pausing.of_run(connection, tenant, run_id)
    seen = await faces.reader.at(tenant, run_id)
    grants = [] if seen.purged else await faces.ask(tenant, granting.grants_of, faces.definitions, run_id)
    if not await _concerns(faces, viewer, row, asked, people, seen):
        raise HTTPException(404)
    lines = [orjson.loads(line) for line in await faces.reader.lines(tenant, run_id)]
    name = row["reference"] or str(run_id)
    given: dict[str, Any] = {"problem": "", "doing": "", "reason": ""}
    given |= {
        "did": shown.request.query_params.get("done", ""),
        "run": row,
        "name": name,
        "title": title_of(row, name),
        "state": state_of(row),
        "failure": failure_of(row),
        "asker": questions.name_of(people, row["requester"] or row["requested_by"]),
        "people": people,
        "held": held,
        "open": row["status"] in OPEN,
        "retryable": row["status"] == RunState.FAILED_TERMINAL and row["parent_run_id"] is None,
        "operator": viewer.has(Role.OPERATOR, Role.ADMIN),
        "auditor": viewer.has(Role.AUDITOR, Role.ADMIN),
        "waits": [one for one in seen.steps if one["held_by"] or one["next_eligible_at"]],
        "decider": viewer.has(Role.OPERATOR, Role.ADMIN, Role.APPROVER),
        "questions": [(one, questions.state_of(one.stored)) for one in asked],
        "story": story.facts_of(lines, people)[-100:],
        "seen": seen,
        "grants": grants,
        **_steps(seen, lines, asked),
        **await _pictures(faces, shown, run_id, seen, asked, name),
    }
    return shown.show("run.html", at="runs", status=status, **{**given, **values})


async def _concerns(
    faces: Faces, viewer: Viewer, run: Row, asked: Sequence[ListedQuestion], people: Directory, seen: Seen
) -> bool:
    """True if the viewer may see the run: all but approvers see every run of their tenant."""
    person = runs.own_only(viewer)
    if person is None or person in (run["requester"], run["started_by"]):
        return True
    entry = people.entry(principal(Kind.PERSON, person))
    if entry is not None and any(step["held_by"] in entry.groups for step in seen.steps if step["held_by"]):
        return True
    wanted = [group for one in asked for group in questions.groups_of(one.stored)]
    slack = await questions.slack_groups(faces, viewer, people, wanted)
    own = {group.key for group in wanted if entry is not None and holds(entry, group.key, people)}
    shaped = {one.person for each in asked for one in as_people(each.stored.approval, people).contributors}
    voted = {vote.voter for each in asked for vote in each.stored.approval.votes}
    return person in shaped | voted or any(group.key in own | slack.groups for group in wanted)


def _steps(seen: Seen, lines: Sequence[Mapping[str, Any]], asked: Sequence[ListedQuestion]) -> dict[str, Any]:
    """The steps with the reasons that let them out, and the receipts with the approved actions."""
    decided: dict[str, tuple[str, str]] = {}
    for line in lines:
        if line["type"] == "decision.made" and line.get("step"):
            rules = ", ".join(str(rule) for rule in line["data"].get("rules") or ())
            decided[line["step"]] = (_DECIDED.get(line["data"]["outcome"], "Judged"), f"rule {rules}" if rules else "")
    approved = {}
    for one in asked:
        approval = one.stored.approval
        if approval.status is ApprovalStatus.APPROVED:
            names = ", ".join(vote.name for vote in approval.votes)
            decided[approval.step_key] = (names, "approved")
            if approval.kind is ApprovalKind.ACTION:
                approved[approval.step_key] = approval.action_digest
    receipts = {row["step_key"]: row for row in seen.receipts}
    first = set[str]()
    shown = []
    for step in seen.steps[:STEPS_SHOWN]:
        name = graph.names_of(step["step_key"])
        anchor = "" if name in first else name
        first.add(name)
        why = decided.get(step["step_key"], ("", ""))
        word = ("failed", "Held") if step["held_by"] else graph.STEPS[step["status"]]
        shown.append((step, word, why, receipts.get(step["step_key"]), anchor))
    effects = [
        (row, _RECEIPTS[row["status"]], attempted(row), approved.get(row["step_key"], row["action_digest"]))
        for row in seen.receipts[:RECEIPTS_SHOWN]
    ]
    left = (max(0, len(seen.steps) - STEPS_SHOWN), max(0, len(seen.receipts) - RECEIPTS_SHOWN))
    return {"steps": shown, "receipts": effects, "left_out": left, "writes": sum(1 for _ in seen.receipts)}


async def _pictures(
    faces: Faces, shown: Page, run_id: UUID, seen: Seen, asked: Sequence[ListedQuestion], name: str
) -> dict[str, Any]:
    """The graph and the time line; no graph if the workflow cannot be read any more."""
    drawn: Markup | None = None
    try:
        editions = await faces.reader.editions(shown.viewer.who.tenant, run_id)
        outlines = [outline(one) for one in (editions[0], editions[-1])]
        before = {node.id for node in graph.nodes_of(outlines[0], frozenset())}
        every = graph.nodes_of(outlines[1], frozenset())
        added = frozenset(node.id for node in every) - before
        drawn = graph.draw(graph.nodes_of(outlines[1], added), seen.steps, f"Graph of {name}")
    except CountersealError:
        drawn = None  # retention has emptied it, or no release reads its workflow: the list of steps is the same
    spans: list[tuple[str, datetime, datetime]] = [
        (one.stored.approval.step_key, one.stored.created_at, _until(one, shown.now)) for one in asked
    ]
    return {"graph": drawn, "timeline": graph.timeline(seen.steps, spans, shown.now)}


def _until(listed: ListedQuestion, now: datetime) -> datetime:
    """The time at which the question ended: its last vote or its expiry; now if it is open."""
    approval = listed.stored.approval
    if approval.status is ApprovalStatus.REQUESTED:
        return now
    votes = [datetime.fromisoformat(vote.at) for vote in approval.votes]
    return max(votes, default=min(now, approval.expires_at or now))
