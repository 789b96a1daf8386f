"""Reads secrets from AWS Secrets Manager: ``counterseal/TENANT/NAME``, its current version."""

from __future__ import annotations

import asyncio
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from connectors.keepers.local import named
from core import bounded_json
from core.errors import InputError
from core.secret_values import Secret, SecretError, Value

PREFIX = "counterseal"
# The error codes after which a later try may help.
_LATER = frozenset({"ThrottlingException", "InternalServiceError", "InternalServiceErrorException", "RequestTimeout"})


class AwsSecrets:
    """One account and region. ``client`` is boto3's; its calls block threads."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def read(self, secret: Secret) -> Value:
        """The current value; with `key`, one member of it, which must be a JSON object."""
        name = f"{PREFIX}/{secret.tenant}/{secret.place}"
        try:
            found = await asyncio.to_thread(self._client.get_secret_value, SecretId=name)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            words = f"{named(secret)}: AWS Secrets Manager answers {code} for {name}."
            remedy = "Create it, or give us the right to read it."
            raise SecretError(words, remedy=remedy, again=code in _LATER) from None
        except BotoCoreError as error:
            words = f"{named(secret)}: AWS Secrets Manager cannot be asked: {type(error).__name__}."
            raise SecretError(words, again=True) from None
        text, version = found.get("SecretString"), str(found.get("VersionId", ""))
        if isinstance(text, str) and secret.key is not None:
            try:
                text = bounded_json.parse_object(text.encode()).get(secret.key)
            except InputError:
                text = None
        if not isinstance(text, str):
            raise SecretError(f"{named(secret)}: {name} holds no text{_under(secret)}.", remedy="Name it with `key`.")
        return Value(text, version)


def _under(secret: Secret) -> str:
    return "" if secret.key is None else f" under {secret.key!r}"
