"""The commands' tree, and the entry point."""

from __future__ import annotations

from app.cli import approvals, documents, evidence, queues, runs, service, signals, tasks
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
for command in service.TOP:
    root.command()(command)
root.add_typer(service.db, name="db")
root.add_typer(service.token, name="token")
root.add_typer(service.tenant, name="tenant")
root.add_typer(documents.workflow, name="workflow")
root.add_typer(documents.policy, name="policy")
root.add_typer(documents.directory, name="directory")
root.command("schema")(documents.schema)
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
