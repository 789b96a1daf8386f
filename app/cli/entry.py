"""The commands' tree, and the entry point."""

from __future__ import annotations

import typer

from app.cli import approvals, documents, evidence, extending, queues, runs, service, signals, tasks, tenants
from app.cli.outcome import DOCUMENTED, explained

root = typer.Typer(
    name="counterseal",
    help="Run automation that people govern: policy before every side effect, approvals, receipts, evidence.\n"
    + DOCUMENTED,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
service.add_to(root)
root.add_typer(service.db, name="db")
root.add_typer(service.token, name="token")
root.add_typer(tenants.tenant, name="tenant")
root.add_typer(documents.workflow, name="workflow")
root.add_typer(documents.policy, name="policy")
root.add_typer(documents.directory, name="directory")
root.command("schema")(documents.schema)
extending.add_to(runs.run)
root.add_typer(runs.run, name="run")
root.add_typer(queues.queue, name="queue")
root.add_typer(signals.signal, name="signal")
root.add_typer(approvals.approval, name="approval")
root.add_typer(tasks.task, name="task")
root.add_typer(evidence.evidence, name="evidence")


def main() -> None:
    """Run the command line; exits with the documented code and never shows a traceback for a user's mistake."""
    with explained():
        root(prog_name="counterseal")
