"""The tree, notes, checkpoints, tiles, rotations and witnesses of a log, and what others say of them (C2SP)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from app.witness import load_key, server_of
from core.errors import InputError
from evidence.log import rings, tiles, tree
from evidence.log.checkpoints import Checkpoint, check_proof, cosigned_at, opened, proof_file
from evidence.log.notes import Kind, Note, NoteKey, signed
from evidence.log.signer import replace_file
from evidence.log.witness import Policy, Witness, accepted, body_of
from runtime.keep.witnessing import WitnessAddress, cosigned

PRIVATE = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY = NoteKey("example.com/log", Kind.ED25519, PRIVATE.public_key().public_bytes_raw())
LEAVES = [b"leaf %d" % number for number in range(700)]
HASHES = [tree.leaf_hash(leaf) for leaf in LEAVES]
KINDS = {"ed25519": Kind.COSIGNED_ED25519, "ml-dsa-44": Kind.COSIGNED_ML_DSA_44}
# The roots of the trees over these leaves (Certificate Transparency's reference data).
REFERENCE = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def note_of(size: int, hashes: Sequence[bytes] = HASHES, key: NoteKey = KEY, private: Any = PRIVATE) -> Note:
    return signed(Checkpoint(key.name, size, tree.root_of(hashes[:size])).text, key, private)


@pytest.fixture(params=KINDS)
def witness(request: Any, tmp_path: Path) -> Witness:
    key = load_key(tmp_path / "witness.pem", "witness.example/w1", KINDS[request.param])
    return Witness(tmp_path, [KEY], [key])


def test_roots_and_proofs_are_those_of_rfc_6962() -> None:
    leaves = [tree.leaf_hash(bytes.fromhex(text)) for text in REFERENCE]
    assert {size: tree.root_of(leaves[:size]).hex() for size in ROOTS} == ROOTS
    for size in (*range(1, 35), 70):
        root = tree.root_of(HASHES[:size])
        for at in range(size):
            proof = tree.inclusion(HASHES[:size], at)
            assert tree.includes(root, size, at, HASHES[at], proof)
            assert not tree.includes(root, size, at, HASHES[at + 1], proof)
            assert not tree.includes(root, size, at, HASHES[at], [*proof, root])
        for before in range(size + 1):
            proof, was = tree.consistency(HASHES[:size], before), tree.root_of(HASHES[:before])
            assert tree.consistent(before, was, size, root, proof)
            assert not tree.consistent(before, tree.root_of(HASHES[1 : before + 1]), size, root, proof) or not before
            assert not tree.consistent(before, was, size, root, [*proof, root])


def test_a_note_is_read_exactly_and_the_example_of_the_specification_verifies() -> None:
    example = (
        "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1E"
        "RYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
    ).encode()
    key = NoteKey.parse("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
    note = Note.parse(example)
    assert (note.packed, len(note.by([key])), NoteKey.parse(key.text)) == (example, 1, key)
    data = note_of(9).packed
    assert opened(data, [KEY])[0].size == 9
    changed = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for one in [*changed, data + b"\n", data[:-1], data.replace(b"\n9\n", b"\n09\n"), b"", b"\n\n"]:
        with pytest.raises(InputError):
            opened(one, [KEY])
    proof = proof_file(5, tree.inclusion(HASHES[:9], 5), note_of(9))
    assert check_proof(proof, LEAVES[5], [KEY])[0] == 5
    for wrong, leaf in ((proof, LEAVES[6]), (proof.replace(b"index 5", b"index 4"), LEAVES[5]), (b"x", LEAVES[5])):
        with pytest.raises(InputError):
            check_proof(wrong, leaf, [KEY])


def test_a_rotation_hands_the_log_on_and_the_old_key_holds_no_longer() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    base = KEY.renamed("example.com")
    new = NoteKey("example.com", Kind.ED25519, private.public_key().public_bytes_raw())
    (note,) = rings.rotate(base, PRIVATE, new, {KEY.name: 9}, datetime.now(UTC))
    ring = rings.Ring.of(base, [rings.Rotation.parse(note.packed)])
    renamed = new.renamed(KEY.name)
    assert (ring.newest, rings.Ring.of(new, ring.rotations).newest) == (new, new)
    for size, key, holder, good in (
        (9, KEY, PRIVATE, True), (10, KEY, PRIVATE, False), (9, renamed, private, False), (10, renamed, private, True),
    ):  # fmt: skip
        data = note_of(size, key=key, private=holder).packed
        if good:
            assert ring.opened(data)[0].size == size
        else:
            with pytest.raises(InputError):
                ring.opened(data)
    by_another = signed(note.text, new, private)
    for false in (by_another.packed, note.packed.replace(b" 9\n", b" 8\n")):
        with pytest.raises(InputError):
            rings.Rotation.parse(false)


def test_a_witness_cosigns_only_what_has_grown(witness: Witness) -> None:
    other = [tree.leaf_hash(b"another"), *HASHES[1:]]
    unsigned = Note(note_of(2).text, note_of(3).signatures)
    stranger = note_of(2, key=KEY.renamed("example.com/other"))
    rows: list[tuple[bytes, int]] = [
        (body_of(0, [], note_of(100)), 200),
        (body_of(0, [], note_of(100)), 409),
        (body_of(100, tree.consistency(HASHES[:700], 100), note_of(700)), 200),
        (body_of(100, [], note_of(100)), 409),
        (body_of(700, [], note_of(700)), 200),
        (body_of(700, [], note_of(600)), 400),
        (body_of(700, [], note_of(700, other)), 422),
        (body_of(701, [], note_of(700)), 400),
        (body_of(0, [], unsigned), 403),
        (body_of(0, [], stranger), 404),
        (b"old 1\n", 400),
        (body_of(0, [], note_of(3)).replace(b"old 0", b"old 00"), 400),
    ]
    for number, (body, status) in enumerate(rows):
        answer = witness.add_checkpoint(body, 1_700_000_000 + number)
        assert (number, answer.status) == (number, status)
        if status == 409:
            assert answer.text in ("100\n", "700\n")
    ((key, _),) = witness.signers
    kept = Note.parse(next(witness.folder.glob("*.checkpoint")).read_bytes())
    assert cosigned_at(kept, key) == 1_700_000_004
    assert Policy((key,), 1).times(kept) == {key.name: 1_700_000_004}
    with pytest.raises(InputError, match="are needed"):
        Policy((key,), 1).times(note_of(3))
    with pytest.raises(InputError, match="false cosignature"):
        cosigned_at(Note(note_of(8).text, kept.signatures), key)


async def test_a_log_finds_out_over_http_what_its_witness_knows(witness: Witness) -> None:
    server = server_of(witness, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, ((key, _),) = f"http://127.0.0.1:{server.server_address[1]}", witness.signers
    known = [WitnessAddress(url, key), WitnessAddress("http://127.0.0.1:1", key.renamed("away"))]
    for size in (100, 700, 700):
        found = await cosigned(known, note_of(size), HASHES)
        assert cosigned_at(found, key)
    rewritten = await cosigned(known, note_of(700, HASHES[::-1]), HASHES[::-1])
    assert cosigned_at(rewritten, key) is None
    digest = sha256(KEY.name.encode()).hexdigest()
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{url}/{digest}/checkpoint")).content.startswith(note_of(700).text.encode())
        assert (await client.get(f"{url}/abc/checkpoint")).status_code == 404
    server.shutdown()
    server.server_close()


def test_an_independent_witness_accepts_the_log_and_refuses_its_rewriting() -> None:
    other = pytest.importorskip("witness_log")
    service = other.WitnessService.new("oracle.example", bytes(range(1, 33)))
    assert service.add_log(KEY.name, KEY.text)
    rewritten = HASHES[::-1]
    rows = [
        (body_of(0, [], note_of(100)), 200),
        (body_of(100, tree.consistency(HASHES, 100), note_of(700)), 200),
        (body_of(100, [], note_of(100)), 409),
        (body_of(700, [], note_of(700, rewritten)), 422),
    ]
    for body, status in rows:
        found, text = service.handle_add_checkpoint(body.decode())
        assert found == status, text
        if status == 200:
            note = Note.parse(body.partition(b"\n\n")[2])
            assert accepted(note, text, [NoteKey.parse(service.vkey())]).text == note.text


def test_an_independent_reader_reads_every_leaf_of_the_tiles(tmp_path: Path) -> None:
    reader, backend = (pytest.importorskip(f"tlog_scales.{name}") for name in ("reader", "backend"))
    for path, data in (*tiles.bundles(LEAVES), *tiles.tiles(HASHES)):
        replace_file(tmp_path / path, data)
    replace_file(tmp_path / "checkpoint", note_of(700).packed)
    found = reader.TilesReader(backend.LocalBackend(tmp_path))
    checkpoint = found.get_checkpoint()
    assert (checkpoint.size, checkpoint.root_hash) == (700, tree.root_of(HASHES))
    assert found.calculate_root_hash() == tree.root_of(HASHES)
    assert [found.get_entry(at) for at in range(700)] == LEAVES
