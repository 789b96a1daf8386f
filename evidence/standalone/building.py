"""Builds the single-file verifiers. The same sources give the same bytes.

The one in Python is ``evidence.verify`` with all modules of ours that it imports; lean modules replace msgspec,
orjson and rfc8785, so it needs the standard library and ``cryptography``. The one in JavaScript is another
implementation of the format, and needs Node alone.
"""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from enum import StrEnum

_FIRST = "evidence.verify"
_OURS = ("core", "evidence")
_HERE = "evidence.standalone"
# The packages that a lean module replaces, and the names under which it is imported.
_LEAN = {
    "lean_msgspec": ("msgspec/__init__.py", "msgspec/structs.py", "msgspec/json.py"),
    "lean_orjson": ("orjson.py",),
    "lean_rfc8785": ("rfc8785.py",),
}
_AGAIN = '"""The same as ``msgspec``."""\nfrom msgspec import asdict, decode, encode, replace\n'
_INSTEAD = {"msgspec/structs.py": _AGAIN, "msgspec/json.py": _AGAIN}
_TEXTS = (("evidence", "readme.txt"),)

_HEAD = '''#!/usr/bin/env python3
"""Verifies evidence bundles of Counterseal, offline, in one file. It needs Python 3.11, and the package cryptography.

    python verify.py BUNDLE --key the-key-you-trust.pem

It makes the checks of `python -m evidence.verify`, whose sources it brings along, and judges the history. Rules are not
evaluated. What a bundle is, and what is checked, stands in docs/evidence-format.md of Counterseal.
"""

'''
_TAIL = """

load(FILES)

from evidence.verify import main  # noqa: E402  it is in FILES

if __name__ == "__main__":
    sys.exit(main())
"""


class Language(StrEnum):
    """The languages of the verifiers."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"


FILES = {Language.PYTHON: "verify.py", Language.JAVASCRIPT: "verify.mjs"}


def build(language: Language) -> bytes:
    """The verifier in this language, as one file."""
    if language is Language.JAVASCRIPT:
        return _text("evidence", "standalone/verify.mjs").encode()
    files = dict(sorted([*_modules(), *_lean(), *((f"{name}/{file}", _text(name, file)) for name, file in _TEXTS)]))
    parts = [_HEAD, _text("evidence", "standalone/loading.py"), "\n\nFILES: dict[str, str] = {}\n"]
    for name, text in files.items():
        fits = "'''" not in text and not text.endswith("\\")
        assert fits, f"{name} cannot stand in a raw text"
        parts.append(f"\n# {'-' * 100}\nFILES[{name!r}] = r'''{text}'''\n")
    return "".join([*parts, _TAIL]).encode()


def _text(package: str, file: str) -> str:
    data = pkgutil.get_data(package, file)
    assert data is not None, f"{file} is part of {package}"
    return data.decode()


def _modules() -> Iterator[tuple[str, str]]:
    """The modules of ours that the verifier imports, by their paths, with the packages around them."""
    seen, left = set[str](), [_FIRST]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        path, text = _source(name)
        yield path, text
        left += [*_around(name), *_imported(ast.parse(text))]


def _source(name: str) -> tuple[str, str]:
    top, _, inner = name.partition(".")
    for file in (f"{inner.replace('.', '/')}.py", f"{inner.replace('.', '/')}/__init__.py".lstrip("/")):
        try:
            return f"{top}/{file}", _text(top, file)
        except OSError:
            continue
    raise LookupError(f"{name} is no module of ours")


def _around(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a module imports when it is loaded."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").partition(".")[0] in _OURS:
            yield module
            yield from (name for alias in node.names if _is_module(name := f"{module}.{alias.name}"))


def _is_module(name: str) -> bool:
    try:
        _source(name)
    except LookupError:
        return False
    return True


def _lean() -> Iterator[tuple[str, str]]:
    for name, files in _LEAN.items():
        for file in files:
            yield file, _INSTEAD.get(file) or _text("evidence", f"standalone/{name}.py")
