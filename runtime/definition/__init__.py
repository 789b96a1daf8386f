"""From authored YAML to an immutable canonical definition."""
