"""The files beside a bundle: the sidecar with its values, further disclosures, and the leaf that says it is erased.

Since the fourth format a bundle holds commitments, and may be kept where nobody can delete it. Its statement names the
sidecar by SHA-256: a file of lines as in ``disclosures.jsonl``, which retention deletes. A verifier reports the values
as *disclosed* if the sidecar is there, as *erased* if it is not and a leaf of the log proves why, else as *withheld*.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from core import bounded_json
from core.canonical import Json, JsonObject, canonical_bytes
from core.errors import InputError
from evidence import layout
from evidence.commitments import Opening
from evidence.container import CHUNK_BYTES, Files
from evidence.log.checkpoints import check_proof
from evidence.log.leaves import LeafKind
from evidence.log.notes import NoteKey
from evidence.opened import Opened, OpenedFile

LEAF_BYTES_MAX = 64 * 1024
PROOF_BYTES_MAX = 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
# The path of a question's kind, requester and terms. Judges always need them, so the bundle itself opens them.
_TERMS = re.compile(r"/approval/[^/]+/asked")


class DisclosureFile(Files):
    """A file of disclosures on disk, which is read as a stream. ``InputError`` if there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.sizes = {layout.OPENED: path.stat().st_size}
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None

    def chunks(self, name: str) -> Generator[bytes]:
        """Yield the file in chunks."""
        try:
            with self._path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(self._path)) from None


class Attachments(Struct, frozen=True):
    """The files beside a bundle, as far as they exist. ``sidecar`` is the file under the sidecar's name.

    ``keys`` are the keys of logs that the reader trusts, under the name of the installation.
    """

    sidecar: Files | None = None
    further: Sequence[Files] = ()
    leaf: bytes | None = None
    proof: bytes | None = None
    keys: Sequence[NoteKey] = ()

    @classmethod
    def of(cls, bundle: Path, further: Iterable[Path] = (), keys: Sequence[NoteKey] = ()) -> Attachments:
        """Find the files that lie beside a bundle. ``InputError`` if one of ``further`` cannot be read."""
        values, leaf, proof = (bundle.with_name(bundle.name + end) for end in layout.ENDS)
        found = DisclosureFile(values) if values.is_file() else None
        return cls(
            found, [*map(DisclosureFile, further)], _read(leaf, LEAF_BYTES_MAX), _read(proof, PROOF_BYTES_MAX), keys
        )


def _read(path: Path, bytes_max: int) -> bytes | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            return file.read(bytes_max + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def split_opened(opened: Opened) -> tuple[Opened | None, Opened | None]:
    """Split the opened values of an event: those for the bundle, and those for its sidecar."""
    terms: list[Opening] = [one for one in opened.opened if is_terms(one[1])]
    rest: list[Opening] = [one for one in opened.opened if not is_terms(one[1])]
    within = Opened(opened.seq, terms) if terms else None
    return within, Opened(opened.seq, rest, opened.values) if rest or opened.values else None


def is_terms(path: str) -> bool:
    """True if the value at this path is opened in the bundle itself."""
    return _TERMS.fullmatch(path) is not None


class SidecarValues:
    """The values in the sidecar of one bundle, as its statement and the files beside it tell them.

    ``here`` is the sidecar if it is there, ``further`` are the other files of disclosures.
    """

    def __init__(self, attachments: Attachments, predicate: Mapping[str, Json], number: int) -> None:
        named = predicate.get(layout.SIDECAR) if number >= layout.SIDECAR_SINCE else None
        self.has_sidecars = number >= layout.SIDECAR_SINCE
        self.named = named if isinstance(named, str) and _DIGEST.fullmatch(named) else None
        self.claim: JsonObject = {layout.SIDECAR: self.named} if self.has_sidecars else {}
        self._run = str(predicate.get("run"))
        self.here: OpenedFile | None = None
        self.further: list[OpenedFile] = []
        self._problem: str | None = None
        self._erased: str | None = None
        self._unproven = False
        if self.has_sidecars and attachments.sidecar is not None:
            self._take(attachments.sidecar)
        for files in attachments.further:
            if self.here is None and self.named is not None and _sum(files) == self.named:
                self.here = OpenedFile(files)
            else:
                self.further.append(OpenedFile(files))
        if self.named is not None:
            self._erasure(attachments, predicate)

    @property
    def withheld(self) -> bool:
        """True if the statement names a sidecar that is not here: then cards cannot be judged."""
        return self.named is not None and self.here is None

    @property
    def word(self) -> str:
        """The word for values that are not opened."""
        return "erased" if self._erased is not None and self.here is None else "withheld"

    def close(self) -> None:
        """Release the files."""
        for each in (*self.further, *([] if self.here is None else [self.here])):
            each.close()

    def finding(self) -> tuple[bool, str] | None:
        """True if the result is proven, and the result in words; None for formats without sidecar.

        ``InputError`` if the sidecar is not the one that the statement names.
        """
        if not self.has_sidecars:
            return None
        if self._problem is not None:
            raise InputError(self._problem, where="sidecar")
        if self.named is None:
            return True, "nothing was opened, so there is no sidecar"
        if self.here is not None:
            try:
                self.here.end()
            except InputError as error:
                raise InputError(error.message, where="sidecar") from None
            words = f"disclosed: {self.here.count} values, each as its event's line commits to it"
            return True, words if self._erased is None else f"{words}. This is a copy: {self._erased}"
        if self._erased is not None:
            return True, f"erased: {self._erased}"
        words = f"withheld: the sidecar {self.named} is not here, so cards and reasons are neither shown nor judged"
        more = "; a leaf says that it is erased, which only `--log-key`, the key of the log, proves"
        return False, words + (more if self._unproven else "")

    def _take(self, files: Files) -> None:
        try:
            if self.named is None:
                self._problem = f"there is one, and the statement names none: {_MOVE}"
            elif (found := _sum(files)) != self.named:
                words = f"the statement names {self.named}, and beside the bundle is {found}: that of another edition,"
                more = f"`counterseal evidence get {self._run}` writes a bundle with its own beside it, or {_MOVE}"
                self._problem = f"{words} or of another run or tenant, or a changed one. {more}"
            else:
                self.here = OpenedFile(files)
        except InputError as error:
            self._problem = error.message

    def _erasure(self, attachments: Attachments, predicate: Mapping[str, Json]) -> None:
        try:
            self._erased = self._proven(attachments, predicate)
        except InputError as error:
            self._problem = self._problem or f"its erasure is not proven: {error}"

    def _proven(self, attachments: Attachments, predicate: Mapping[str, Json]) -> str | None:
        """The erasure in words; None if no leaf says so. ``InputError`` for a leaf of another run, or a false proof."""
        if attachments.leaf is None:
            return None
        leaf = bounded_json.parse_object(attachments.leaf, bytes_max=LEAF_BYTES_MAX, where=layout.LEAF)
        if canonical_bytes(leaf) != attachments.leaf:
            raise InputError("is not canonical JSON", where=layout.LEAF)
        if leaf.get("kind") != LeafKind.ERASED:
            return None  # the leaf of an end, for `evidence logged`
        if any(leaf.get(one) != predicate.get(one) for one in _OF):
            raise InputError("is not the leaf of this run", where=layout.LEAF)
        if leaf.get("count") == predicate.get("count") and leaf.get("head") != predicate.get("head"):
            raise InputError("is of another history of this run", where=layout.LEAF)
        if not attachments.keys:
            self._unproven = True
            return None
        keys = [key.renamed(f"{key.name}/{predicate['tenant']}") for key in attachments.keys]
        if len(attachments.proof or b"") > PROOF_BYTES_MAX:
            raise InputError(f"is longer than {PROOF_BYTES_MAX} bytes", where=layout.PROOF)
        place, checkpoint, _ = check_proof(attachments.proof or b"", attachments.leaf, keys)
        return f"leaf {place} of the log {checkpoint.origin} says that retention erased them ({leaf.get('ts')})"


_OF = ("tenant", "run")
_MOVE = "move this file away, and the values are withheld"


def _sum(files: Files) -> str:
    hasher = sha256()
    with closing(files.chunks(layout.OPENED)) as chunks:
        for chunk in chunks:
            hasher.update(chunk)
    return hasher.hexdigest()
