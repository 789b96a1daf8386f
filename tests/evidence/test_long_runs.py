"""The bundle of a long run: what building and verifying it hold in memory, and how long it is. Counts, never times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.verifying import MEGABYTE, content_of, peak
from evidence.bundle import build_bundle
from evidence.signing import FileSigner
from evidence.verify import verify_bundle

DEEP = os.environ.get("COUNTERSEAL_DEEP") == "1"
# Megabytes for each 10,000 effects, and what any bundle takes besides.
BUILDING, VERIFYING, LONG, BESIDES = 150, 64, 25, 4


@pytest.mark.timeout(0 if DEEP else 600)
@pytest.mark.parametrize("effects", [10_000, 100_000] if DEEP else [500])
def test_memory_and_length_grow_no_faster_than_the_effects(tmp_path: Path, effects: int) -> None:
    content, path, most = content_of(effects), tmp_path / "bundle.zip", effects / 10_000
    signer = FileSigner(Ed25519PrivateKey.generate())
    built = peak(lambda: path.write_bytes(build_bundle(content, signer).bytes))
    verified, length = peak(lambda: verify_bundle(path)), path.stat().st_size / MEGABYTE
    assert verify_bundle(path).ok
    assert built <= BUILDING * most + BESIDES
    assert verified <= VERIFYING * most + BESIDES
    assert length <= LONG * most + 0.1
