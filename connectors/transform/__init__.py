"""Shaping data, in process."""
