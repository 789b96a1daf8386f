"""Commands for runs: start, list, show, diff, replay, retry, close, cancel."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import orjson
import typer
from msgspec import structs

from app.cli import context
from app.cli.outcome import (
    Commands,
    Exit,
    Json,
    first_of,
    print_fields,
    print_json,
    print_one,
    print_part,
    print_rows,
    printable,
)
from app.cli.telling import story_lines
from core import bounded_json
from core.changes import changes
from core.errors import InputError
from core.ids import new_id
from evidence.receipts import ALTERED
from runtime.engine.model.states import RunState

if TYPE_CHECKING:
    from runtime.engine.life.holding import Answer

_APPROVAL = ("approval_id", "step_key", "kind", "status", "choice", "reason")
run = Commands(name="run", help="Runs: start, list, show, watch, diff, replay, retry, release, cancel.")

As = Annotated[
    str | None, typer.Option("--as", help="Who acts: a person's id in the directory; COUNTERSEAL_PERSON without it.")
]
RunId = Annotated[
    UUID, typer.Argument(help="The run: its id, the beginning of it, or its reference.", parser=context.run_of)
]
# The short word for the status ``failed_terminal`` on the command line.
_FAILED = RunState.FAILED_TERMINAL.partition("_")[0]


@run.command("start")
async def start(
    workflow: Annotated[str, typer.Argument(help="The workflow's name.")],
    input_: Annotated[str, typer.Option("--input", help="The trigger as a JSON object, or @FILE.")] = "{}",
    version: Annotated[
        int | None, typer.Option(min=1, max=context.INT4_MAX, help="A version; the newest without it.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key starts one run.")] = None,
    workspace: Annotated[str | None, typer.Option(help="The workspace; COUNTERSEAL_WORKSPACE without it.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="Wait for more steps when its own are done.")] = False,
    until: Annotated[str | None, typer.Option(help="With --open: wait until (RFC 3339); the SLA, or 7 days.")] = None,
    as_json: Json = False,
) -> None:
    """Start a run. An --open run waits for more steps, until `run close` or its deadline."""
    from runtime.requests import starting

    trigger = bounded_json.parse_object(context.typed(input_), where="--input")
    async with context.faces() as faces:
        settings = faces.settings
        who = context.actor(settings)
        request = starting.StartRequest(
            tenant_id=settings.tenant,
            workspace_id=context.name(workspace, "--workspace") if workspace else settings.workspace,
            trigger_type="cli",
            trigger_ref=key or str(new_id()),
            trigger=trigger,
            requested_by=who.id,
            actor=who,
            open=open_,
            until=None if until is None else _moment(until),
        )
        started = await starting.start_named(faces.database, faces.definitions, workflow, version, request)
    print_fields(asdict(started), as_json=as_json)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is no moment in RFC 3339", where="--until") from None


@run.command("list")
async def listed(
    status: Annotated[str | None, typer.Option(help="Only runs with this status; failed means for good.")] = None,
    workflow: Annotated[str | None, typer.Option(help="Only runs of this workflow.")] = None,
    reference: Annotated[str | None, typer.Option(help="Only runs with this business reference.")] = None,
    requested_by: Annotated[str | None, typer.Option(help="Only runs of this person, by any of their names.")] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only runs that you have requested.")] = False,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search", metavar="NAME=VALUE", help="Only runs that their workflow's `search` finds so; repeat it."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=context.INT4_MAX - 1, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List runs, newest first, with what each waits for or why it has failed. `counterseal why RUN` says more."""
    from app.outcomes import line_of
    from runtime.requests.finding import by_values, of_person
    from runtime.store import read_models

    if status is not None:
        status = RunState.FAILED_TERMINAL if status == _FAILED else status
        context.check_word(status, [*RunState, _FAILED], "status")
    if mine and requested_by is not None:
        raise InputError("is somebody else's, or your own", where="--requested-by", remedy="Leave --mine out.")
    wanted = by_values(read_models.RunFilter(status, workflow, reference), search or ())
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        whose = context.actor(faces.settings).id if mine else requested_by
        wanted = await of_person(connection, faces.settings.tenant, wanted, whose)
        rows = await read_models.runs_page(connection, faces.settings.tenant, wanted, limit + 1)
        waits = await read_models.waiting(connection, faces.settings.tenant, [row["run_id"] for row in rows], 2)
        await context.record_read(faces, "runs")
    rows = [{**row, "why": line_of(row, waits.get(row["run_id"], []))} for row in first_of(rows, limit)]
    if not as_json:
        rows = [{**row, "workflow": f"{row['workflow']}@{row['workflow_version']}"} for row in rows]
    columns: tuple[str, ...] = (*("run_id", "reference", "workflow", "status", "created_at", "finished_at", "why"),)
    if sys.stdout.isatty() and not as_json:
        columns = ("run_id", "reference", "status", "why")
    print_rows(rows, columns, as_json=as_json, empty="There are no such runs.")


@run.command("show")
async def show(
    run_id: RunId,
    at: Annotated[
        int | None, typer.Option("--at", min=0, max=context.INT4_MAX, help="Show its state at this checkpoint instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one run: its state, steps, receipts, agents turn by turn, and timeline."""
    from runtime.keep.bundling import remedy

    if at is not None:
        (checkpoint,) = await _checkpoints(run_id, at)
        _print_checkpoint(checkpoint, as_json=as_json)
        return
    shown = await _show(run_id)
    if as_json:
        print_json(shown)
        return
    row = shown["run"]
    heads = ("run_id", "reference", "workflow", "workflow_version", "status", "version", "requested_by", "created_at")
    bundle = row["bundle"] and f"{row['bundle']['uri']} (SHA-256 {row['bundle']['sha256']})"
    if row["evidence_problem"] is not None:
        bundle = f"NOT STORED: {row['evidence_problem']} {remedy(row['run_id'])}"
    handled = row["failures_handled"]
    seldom = {
        "handled": f"{row['status']}, with {handled} failure{'s'[: handled > 1]} handled" if handled else None,
        "state": orjson.dumps(row["channels"]).decode() if row["channels"] else None,
        "checkpoint": row["checkpoint"],
        "parent": row["parent_run_id"],
        "forked_from": row["forked_from"],
        "fork": row["fork"],
        "result": None if row["result"] is None else orjson.dumps(row["result"]).decode(),
        "editions": ", ".join(row["editions"]) if len(row["editions"]) > 1 else None,
        "late": " ".join(row["late"]) or None,
        "paused": "; ".join(f"{one['what']} {one['name']}: {one['reason']}" for one in row["paused"]) or None,
        "waiting_for": row["waiting_for"],
        "open_until": row["open_until"],
        "payloads_removed_at": row["purged_at"],
    }
    fields = {name: row[name] for name in (*heads, "finished_at")}
    fields |= {name: value for name, value in seldom.items() if value is not None}
    print_fields({**fields, "error": _error(row["error"]), "evidence": bundle})
    steps = [*map(_step, shown["steps"])]
    print_part("steps", steps, "step_key", "operation", "status", "attempt", "next_try", "last_error")
    columns = ("step_key", "operation", "target", "status", "attempt", "attempted", "reversible", "resolution")
    receipts = [{**one, "attempted": one["request"]["summary"], "status": _outcome(one)} for one in shown["receipts"]]
    print_part("receipts", receipts, *columns)
    print_part("approvals", shown["approvals"], *_APPROVAL)
    _print_agents(shown["agents"])
    print_part("timeline", [*map(_told, shown["timeline"])], "seq", "at", "type", "actor", "step")


def _outcome(receipt: dict[str, Any]) -> str:
    """The receipt's status; an effect that happened otherwise than asked says so."""
    altered = (receipt["error"] or {}).get("code") == ALTERED
    return f"{receipt['status']}, {ALTERED}" if altered else str(receipt["status"])


def _step(step: dict[str, Any]) -> dict[str, Any]:
    held = f", held: {step['held_by']} decides" if step["held_by"] else ""
    status = f"{step['status']}{held}"
    return {**step, "status": status, "next_try": step["next_eligible_at"], "last_error": _error(step["last_error"])}


def _told(fact: dict[str, Any]) -> dict[str, Any]:
    """The fact, with what a step merely waits for beside its kind."""
    return {**fact, "type": f"{fact['type']} ({fact['waits']})"} if "waits" in fact else fact


def _print_agents(agents: list[dict[str, Any]]) -> None:
    for line in chain.from_iterable(("", f"agent {agent['step_key']}", *story_lines(agent)) for agent in agents):
        typer.echo(printable(line))


def _error(error: dict[str, Any] | None) -> str | None:
    """The error as a sentence: its code, its step, the actor, and the message."""
    if error is None:
        return None
    where = f" at {error['step']}" if error.get("step") else ""
    who = f" by {error['by']}" if error.get("by") else ""
    return f"{error.get('code', 'error')}{where}{who}: {error.get('message', '')}"


async def _show(run_id: UUID) -> dict[str, Any]:
    from app.shown import attempted, run_state
    from runtime.requests import pausing
    from runtime.store import approvals as questions
    from runtime.store import read_models

    async with context.faces() as faces:
        tenant = faces.settings.tenant
        seen = await faces.reader.at(tenant, run_id)
        lines = await faces.reader.lines(tenant, run_id)
        async with faces.database.transaction(tenant) as connection:
            row = await read_models.run(connection, tenant, run_id)
            held = await pausing.of_run(connection, tenant, run_id)
            approvals = await questions.approvals_page(connection, tenant, context.INT4_MAX, run_id=run_id)
        await context.record_read(faces, "run", run=run_id)
    assert row is not None, "a run that was seen stays"
    return {
        "run": {**row, **run_state(row, seen), "late": seen.late, "paused": [asdict(one) for one in held]},
        "steps": [dict(item) for item in seen.steps],
        "receipts": [{**item, "request": attempted(item)} for item in seen.receipts],
        "approvals": [{name: item[name] for name in _APPROVAL} for item in approvals],
        "agents": [*seen.agents],
        "timeline": timeline(lines),
    }


def timeline(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The facts of a run as a list shows them: when, of which kind, by whom, at which step."""
    return [_event(seq, line) for seq, line in enumerate(lines)]


def _event(seq: int, line: bytes) -> dict[str, Any]:
    read = orjson.loads(line)
    actor = f"{read['actor']['kind']}:{read['actor']['id']}"
    waits = read["data"].get("waits")
    more = {} if waits is None else {"waits": waits}
    return {"seq": seq, "at": read["ts"], "type": read["type"], "actor": actor, "step": read["step"], **more}


async def _checkpoints(run_id: UUID, *numbers: int) -> list[dict[str, Any]]:
    async with context.faces() as faces:
        found = await faces.reader.checkpoints(faces.settings.tenant, run_id, *numbers)
        await context.record_read(faces, "checkpoints", run=run_id)
        return [dict(one) for one in found]


def _print_checkpoint(checkpoint: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(checkpoint)
        return
    print_fields({name: checkpoint[name] for name in ("superstep", "created_at", "digest", "source")})
    for part in ("versions_seen", "writes"):
        typer.echo(f"\n{part}")
        print_fields(_part(checkpoint[part]) or {"": None})
    for part, value in checkpoint["state"].items():
        typer.echo(f"\n{part}")
        print_fields(_part(value))


def _part(value: Any) -> dict[str, Any]:
    """A part of the state as fields: a list's items by number, a plain value as one field."""
    if isinstance(value, list):
        return {str(number): item for number, item in enumerate(value)}
    return value if isinstance(value, dict) and value else {"": value or None}


@run.command("diff")
async def diff(
    run_id: RunId,
    before: Annotated[int, typer.Argument(min=0, max=context.INT4_MAX, help="The number of one checkpoint.")],
    after: Annotated[int, typer.Argument(min=0, max=context.INT4_MAX, help="The number of another.")],
    as_json: Json = False,
) -> None:
    """Show what changed between two checkpoints of a run, as a JSON Patch with the values before."""
    first, second = await _checkpoints(run_id, before, after)
    rows = [asdict(change) for change in changes(first["state"], second["state"])]
    print_rows(rows, ("op", "path", "before", "after"), as_json=as_json, empty="Nothing changed.")


@run.command("replay")
async def replay(run_id: RunId, as_json: Json = False) -> None:
    """Fold a run's book again, evaluate everything anew, and compare. Exit 1 if anything differs.

    Every value must match the commitment in its line, every expression and policy must give the recorded result, and
    every checkpoint must be the one that its line names. The stored rows of the run, its waits, questions, votes and
    ledger must match the book.
    """
    async with context.faces() as faces:
        report = await faces.reader.replay(faces.settings.tenant, run_id)
    if report.purged_at is not None:
        at = report.purged_at.isoformat(timespec="seconds")
        words = f"Retention removed what this run was about at {at}: nothing can be derived again."
    elif report.difference is None:
        words = f"{report.equal} checkpoints derived again, all equal; every row is what the book says."
    else:
        words = f"{report.equal} checkpoints derived again and equal, then a difference. {report.difference}"
    print_one({**asdict(report), "ok": report.ok}, words, as_json=as_json)
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


async def steer(verb: Callable[..., Awaitable[object]], run_id: UUID, reason: str, *, as_json: bool) -> None:
    """Call ``verb`` on a run in the caller's name, and print the run's new status."""
    async with context.faces() as faces, faces.database.transaction(faces.settings.tenant) as connection:
        tenant, actor = faces.settings.tenant, context.actor(faces.settings)
        status = await verb(connection, faces.definitions, tenant, run_id, actor, reason)
    print_fields({"run_id": run_id, "status": str(status)}, as_json=as_json)


@run.command("release")
async def release(
    run_id: RunId,
    step: Annotated[str, typer.Option(help="The held step that the run goes on without.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the audit.")],
    as_person: As = None,
    as_json: Json = False,
) -> None:
    """Go on without a step that has failed and is held. Nothing is undone. Exit 4 if you may not, or it is not held."""
    from runtime.engine.life.holding import Answer

    await answer(run_id, step, Answer.WITHOUT, reason, as_person, as_json=as_json)


async def answer(run_id: UUID, step: str, choice: Answer, reason: str, as_person: str | None, *, as_json: bool) -> None:
    from approvals.model import VoteChannel
    from runtime.requests.holding import HoldRequest

    async with context.faces() as faces:
        tenant, person = faces.settings.tenant, as_person or faces.settings.person_id
        asked = HoldRequest(tenant, person, choice, reason, VoteChannel.CLI, run_id=run_id, step=step)
        reply = await faces.holding.answer(asked)
    print_one(structs.asdict(reply), reply.sentence, as_json=as_json)
    if not reply.accepted:
        raise typer.Exit(Exit.CONFLICT)


@run.command("close")
async def close(
    run_id: RunId, reason: Annotated[str, typer.Option(help="Why; kept in the audit.")] = "", as_json: Json = False
) -> None:
    """Close an open run: it waits for no more steps, and ends when its present steps are done."""
    from runtime.requests import steering

    await steer(steering.close_run, run_id, reason, as_json=as_json)
