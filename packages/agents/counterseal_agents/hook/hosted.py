"""Tools that run at the model's provider: the agent's program runs no hook for them, so nobody is asked.

Codex has one, the search of the web. Claude Code runs its own search as a tool, which asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from counterseal_agents.hook.events import CODEX

WEB_SEARCH = "web_search"
REQUIREMENTS = Path("/etc/codex/requirements.toml")


def unseen(host: str, environment: Mapping[str, str], ungoverned: Collection[str]) -> str | None:
    """A tool of the provider that is not switched off, nor named as ungoverned; None if there is none."""
    if host != CODEX or WEB_SEARCH in ungoverned:
        return None
    home = environment.get("CODEX_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".codex")
    if (read_toml(REQUIREMENTS) or {}).get("allowed_web_search_modes") == ["disabled"]:
        return None
    return None if (read_toml(Path(home) / "config.toml") or {}).get(WEB_SEARCH) == "disabled" else WEB_SEARCH


def read_toml(file: Path) -> dict[str, Any] | None:
    """The settings in the file; None if it cannot be read, so it switches nothing off."""
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
