"""Planting faults: `make faults` (ONLY=name or area, SINCE=commit, JOBS=2).

Every fault of the register is planted in a copy of the tree. The tests that it names must pass before and fail after,
by an assertion and not by another error. Exit code 1 if a fault is not found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.support.outcomes import ASSERTED, PASSED
from tools.copies import Copy, copies_of_tree
from tools.faults import ROOT, Fault, load, problems

# Changes here create roles, which outlive a database, so these faults get a server of their own.
_OF_SERVERS = ("migrations/", "app/logins.py", "app/storage.py", "app/postgres", "app/embedded", "app/own_database")
# Each test of a run ends with a comparison of its book and its rows, which asserts that they say the same.
DIVERGED = "teardown: Diverged"


def _named(test: str, outcomes: dict[str, str]) -> list[str]:
    """The outcomes of a named test, one for each of its parameters."""
    return [how for name, how in outcomes.items() if name == test or name.startswith((f"{test}[", f"{test}::"))]


def complaint(fault: Fault, outcomes: dict[str, str]) -> str | None:
    """The problem with this fault: a test passed, or did not fail by the expected error; None if all is well."""
    wanted = fault.by or ASSERTED
    for test in fault.tests:
        ended = [how.replace(DIVERGED, ASSERTED) for how in _named(test, outcomes) if how != PASSED]
        if not ended:
            known = _named(test, outcomes)
            return f"survives {test}" if known else f"did not run {test}: {outcomes.get('', '')}"
        if not all(wanted in how.split(", ") for how in ended) and not any(how == wanted for how in ended):
            return f"breaks {test} by {', '.join(sorted(set(ended)))}; it has to fail by {wanted}"
    return None


def _tree() -> str:
    """The digest of the tree, without the register itself."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    whole = hashlib.sha256()
    for name in sorted(name for name in listed if name.endswith((".py", ".sql", ".yaml")) and (ROOT / name).is_file()):
        whole.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return whole.hexdigest()


def _passing_before(copy: Copy, tests: list[str]) -> list[str]:
    """The tests that fail without any fault. Passed tests are cached until the tree changes."""
    remembered = ROOT / ".pytest_cache" / f"passed-{_tree()[:16]}.json"
    passed: set[str] = set(json.loads(remembered.read_text())) if remembered.exists() else set()
    open_tests = [test for test in tests if test not in passed]
    failed: list[str] = []
    for start in range(0, len(open_tests), 25):
        part = open_tests[start : start + 25]
        outcomes = copy.look((), part) or {}
        good = [test for test in part if (ended := _named(test, outcomes)) and set(ended) == {PASSED}]
        passed.update(good)
        failed += [
            f"{test}: {', '.join(_named(test, outcomes))} {outcomes.get('', '')}" for test in part if test not in good
        ]
    remembered.parent.mkdir(exist_ok=True)
    remembered.write_text(json.dumps(sorted(passed)))
    return failed


def _chosen(faults: list[Fault], only: str, since: str) -> list[Fault]:
    if only:
        words = only.split(",")
        faults = [fault for fault in faults if any(word in (fault.name, fault.area) for word in words)]
    if since:
        told = subprocess.run(
            ["git", "diff", "--name-only", since], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
        changed = set(told)
        faults = [
            fault
            for fault in faults
            if changed & {*(edit.file for edit in fault.edits), *(test.partition("::")[0] for test in fault.tests)}
            or f"tests/planted/{fault.area}.toml" in changed
        ]
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the chosen faults and report the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of faults or of areas, with commas between them")
    parser.add_argument("--since", default="", help="a commit: only faults of files that have changed since")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--first", action="store_true", help="stop at a fault's first test that fails, and name it")
    chosen = parser.parse_args(arguments)
    every = load()
    if wrong := problems(every):
        sys.stderr.write("\n".join(wrong) + "\n")
        if not chosen.first:
            return 1
    faults = _chosen(every, chosen.only, chosen.since)
    began = time.monotonic()
    files = {test.partition("::")[0] for fault in faults for test in fault.tests}
    with copies_of_tree(chosen.jobs) as copies:
        for copy in list(copies.queue):
            copy.keep(files)
        survivors = _plant_all(faults, copies, first=chosen.first)
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(f"{len(faults) - survivors} of {len(faults)} faults were found, in {minutes:.1f} minutes.\n")
    return 1 if survivors else 0


def _outcome(fault: Fault, copy: Copy, *, first: bool) -> tuple[dict[str, str], str | None]:
    """Plant the fault. Returns the outcome of each test, and the problem with the fault; None if all is well.

    A fault that is not found by a session that is kept is planted in its file: a process of a test reads the file, and
    what a module makes when it is imported is made anew.
    """
    own_server = any(edit.file.startswith(_OF_SERVERS) for edit in fault.edits)
    outcomes = None if own_server else copy.look(fault.edits, fault.tests, first=first)
    if outcomes is None or _wrong(fault, outcomes, first=first):
        with copy.planted(fault.edits):
            outcomes = copy.run(fault.tests, *(["-x"] if first else []), own_server=own_server)
    return outcomes, _wrong(fault, outcomes, first=first)


def _wrong(fault: Fault, outcomes: dict[str, str], *, first: bool) -> str | None:
    if first:
        return "survives" if all(how == PASSED for how in outcomes.values()) else None
    return complaint(fault, outcomes)


def _plant_all(faults: list[Fault], copies: queue.Queue[Copy], *, first: bool) -> int:
    copy = copies.get()
    unfit = [] if first else _passing_before(copy, sorted({test for fault in faults for test in fault.tests}))
    copies.put(copy)
    for line in unfit:
        sys.stdout.write(f"does not pass without a fault: {line}\n")
    writing = threading.Lock()

    def plant(fault: Fault) -> bool:
        copy = copies.get()
        try:
            outcomes, wrong = _outcome(fault, copy, first=first)
        finally:
            copies.put(copy)
        failed = [f"{name} ({how})" for name, how in outcomes.items() if how != PASSED]
        with writing:
            told = f" {' '.join(failed)}" if first else ""
            sys.stdout.write(
                f"{'FOUND ' if wrong is None else 'ALIVE '} {fault.name}{f': {wrong}' if wrong else told}\n"
            )
            sys.stdout.flush()
        return wrong is not None

    with ThreadPoolExecutor(copies.qsize()) as pool:
        return sum(pool.map(plant, faults)) + len(unfit)


if __name__ == "__main__":
    sys.exit(main())
