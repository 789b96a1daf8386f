"""Questions that a process answers in forks of itself, each with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from typing import Any

# The environment names the file descriptors of questions and answers by these.
ASKED, TOLD = "COUNTERSEAL_ASKED", "COUNTERSEAL_TOLD"


def answer(work: Callable[[Any], int]) -> None:
    """Answer questions until nobody asks any more.

    A question is a line of JSON; its ``seconds`` limit the work. The answer is a line too: what ``work`` returned, or
    null if it exceeded its time and was killed.
    """
    with os.fdopen(int(os.environ[ASKED])) as questions, os.fdopen(int(os.environ[TOLD]), "w") as answers:
        for line in questions:
            answers.write(f"{json.dumps(_in_fork(work, json.loads(line)))}\n")
            answers.flush()


def _in_fork(work: Callable[[Any], int], question: dict[str, Any]) -> int | None:
    child = os.fork()
    if child == 0:
        os.setsid()
        code = 1
        try:
            code = work(question)
        finally:
            os._exit(code)
    watched = os.pidfd_open(child)
    in_time = bool(select.select([watched], [], [], question["seconds"])[0])
    os.close(watched)
    # What the work has started goes with it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) if in_time else None
