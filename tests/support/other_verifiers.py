"""Runs the verifiers of one file, with nothing of ours and none of our packages: Python with cryptography, and Node."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from evidence.standalone.building import Language, build

# Verifies each bundle of its arguments in one process: starting Python takes longer than verifying.
_EACH = """
import contextlib, io, json, runpy, sys
main = runpy.run_path(sys.argv[1])["main"]
more, bundles = json.loads(sys.argv[3]), sys.argv[4:]
for bundle in bundles:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main([bundle, "--key", sys.argv[2], "--json", *more])
    print(json.dumps([code, json.loads(said.getvalue())]))
strange = {"orjson", "msgspec", "rfc8785"} & {
    name for name, one in sys.modules.items() if getattr(one, "__file__", None) and "site-packages" in one.__file__
}
assert not strange, strange
"""
# The only package that it may find.
_PACKAGES = ("cryptography", "cffi", "_cffi_backend")


def _only(folder: Path) -> Path:
    """A folder with links to the packages that the verifier in Python needs."""
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        real = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        if not (packages / real.name).exists():
            (packages / real.name).symlink_to(real)
    return packages


def _summary(code: int, told: dict[str, Any]) -> tuple[int, set[str]]:
    return code, {row["check"] for row in told["rows"] if row["status"] == "failed"}


def _more(disclosed: Sequence[Path]) -> list[str]:
    return [word for each in disclosed for word in ("--disclosed", str(each))]


def row_by_each(folder: Path, key: Path, bundle: Path, check: str, *more: str) -> list[tuple[int, str, str]]:
    """The exit code, and the status and the words of one row, by verify.py and by verify.mjs."""
    commands = [[sys.executable, "-S", folder / "verify.py"]]
    (folder / "verify.py").write_bytes(_built(Language.PYTHON))
    if shutil.which("node") is not None:
        (folder / "verify.mjs").write_bytes(_built(Language.JAVASCRIPT))
        commands.append(["node", folder / "verify.mjs"])
    found = []
    for command in commands:
        done = subprocess.run(
            [*map(str, command), str(bundle), "--key", str(key), "--json", *more],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_only(folder))}, cwd=folder,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        row = next(row for row in json.loads(done.stdout)["rows"] if row["check"] == check)
        found.append((done.returncode, row["status"], row["detail"]))
    return found


def by_python(folder: Path, key: Path, bundles: Sequence[Path], *disclosed: Path) -> list[tuple[int, set[str]]]:
    """The exit code and the failed rows of each bundle, by verify.py."""
    program = folder / "verify.py"
    program.write_bytes(_built(Language.PYTHON))
    done = subprocess.run(
        [sys.executable, "-S", "-c", _EACH, str(program), str(key), json.dumps(_more(disclosed)), *map(str, bundles)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_only(folder))}, cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [_summary(*json.loads(line)) for line in done.stdout.splitlines()]


_EACH_BY_NODE = """
const [key, program, more, ...bundles] = process.argv.slice(1);
const { run } = await import(program);
for (const bundle of bundles) {
  const { code, said, problem } = run([bundle, "--key", key, "--json", ...JSON.parse(more)]);
  console.log(JSON.stringify([code, said === undefined ? problem : JSON.parse(said)]));
}
"""


def by_node(folder: Path, key: Path, bundles: Sequence[Path], *disclosed: Path) -> list[tuple[int, set[str]]]:
    """The exit code and the failed rows of each bundle, by verify.mjs; by verify.py on a machine without Node."""
    if shutil.which("node") is None:
        return by_python(folder, key, bundles, *disclosed)
    program = folder / "verify.mjs"
    program.write_bytes(_built(Language.JAVASCRIPT))
    more = json.dumps(_more(disclosed))
    done = subprocess.run(
        ["node", "--input-type=module", "-e", _EACH_BY_NODE, str(key), str(program), more, *map(str, bundles)],
        env={"PATH": os.environ["PATH"]}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [_summary(*json.loads(line)) for line in done.stdout.splitlines()]


@cache
def _built(language: Language) -> bytes:
    return build(language)
