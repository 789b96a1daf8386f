"""How a ready step finds a worker: one port, two adapters. A message carries a step's id; the row decides (Q-11)."""
