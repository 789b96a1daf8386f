"""The engine: definitions, the pure kernel, the store, the queue, the worker, the keepers."""
