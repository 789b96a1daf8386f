"""Readings of a whole book: replay, the past of a run, an agent's story."""
