"""A look at the settings that are installed: whether they have the program run the hook before each tool."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterseal_agents.hook.events import AFTER, BEFORE, CLAUDE, FAILED
from counterseal_agents.hook.hosted import REQUIREMENTS, WEB_SEARCH, read_toml

_EVENTS = {CLAUDE: (BEFORE, AFTER, FAILED), "codex": (BEFORE, AFTER)}


def places(host: str) -> list[Path]:
    """The files in which the program looks for settings."""
    home, here = Path.home(), Path.cwd()
    if host != CLAUDE:
        return [REQUIREMENTS, home / ".codex" / "config.toml", here / ".codex" / "config.toml"]
    managed = ("/etc/claude-code", "/Library/Application Support/ClaudeCode")
    own = [folder / ".claude" / name for folder in (home, here) for name in ("settings.json", "settings.local.json")]
    return [*(Path(folder) / "managed-settings.json" for folder in managed), *dict.fromkeys(own)]


def check(host: str, files: Sequence[Path]) -> list[str]:
    """List the reasons why the hook does not ask before each tool, one line each; none if it does."""
    found = {file: _read(host, file) for file in files if file.exists()}
    problems = [f"{file}: cannot be read as settings." for file, settings in found.items() if settings is None]
    known = {file: settings for file, settings in found.items() if settings is not None}
    problems += [f"{file}: it switches all hooks off." for file, settings in known.items() if _off(settings)]
    installed = [file for file, settings in known.items() if any(_ours(settings, BEFORE))]
    if not installed:
        return [*problems, f"No settings run the hook {BEFORE}: counterseal-hook settings {host} prints them."]
    if len(installed) > 1:
        problems.append(f"{installed[1]}: the hook is in {installed[0]} as well; the second one is refused its permit.")
    for file in installed:
        problems += [f"{file}: {problem}." for problem in _problems(host, known[file])]
        if os.access(file, os.W_OK) and os.getuid() != 0:
            problems.append(f"{file}: whoever runs the agent can change it, and so can the agent.")
        if host != CLAUDE and file.name != REQUIREMENTS.name:
            problems.append(f"{file}: Codex runs no hook from here before a person trusts it: use {REQUIREMENTS}.")
    return problems


def _problems(host: str, settings: Mapping[str, Any]) -> Iterator[str]:
    for name in _EVENTS[host]:
        ours = list(_ours(settings, name))
        if not ours:
            yield f"no hook {name}, so nothing is reported, and each action ends in doubt"
        for group, hook in ours:
            if group.get("matcher", "*") not in ("*", ""):
                yield f"the hook {name} is for {group['matcher']!r} alone, and other tools do not ask"
            if name == BEFORE and host == CLAUDE and hook.get("onFailure") != "block":
                yield 'the hook has no "onFailure": "block", so a tool runs if it fails'
            if name == BEFORE and (hook.get("async") or "exit 2" not in str(hook.get("command"))):
                yield "the command is not as it was printed: a hook that is ended from outside would be no objection"
    if host != CLAUDE:
        if settings.get("allowed_web_search_modes") != ["disabled"] and settings.get(WEB_SEARCH) != "disabled":
            yield "the provider's search of the web is on, for which no hook is run"
        if (settings.get("features") or {}).get("unified_exec") is not False:
            yield "unified_exec is on: a shell that was let out is typed into by a tool for which no hook is run"


def _ours(settings: Mapping[str, Any], name: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    hooks = settings.get("hooks")
    for group in (hooks.get(name) or []) if isinstance(hooks, dict) else []:
        for hook in group.get("hooks") or []:
            words = str(hook.get("command"))
            if "counterseal_agents.hook " in words or "counterseal-hook " in words:
                yield group, hook


def _off(settings: Mapping[str, Any]) -> bool:
    return settings.get("disableAllHooks") is True or (settings.get("features") or {}).get("hooks") is False


def _read(host: str, file: Path) -> dict[str, Any] | None:
    if host != CLAUDE:
        return read_toml(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
