"""Judges actions: documents in, decisions out. Pure."""
