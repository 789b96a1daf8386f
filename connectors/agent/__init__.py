"""Tools that run in an agent's own process: the agent carries them out, and reports the outcome."""
