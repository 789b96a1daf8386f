"""The weight of the tests: `make check` shows it and holds its limits.

Python of tests/ is at most 1.5 times the product, its data at most 12,000 lines. No test file imports another one, and
none outside tests/support reads a private name of the product: such a test breaks whenever the inside changes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("app", "approvals", "connectors", "core", "evidence", "migrations", "policy", "runtime")
RATIO_MAX = 1.5
DATA_MAX = 12_000
_DATA = (".json", ".jsonl", ".toml", ".txt", ".yaml")


def _files(*folders: str) -> list[Path]:
    """The files below these folders that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *folders],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return [path for name in sorted(set(listed)) if (path := ROOT / name).is_file()]


def _lines(paths: list[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def _is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name != "_"


def _private_names(paths: list[Path]) -> set[str]:
    """Every private name that the product defines: functions, classes, constants, attributes, modules."""
    found: set[str] = {path.stem for path in paths if _is_private(path.stem)}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return {name for name in found if _is_private(name)}


def _own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _reads(tree: ast.Module, private: set[str]) -> Iterator[tuple[int, str]]:
    """The places where a test reads, imports or replaces a private name of the product."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in private and not _own(node.value):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PRODUCT:
            yield from ((node.lineno, alias.name) for alias in node.names if _is_private(alias.name))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "setattr", "getattr", "patch", "delattr",
        ):  # fmt: skip
            texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            last = [text.rpartition(".")[2] for text in texts]
            yield from ((node.lineno, name) for name in last if name in private)


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The imports of other test files. Fixtures come from a conftest by their names, helpers from tests.support."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").startswith("tests."):
            names = [*module.split("."), *(alias.name for alias in node.names)]
            if any(name == "conftest" or name.startswith("test_") for name in names):
                yield node.lineno, module


def complaints() -> Iterator[str]:
    """Each limit that is not kept, with its place and the remedy."""
    product = [path for path in _files(*PRODUCT) if path.suffix == ".py"]
    files = _files("tests")
    tests = [path for path in files if path.suffix == ".py"]
    data = [path for path in files if path.suffix in _DATA]
    lines, limit, rows = _lines(tests), int(_lines(product) * RATIO_MAX), _lines(data)
    sys.stdout.write(
        f"Weight: {lines} lines of tests ({lines / _lines(product):.2f} of the product, at most {RATIO_MAX}), "
        f"{rows} lines of data (at most {DATA_MAX}).\n"
    )
    if lines > limit:
        yield f"tests/ has {lines} lines of Python, and {limit} at most: merge cases into tables."
    if rows > DATA_MAX:
        yield f"tests/ has {rows} lines of data, and {DATA_MAX} at most: keep the contracts alone."
    private = _private_names(product)
    for path in tests:
        tree, place = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
        yield from (f"{place}:{line}: imports {name}: move it to tests/support." for line, name in _imports(tree))
        if "support" not in place.parts:
            yield from (
                f"{place}:{line}: reads {name}: test it by what it does." for line, name in _reads(tree, private)
            )


def main() -> int:
    """Print the weight and the complaints. The exit code is 1 if there is a complaint."""
    found = list(complaints())
    sys.stderr.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
