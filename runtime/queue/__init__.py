"""The way of a step to a worker: one port, two adapters. A message carries a step's id; the row decides."""
