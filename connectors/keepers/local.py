"""Reads secrets from the environment and from files, and asks the other keepers. Each adds the tenant's own place.

A declaration gives only the rest of a name, so one tenant's settings can never name a value in another tenant's place.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from core.secret_values import Keeper, Secret, SecretError, Value, Vault

FILE_BYTES_MAX = 64 * 1024


class Keepers(Struct, frozen=True):
    """All keepers of this installation. ``given`` holds the environment's values by tenant and name."""

    given: Mapping[str, Mapping[str, str]]
    folder: Path
    others: Mapping[Keeper, Vault]

    async def read(self, secret: Secret) -> Value:
        """The value now, from its keeper."""
        match secret.keeper:
            case Keeper.ENVIRONMENT:
                return self._from_environment(secret)
            case Keeper.FILE:
                return await asyncio.to_thread(_of_file, self.folder / secret.tenant, secret)
        keeper = self.others.get(secret.keeper)
        if keeper is None:
            setting = "COUNTERSEAL_VAULT_URL" if secret.keeper is Keeper.VAULT else "COUNTERSEAL_AWS_REGION"
            words = f"{named(secret)} is kept by {secret.keeper}, which is not set."
            raise SecretError(words, remedy=f"Set {setting}.")
        return await keeper.read(secret)

    def _from_environment(self, secret: Secret) -> Value:
        text = self.given.get(secret.tenant, {}).get(secret.place)
        if not text:
            remedy = f"Set COUNTERSEAL_SECRETS: {{{secret.tenant!r}: {{{secret.place!r}: …}}}}."
            raise SecretError(f"{named(secret)} is not in the environment.", remedy=remedy)
        return Value(text, "environment")


def named(secret: Secret) -> str:
    """The name of a secret in messages."""
    return f"The secret {secret.name} of the tenant {secret.tenant}"


def _of_file(folder: Path, secret: Secret) -> Value:
    """The content of a file in the tenant's folder that only its owner can read, without the last line break."""
    path = folder / secret.place
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise SecretError(f"{named(secret)} leads out of {folder}.", remedy="Put the file itself there.")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
                words = f"{named(secret)}: {path} is no file that only its owner can read."
                raise SecretError(words, remedy=f"Run: chmod 600 {path}")
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        remedy = "Put its value there, or set COUNTERSEAL_SECRETS_DIR."
        raise SecretError(f"{named(secret)}: {path} cannot be read: {why}.", remedy=remedy) from None
    if len(data) > FILE_BYTES_MAX or not text.strip():
        raise SecretError(f"{named(secret)}: {path} is empty, or larger than {FILE_BYTES_MAX} bytes.")
    changed = datetime.fromtimestamp(found.st_mtime, UTC)
    return Value(text if text.startswith("-----BEGIN") else text.removesuffix("\n"), f"{changed:%Y-%m-%dT%H:%M:%SZ}")
