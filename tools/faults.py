"""The register of planted faults: `tests/planted/*.toml`, read and compared with the tree.

A fault removes one guard, by edits of texts that occur exactly once in their files (or ``times``, in statements that
share it), and names the tests that must fail then. ``breaks`` names the broken promise (`promise 4`) or requirement
(`Q-9`). ``by`` is the type of the error by which the tests fail, if that is no assertion, because a second guard behind
the removed one refuses.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REGISTER = "tests/planted"
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)|^class (Test\w+)|^\s+def (runTest)|^(Test\w+) = ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """One text of a file, and its replacement. Statements that share a part have it several ``times``."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, what it breaks, and the tests that find it."""

    name: str
    area: str
    breaks: tuple[str, ...]
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    by: str = ""


def load(root: Path = ROOT) -> list[Fault]:
    """Read all faults, in the order of the files."""
    return [
        _fault(path.stem, each)
        for path in sorted((root / REGISTER).glob("*.toml"))
        if path.stem != "living"
        for each in tomllib.loads(path.read_text(encoding="utf-8")).get("fault", ())
    ]


def _fault(area: str, told: dict[str, object]) -> Fault:
    every = [told] if "file" in told else []
    also = told.get("also", [])
    assert isinstance(also, list)
    edits = tuple(
        Edit(str(each["file"]), str(each["old"]), str(each["new"]), int(str(each.get("times", 1))))
        for each in (*every, *also)
    )
    tests = told["tests"]
    assert isinstance(tests, list)
    breaks = tuple(word.strip() for word in str(told["breaks"]).split(","))
    return Fault(str(told["name"]), area, breaks, edits, tuple(tests), str(told.get("by", "")))


def problems(faults: list[Fault], root: Path = ROOT) -> list[str]:
    """Compare the register with the tree. Returns each place that a fault names and that does not match."""
    texts: dict[str, str] = {}
    found = [f"{name}: this name is there twice" for name in _twice([fault.name for fault in faults])]
    for fault in faults:
        found += [f"{fault.name}: {problem}" for problem in _problems(fault, root, texts)]
    return found


def _twice(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _problems(fault: Fault, root: Path, texts: dict[str, str]) -> list[str]:
    found = [] if fault.edits else ["it has no edit"]
    if not fault.tests:
        found.append("it names no test")
    for edit in fault.edits:
        count = text_of(edit.file, root, texts).count(edit.old)
        if count != edit.times:
            found.append(f"{edit.file} holds {edit.old!r} {count} times: fit the fault to the file")
        if edit.old == edit.new:
            found.append(f"{edit.file}: nothing is changed")
    for test in fault.tests:
        path, *names = test.partition("[")[0].split("::")
        known = {name for match in _TEST.finditer(text_of(path, root, texts)) for name in match.groups() if name}
        if not names or not known.issuperset(names):
            found.append(f"there is no test {test}")
    return found


def text_of(file: str, root: Path, texts: dict[str, str]) -> str:
    """The text of a file of the tree; "" if there is none."""
    if file not in texts:
        path = root / file
        texts[file] = path.read_text(encoding="utf-8") if path.is_file() else ""
    return texts[file]
