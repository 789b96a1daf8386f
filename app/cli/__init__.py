"""The command line: the tree of commands, and the entry point. A command imports what it needs when it runs."""

from __future__ import annotations

import atexit
import gc
from typing import Annotated

import typer

from app.cli import (
    auditing,
    documents,
    evidence,
    glass,
    grants,
    logs,
    monitoring,
    operations,
    pausing,
    people,
    queues,
    receipts,
    schedules,
    service,
    signals,
    steering,
    tenancy,
    tools,
    watching,
    why,
)
from app.cli.outcome import DOCUMENTED, Commands, explained

root = Commands(
    name="counterseal",
    help="Run automation that people govern: policy before every side effect, approvals, receipts, evidence.\n"
    + DOCUMENTED,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from app.faces import version

        typer.echo(f"counterseal {version()}")
        raise typer.Exit


@root.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# The options of these commands are parsed by what they start.
for name, passed_on in (("sandbox", service.sandbox), ("hook", service.hook)):
    root.command(
        name, add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
    )(passed_on)
for command in (*service.TOP, *pausing.TOP):
    root.command()(command)
root.command()(why.why)
root.command()(why.waiting)
for group in (service.db, service.token, service.tenant, operations.operation, tools.tools, documents.workflow):
    root.add_typer(group)
for group in (documents.policy, documents.directory):
    root.add_typer(group)
for verb, of_tenant in tenancy.OF_TENANTS.items():
    service.tenant.command(verb)(of_tenant)
root.command("schema")(documents.schema)
for name, added in monitoring.COMMANDS.items():
    evidence.evidence.command(name)(added)
for name, added in glass.COMMANDS.items():
    people.approval.command(name)(added)
for name, added in watching.COMMANDS.items():
    steering.RUN.command(name)(added)
for group in (
    steering.RUN,
    receipts.receipt,
    queues.queue,
    signals.signal,
    schedules.schedule,
    people.approval,
    people.task,
    grants.grant,
    evidence.evidence,
    logs.log,
    auditing.audit,
    pausing.agent,
):
    root.add_typer(group)


def main() -> None:
    """Run the command line; exits with the documented code and never shows a traceback for a user's mistake."""
    # Imported modules live as long as the process: scanning them for garbage would cost a third of a short command.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    with explained():
        root(prog_name="counterseal")
