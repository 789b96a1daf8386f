"""The settings of the BPMN stand-in, in a module of their own: a world without it needs no BPMN library."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

REST_PATH: Final = "/engine-rest"


@dataclass(frozen=True, slots=True)
class BpmnConfig:
    """Settings. ``callback_token``: the bearer token with which processes post to their ``counterseal_callback_url``;
    "" for none. ``callback_backoff``: seconds before each retry of such a post. ``clock``: seconds, for the expiry of
    external tasks' locks."""

    port: int = 0
    username: str = "counterseal"
    password: str = "sandbox"  # noqa: S105  a stand-in's well-known secret
    callback_token: str = ""
    callback_backoff: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    clock: Callable[[], float] = time.time
