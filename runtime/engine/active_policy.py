"""The policy that judges a tenant's actions now: one that can be read, one that cannot, or none. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from policy.load import Policy


@dataclass(frozen=True, slots=True)
class BrokenPolicy:
    """The tenant's active policy cannot be read; ``message`` says why. It allows nothing."""

    digest: str
    message: str


ActivePolicy: TypeAlias = Policy | BrokenPolicy | None


def readable(policy: ActivePolicy) -> Policy | None:
    """The policy, if there is one that can be read."""
    return policy if isinstance(policy, Policy) else None
