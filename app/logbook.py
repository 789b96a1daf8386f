"""The tenants' logs of this installation: its key and the rotations of it, its signer, and comparing a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from app.settings import Settings
from core.errors import ConfigurationError, InputError
from evidence.log.notes import Kind, NoteKey
from evidence.log.rings import Ring, Rotation
from evidence.log.signer import Memory
from evidence.signing import FileSigner

_FILE_BYTES_MAX = 1024 * 1024


def note_key(settings: Settings, signer: FileSigner) -> NoteKey:
    """The public half of a key, as readers of the logs know it."""
    public = load_pem_public_key(signer.public_key.pem)
    assert isinstance(public, ed25519.Ed25519PublicKey), "a FileSigner has no other key"
    return NoteKey(settings.log_origin, Kind.ED25519, public.public_bytes_raw())


def rotations_of(settings: Settings) -> list[Rotation]:
    """The rotations of this installation's key."""
    return [Rotation.parse(read(path), str(path)) for path in sorted(rotations_folder(settings).glob("*.note"))]


def rotations_folder(settings: Settings) -> Path:
    """The folder with the notes in which one key of this installation ended itself for the next."""
    return settings.home / "log-rotations"


def ring_of(settings: Settings, trusted: str | None = None, rotations: Sequence[Path] = ()) -> Ring:
    """The keys that hold: the trusted one and its successors, by default this installation's own.

    ``trusted`` is a key, or a file with one. ``ConfigurationError`` if it is to be the own key, and there is none here.
    """
    known = [Rotation.parse(read(path), str(path)) for path in rotations] or rotations_of(settings)
    if trusted is not None:
        path = Path(trusted)
        text = read(path).decode(errors="replace") if "+" not in trusted or path.exists() else trusted
        return Ring.of(NoteKey.parse(text, "--log-key"), known)
    if not settings.log_key_path.exists():
        remedy = "Give the key of the logs (--log-key), or run `counterseal log sign` once."
        raise ConfigurationError(f"there is no key of the logs in {settings.log_key_path}.", remedy=remedy)
    own = note_key(settings, FileSigner.load(settings.log_key_path))
    ended = {one.new for one in known}
    return Ring.of(next((one.old for one in known if one.old not in ended), own), known)


def memory_of(settings: Settings) -> Memory:
    """The signer's memory."""
    return Memory(settings.log_memory_path)


def read(path: Path, most: int | None = _FILE_BYTES_MAX) -> bytes:
    """A file's bytes; ``InputError`` if it cannot be read or is larger than ``most``; None for any size."""
    try:
        with path.open("rb") as file:
            data = file.read(-1 if most is None else most + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if most is not None and len(data) > most:
        raise InputError(f"is larger than {most} bytes", where=str(path))
    return data
