"""The book of a run: events, how they are folded into the state of the run, and what the state tells."""
