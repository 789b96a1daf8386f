"""What the demo knows of one incident's run, and how each is to end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.demo.people import Incident

ENDINGS = {
    "approved": ("succeeded", None),
    "rejected": ("failed_terminal", "rejected"),
    "policy_denied": ("failed_terminal", "policy_denied"),
}


@dataclass(frozen=True)
class Told:
    """One incident's run: its newest row, and its bundle once it is stored and verified."""

    incident: Incident
    run: Any = None
    bundle: Path | None = None
    sha256: str | None = None
    verified: bool = False

    @property
    def ended_as_told(self) -> bool:
        """Whether the run ended as its story says, with evidence that verifies."""
        if self.run is None or self.bundle is None:
            return False
        error = (self.run["error"] or {}).get("code")
        return (self.run["status"], error) == ENDINGS[self.incident.ending] and self.verified
