"""The bill of materials names every pinned requirement with its hashes, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.sbom import bill, components

ROOT = Path(__file__).parents[2]


def test_the_bill_is_that_of_the_pins() -> None:
    text = (ROOT / "requirements.txt").read_text()
    made = bill(text, "1.0")
    pinned = {
        f"{name.lower()}@{version}" for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    }
    assert {one["purl"].removeprefix("pkg:pypi/") for one in made["components"]} == pinned
    assert sum(len(one["hashes"]) for one in made["components"]) == len(set(re.findall(r"sha256:(\w{64})", text)))
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.5", 1)
    refs = [one["bom-ref"] for one in made["components"]]
    assert made["dependencies"] == [{"ref": "counterseal", "dependsOn": refs}]
    assert len(refs) == len(set(refs)) > 20
    assert bill(text, "1.0") == made


@pytest.mark.parametrize("line", ["aiohttp>=3", "aiohttp==3.1", "aiohttp @ https://x.example/a.whl"])
def test_what_is_not_pinned_with_hashes_makes_no_bill(line: str) -> None:
    with pytest.raises(ValueError, match="not pinned with hashes"):
        list(components(f"{line}\n"))
