"""The memory of a process after work on large values."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# A thread makes and drops 200 MB in small blocks. One block above them stays, so the heap cannot shrink from its end.
_WORK = """
from pathlib import Path
from threading import Thread
from core.memory import return_freed, share_arenas

def resident():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)

def work():
    large = [bytes(1000) for _ in range(200_000)]
    stays.append(large[-1])

share_arenas()
stays, before = [], resident()
thread = Thread(target=work)
thread.start()
thread.join()
return_freed()
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such option")
def test_the_memory_of_large_work_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", _WORK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 50_000, "kilobytes that stay"
