"""Pins of the reader of a bundle: the keys that are trusted, and the run, file or earlier edition to expect."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from core import bounded_json
from core.canonical import JsonObject
from core.errors import InputError
from evidence import layout
from evidence.container import CHUNK_BYTES, FILE_BYTES_MAX, Container, Files
from evidence.signing import PublicKey, open_envelope

_KEY_BYTES_MAX = 64 * 1024
FINGERPRINT_DIGITS = 64


class Pins(Struct, frozen=True):
    """The pins with which a bundle is compared. ``fingerprints`` are SHA-256 of keys' DER forms, in hexadecimal.

    ``after`` is an earlier edition, whose events are the beginning of these. With ``only``, a bundle by any other key
    fails; without it, its key counts as unknown.
    """

    keys: tuple[PublicKey, ...] = ()
    fingerprints: tuple[str, ...] = ()
    run: str | None = None
    tenant: str | None = None
    sha256: str | None = None
    after: Path | None = None
    only: bool = True

    @classmethod
    def of(
        cls,
        keys: Iterable[Path] = (),
        fingerprints: Iterable[str] = (),
        *,
        run: str | None = None,
        tenant: str | None = None,
        sha256: str | None = None,
        after: Path | None = None,
    ) -> Pins:
        """Read the keys. ``InputError`` for one that is no usable key, and for a fingerprint that is none."""
        named = tuple("".join(each.lower().split(":")) for each in fingerprints)
        for each in [*named, *([] if sha256 is None else [sha256.lower()])]:
            if len(each) != FINGERPRINT_DIGITS or set(each) - set("0123456789abcdef"):
                raise InputError(f"{each[:80]!r} is no SHA-256 in hexadecimal", where="fingerprint or sha256")
        if after is not None and not after.exists():
            raise InputError("does not exist", where=str(after))
        digest = None if sha256 is None else sha256.lower()
        return cls(tuple(map(load_key, keys)), named, run, tenant, digest, after)

    @property
    def exclusive(self) -> bool:
        """True if only keys that are trusted are accepted."""
        return self.only and bool(self.keys or self.fingerprints)

    def trusted(self, key: PublicKey) -> bool:
        """True if this key is one of those that are trusted."""
        return key.key_id in self.fingerprints or any(each.key_id == key.key_id for each in self.keys)

    def check_file(self, path: Path) -> str | None:
        """Compare the file with its SHA-256; None if none is pinned. ``InputError`` if it is another."""
        if self.sha256 is None:
            return None
        if not path.is_file():
            raise InputError("is no file, so it has no SHA-256", where=str(path))
        hasher = sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                hasher.update(chunk)
        if hasher.hexdigest() != self.sha256:
            raise InputError(f"the file's SHA-256 is {hasher.hexdigest()}, not the one that you named")
        return "the file is the one with the SHA-256 that you named"

    def check_named(self, predicate: JsonObject) -> str | None:
        """Compare run and tenant; None if neither is pinned. ``InputError`` if the bundle is of another."""
        named = {name: value for name, value in (("run", self.run), ("tenant", self.tenant)) if value is not None}
        for name, value in named.items():
            if predicate.get(name) != value:
                raise InputError(f"it is of the {name} {str(predicate.get(name))[:100]}, not of {value}")
        words = " and ".join(f"the {name}" for name in named)
        return f"it is of {words} that you named" if named else None

    def check_after(self, files: Files) -> str | None:
        """Check that the events begin with those of the earlier edition; None if none is pinned.

        ``InputError`` if they do not, or if the earlier one is not signed by a key that is trusted or inside both.
        """
        if self.after is None:
            return None
        with closing(Container(self.after)) as before:
            before.check_exact()
            key = PublicKey.from_pem(before.read(layout.PUBLIC_KEY), where=layout.PUBLIC_KEY)
            if self.exclusive and not self.trusted(key):
                raise InputError("the earlier edition is signed by a key that you do not trust")
            statement = bounded_json.parse_object(
                open_envelope(before.read(layout.ENVELOPE), layout.PAYLOAD_TYPE, key), bytes_max=FILE_BYTES_MAX
            )
            _as_signed(before, statement)
            heads = [each.read(layout.RUN_HEAD) for each in (before, files)]
            first, then = (bounded_json.parse_object(head, bytes_max=FILE_BYTES_MAX) for head in heads)
            sizes, more = first.get("appends"), then.get("appends")
            begins = isinstance(sizes, list) and isinstance(more, list) and more[: len(sizes)] == sizes
            if first.get("run") != then.get("run") or not begins or not _begins(files, before):
                raise InputError("its events do not begin with those of the earlier edition: it is another history")
            return f"its events begin with the {first.get('count')} of the earlier edition"


def _as_signed(files: Files, statement: JsonObject) -> None:
    """Check the two files that are compared against the earlier statement."""
    listed = statement.get("subject")
    digests = {
        str(one.get("name")): one.get("digest") for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    }  # fmt: skip
    for name in (layout.EVENTS, layout.RUN_HEAD):
        hasher = sha256()
        for chunk in files.chunks(name):
            hasher.update(chunk)
        if digests.get(name) != {"sha256": hasher.hexdigest()}:
            raise InputError("the earlier edition was changed since it was signed")


def _begins(files: Files, before: Files) -> bool:
    """True if the events begin with all of the earlier ones, byte for byte."""
    left, hasher, first = before.sizes[layout.EVENTS], sha256(), sha256()
    for chunk in before.chunks(layout.EVENTS):
        first.update(chunk)
    for chunk in files.chunks(layout.EVENTS):
        hasher.update(chunk[:left])
        left -= min(left, len(chunk))
        if not left:
            break
    return not left and hasher.digest() == first.digest()


def load_key(path: Path) -> PublicKey:
    """Read a PEM public key. ``InputError`` if it is none."""
    try:
        with path.open("rb") as file:
            return PublicKey.from_pem(file.read(_KEY_BYTES_MAX), where=str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
