"""Loaded by Python itself in processes whose clock is to be wrong: CHAOS_SKEW_SECONDS is added to what they read.

PostgreSQL's clock stays right, and so does the monotonic one, as on a machine whose time was set wrongly.
"""

from __future__ import annotations

import os
import time

_seconds = float(os.environ.get("CHAOS_SKEW_SECONDS", "0"))
_time, _time_ns = time.time, time.time_ns

if _seconds:
    time.time = lambda: _time() + _seconds
    time.time_ns = lambda: _time_ns() + int(_seconds * 1e9)
