"""The settings of the BPMN stand-in, apart from it: a world without that stand-in needs no BPMN library."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

REST_PATH: Final = "/engine-rest"


@dataclass(frozen=True, slots=True)
class BpmnConfig:
    """Settings. ``callback_token``: the bearer token with which processes post to their ``counterseal_callback_url``;
    with none, they post without.
    ``callback_backoff``: seconds before each retry of that. ``clock``: seconds; locks of external tasks end by it."""

    port: int = 0
    username: str = "counterseal"
    password: str = "sandbox"  # noqa: S105  a stand-in's well-known secret
    callback_token: str = ""
    callback_backoff: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    clock: Callable[[], float] = time.time
