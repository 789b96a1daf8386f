"""A tenant's log is read where it is published, over the web or in a folder, and each fault of it is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from app import published
from app.cli.outcome import Exit
from app.published import whole
from app.settings import load_settings
from core.errors import CountersealError, InputError, NotFoundError, TransportError
from evidence.log import tiles, tree
from evidence.log.checkpoints import Checkpoint
from evidence.log.notes import Kind, NoteKey, signed
from evidence.log.rings import Ring
from tests.support.web_folder import Reply, WebFolder, files_in, serving

PRIVATE = ed25519.Ed25519PrivateKey.generate()
KEY = NoteKey("test", Kind.ED25519, PRIVATE.public_key().public_bytes_raw())
LEAVES = [b'{"at":%d,"ts":"2026-01-01T00:00:00Z"}' % number for number in range(700)]


def note_of(leaves: list[bytes], origin: str = "test/acme", private: Any = PRIVATE) -> bytes:
    key = NoteKey(origin, Kind.ED25519, private.public_key().public_bytes_raw())
    return signed(Checkpoint(origin, len(leaves), tree.root_of(map(tree.leaf_hash, leaves))).text, key, private).packed


def log_of(leaves: list[bytes]) -> dict[str, bytes]:
    hashes = [*map(tree.leaf_hash, leaves)]
    return {**dict(tiles.bundles(leaves)), **dict(tiles.tiles(hashes)), "checkpoint": note_of(leaves)}


FILES = log_of(LEAVES)
OTHERS = [*LEAVES[:300], b'{"at":"another","ts":"2026-01-01T00:00:00Z"}', *LEAVES[301:]]


@pytest.fixture
def web() -> Iterator[WebFolder]:
    with serving(FILES) as folder:
        yield folder


def flipped(path: str) -> Callable[[WebFolder], None]:
    return lambda web: web.files.update({path: FILES[path][:-1] + b"~"})


def given(path: str, **named: Any) -> Callable[[WebFolder], None]:
    return lambda web: web.files.update({path: Reply(**{"body": FILES[path], **named})})


def gone(path: str) -> Callable[[WebFolder], object]:
    return lambda web: web.files.pop(path)


LAST, HTML = "tile/entries/002.p/188", {"Content-Type": "text/html; charset=utf-8"}
# What is wrong with the place, as an error, or with the log, as a problem that names the file.
FAULTS: dict[str, tuple[Callable[[WebFolder], object], type[CountersealError] | None, str]] = {
    "a page instead of the checkpoint": (given("checkpoint", body=b"<html>", headers=HTML), InputError, "web page"),
    "a page that says it is text": (given("checkpoint", body=b"<!doctype html>\n"), InputError, "is no signed note"),
    "no checkpoint": (gone("checkpoint"), NotFoundError, "is not there (404)"),
    "the checkpoint is large": (given("checkpoint", body=b"x" * 300_000), InputError, "larger than 262144 bytes"),
    "the checkpoint never ends": (given("checkpoint", length=9999, hangs=True), TransportError, "was not read within"),
    "the checkpoint is cut off": (given("checkpoint", length=9999), TransportError, "ended before it was whole"),
    "another log's checkpoint": (
        given("checkpoint", body=note_of(LEAVES, "test/other")), InputError, "is of the log test/other, not of"
    ),
    "another key's": (
        given("checkpoint", body=note_of(LEAVES, private=ed25519.Ed25519PrivateKey.generate())), InputError,
        "not signed by a key of the log",
    ),
    "moved": (
        given("checkpoint", status=302, headers={"Location": "http://169.254.169.254/x"}), InputError,
        "redirects to http://169.254.169.254/x, which is not followed",
    ),
    "private": (given("checkpoint", status=403), InputError, "answered 403"),
    "busy": (given("tile/0/001", status=503), TransportError, "answered 503"),
    "compressed": (given("checkpoint", headers={"Content-Encoding": "gzip"}), InputError, "in another coding"),
    "no leaves": (gone("tile/entries/001"), None, "tile/entries/001 is missing"),
    "neither the partial tile nor the whole": (gone(LAST), None, f"{LAST} is missing"),
    "a page instead of leaves": (given("tile/entries/001", headers=HTML), None, "tile/entries/001 answers with a web"),
    "leaves are large": (given("tile/entries/001", body=b"x" * 2_000_000), None, "is larger than 1048576 bytes"),
    "leaves are cut off": (given("tile/entries/001", body=FILES["tile/entries/001"][:-1]), None, "ends within a leaf"),
    "fewer leaves": (given("tile/entries/001", body=b"\0\1x"), None, "has 1 leaves, and 256 were signed"),
    "a leaf is changed": (flipped("tile/entries/001"), None, "do not come to the root that was signed"),
    "a tile is changed": (flipped("tile/0/001"), None, "tile/0/001 is another than that of the log"),
    "an upper tile": (flipped("tile/1/000.p/2"), None, "tile/1/000.p/2 is another than that of the log"),
    "a tile is cut off": (given("tile/0/000", body=FILES["tile/0/000"][:64]), None, "tile/0/000 is another"),
    "all is of another log": (
        lambda web: web.files.update({**log_of(OTHERS), "checkpoint": FILES["checkpoint"]}), None, "they are others"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_of_a_published_log_is_named(web: WebFolder, monkeypatch: Any, name: str) -> None:
    """Nothing but the address is read, however it answers."""
    assert (await whole(web.url, Ring(KEY), "acme"))[1] == []
    forge, error, words = FAULTS[name]
    forge(web)
    if "never ends" in name:
        monkeypatch.setattr(published, "FILE_SECONDS", 0.5)
    if error is None:
        _, problems = await whole(f"{web.url}/", Ring(KEY), "acme")
        assert any(words in one for one in problems), problems
        return
    with pytest.raises(error) as raised:
        await whole(web.url, Ring(KEY), "acme")
    assert words in str(raised.value)


async def test_a_log_is_read_over_the_web_and_in_a_folder_at_any_size(tmp_path: Path) -> None:
    """Over the ends of tiles, and with a whole tile in place of the partial one, which a log may delete."""
    for size in (1, 255, 256, 257, 512, 700):
        files = log_of(LEAVES[:size])
        if size == 257:
            for level in ("entries", "0"):
                files[f"tile/{level}/001"] = FILES[f"tile/{level}/001"]
                del files[f"tile/{level}/001.p/1"]
        with serving(files) as web:
            log, problems = await whole(web.url, Ring(KEY), "acme")
            assert (log.leaves, problems) == (LEAVES[:size], [])
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    assert (await whole(str(tmp_path), Ring(KEY), "acme"))[1] == []
    (tmp_path / "tile" / "0" / "001").unlink()
    assert "tile/0/001 is missing" in (await whole(str(tmp_path), Ring(KEY), "acme"))[1][0]


@pytest.mark.parametrize(
    "place",
    ["http://log.example/x", "ftp://log.example", "https://", "https://a:b@log.example", "https://log.example/?x=1",
     "https://log.example/#x", "file:///etc", "http://127.0.0.1.example/", "http://[::1"],
)  # fmt: skip
async def test_an_address_that_is_not_safe_to_read_is_refused(place: str) -> None:
    with pytest.raises(InputError):
        await whole(place, Ring(KEY), "acme")


def test_an_auditor_reads_the_log_from_its_address(
    command: Any, work_off: Any, outside_world: Any, tmp_path: Path, clean_environment: Any
) -> None:
    """With the key and kept checkpoints: `log verify` needs nothing else, and the others compare with it."""
    settings, years = load_settings(), ("--from", "2020-01-01T00:00:00Z", "--to", "2999-01-01T00:00:00Z")
    workflow = tmp_path / "w.yaml"
    workflow.write_text("workflow: w\nversion: 1\nreference: r\nsteps: [{id: s, do: probe.value.read, with: {}}]\n")
    command("workflow", "publish", str(workflow))
    run = command.json("run", "start", "w")["run_id"]
    work_off(outside_world)
    command("log", "sign", "--once", "--store")
    kept, folder, bundle = tmp_path / "kept", tmp_path / "period", tmp_path / "evidence.zip"
    shutil.copy(settings.log_path / "default" / "checkpoint", kept)
    work_off(outside_world)
    command("evidence", "get", run, "-o", str(bundle))
    command("log", "sign", "--once", "--store")
    key, store = command("log", "key").strip(), settings.evidence_path / "_log" / "default"
    command("evidence", "period", *years, "-o", str(folder))
    with serving(files_in(store)) as web:
        told = command.json("log", "verify", web.url, "--log-key", key, "--after", str(kept))
        assert (told["log"], told["problems"]) == ("counterseal/default", [])
        assert command.json("log", "verify", str(store), "--log-key", key)["root"] == told["root"]
        watched = command.json("evidence", "monitor", "--log", web.url)
        assert (watched["published"], watched["stored"], watched["problems"]) == ([told["size"]], told["size"], [])
        assert command.json("evidence", "check-period", str(folder), "--log", web.url)["problems"] == []
        assert command.json("evidence", "logged", str(bundle), "--log", web.url)["run"] == run
        # An old copy is put back: the checkpoint that was kept, and the files of the period, are newer.
        shutil.copy(settings.log_path / "default" / "checkpoint", tmp_path / "newest")
        web.files["checkpoint"] = kept.read_bytes()
        told = command.json("log", "verify", web.url, "--after", str(tmp_path / "newest"), exit_code=Exit.FAILED)
        assert "it is an old copy" in told["problems"][0]
        found = command.json("evidence", "check-period", str(folder), "--log", web.url, exit_code=Exit.FAILED)
        assert "the copy is old" in found["problems"][0]
        web.files |= log_of(LEAVES)
        for given in (("log", "verify", web.url), ("evidence", "logged", str(bundle), "--log", web.url)):
            command(*given, "--log-key", key, exit_code=Exit.INPUT)
        found = command.json("evidence", "monitor", "--log", web.url, exit_code=Exit.FAILED)
        assert any(web.url in one and "not signed by a key" in one for one in found["problems"])
    command("log", "verify", web.url, exit_code=Exit.UNAVAILABLE)
