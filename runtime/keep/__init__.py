"""Keepers: they send messages, build bundles, queue work and repair what is left behind."""
