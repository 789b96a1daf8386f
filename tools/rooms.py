"""The rooms of the code for docs/architecture.md, from the import contracts and the docstrings."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import app

CODE = Path(app.__file__).resolve().parents[1]
ENGINE = CODE / "runtime" / "engine"


def layers() -> tuple[list[str], list[str], list[str]]:
    """The import layers from top to bottom: of all packages, within the runtime, and within the engine."""
    project = tomllib.loads((CODE / "pyproject.toml").read_text(encoding="utf-8"))
    found = [one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers"]
    whole, runtime, engine = found
    return whole, runtime, engine


def imports() -> str:
    """Draw the allowed imports: each room imports those that its arrow leads to, and those behind them."""
    whole, runtime, within_engine = layers()
    (siblings,) = [layer for layer in whole if " | " in layer]
    lines = [
        "flowchart LR",
        f"  {' --> '.join('siblings' if layer == siblings else layer for layer in whole)}",
        "  subgraph runtime",
        f"    direction LR\n    {' --> '.join(runtime)}",
        "  end",
        "  subgraph engine",
        f"    direction LR\n    {' --> '.join(within_engine)}",
        "  end",
        '  subgraph siblings["siblings, which do not know each other"]',
        *(f"    {name}" for name in siblings.split(" | ")),
        "  end",
    ]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def rooms() -> Iterator[tuple[str, str]]:
    """Yield each package and each room of the runtime, from top to bottom, with the first sentence of its docstring."""
    whole, runtime, _ = layers()
    for name in (name for layer in whole for name in layer.split(" | ")):
        yield f"[`{name}/`](../{name})", _says(CODE / name / "__init__.py")
        for room in runtime if name == "runtime" else ():
            yield f"[`runtime/{room}/`](../runtime/{room})", _says(CODE / name / room / "__init__.py")


def engine() -> Iterator[tuple[str, str]]:
    """Yield each module of the pure engine with the first sentence of its docstring."""
    for file in sorted(ENGINE.rglob("*.py")):
        place = file.relative_to(ENGINE).as_posix()
        if place != "__init__.py":
            yield f"[`{place.removesuffix('/__init__.py')}`](../runtime/engine/{place})", _says(file)


def _says(file: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).removesuffix(" Pure.")
