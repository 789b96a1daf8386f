"""Python loads this module at start. It adds CHAOS_SKEW_SECONDS to the wall clock that the process reads.

PostgreSQL's clock and the monotonic clock stay right, as on a machine whose time was set wrongly.
"""

from __future__ import annotations

import os
import time

_seconds = float(os.environ.get("CHAOS_SKEW_SECONDS", "0"))
_time, _time_ns = time.time, time.time_ns

if _seconds:
    time.time = lambda: _time() + _seconds
    time.time_ns = lambda: _time_ns() + int(_seconds * 1e9)
