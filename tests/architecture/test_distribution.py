"""Our packages have plain top-level names: nothing else may claim them, and they hide nothing of Python's own."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest


def test_every_package_of_the_repository_is_in_the_wheel(repository: Path, our_packages: list[str]) -> None:
    not_shipped = {"tests", "tools", "benchmarks", "chaos"}
    present = {folder.parent.name for folder in repository.glob("*/__init__.py")}
    assert present - not_shipped == set(our_packages)


def test_no_other_distribution_has_our_names(our_packages: list[str]) -> None:
    owners = packages_distributions()
    assert {name: set(owners.get(name, [])) - {"counterseal"} for name in our_packages} == {
        name: set() for name in our_packages
    }


def test_counterseal_is_installed_once() -> None:
    assert len([one for one in distributions() if one.metadata["Name"] == "counterseal"]) == 1


def test_our_names_are_ours_when_imported(repository: Path, our_packages: list[str]) -> None:
    for name in our_packages:
        assert Path(str(importlib.import_module(name).__file__)).is_relative_to(repository), name


def test_no_name_of_the_standard_library_is_taken(our_packages: list[str]) -> None:
    assert set(our_packages) & sys.stdlib_module_names == set()


def test_packages_say_that_they_are_typed(repository: Path, our_packages: list[str]) -> None:
    # The runtime is nobody's library, and the top of its folder shows its parts only.
    ours = [name for name in our_packages if name not in ("migrations", "runtime")]
    untyped = [name for name in ours if not (repository / name / "py.typed").exists()]
    assert untyped == []


@pytest.mark.req("U-2")
def test_all_of_our_packages_are_shipped(repository: Path, our_packages: list[str]) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    asked = {"runtime", "policy", "connectors", "approvals", "evidence", "migrations"}
    assert asked - set(shipped) == set()
    assert set(shipped) == set(our_packages)


@pytest.mark.req("U-2")
def test_the_top_level_is_the_one_asked_for(repository: Path) -> None:
    asked = [
        "pyproject.toml",
        "README.md",
        "runtime",
        "policy",
        "connectors",
        "approvals",
        "evidence",
        "migrations",
        "tests",
    ]
    assert [name for name in asked if not (repository / name).exists()] == []


def imported(folders: Iterable[Path]) -> set[str]:
    """The top-level names that the modules below these folders import."""
    found: set[str] = set()
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def declared(repository: Path) -> set[str]:
    """The names of what the wheel depends on."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[\[<>=~! ]", line, maxsplit=1)[0].lower() for line in project["dependencies"]}


@pytest.mark.req("U-1")
def test_the_libraries_asked_for_are_declared_and_imported(repository: Path, our_packages: list[str]) -> None:
    asked = {"slack-bolt", "fastapi", "sqlalchemy", "asyncpg", "boto3", "pydantic", "tenacity"}
    assert asked - declared(repository) == set()
    ours = imported(repository / name for name in our_packages)
    assert {name.replace("-", "_") for name in asked} - ours == set()
    assert {"pytest", "moto"} - imported([repository / "tests", repository / "app"]) == set()


@pytest.mark.req("P-13")
def test_no_workflow_engine_of_others_is_needed(repository: Path, our_packages: list[str]) -> None:
    engines = {
        *("temporalio", "celery", "prefect", "airflow", "apache-airflow", "dagster", "dbos", "langgraph", "luigi"),
        *(
            "restate-sdk",
            "restate",
            "spiffworkflow",
            "dramatiq",
            "rq",
            "arq",
            "inngest",
            "hatchet-sdk",
            "conductor-python",
        ),
    }
    assert declared(repository) & engines == set()
    ours = {name.lower() for name in imported(repository / name for name in our_packages if name != "sandbox")}
    assert ours & {name.replace("-", "_") for name in engines} == set()


def test_what_is_installed_is_what_is_pinned(repository: Path) -> None:
    """Otherwise `make pin` was forgotten, and others test something else than we do."""
    pins = (repository / "requirements.txt").read_text() + (repository / "requirements-dev.txt").read_text()
    lines = [line.removesuffix("\\").strip() for line in pins.splitlines()]
    pinned = dict(line.partition(";")[0].strip().split("==") for line in lines if "==" in line and line[0] != "#")
    installed = {
        one.metadata["Name"].lower().replace("_", "-").replace(".", "-"): one.version for one in distributions()
    }
    assert {name: installed[name] for name in pinned if name in installed} == {
        name: version for name, version in pinned.items() if name in installed
    }
    for line in lines:
        assert line.startswith(("#", "--hash=sha256:")) or "==" in line, line
        assert "//" not in line
        assert "@" not in line
