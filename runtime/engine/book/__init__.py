"""The book of a run: its events, the fold that makes the run's state of them, and what follows from that state."""
