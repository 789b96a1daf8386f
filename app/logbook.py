"""The tenants' logs of this installation: their key and its rotations, their signer, and the comparison of a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from app.settings import Settings
from core.errors import ConfigurationError, ConsistencyError, InputError
from evidence.blobs import write_new
from evidence.log.notes import Kind, NoteKey
from evidence.log.published import CHECKPOINT
from evidence.log.rings import Ring, Rotation
from evidence.log.rings import rotate as end
from evidence.log.signer import Memory
from evidence.signing import FileSigner, Signer

_FILE_BYTES_MAX = 1024 * 1024
_KMS = "aws-kms:"


def signer_of(settings: Settings, place: Path, *, make: bool = False) -> Signer:
    """The key at this place, a file or ``aws-kms:KEY``. With ``make``, a missing file is created.

    ``ConfigurationError`` if it is no key that signs a log; ``TransportError`` if KMS does not answer.
    """
    if (key := kms_key(place)) is not None:
        from app import adapters  # it brings every client, and most commands need none

        return adapters.kms_signer_of(settings, key)
    return FileSigner.load_or_create(place) if make else FileSigner.load(place)


def kms_key(place: Path) -> str | None:
    """The key of KMS that this place names; None for a file."""
    return str(place).removeprefix(_KMS) if str(place).startswith(_KMS) else None


def note_key(settings: Settings, signer: Signer) -> NoteKey:
    """The public half of a key, as readers of the logs know it."""
    public = load_pem_public_key(signer.public_key.pem)
    assert isinstance(public, ed25519.Ed25519PublicKey), "neither a file nor KMS gives another key for a log"
    return NoteKey(settings.log_origin, Kind.ED25519, public.public_bytes_raw())


def rotations_of(settings: Settings) -> list[Rotation]:
    """The rotations of this installation's key."""
    return [Rotation.parse(read(path), str(path)) for path in sorted(rotations_folder(settings).glob("*.note"))]


def rotations_folder(settings: Settings) -> Path:
    """The folder with the notes in which a key of this installation names its successor."""
    return settings.home / "log-rotations"


def ring_of(settings: Settings, trusted: str | None = None, rotations: Sequence[Path] = ()) -> Ring:
    """The valid keys: the trusted one and its successors, by default those of this installation.

    ``trusted`` is a key, or a file with one. ``ConfigurationError`` without it if this installation has no key.
    """
    known = [Rotation.parse(read(path), str(path)) for path in rotations] or rotations_of(settings)
    if trusted is not None:
        path = Path(trusted)
        text = read(path).decode(errors="replace") if "+" not in trusted or path.exists() else trusted
        return Ring.of(NoteKey.parse(text, "--log-key"), known)
    place = settings.log_key_path
    if kms_key(place) is None and not place.exists():
        remedy = "Give the key of the logs (--log-key), or run `counterseal log sign` once."
        raise ConfigurationError(f"there is no key of the logs in {place}.", remedy=remedy)
    own = note_key(settings, signer_of(settings, place))
    ended = {one.new for one in known}
    return Ring.of(next((one.old for one in known if one.old not in ended), own), known)


def check_continued(settings: Settings, ring: Ring) -> None:
    """Raise ``ConfigurationError`` if another key has signed a log here, and has not named this one as its successor.

    So a replaced file, or an alias of KMS that points to another key now, signs nothing: nobody would trust it.
    """
    for path in sorted(settings.log_path.glob(f"*/{CHECKPOINT}")):
        try:
            ring.opened(read(path), str(path))
        except InputError as error:
            remedy = "Name the key that signed it, and hand it on with `counterseal log rotate`. If it is lost, tell "
            remedy += "everybody who trusts it, move that folder away, and begin anew."
            raise ConfigurationError(f"{error}. The logs have had another key.", remedy=remedy) from None


def rotate(settings: Settings, new: Path) -> tuple[list[Path], NoteKey]:
    """End this installation's key, with the key at the place ``new`` as its successor. Returns the notes and that key.

    ``ConsistencyError`` if it has ended before. A crash before the first note leaves the old key in force. After a
    crash between two notes, the same call again completes them, before anything is signed with the next key.
    """
    old, ring = signer_of(settings, settings.log_key_path), ring_of(settings)
    ending, sizes = note_key(settings, old), {one.origin: one.size for one in memory_of(settings).all()}
    there = kms_key(new) is not None or new.exists()
    following = note_key(settings, signer_of(settings, new, make=True)) if there or ring.newest == ending else None
    if ring.newest != ending:
        last = ring.rotations[-1] if ring.rotations else None
        known = last.sizes if last is not None and (last.old, last.new) == (ending, following) else sizes
        sizes = {origin: size for origin, size in sizes.items() if origin not in known}
        if not sizes:
            raise ConsistencyError("This key has ended already.", remedy="Set COUNTERSEAL_LOG_KEY to the next one.")
    assert following is not None, "without it there are no sizes to tell"
    folder = rotations_folder(settings)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths, first = list[Path](), len(list(folder.glob("*.note"))) + 1
    for number, note in enumerate(end(ending, old, following, sizes, datetime.now(UTC)), first):
        paths.append(folder / f"{number:04}.note")
        write_new(paths[-1], note.packed)
    return paths, following


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
