"""The life of a step: what is decided, and the events that record it."""
