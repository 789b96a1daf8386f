"""Outside systems: the port, the catalog of operations, one folder per system."""
