"""Python's ``$`` stands before a line break at the end, too: what checks a text ends with ``\\Z`` or uses fullmatch."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

FUNCTIONS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
Modules = Callable[..., Iterator[Any]]


def _pattern(call: ast.Call) -> str | None:
    """The text of the pattern in ``re.compile("…")`` and its like."""
    function = call.func
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "re"):
        return None
    if function.attr not in FUNCTIONS or not call.args:
        return None
    if isinstance(call.args[0], ast.Call):
        return None  # made of another one, such as PATTERN.replace("$", r"\Z") in core.durations
    parts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
    return "".join(str(part) for part in parts)


def _has_dollar(pattern: str) -> bool:
    plain = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "", pattern, flags=re.DOTALL)
    return "$" in plain


def loose_patterns(tree: ast.Module) -> list[int]:
    """Lines of patterns that end with ``$``, and of ``match`` with a pattern of this module that has no end at all."""
    compiled: dict[str, str] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (pattern := _pattern(node)) is not None and _has_dollar(pattern):
            found.append(node.lineno)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and (pattern := _pattern(node.value)) is not None:
                compiled[target.id] = pattern
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "match":
            name = getattr(node.func.value, "id", "")
            if name in compiled and not compiled[name].endswith(r"\Z"):
                found.append(node.lineno)
    return sorted(found)


def test_every_pattern_ends_where_it_says(read_modules: Modules, our_packages: list[str]) -> None:
    found = [
        f"{module.path}:{line}"
        for module in read_modules(*(package for package in our_packages if package != "migrations"))
        for line in loose_patterns(module.tree)
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import re\nP = re.compile('^a$')",
        "import re\nP = re.compile(r'(a$|b)')",
        "import re\nre.match('a$', text)",
        "import re\nre.compile('a' 'b$', re.ASCII)",
        "import re\nre.compile(f'{x}$')",
        "import re\nP = re.compile('a+')\nP.match(text)",
    ],
)
def test_the_rule_sees(source: str) -> None:
    assert len(loose_patterns(ast.parse(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import re\nP = re.compile(r'a\\Z')\nP.match(text)",
        "import re\nP = re.compile('a')\nP.fullmatch(text)",
        "import re\nP = re.compile(r'[$]\\$')",
        "import re\nre.search('a', text)",
    ],
)
def test_the_rule_lets_pass(source: str) -> None:
    assert loose_patterns(ast.parse(source)) == []
