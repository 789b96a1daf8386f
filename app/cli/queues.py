"""Commands for the queue: show waiting and running steps, and send failed messages again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer
from msgspec import to_builtins

from app.cli import context
from app.cli.outcome import Commands, Exit, Json, print_json, print_one, print_part, print_rows

if TYPE_CHECKING:
    from runtime.store.queue_reads import CapQueue, TenantQueue

queue = Commands(name="queue", help="The queue: what stands in line, and what is under way.")

_STEPS = ("tenant", "workspace", "pending", "oldest", "admitted", "running", "abandoned", "parked", "slots", "starts")


@queue.command("status")
async def status(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant; all of them without it.")] = None,
    as_json: Json = False,
) -> None:
    """Show every tenant's lanes, slots, caps of workflows and outbox, and the counts of SQS if it is used.

    Pending steps wait for their turn, admitted ones are at SQS, and running ones are leased. Abandoned ones are running
    steps whose lease has run out. Exit 5 if the database or SQS cannot be reached.
    """
    from core.errors import TransportError
    from runtime.store import queue_reads

    sqs: dict[str, Any] | None = None
    problem = None
    async with context.overview(tenant) as (settings, database), database.transaction() as connection:
        found = await queue_reads.queues(connection, tenant or None)
    if settings.sqs_queue_url is not None:
        from app.adapters import queue_depths

        try:
            sqs = {queue: asdict(depth) for queue, depth in (await queue_depths(settings)).items()}
        except TransportError as error:
            sqs, problem = {}, str(error)
    if as_json:
        print_json({"tenants": [asdict(one) for one in found], "sqs": sqs, "problem": problem})
    else:
        _print(found, sqs)
    if problem is not None:
        typer.echo(f"counterseal: {problem}", err=True)
        raise typer.Exit(Exit.UNAVAILABLE)


@queue.command("dead")
async def dead(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant; all of them without it.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only messages of this kind, such as card; all without it.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=context.INT4_MAX - 1, help="How many at most.")] = 50,
    as_json: Json = False,
) -> None:
    """List messages that failed for good, the oldest first, with the run and the last error of each."""
    from runtime.store import outbox

    async with context.overview(tenant) as (_, database), database.transaction() as connection:
        rows = await outbox.dead(connection, tenant or None, kind, limit)
    columns = ("message", "tenant", "kind", "run_id", "attempts", "created_at", "last_error")
    print_rows(rows, columns, as_json=as_json, empty="No message has failed.")
    if rows and not as_json:
        words = (
            "counterseal: mend the cause, then `counterseal queue again`; `queue give-up MESSAGE` if nobody needs it."
        )
        typer.echo(words, err=True)


@queue.command("again")
async def again(
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant; all of them without it.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only messages of this kind, such as card; all without it.")] = None,
    message: Annotated[UUID | None, typer.Option(help="Only this one: an id of `counterseal queue dead`.")] = None,
    as_json: Json = False,
) -> None:
    """Send messages that failed for good again; `counterseal keep` delivers them. Repair the cause first."""
    from runtime.store import outbox

    async with context.overview(tenant) as (_, database), database.transaction() as connection:
        rows = await outbox.send_again(connection, tenant or None, kind, message)
    print_rows(rows, ("tenant", "kind", "count"), as_json=as_json, empty="No message has failed.")


@queue.command("give-up")
async def give_up(
    message: Annotated[UUID, typer.Argument(help="An id of `counterseal queue dead`.")],
    reason: Annotated[str, typer.Option(help="Why nobody needs it any more; kept in the tenant's audit.")],
    as_json: Json = False,
) -> None:
    """Give up a message that failed for good: it is not sent any more, and not listed. Exit 4 if there is none.

    Evidence cannot be given up: mend the cause, and have it written by `counterseal evidence again RUN`.
    """
    from runtime.requests.giving_up import give_up

    async with context.overview() as (settings, database), database.transaction() as connection:
        done = await give_up(connection, message, context.actor(settings), reason)
    print_one(to_builtins(done), f"message {message} ({done.kind} of {done.tenant}) is given up.", as_json=as_json)


def _print(found: list[TenantQueue], sqs: dict[str, Any] | None) -> None:
    print_rows([row for one in found for row in _rows(one)], _STEPS, empty="There are no tenants.")
    caps = [
        {
            "tenant": one.tenant,
            **asdict(cap),
            "slots": None if cap.slots is None else f"{cap.slots_used}/{cap.slots}",
            "starts": _starts(cap),
        }
        for one in found
        for cap in one.caps
    ]
    if caps:
        print_part("workflows with a cap of their own", caps, "tenant", "workflow", "pending", "slots", "starts")
    messages = [
        {"tenant": one.tenant, **asdict(item), "oldest": age(item.oldest_seconds)}
        for one in found
        for item in one.messages
    ]
    columns = ("tenant", "kind", "status", "count", "oldest")
    print_part("messages to be delivered", messages, *columns, empty="no messages")
    if sqs:
        rows = [{"queue": name, **depth} for name, depth in sqs.items()]
        print_part("SQS (its own approximate counts)", rows, "queue", "waiting", "in_flight", "delayed")


def _rows(one: TenantQueue) -> list[dict[str, Any]]:
    """Rows of a tenant's lanes, each with the tenant's own figures; one row for a tenant without runs and lanes."""
    whole = {"tenant": one.tenant, "slots": f"{one.slots_used}/{one.slots}", "starts": _starts(one)}
    rows = [
        {
            **whole,
            **asdict(lane),
            "oldest": age(lane.oldest_pending_seconds),
            "parked": ", ".join(f"{kind} {count}" for kind, count in lane.parked.items()) or None,
        }
        for lane in one.lanes
    ]
    return rows or [whole]


def _starts(one: TenantQueue | CapQueue) -> str | None:
    return None if one.max_runs_per_min is None else f"{one.starts_left}/{one.max_runs_per_min}"


def age(seconds: float | None) -> str | None:
    """A duration in its two largest units: ``3d 4h``, ``2m 5s``, ``0s``."""
    if seconds is None:
        return None
    rest = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts or unit == "s":
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
