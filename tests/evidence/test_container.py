"""Limits of what is read of a bundle: each of them itself, and one more."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from threading import Thread

import pytest

from core.errors import InputError
from evidence import container
from evidence.container import Container, HeldFiles


def packed(place: Path, *names: str, comment: bytes = b"") -> Path:
    path = place / "b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"abc")
        archive.comment = comment
    return path


def test_a_line_has_its_longest_length_however_it_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for chunk in range(1, 12):
        monkeypatch.setattr(container, "_CHUNK", chunk)
        (tmp_path / "lines").write_bytes(b"abcd\n\nefgh\n")
        read = Container(tmp_path)
        assert list(read.lines("lines", 4)) == [b"abcd", b"", b"efgh"], chunk
    monkeypatch.setattr(container, "_CHUNK", 4)
    with pytest.raises(InputError, match="longer than 3 bytes"):
        list(Container(tmp_path).lines("lines", 3))
    with pytest.raises(InputError, match="does not end with a newline"):
        list(HeldFiles({"lines": b"ab\nc"}).lines("lines", 4))


@pytest.mark.parametrize(("comment", "good"), [(b"", True), (b"x", False), (b"xy", False)])
def test_an_archive_says_nothing_about_itself(tmp_path: Path, comment: bytes, good: bool) -> None:
    path = packed(tmp_path, "a", comment=comment)
    if good:
        assert Container(path).sizes == {"a": 3}
        return
    with pytest.raises(InputError, match="archive comment"):
        Container(path)


def test_names_that_differ_by_case_alone_are_one(tmp_path: Path) -> None:
    assert sorted(Container(packed(tmp_path, "README.txt", "a/x", "b/x")).sizes) == ["README.txt", "a/x", "b/x"]
    for names in (("a/x.json", "a/X.json"), ("A", "a"), ("B/x", "a", "b/x")):
        with pytest.raises(InputError, match="has two files named"):
            Container(packed(tmp_path, *names))


def test_a_folder_holds_no_folder(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    with pytest.raises(InputError, match=r"has the (folder|name) 'a/b'"):
        Container(tmp_path)
    inner.rmdir()
    (tmp_path / "a" / "x").write_bytes(b"abc")
    assert Container(tmp_path).sizes == {"a/x": 3}


def test_what_has_replaced_a_file_since_its_folder_was_read_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    folder.mkdir()
    for name in ("link", "pipe", "gone", "short", "long"):
        (folder / name).write_bytes(b"abc")
    read = Container(folder)
    for name in ("link", "pipe", "gone"):
        (folder / name).unlink()
    (tmp_path / "other").write_bytes(b"abc")
    (folder / "link").symlink_to(tmp_path / "other")
    (folder / "short").write_bytes(b"ab")
    (folder / "long").write_bytes(b"abcd")
    os.mkfifo(folder / "pipe")
    writer = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    told: dict[str, str] = {}

    def tell() -> None:
        for name in read.sizes:
            try:
                told[name] = read.read(name).decode()
            except InputError as error:
                told[name] = str(error).partition(": [")[0]

    reading = Thread(target=tell, daemon=True)
    reading.start()
    reading.join(20)
    try:
        assert not reading.is_alive(), "it waits for what comes out of the pipe"
    finally:
        os.close(writer)
    assert told == {
        "gone": "gone: cannot be read",
        "link": "link: cannot be read",
        "long": "long: is longer than its entry says",
        "pipe": "",
        "short": "ab",
    }


def test_a_file_has_its_largest_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(container, "FILE_BYTES_MAX", 3)
    monkeypatch.setattr(container, "EVENTS_BYTES_MAX", 5)
    events = container.layout.EVENTS
    assert HeldFiles({"a": b"abc", events: b"abcde"}).sizes == {"a": 3, events: 5}
    assert Container(packed(tmp_path, "a")).sizes == {"a": 3}
    for files in ({"a": b"abcd"}, {events: b"abcdef"}):
        with pytest.raises(InputError, match="bytes; at most"):
            HeldFiles(files)
