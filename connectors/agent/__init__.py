"""Tools that run in the process of an agent, which carries them out itself and reports what came of it."""
