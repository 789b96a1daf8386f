"""The pure heart of the engine: state tables, channels, plans, transitions. No I/O, no clock, no chance (O-5)."""
