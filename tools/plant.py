"""Planting faults: `make faults` (ONLY=name or area, SINCE=commit, JOBS=2).

Every fault of the register is planted in a copy of the tree. The tests that it names must pass before and fail after,
by an assertion and not by another error. Exit code 1 if a fault is not found.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.embedded_postgres import EmbeddedPostgres
from tests.support import memory
from tests.support.outcomes import ASSERTED, PASSED
from tools.faults import ROOT, Fault, load, problems

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache"
)
_LONGEST = 300
# Changes here create roles, which outlive a database, so these faults get a server of their own.
_OF_SERVERS = ("migrations/", "app/")


class Copy:
    """A copy of the tree, in which one fault at a time is planted and tests are run."""

    def __init__(self, place: Path, server: str) -> None:
        self.place = place
        self._server = server
        self._process: subprocess.Popen[str] | None = None
        shutil.copytree(ROOT, place, symlinks=True, ignore=_LEFT_OUT, dirs_exist_ok=True)
        (place / ".venv").symlink_to((ROOT / ".venv").resolve())
        # Runs write no compiled modules, so each would compile again what is not compiled here.
        compileall.compile_dir(place, quiet=2)

    def _served(self, asked: dict[str, object]) -> str:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"}
            command = [str(self.place / ".venv/bin/python"), str(self.place / "tools/plant_server.py")]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(
                command, cwd=self.place, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the process that runs the tests."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """Plant the fault in the copy, and remove it at the end."""
        files = {edit.file for edit in fault.edits}
        before = {file: ((self.place / file).read_bytes(), (self.place / file).stat()) for file in files}
        try:
            for edit in fault.edits:
                path = self.place / edit.file
                path.write_text(path.read_text(encoding="utf-8").replace(edit.old, edit.new), encoding="utf-8")
            yield
        finally:
            for file, (text, stat) in before.items():
                (self.place / file).write_bytes(text)
                # Python compares a compiled module with its source by the modification time.
                os.utime(self.place / file, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def run(self, tests: Sequence[str], *more: str, own_server: bool = False) -> dict[str, str]:
        """Run tests. Returns the outcome of each; a test that did not run is absent."""
        outcomes = self.place / ".outcomes"
        outcomes.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.place),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COUNTERSEAL_OUTCOMES": str(outcomes),
            "COUNTERSEAL_TEST_DATABASE_URL": self._server,
        }
        if own_server:
            del environment["COUNTERSEAL_TEST_DATABASE_URL"]
        plugins = ["-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.support.outcomes"]
        # pytest cannot rewrite modules that the server has imported already; they hold none of our assertions.
        quiet = ["--tb=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        arguments = [*plugins, *quiet, *more, *tests]
        told = self._served({"arguments": arguments, "environment": environment, "seconds": _LONGEST})
        if not outcomes.exists():
            return {"": f"pytest ended with {told}"}
        ended = [json.loads(line) for line in outcomes.read_text(encoding="utf-8").splitlines()]
        return {name: how for name, how in ended if how == PASSED} | {name: how for name, how in ended if how != PASSED}


@contextmanager
def copies_of_tree(count: int) -> Iterator[queue.Queue[Copy]]:
    """Make copies of the tree, each with a PostgreSQL of its own, because roles belong to a server."""
    with ExitStack() as stack:
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="counterseal-planted-", ignore_cleanup_errors=True))
        )
        in_memory = stack.enter_context(memory.folder())
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(count):
            server = EmbeddedPostgres((in_memory or place) / f"postgres-{number}", durable=False)
            copy = Copy(place / f"tree-{number}", server.start())
            stack.callback(server.stop)
            stack.callback(copy.close)
            copies.put(copy)
        yield copies


def _named(test: str, outcomes: dict[str, str]) -> list[str]:
    """The outcomes of a named test, one for each of its parameters."""
    return [how for name, how in outcomes.items() if name == test or name.startswith((f"{test}[", f"{test}::"))]


def complaint(fault: Fault, outcomes: dict[str, str]) -> str | None:
    """The problem with this fault: a test passed, or did not fail by the expected error; None if all is well."""
    wanted = fault.by or ASSERTED
    for test in fault.tests:
        ended = [how for how in _named(test, outcomes) if how != PASSED]
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
        outcomes = copy.run(part)
        if "" in outcomes:  # one that cannot be collected keeps the others from running
            outcomes = {name: how for test in part for name, how in copy.run([test]).items()}
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
    with copies_of_tree(chosen.jobs) as copies:
        survivors = _plant_all(faults, copies, first=chosen.first)
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(f"{len(faults) - survivors} of {len(faults)} faults were found, in {minutes:.1f} minutes.\n")
    return 1 if survivors else 0


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
            own_server = any(edit.file.startswith(_OF_SERVERS) for edit in fault.edits)
            with copy.planted(fault):
                outcomes = copy.run(fault.tests, *(["-x"] if first else []), own_server=own_server)
        finally:
            copies.put(copy)
        failed = [f"{name} ({how})" for name, how in outcomes.items() if how != PASSED]
        wrong = complaint(fault, outcomes) if not first else None if failed else "survives"
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
