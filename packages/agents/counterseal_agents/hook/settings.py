"""The settings that have Claude Code or Codex run the hook: printed, so that nobody writes them by hand, and checked."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Any

from counterseal_agents.hook.command import ITS_OWN_SECONDS, options
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
    given = parser.parse_args(arguments)
    if given.act == "check":
        from counterseal_agents.hook.checking import check

        problems = check(given.host)
        print("\n".join(problems) or "The hook is installed.")
        return 1 if problems else 0
    if not given.url:
        parser.error("the settings name the address, so that no variable of the environment does: --url https://HOST")
    print(fragment(given.host, line(given), given.wait))
    print(f"This goes into {_WHERE[given.host]}.", file=sys.stderr)
    return 0


def line(given: Namespace) -> str:
    """The command line. Whatever ends the hook, its shell says no."""
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
    return f"{shlex.join(words)} || {{ echo 'There is no yes from Counterseal.' >&2; exit 2; }}"


def fragment(host: str, command_line: str, wait: float) -> str:
    """The part of the program's settings."""
    before = int(wait + ITS_OWN_SECONDS + LATER_SECONDS)
    if host == CLAUDE:
        hook = {"type": "command", "command": command_line, "onFailure": "block"}
        hooks = {
            name: [{"matcher": "*", "hooks": [{**hook, "timeout": before if name == BEFORE else AFTER_SECONDS}]}]
            for name in (BEFORE, AFTER, FAILED)
        }
        return json.dumps({"allowManagedHooksOnly": True, "hooks": hooks}, indent=2)
    lines = ['allowed_web_search_modes = ["disabled"]', "allow_managed_hooks_only = true", "", "[features]"]
    lines += ["hooks = true", "", "[hooks]"]
    for name, seconds in ((BEFORE, before), (AFTER, AFTER_SECONDS)):
        lines += ["", f"[[hooks.{name}]]", 'matcher = "*"', "", f"[[hooks.{name}.hooks]]", 'type = "command"']
        lines += [f"command = {json.dumps(command_line)}", f"timeout = {seconds}"]
    return "\n".join(lines)


def _number(name: str, value: float) -> list[str]:
    return [name, f"{value:g}"]


def _each(name: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (name, value)]


def of_claude(settings: Any) -> list[dict[str, Any]]:
    """Nothing."""
    return []
