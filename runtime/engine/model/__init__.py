"""The parts that a run is made of: events, states, rows, graphs, errors. Nothing here decides."""
