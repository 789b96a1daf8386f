"""The engine: definitions, the pure engine, the store, the queue, the workers, requests and keepers."""
