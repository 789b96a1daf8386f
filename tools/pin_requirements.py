"""Pin the packages of this virtual environment: `make pin` writes requirements.txt and requirements-dev.txt.

requirements.txt is the closure of pyproject.toml's dependencies; requirements-dev.txt adds those of its `dev` extra.
Both name the exact versions installed here. A package that only some platforms need gets a marker. A package that only
another platform needs is not installed here, so it is not pinned and pip chooses its version there.

To raise versions: .venv/bin/pip install --upgrade --upgrade-strategy eager -e '.[dev]', make pin, make check test.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).resolve().parents[1]
_PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    "darwin": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
    "win32": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
}
_HEADER = "# Written by `make pin` (tools/pin_requirements.py); change pyproject.toml, not this file.\n"


def _needed(requirement: Requirement, environment: dict[str, str], extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate(environment | {"extra": extra}) for extra in ("", *extras))


def _closure(roots: Iterable[str], environment: dict[str, str]) -> dict[str, str]:
    """The installed packages that ``roots`` need on one platform: canonical name to version."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    queue = [Requirement(root) for root in roots]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        extras = frozenset(requirement.extras)
        if (name, extras) in seen or not _needed(requirement, environment, ()):
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            if environment["sys_platform"] == sys.platform:
                sys.exit(f"{requirement} is needed but not installed: run .venv/bin/pip install -e '.[dev]' first.")
            continue
        found[name] = installed.version
        for line in installed.requires or []:
            dependency = Requirement(line)
            if _needed(dependency, environment, extras):
                dependency.marker = None
                queue.append(dependency)
    return found


def _pins(roots: list[str]) -> dict[str, str]:
    """Canonical name to its line, for every package that any platform needs."""
    here = {key: str(value) for key, value in default_environment().items()}
    by_platform = {name: _closure(roots, here | changes) for name, changes in _PLATFORMS.items()}
    versions = {name: version for closure in by_platform.values() for name, version in closure.items()}
    return {name: f"{name}=={versions[name]}{_marker(name, by_platform)}" for name in sorted(versions)}


def _marker(name: str, by_platform: dict[str, dict[str, str]]) -> str:
    absent = [platform for platform, closure in by_platform.items() if name not in closure]
    return "; " + " and ".join(f'sys_platform != "{platform}"' for platform in absent) if absent else ""


def _lines(pins: Iterable[str]) -> Iterator[str]:
    for pin in pins:
        yield f"{pin}\n"


def main() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = _pins(project["dependencies"])
    everything = _pins([*project["dependencies"], *project["optional-dependencies"]["dev"]])
    added = [pin for name, pin in everything.items() if name not in runtime]
    (_ROOT / "requirements.txt").write_text(_HEADER + "".join(_lines(runtime.values())), encoding="utf-8")
    dev = _HEADER + "-r requirements.txt\n" + "".join(_lines(added))
    (_ROOT / "requirements-dev.txt").write_text(dev, encoding="utf-8")
    sys.stdout.write(f"requirements.txt: {len(runtime)} packages; requirements-dev.txt: {len(added)} more\n")


if __name__ == "__main__":
    main()
