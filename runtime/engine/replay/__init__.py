"""Reading a book again: replay, the past of a run, an agent's story."""
