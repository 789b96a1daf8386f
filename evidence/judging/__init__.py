"""Judges a run's history by what its bundle says: who may decide, what may go out, in which order. Pure."""
