"""Copies of the tree in which changes are planted and tests are run, each with a PostgreSQL of its own.

A change is looked at in a session that is kept (``tests/support/kept.py``), where it can be swapped in, or by a pytest
that imports the changed file (``tools/plant_server.py``).
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.embedded_postgres import EmbeddedPostgres
from tests.support import kept, memory
from tests.support.outcomes import PASSED
from tools.faults import ROOT, Edit
from tools.forking import ASKED, TOLD

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache"
)
_LONGEST = 300
_NONE: Mapping[str, str] = {}


class _Lines:
    """A process that is asked in lines and answers in lines."""

    def __init__(self, place: Path, environment: Mapping[str, str], *arguments: str) -> None:
        asked, told = os.pipe(), os.pipe()
        ends = {ASKED: str(asked[0]), TOLD: str(told[1])}
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [str(place / ".venv/bin/python"), *arguments], cwd=place, env={**environment, **ends},
            pass_fds=(asked[0], told[1]), stdin=nowhere, stdout=nowhere, stderr=nowhere,
        )  # fmt: skip
        os.close(asked[0])
        os.close(told[1])
        self._to, self._from = os.fdopen(asked[1], "w"), os.fdopen(told[0])

    def ask(self, question: Mapping[str, object]) -> str:
        """Ask. Returns the answer; "" if the process has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._to.write(f"{json.dumps(question)}\n")
            self._to.flush()
        return self._from.readline().strip()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._to.close()
        self._from.close()
        self._process.wait()


class Copy:
    """A copy of the tree, in which one change at a time is planted and tests are run."""

    def __init__(self, place: Path, server: str, plugins: Sequence[str] = ()) -> None:
        self.place = place
        self._outcomes = place / ".outcomes"
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(place),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COUNTERSEAL_OUTCOMES": str(self._outcomes),
            "COUNTERSEAL_TEST_DATABASE_URL": server,
        }
        without = [part for name in ("randomly", "xdist", "cacheprovider") for part in ("-p", f"no:{name}")]
        plugged = [part for name in ("outcomes", *plugins) for part in ("-p", f"tests.support.{name}")]
        # pytest cannot rewrite modules that its process has imported already; they hold none of our assertions.
        self._options = [*without, *plugged, "--tb=no", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        self._importing: _Lines | None = None
        self._keeping: _Lines | None = None
        shutil.copytree(ROOT, place, symlinks=True, ignore=_LEFT_OUT, dirs_exist_ok=True)
        (place / ".venv").symlink_to((ROOT / ".venv").resolve())
        # Runs write no compiled modules, so each would compile again what is not compiled here.
        compileall.compile_dir(place, quiet=2)

    def keep(self, files: Iterable[str]) -> None:
        """Collect the tests of these files once, for ``look``."""
        arguments = [*self._options, "-p", "tests.support.kept", *sorted({kept.FIRST, *files})]
        self._keeping = _Lines(self.place, self._environment, "-m", "pytest", *arguments)

    def close(self) -> None:
        """End the processes that run the tests."""
        for process in (self._importing, self._keeping):
            if process is not None:
                process.close()

    @contextmanager
    def planted(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Edit files of the copy, and restore them at the end."""
        before = {edit.file: (self.place / edit.file).stat() for edit in edits}
        texts = self._edited(edits)
        try:
            for file, (_, new) in texts.items():
                (self.place / file).write_text(new, encoding="utf-8")
            yield
        finally:
            for file, (old, _) in texts.items():
                (self.place / file).write_text(old, encoding="utf-8")
                # Python compares a compiled module with its source by the modification time.
                os.utime(self.place / file, ns=(before[file].st_atime_ns, before[file].st_mtime_ns))

    def _edited(self, edits: Sequence[Edit]) -> dict[str, tuple[str, str]]:
        """The text of each file, before and after."""
        texts: dict[str, tuple[str, str]] = {}
        for edit in edits:
            old = (self.place / edit.file).read_text(encoding="utf-8")
            _, new = texts.get(edit.file, (old, old))
            texts[edit.file] = old, new.replace(edit.old, edit.new)
        return texts

    def look(
        self, edits: Sequence[Edit], tests: Sequence[str], *, first: bool = False, options: Mapping[str, str] = _NONE
    ) -> dict[str, str] | None:
        """Run tests of the kept session with the edits swapped in, to the first that fails if so asked.

        Returns the outcome of each test that ran; None if the edits cannot be swapped.
        """
        assert self._keeping is not None
        if not all(edit.file.endswith(".py") for edit in edits):
            return None
        self._outcomes.unlink(missing_ok=True)
        texts = self._edited(edits)
        question = {"edits": texts, "tests": tests, "first": first, "seconds": _LONGEST, "options": options}
        told = self._keeping.ask(question)
        return None if told == str(kept.CANNOT) else self._ended(told)

    def run(self, tests: Sequence[str], *more: str, own_server: bool = False) -> dict[str, str]:
        """Run tests in a process that imports the files as they are. Returns the outcome of each test that ran."""
        self._outcomes.unlink(missing_ok=True)
        environment = dict(self._environment)
        if own_server:
            del environment["COUNTERSEAL_TEST_DATABASE_URL"]
        if self._importing is None:
            self._importing = _Lines(self.place, self._environment, "tools/plant_server.py")
        question = {
            "arguments": [*self._options, *more, *tests], "environment": environment, "seconds": _LONGEST
        }  # fmt: skip
        return self._ended(self._importing.ask(question))

    def _ended(self, told: str) -> dict[str, str]:
        """The outcomes of the last run."""
        if not self._outcomes.exists():
            return {"": f"pytest ended with {told}"}
        ended = [json.loads(line) for line in self._outcomes.read_text(encoding="utf-8").splitlines()]
        return {name: how for name, how in ended if how == PASSED} | {name: how for name, how in ended if how != PASSED}


@contextmanager
def copies_of_tree(count: int, plugins: Sequence[str] = ()) -> Iterator[queue.Queue[Copy]]:
    """Make copies of the tree, each with a PostgreSQL of its own, because roles belong to a server."""
    with ExitStack() as stack:
        place = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="counterseal-planted-", ignore_cleanup_errors=True))
        )
        in_memory = stack.enter_context(memory.folder())
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(count):
            server = EmbeddedPostgres((in_memory or place) / f"postgres-{number}", durable=False)
            copy = Copy(place / f"tree-{number}", server.start(), plugins)
            stack.callback(server.stop)
            stack.callback(copy.close)
            copies.put(copy)
        yield copies
