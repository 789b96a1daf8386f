"""Codex with the hook."""

from __future__ import annotations

from functools import partial

from counterseal_agents import Ungoverned
from tests.support import agents_commands as commands
from tests.support.agents_stage import PAY, How

HOST = "codex"
turn, pause, resume = (partial(one, HOST) for one in (commands.turn_of, commands.pause_of, commands.resume_of))
edit = commands.edit


def hosted(how: How) -> None:
    """No tool runs while the provider's search of the web is on."""
    with commands.program(HOST, how) as made:
        (how.effects.parent / "config.toml").write_text("", encoding="utf-8")
        words = made.called("pay", PAY)
    if "web_search runs at the model's provider" in words:
        raise Ungoverned(words)
