"""Pins of a bundle's reader: the exact container, the key, the run, the file, the edition before."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import InputError
from evidence.chain import EventType
from evidence.packing import EPOCH
from evidence.pins import Pins
from evidence.signing import FileSigner
from evidence.verify import main, verify_bundle


def inside(data: bytes) -> bytes:
    """Bytes between two entries, where no list points to."""
    at = data.index(b"PK\x03\x04", 4)
    return data[:at] + b"hidden" + data[at:]


def zipped(data: bytes, **how: Any) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as found, zipfile.ZipFile(into, "w") as made:
        for entry in sorted(found.infolist(), key=lambda one: one.filename, reverse=how.pop("reverse", False)):
            again = zipfile.ZipInfo(entry.filename, how.get("time", EPOCH))
            again.create_system, again.external_attr = 3, how.get("mode", 0o100644) << 16
            made.writestr(again, found.read(entry), how.get("method", zipfile.ZIP_STORED))
    return into.getvalue()


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "bytes before": lambda data: b"x" + data,
    "bytes behind": lambda data: data + b"x",
    "bytes between": inside,
    "another zip before": lambda data: zipped(data).replace(b"acme", b"evil") + data,
    "other times": lambda data: zipped(data, time=(2026, 1, 1, 0, 0, 0)),
    "other rights": lambda data: zipped(data, mode=0o100755),
    "compressed": lambda data: zipped(data, method=zipfile.ZIP_DEFLATED),
    "another order": lambda data: zipped(data, reverse=True),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_bundle_is_the_one_zip_that_its_files_make(workshop: Any, name: str) -> None:
    data = workshop.build()
    assert zipped(data) == data, "it is what Python's own writer makes of them"
    assert verify_bundle(workshop.save(data), public_key=workshop.key).ok
    found = verify_bundle(workshop.save(CONTAINERS[name](data)), public_key=workshop.key)
    assert "container" in {row.check for row in found.failed}


def test_only_a_key_that_the_reader_trusts_gives_zero(workshop: Any, tmp_path: Path) -> None:
    path, own = str(workshop.save(workshop.build())), workshop.signer.public_key.key_id
    other = tmp_path / "other.pem"
    other.write_bytes(FileSigner(Ed25519PrivateKey.generate()).public_key.pem)
    key, strange = str(workshop.key), str(other)
    for given, code in (
        ([], 6), (["--key", key], 0), (["--key", strange], 1), (["--key", strange, "--key", key], 0),
        (["--fingerprint", own], 0), (["--fingerprint", own.upper()], 0), (["--fingerprint", "0" * 64], 1),
        (["--fingerprint", "0" * 64, "--key", key], 0), (["--fingerprint", "short"], 2),
        (["--key", key, "--run", workshop.run_id, "--tenant", "acme"], 0),
        (["--key", key, "--run", "another"], 1), (["--key", key, "--tenant", "another"], 1),
        (["--key", key, "--sha256", "0" * 64], 1), (["--key", key, "--after", "/nowhere"], 2),
    ):  # fmt: skip
        assert main([path, *given]) == code, given


def test_an_edition_begins_with_the_one_before(workshop: Any, tmp_path: Path) -> None:
    story = workshop.tell()
    early, keys = tmp_path / "early.zip", [workshop.key]
    late = {"receipt": "receipt-1", "attempt": 1, "epoch": 1, "known": "in_doubt", "sent": "t"}
    story.sizes = (1, 3, 2, 1, 3, 2, 1, 1, 1)  # its last append is one of its own
    early.write_bytes(workshop.build(story))
    story.add(EventType.ACTION_LATE, late)
    later = workshop.save(workshop.build(story))

    def edition(path: Path, before: Path) -> tuple[bool, str]:
        rows = verify_bundle(path, pins=Pins.of(keys, after=before)).rows
        (row,) = [row for row in rows if row.check == "edition"]
        return row.status == "ok", row.detail

    assert edition(later, early) == (True, "its events begin with the 14 of the earlier edition")
    assert edition(early, later)[1].endswith("another history"), "the later one is no beginning of the earlier"
    files = workshop.unzip(early.read_bytes())
    forged = workshop.pack({**files, "events.jsonl": files["events.jsonl"].replace(b"maria", b"mario")})
    assert "changed since it was signed" in edition(later, forged)[1]
    with pytest.raises(InputError, match="does not exist"):
        Pins.of(keys, after=tmp_path / "none.zip")
