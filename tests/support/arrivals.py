"""Skipping the time in which a call that was sent may still arrive; what the book says of it stays as it is.

As a module, it is the product's command line, for which everything that was intended before its start has arrived.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from connectors.operation import Operation
from runtime.engine.life import doubt
from runtime.engine.life.transition import Transition
from runtime.engine.model.rows import ReceiptRow


class Arrivals:
    """Stands in the place of ``doubt.rest``."""

    def __init__(self) -> None:
        self._until = datetime.min.replace(tzinfo=UTC)
        self._rest = doubt.rest

    def everything_so_far(self) -> None:
        """Let every call that was intended before now have arrived, or be lost for good."""
        self._until = datetime.now(UTC)

    def rest(self, transition: Transition, operation: Operation, receipt: ReceiptRow) -> timedelta:
        """The time for which this call may still arrive."""
        assert receipt.intended_at is not None
        skipped = timedelta(hours=1) if receipt.intended_at <= self._until else timedelta(0)
        return self._rest(transition, operation, receipt) - skipped


if __name__ == "__main__":
    from app.cli import main

    everything = Arrivals()
    everything.everything_so_far()
    doubt.rest = everything.rest
    main()
