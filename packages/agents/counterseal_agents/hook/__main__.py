"""``counterseal-hook``: the hook itself, its settings, and a look at the settings that are installed."""

from __future__ import annotations

from counterseal_agents.hook.command import main

main()
