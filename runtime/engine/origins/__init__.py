"""Where values come from."""
