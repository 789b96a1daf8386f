"""The settings that have Claude Code or Codex run the hook: printed, so that nobody writes them by hand."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

from counterseal_agents.hook.command import longest, options
from counterseal_agents.hook.events import AFTER, BEFORE, CLAUDE, FAILED, HOSTS

# The program's limit of time is later than the hook's own: Codex takes a hook that it has to end for no objection.
LATER_SECONDS = 30
AFTER_SECONDS = 120
# Tools of Claude Code that read, and have had no effect if they fail.
HARMLESS = {CLAUDE: ("Read", "Glob", "Grep"), "codex": ()}
_WHERE = {
    CLAUDE: "/etc/claude-code/managed-settings.json, which the agent cannot change (or ~/.claude/settings.json)",
    "codex": "/etc/codex/requirements.toml, which the agent cannot change",
}


def command(arguments: list[str]) -> int:
    """Print the settings for a program, or look at those that are installed."""
    parser = ArgumentParser(
        prog="counterseal-hook", description="Have the tools of Claude Code or Codex ask Counterseal before they run.",
        epilog="The program runs `counterseal-hook claude` or `counterseal-hook codex` itself, as the settings say.",
    )  # fmt: skip
    acts = parser.add_subparsers(dest="act", required=True, metavar="settings|check")
    shown = acts.add_parser("settings", help="print the settings for a program")
    shown.add_argument("host", choices=HOSTS)
    options(shown)
    looked = acts.add_parser("check", help="look at the settings that are installed")
    looked.add_argument("host", choices=HOSTS)
    looked.add_argument("--file", action="append", type=Path, help="look at this file instead of the usual places")
    given = parser.parse_args(arguments)
    if given.act == "check":
        from counterseal_agents.hook.checking import check, places

        problems = check(given.host, given.file or places(given.host))
        sys.stdout.write("".join(f"{line_}\n" for line_ in problems or ["The hook is installed."]))
        return 1 if problems else 0
    if not given.url:
        parser.error("the settings name the address, so that no variable of the environment does: --url https://HOST")
    sys.stdout.write(fragment(given.host, line(given), longest(given)) + "\n")
    sys.stderr.write(f"This goes into {_WHERE[given.host]}.\n")
    return 0


def line(given: Namespace) -> str:
    """The command line."""
    words = [sys.executable, "-I", "-m", "counterseal_agents.hook", given.host, "--url", given.url]
    for name in ("token_file", "certificates", "state"):
        if value := getattr(given, name):
            words += [f"--{name.replace('_', '-')}", value]
    if given.acts_for:
        words += ["--for", given.acts_for]
    words += [*_number("--wait", given.wait), *_number("--timeout", given.timeout)]
    words += _each("--ungoverned", given.ungoverned)
    words += _each("--harmless", given.harmless or HARMLESS[given.host])
    words += ["--outputs"] if given.outputs else []
    return shlex.join(words)


def fragment(host: str, command_line: str, limit: float) -> str:
    """The part of the program's settings. Whatever ends the hook before a tool, its shell says no."""
    closed = f"{command_line} || {{ echo 'There is no yes from Counterseal.' >&2; exit 2; }}"
    before = (BEFORE, closed, int(limit + LATER_SECONDS))
    parts = (before, (AFTER, command_line, AFTER_SECONDS), (FAILED, command_line, AFTER_SECONDS))
    if host == CLAUDE:
        hook = {"type": "command", "onFailure": "block"}
        hooks = {
            name: [{"matcher": "*", "hooks": [{**hook, "command": words, "timeout": seconds}]}]
            for name, words, seconds in parts
        }
        return json.dumps({"allowManagedHooksOnly": True, "hooks": hooks}, indent=2)
    lines = ['allowed_web_search_modes = ["disabled"]', "allow_managed_hooks_only = true", "", "[features]"]
    # Without it a shell that was let out is typed into by a tool that no hook sees.
    lines += ["hooks = true", "unified_exec = false", "", "[hooks]"]
    for name, words, seconds in parts[:2]:
        lines += ["", f"[[hooks.{name}]]", 'matcher = "*"', "", f"[[hooks.{name}.hooks]]", 'type = "command"']
        lines += [f"command = {json.dumps(words)}", f"timeout = {seconds}"]
    return "\n".join(lines)


def _number(name: str, value: float) -> list[str]:
    return [name, f"{value:g}"]


def _each(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]
