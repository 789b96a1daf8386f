"""Reads secrets from HashiCorp Vault's key/value engine, version 2: ``GET /v1/MOUNT/data/TENANT/NAME``."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from connectors.exchange import Answer, exchange, http_url, json_of, tls
from connectors.keepers.local import named
from connectors.port import Refused
from core.secret_values import Secret, SecretError, Value

SECONDS = 5.0
_REFUSED = {
    400: "Vault does not take this request",
    403: "Vault's token may not read it",
    404: "there is none at this path",
}


class KvVault:
    """One mount. ``token`` is called for each request, so that an agent may renew the token in its file."""

    def __init__(self, url: str, mount: str, token: Callable[[], str], namespace: str | None = None) -> None:
        self._url = http_url(url, "the address of Vault", "COUNTERSEAL_VAULT_URL", "https://vault.example:8200")
        self._mount, self._token, self._namespace = mount.strip("/"), token, namespace
        self._client = httpx.AsyncClient(verify=tls(), trust_env=False)

    async def read(self, secret: Secret) -> Value:
        """The newest version of the value at the path of the tenant."""
        path = f"{str(self._url).rstrip('/')}/v1/{self._mount}/data/{secret.tenant}/{secret.place}"
        headers = {"X-Vault-Token": self._token(), "X-Vault-Request": "true"}
        headers |= {"X-Vault-Namespace": self._namespace} if self._namespace else {}
        request = self._client.build_request("GET", path, headers=headers)
        reply = await exchange(self._client, request, effect=False, timeout_seconds=SECONDS)
        body = json_of(reply, "Vault", _refusal)
        if isinstance(body, Refused):
            remedy = f"See {self._mount}/{secret.tenant} in Vault."
            raise SecretError(f"{named(secret)}: {body.message}.", remedy=remedy)
        if not isinstance(body, dict):
            words = "Vault does not answer" if isinstance(reply, Answer) else reply.message
            raise SecretError(f"{named(secret)}: {words}.", again=True)
        key = secret.key or "value"
        match body.get("data"):
            case {"data": {**found}, "metadata": {"version": int(version)}} if isinstance(found.get(key), str):
                return Value(str(found[key]), str(version))
        words = f"{named(secret)}: what Vault has there holds no text under {key!r}."
        raise SecretError(words, remedy="Name the member with `key`.")

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()


def _refusal(answer: Answer) -> Refused:
    return Refused("vault", _REFUSED.get(answer.status, f"Vault answered {answer.status}"))
