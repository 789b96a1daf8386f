"""Claude Code with the hook."""

from __future__ import annotations

from functools import partial

from tests.support import agents_commands as commands
from tests.support.agents_stage import How

HOST = "claude"
turn, pause, resume = (partial(one, HOST) for one in (commands.turn_of, commands.pause_of, commands.resume_of))
edit = commands.edit


def hosted(how: How) -> None:
    """Its search of the web is a tool of its own, which asks like all others."""
    with commands.program(HOST, how) as made:
        assert "denied" in made.called("WebSearch", {"query": "x"})
