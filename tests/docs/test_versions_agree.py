"""README, changelog, package and migrations name one release, so an installation knows where it stands."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_one_version_is_released_and_everything_says_which() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[(\d[\d.]*)\] - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)[0]
    assert project["version"] == version
    assert f"{version} is of {date}" in (ROOT / "README.md").read_text(encoding="utf-8")
    migrations = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "migrations/versions").glob("0*.py"))]
    assert f'"""The schema of {version} ' in "".join(migrations)
    unreleased = migrations[-1].startswith('"""The schema of the next release')
    assert unreleased == ("## [Unreleased]" in changes)
