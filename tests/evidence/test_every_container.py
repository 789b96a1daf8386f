"""Every container that is refused, and every bundle that cannot be made: word for word."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import CountersealError
from evidence import container
from evidence.bundle import CancelRecord, ContradictionError, DocumentText, assemble, build_bundle
from evidence.chain import ChainHead
from evidence.container import Container, HeldFiles
from evidence.signing import PublicKey
from tests.support.whole import as_it_was

pytestmark = pytest.mark.req("Q-21")

EXPECTED = Path(__file__).with_name("every_container.json")


def outcome(call: Callable[..., Any], *given: Any) -> Any:
    try:
        told = call(*given)
    except CountersealError as error:
        return f"{type(error).__name__}: {error}"
    return dict(told.sizes) if isinstance(told, Container | HeldFiles) else told


def entry(name: str, *, mode: int = 0o100644, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    one = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    one.external_attr, one.compress_type = mode << 16, method
    return one


ENTRIES: dict[str, list[zipfile.ZipInfo]] = {
    "plain": [entry("a"), entry("b/c.json")],
    "without a mode": [entry("a", mode=0)],
    "deflated": [entry("a", method=zipfile.ZIP_DEFLATED)],
    "bzip2": [entry("a", method=zipfile.ZIP_BZIP2)],
    "a link": [entry("a", mode=0o120777)],
    "a device": [entry("a", mode=0o020666)],
    "a folder": [entry("a/", mode=0o040755)],
    "two of a name": [entry("a"), entry("a")],
    "two of a name but its case": [entry("a"), entry("A")],
    "absolute": [entry("/a")],
    "above": [entry("../a")],
    "deep": [entry("a/b/c")],
    "hidden": [entry(".a")],
    "long": [entry("a" * 128), entry("b" * 129)],
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_containers_are_refused_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    for number, (name, entries) in enumerate(ENTRIES.items()):
        path = tmp_path / f"{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for one in entries:
                archive.writestr(one, b"" if one.filename.endswith("/") else b"xyz")
        found[f"zip: {name}"] = outcome(Container, path)
    folder = tmp_path / "folder"
    (folder / "b/d").mkdir(parents=True)
    found["a folder in a folder"] = outcome(Container, folder)
    (folder / "b/d").rmdir()
    (folder / "b/e").write_bytes(b"12")
    (folder / "a").write_bytes(b"123")
    found["folder"] = outcome(Container, folder)
    (folder / "c").symlink_to(folder / "a")
    found["a link in a folder"] = outcome(Container, folder)
    (folder / "c").unlink()
    os.mkfifo(folder / "c")
    found["a pipe in a folder"] = outcome(Container, folder)
    (folder / "c").unlink()
    (folder / "x y").write_bytes(b"")
    found["a name in a folder"] = outcome(Container, folder)
    monkeypatch.setattr(container, "FILE_BYTES_MAX", 3)
    monkeypatch.setattr(container, "EVENTS_BYTES_MAX", 5)
    for name, size in (("a", 3), ("a", 4), ("events.jsonl", 5), ("events.jsonl", 6)):
        found[f"{name} of {size}"] = outcome(HeldFiles, {name: b"x" * size})
    monkeypatch.undo()
    assert (container.FILE_BYTES_MAX, container.EVENTS_BYTES_MAX, container.FILES_MAX) == (
        67108864,
        4294967296,
        100_000,
    )
    as_it_was(EXPECTED, found)


def test_bundles_that_cannot_be_made_are_refused_as_they_were(workshop: Any) -> None:
    good, key = workshop.tell().content(), workshop.signer.public_key
    [first, *rest] = good.appends
    receipt = good.receipts[0]
    text = DocumentText("it-operations", 7, "x")
    (asked,) = good.approvals
    unsaid = replace(asked.votes[0], reason="")
    cases: dict[str, Any] = {
        "a name of a policy": replace(good, policies=(DocumentText("../x", 1, ""),)),
        "two policies of a name": replace(good, policies=(*good.policies, text)),
        "two receipts of a name": replace(good, receipts=(receipt, receipt)),
        "two but for their case": replace(good, receipts=(*good.receipts, {**receipt, "receipt": "RECEIPT-1"})),
        "a disclosure": replace(good, disclosures=("!",)),
        "an append less": replace(good, appends=[first, *rest[:-1]]),
        "no appends": replace(good, appends=[]),
        "appends in another order": replace(good, appends=[first, *rest[::-1]]),
        "another head": replace(good, head=ChainHead(good.head.stream, good.head.count, "0" * 64)),
        "another count": replace(good, head=ChainHead(good.head.stream, good.head.count + 1, good.head.hash)),
        "another stream": replace(good, head=ChainHead("run:other", good.head.count, good.head.hash)),
        "another run": replace(good, run=replace(good.run, run_id="other")),
        "another card": replace(good, approvals=(replace(good.approvals[0], card_commitment="0" * 64),)),
        "a card withheld": replace(good, approvals=(replace(good.approvals[0], card_disclosure=None),)),
        "another status of the run": replace(good, run=replace(good.run, status="failed_terminal")),
        "another text of the workflow": replace(good, workflow=replace(good.workflow, text="x")),
        "another workflow": replace(good, workflow=replace(good.workflow, name="x")),
        "a run by the end of its name": replace(good, run=replace(good.run, run_id=good.run.run_id[1:])),
        "no policy": replace(good, policies=()),
        "the second disclosure": replace(good, disclosures=(good.disclosures[0], "!", good.disclosures[1])),
        "a disclosure, and an append less": replace(good, appends=[first, *rest[:-1]], disclosures=("!",)),
        "an empty disclosure of the card": replace(good, approvals=(replace(asked, card_disclosure=""),)),
        "an empty disclosure of what was asked": replace(good, approvals=(replace(asked, asked=""),)),
        "an empty disclosure of a reason": replace(good, approvals=(replace(asked, votes=(unsaid,)),)),
        "an empty disclosure of a cancel": replace(good, run=replace(good.run, canceled=CancelRecord("ann", ""))),
        "two policies but for their case": replace(
            good, policies=(*good.policies, replace(text, name="It-Operations"))
        ),
    }
    found = {name: outcome(made, content, key, workshop.signer) for name, content in cases.items()}
    as_it_was(EXPECTED.with_name("every_contradiction.json"), found)


def made(content: Any, key: PublicKey, signer: Any) -> Any:
    """The name of a bundle, or the words and checks of its contradiction."""
    assert key
    try:
        return build_bundle(content, signer).name
    except ContradictionError as error:
        return [str(error), list(error.checks)]


def test_a_bundle_is_named_by_its_run_and_its_length(workshop: Any) -> None:
    content = workshop.tell().content()
    assert assemble(content, workshop.signer.public_key).name == f"evidence-{workshop.run_id}-{content.head.count}.zip"
