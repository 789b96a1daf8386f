"""Keys in files, and signatures of both kinds."""

from __future__ import annotations

import base64
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.canonical import sha256_hex
from core.errors import ConfigurationError, InputError
from evidence.signing import Algorithm, FileSigner, PublicKey, open_envelope, pae, seal_envelope
from tests.support.evidence_signing import P256Signer

KIND = "application/vnd.in-toto+json"


def test_pae_is_that_of_the_specification() -> None:
    assert (
        pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_a_key_is_made_once_private_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "signing.pem"
    first = FileSigner.load_or_create(path)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert FileSigner.load_or_create(path).public_key == first.public_key
    assert list(path.parent.iterdir()) == [path]


def test_of_several_that_make_the_key_at_once_all_use_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        keys = list(pool.map(lambda _: FileSigner.load_or_create(tmp_path / "k.pem").public_key.key_id, range(8)))
    assert len(set(keys)) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o602, 0o610, 0o601, 0o777])
def test_a_key_that_others_can_read_change_or_run_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "k.pem"
    made = FileSigner.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError) as caught:
        FileSigner.load(path)
    assert str(caught.value) == (
        f"the signing key {path} can be read by other users (mode {mode:04o}). "
        f"Run: chmod 600 {path}, and replace the key if others had access to the machine."
    )
    for own in (0o600, 0o400, 0o700):
        path.chmod(own)
        assert FileSigner.load(path).public_key == made.public_key


def private_pem(key: Any) -> bytes:
    kinds = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return bytes(key.private_bytes(*kinds))


LOCKED = Ed25519PrivateKey.from_private_bytes(b"\7" * 32).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
)
OTHER, NO_KEY = "the signing key {} is not an Ed25519 key.", "{} is not an unencrypted PEM private key."


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", NO_KEY),
        (b"hello", NO_KEY),
        (b"-----BEGIN PRIVATE KEY-----\n", NO_KEY),
        (LOCKED, NO_KEY),
        (private_pem(ec.generate_private_key(ec.SECP256R1())), OTHER),
        (private_pem(x25519.X25519PrivateKey.from_private_bytes(b"\7" * 32)), OTHER),
        (private_pem(ed448.Ed448PrivateKey.from_private_bytes(b"\7" * 57)), OTHER),
    ],
)
def test_what_is_no_ed25519_key_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "k.pem"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        FileSigner.load(path)
    assert str(caught.value).startswith(words.format(path).rstrip("."))


def test_a_missing_key_and_an_impossible_place_are_configuration_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        FileSigner.load(tmp_path / "none.pem")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be created: File exists"):
        FileSigner.load_or_create(tmp_path / "file" / "k.pem")
    with pytest.raises(ConfigurationError, match="the signing key /dev/null is not a file"):
        FileSigner.load(Path("/dev/null"))
    (tmp_path / "folder").mkdir(0o700)
    with pytest.raises(ConfigurationError):
        FileSigner.load(tmp_path / "folder")


@pytest.mark.parametrize("signer", [FileSigner(Ed25519PrivateKey.generate()), P256Signer()])
def test_both_algorithms_sign_and_verify(signer: FileSigner | P256Signer) -> None:
    key = PublicKey.from_pem(signer.public_key.pem)
    assert key == signer.public_key
    signature = signer.sign(b"data")
    assert key.verify(b"data", signature)
    assert not key.verify(b"dat4", signature)
    assert not key.verify(b"data", b"")
    assert not key.verify(b"data", signature[:-1] + bytes([signature[-1] ^ 1]))
    envelope = seal_envelope(KIND, b"payload", signer)
    assert open_envelope(envelope, KIND, key) == b"payload"
    with pytest.raises(InputError, match="payload type"):
        open_envelope(envelope, "text/plain", key)
    with pytest.raises(InputError, match="names the key"):
        open_envelope(envelope, KIND, P256Signer().public_key)


def test_a_signature_over_something_else_does_not_open_an_envelope() -> None:
    signer = FileSigner(Ed25519PrivateKey.generate())

    class Careless:
        public_key = signer.public_key

        def sign(self, data: bytes) -> bytes:
            return signer.sign(b"something else")

    with pytest.raises(InputError, match="signature"):
        open_envelope(seal_envelope(KIND, b"payload", Careless()), KIND, signer.public_key)


@pytest.mark.parametrize(
    "envelope", [b"", b"{}", b"[]", b"[" * 9999, b'{"payload":"","payloadType":"","signatures":[]}']
)
def test_malformed_envelopes_are_input_errors(envelope: bytes) -> None:
    with pytest.raises(InputError):
        open_envelope(envelope, KIND, P256Signer().public_key)


def test_other_keys_are_refused() -> None:
    other = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(InputError, match="neither"):
        PublicKey.of(other)
    with pytest.raises(InputError, match="neither"):
        PublicKey.of(ec.generate_private_key(ec.SECP384R1()).public_key())
    with pytest.raises(InputError, match="PEM"):
        PublicKey.from_pem(b"hello")
    assert Algorithm(P256Signer().public_key.algorithm) is Algorithm.ECDSA_P256_SHA256


def test_a_key_is_looked_for_in_so_much_text_and_no_more() -> None:
    pem = FileSigner(Ed25519PrivateKey.generate()).public_key.pem
    room = 64 * 1024 - len(pem)
    for text in (b"x\n" * (room // 2) + pem, pem + b"x\n" * 40_000):
        assert PublicKey.from_pem(text).pem == pem
    for text in (b"x\n" * (room // 2 + 2) + pem, b"x\n" * 40_000 + pem, b"\0" + pem, pem + b"\0"):
        with pytest.raises(InputError, match="is not a PEM public key"):
            PublicKey.from_pem(text)


def test_the_fingerprint_is_what_openssl_and_sha256sum_print(tmp_path: Path) -> None:
    key = FileSigner(Ed25519PrivateKey.generate()).public_key
    (tmp_path / "k.pem").write_bytes(key.pem)
    command = ["openssl", "pkey", "-pubin", "-in", str(tmp_path / "k.pem"), "-outform", "DER"]
    assert sha256_hex(subprocess.run(command, capture_output=True, check=True).stdout) == key.key_id


def spki_of_nobody() -> bytes:
    """A public key of an algorithm (1.2.3.4) that no library knows."""
    body = bytes([0x30, 0x05, 0x06, 0x03, 0x2A, 0x03, 0x04]) + bytes([0x03, 0x03, 0x00, 0x01, 0x02])
    told = base64.b64encode(bytes([0x30, len(body)]) + body)
    return b"-----BEGIN PUBLIC KEY-----\n" + told + b"\n-----END PUBLIC KEY-----\n"


def public_pem(key: Any) -> bytes:
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, spki))


@pytest.mark.parametrize(
    ("pem", "words"),
    [
        (b"", "is not a PEM public key"),
        (b"text", "is not a PEM public key"),
        (spki_of_nobody(), "is not a PEM public key"),
        (b"text\0" + public_pem(ec.derive_private_key(7, ec.SECP256R1())), "is not a PEM public key"),
        (public_pem(ec.derive_private_key(7, ec.SECP256R1())) + b"\0", "is not a PEM public key"),
        (private_pem(ec.derive_private_key(7, ec.SECP256R1())), "is not a PEM public key"),
        (public_pem(ec.derive_private_key(7, ec.SECP256K1())), "is neither an Ed25519 nor a P-256 key"),
        (public_pem(ec.derive_private_key(7, ec.SECP384R1())), "is neither an Ed25519 nor a P-256 key"),
        (public_pem(x25519.X25519PrivateKey.from_private_bytes(b"\7" * 32)), "is neither an Ed25519 nor a P-256 key"),
    ],
)
def test_what_is_no_public_key_of_ours_is_named_with_its_place(pem: bytes, words: str) -> None:
    for where in ("k.pem", "bundle"):
        with pytest.raises(InputError) as caught:
            PublicKey.from_pem(pem, where=where)
        assert str(caught.value) == f"{where}: {words}"
    text = b"Any text\n" + public_pem(ec.derive_private_key(7, ec.SECP256R1()))
    assert PublicKey.from_pem(text).algorithm is Algorithm.ECDSA_P256_SHA256


def test_an_envelope_names_its_key_whole_and_ends_with_its_last_brace() -> None:
    signer = FileSigner(Ed25519PrivateKey.from_private_bytes(b"\7" * 32))
    key_id = signer.public_key.key_id
    good = seal_envelope(KIND, b"{}", signer)
    assert open_envelope(good, KIND, signer.public_key) == b"{}"
    for named in ("", key_id[:8], key_id[:-1], key_id.upper(), f"{key_id} "):
        with pytest.raises(InputError) as caught:
            open_envelope(good.replace(key_id.encode(), named.encode()), KIND, signer.public_key)
        assert str(caught.value) == f"envelope: names the key {named}, not {key_id}"
    for before, behind in (("", "\n"), (" ", ""), ("", " "), ("\n", "\n")):
        with pytest.raises(InputError, match="is not spelled canonically"):
            open_envelope(before.encode() + good + behind.encode(), KIND, signer.public_key)
    for kind in (KIND[:-1], KIND.upper(), "", f"{KIND} "):
        with pytest.raises(InputError, match="has the payload type"):
            open_envelope(seal_envelope(kind, b"{}", signer), KIND, signer.public_key)
