"""The pure heart of the engine: state tables, channels, plans, transitions. No I/O, no clock, no randomness."""
