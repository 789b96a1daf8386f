"""The queues that bring steps to workers: one port, two adapters. A message carries a step's id; the row decides."""
