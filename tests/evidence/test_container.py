"""Limits of what is read of a bundle: each of them itself, and one more."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from threading import Thread

import pytest

from core.errors import InputError
from evidence import container, layout
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
        monkeypatch.setattr(container, "CHUNK_BYTES", chunk)
        (tmp_path / "lines").write_bytes(b"abcd\n\nefgh\n")
        read = Container(tmp_path)
        assert list(read.lines("lines", 4)) == [b"abcd", b"", b"efgh"], chunk
    monkeypatch.setattr(container, "CHUNK_BYTES", 4)
    with pytest.raises(InputError, match="longer than 3 bytes"):
        list(Container(tmp_path).lines("lines", 3))
    for rest in (b"c", b" ", b"\r", b"\0"):
        with pytest.raises(InputError, match="does not end with a newline"):
            list(HeldFiles({"lines": b"ab\n" + rest}).lines("lines", 4))
    assert list(HeldFiles({"lines": b"\n \n\n"}).lines("lines", 4)) == [b"", b" ", b""]


def test_a_file_is_read_whole_however_it_comes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(container, "CHUNK_BYTES", 2)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(b"abcde")
    (folder / "empty").write_bytes(b"")
    read = Container(folder)
    assert (read.read("a"), read.read("empty"), [*read.chunks("a")]) == (b"abcde", b"", [b"ab", b"cd", b"e"])
    assert Container(packed(tmp_path, "a")).read("a") == b"abc"
    assert HeldFiles({"a": b"abcde"}).read("a") == b"abcde"


def test_only_the_events_may_be_as_long_as_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "FILE_BYTES_MAX", 3)
    monkeypatch.setattr(container, "STREAM_BYTES_MAX", 5)
    assert HeldFiles({layout.EVENTS: b"12345"}).sizes == {layout.EVENTS: 5}
    for name in sorted({*layout.ALWAYS[2], "policy/events.jsonl", "other.jsonl"} - {layout.EVENTS}):
        assert HeldFiles({name: b"123"}).sizes == {name: 3}
        with pytest.raises(InputError) as caught:
            HeldFiles({name: b"1234"})
        assert str(caught.value) == f"container: has {name!r} with 4 bytes; at most 3 are read"


@pytest.mark.parametrize(
    ("comment", "good"), [(b"", True), (b"x", False), (b"xy", False), (b" ", False), (b"\0", False), (b"\n", False)]
)
def test_an_archive_says_nothing_about_itself(tmp_path: Path, comment: bytes, good: bool) -> None:
    path = packed(tmp_path, "a", comment=comment)
    if good:
        assert Container(path).sizes == {"a": 3}
        return
    with pytest.raises(InputError, match="archive comment"):
        Container(path)


def patched(path: Path, *changes: tuple[int, int, bytes]) -> Path:
    """The archive with bytes changed at this offset of its local header and at this one of its directory's entry."""
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    for local, central, value in changes:
        for at in (local, entry + central):
            data[at : at + len(value)] = value
    path.write_bytes(data)
    return path


def test_a_name_that_readers_cut_is_refused_whole(tmp_path: Path) -> None:
    """Some readers end a name at a zero byte: then it would be another file's."""
    whole = packed(tmp_path, "run.json_x")
    assert Container(whole).sizes == {"run.json_x": 3}
    with pytest.raises(InputError) as caught:
        Container(patched(whole, (30 + 8, 46 + 8, b"\0")))
    assert str(caught.value) == "container: has the name 'run.json\\x00x', which no bundle has"


def test_what_is_encrypted_or_packed_in_an_unknown_way_is_refused_before_it_is_read(tmp_path: Path) -> None:
    words = "container: has 'a' encrypted or in an unknown compression"
    for change in ((6, 8, b"\x01"), (6, 8, b"\x09"), (8, 10, b"\x0c"), (8, 10, b"\x63")):
        with pytest.raises(InputError) as caught:
            Container(patched(packed(tmp_path, "a"), change))
        assert str(caught.value) == words, change
    assert Container(patched(packed(tmp_path, "a"), (6, 8, b"\0"))).sizes == {"a": 3}


def test_a_folder_has_a_name_like_its_files_even_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Container(tmp_path).sizes == {}
    (tmp_path / ".hidden").mkdir()
    with pytest.raises(InputError, match=r"has the name '\.hidden', which no bundle has"):
        Container(tmp_path)


def test_a_link_to_a_folder_or_a_file_is_neither(tmp_path: Path) -> None:
    """Even if it leads to what a bundle may hold."""
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (outside / "a").write_bytes(b"abc")
    for target in (outside, outside / "a", tmp_path / "nowhere"):
        (folder / "link").symlink_to(target)
        with pytest.raises(InputError, match="has 'link', which is a link or not a plain file"):
            Container(folder)
        (folder / "link").unlink()
    (folder / "b").mkdir()
    (folder / "b" / "link").symlink_to(outside)
    with pytest.raises(InputError, match="has 'b/link', which is a link or not a plain file"):
        Container(folder)
    (tmp_path / "whole").symlink_to(outside)
    assert Container(tmp_path / "whole").sizes == {"a": 3}, "whoever names a bundle may do so by a link"


def test_nothing_is_read_of_an_archive_that_was_closed(tmp_path: Path) -> None:
    read = Container(packed(tmp_path, "a"))
    assert read.read("a") == b"abc"
    read.close()
    with pytest.raises(InputError, match="cannot be read"):
        read.read("a")
    folder = Container(tmp_path)
    folder.close()
    assert [*folder.sizes] == ["b.zip"]


@pytest.mark.parametrize("kept", [0, 10, 40])
def test_an_archive_that_is_refused_is_let_go(tmp_path: Path, kept: int) -> None:
    closed: list[str] = []

    class Noted(Container):
        """Notes that it was closed."""

        def close(self) -> None:
            closed.append("closed")
            super().close()

    path = packed(tmp_path, "a", "a b")
    with pytest.raises(InputError, match="has the name 'a b'"):
        Noted(path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError) as caught:
        Noted(path)
    assert str(caught.value).startswith("container: cannot be read: ")
    assert len(closed) == 2


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
    monkeypatch.setattr(container, "STREAM_BYTES_MAX", 5)
    events = layout.EVENTS
    assert HeldFiles({"a": b"abc", events: b"abcde"}).sizes == {"a": 3, events: 5}
    assert Container(packed(tmp_path, "a")).sizes == {"a": 3}
    for files in ({"a": b"abcd"}, {events: b"abcdef"}):
        with pytest.raises(InputError, match="bytes; at most"):
            HeldFiles(files)
