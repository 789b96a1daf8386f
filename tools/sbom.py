"""The software bill of materials (CycloneDX 1.5, JSON): every pinned requirement with its hashes and its license.

It is derived from requirements.txt, so that it names what an installation gets, on every platform. Licenses are those
that installed packages declare; a package that is not installed here has none.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(requirements: str) -> Iterator[dict[str, Any]]:
    """Yield each pinned requirement. ``ValueError`` for a line that pins nothing, or a pin without a hash."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", f"\n{requirements}"):
        lines = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if not lines:
            continue
        pin, hashes = _PIN.match(lines[0]), _HASH.findall(block)
        if pin is None or not hashes:
            raise ValueError(f"this requirement is not pinned with hashes: {lines[0]}")
        name, version = re.sub(r"[-_.]+", "-", pin[1]).lower(), pin[2]
        address = f"pkg:pypi/{name}@{version}"
        found: dict[str, Any] = {"type": "library", "bom-ref": address, "name": name, "version": version}
        found |= {"purl": address, "hashes": [{"alg": "SHA-256", "content": one} for one in sorted(set(hashes))]}
        yield found | {"licenses": [{"license": {"name": one}} for one in _license(name)]}


def _license(name: str) -> list[str]:
    try:
        told = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    declared = next((told[one] for one in ("License-Expression", "License") if one in told), "")
    classified = [one.rpartition(" :: ")[2] for one in told.get_all("Classifier", []) if one.startswith("License ::")]
    return [declared] if declared and "\n" not in declared else classified


def bill(requirements: str, version: str) -> dict[str, Any]:
    """The whole bill. The same requirements make the same bytes: it has no time and no random number."""
    own = {"type": "application", "bom-ref": "counterseal", "name": "counterseal", "version": version}
    parts = sorted(components(requirements), key=lambda one: str(one["bom-ref"]))
    needs = [{"ref": "counterseal", "dependsOn": [one["bom-ref"] for one in parts]}]
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": own}}
    return {**head, "components": parts, "dependencies": needs}


def main() -> None:
    """Write the bill to the file that is named, or to standard output."""
    project = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version is not None, "pyproject.toml has a version"
    text = json.dumps(bill((ROOT / "requirements.txt").read_text(), version[1]), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
