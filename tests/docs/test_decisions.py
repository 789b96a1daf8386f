"""The records of docs/decisions: numbered without gaps, listed on their page, each with its four parts."""

from __future__ import annotations

from pathlib import Path

PARTS = ("**Status**: ", "## Context", "## Decision", "## Consequences")


def test_records_are_numbered_listed_and_whole(docs_root: Path) -> None:
    folder = docs_root / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(folder.glob("[0-9]*.md"))
    assert [record.name[:4] for record in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for record in records:
        text = record.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix(f"# {record.name[:4]}. ")
        assert f"[{record.name[:4]}]({record.name}) | {title} |" in listed, record.name
        places = [text.find(part) for part in PARTS]
        assert -1 not in places, record.name
        assert places == sorted(places), record.name
