"""The test world: named questions to the real database, named ways to stage trouble, one strict outside system.

SQL on the engine's tables stands here and in tests/store only; tests/architecture holds this.
"""
